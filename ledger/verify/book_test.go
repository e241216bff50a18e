package verify

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"iter"
	"testing"

	sumnote "golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/redrivehq/redrive/ledger/event"
)

const origin = "redrive.test/ledger"

// signer makes a key from a seed, in the words of the note package: it is the
// oracle for ours.
type signer struct {
	sumnote.Signer
	private ed25519.PrivateKey
	pub     string
}

func newSigner(tb testing.TB, seed byte) signer {
	tb.Helper()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	pub, err := sumnote.NewEd25519VerifierKey(origin, private.Public().(ed25519.PublicKey))
	if err != nil {
		tb.Fatal(err)
	}
	raw := append([]byte{algEd25519}, private.Public().(ed25519.PublicKey)...)
	id := sha256.Sum256(append([]byte(origin+"\n"), raw...))
	skey := fmt.Sprintf("PRIVATE+KEY+%s+%s+%s", origin, hex.EncodeToString(id[:4]),
		base64.StdEncoding.EncodeToString(append([]byte{algEd25519}, private.Seed()...)))
	s, err := sumnote.NewSigner(skey)
	if err != nil {
		tb.Fatal(err)
	}
	return signer{Signer: s, private: private, pub: pub}
}

func (s signer) sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.private, msg), nil }

// book is a ledger in memory that is written line by line. It writes whatever
// it is told to, legal or not.
type book struct {
	tb      testing.TB
	key     signer
	held    string // what Key returns, the key when empty
	next    event.Record
	lines   [][]byte
	hashes  []tlog.Hash // as stored by tlog, the oracle of the tree
	notes   [][]byte
	objects map[event.Digest][]byte
	ext     Extent
	stored  []event.Digest // what Hashes yields
}

// newBook begins a ledger: created and opened.
func newBook(tb testing.TB) *book {
	tb.Helper()
	b := &book{tb: tb, key: newSigner(tb, 1), objects: map[event.Digest][]byte{}}
	b.next = event.Record{TS: 1_700_000_000_000, Epoch: 1, Actor: event.System}
	b.add(0, &event.LedgerCreated{Key: b.key.pub, Origin: origin})
	b.add(0, &event.LedgerOpened{Program: "0.1"})
	return b
}

// wait lets time pass.
func (b *book) wait(ms uint64) {
	b.next.TS += ms
	b.next.Mono += ms
}

// add writes a record about a generation, 0 for none, and returns its seq.
func (b *book) add(gen event.GenerationNo, body event.Body) uint64 {
	return b.put(event.Subject{Gen: gen}, body)
}

func (b *book) put(subj event.Subject, body event.Body) uint64 {
	r := b.next
	r.Seq, r.Subj, r.Body = uint64(len(b.lines))+1, subj, body
	return b.write(&r)
}

func (b *book) write(r *event.Record) uint64 {
	line, err := r.AppendLine(nil)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.raw(line)
	return r.Seq
}

// raw adds a line as it is.
func (b *book) raw(line []byte) {
	b.lines = append(b.lines, line)
	b.next.Prev = event.HashLine(line)
	more, err := tlog.StoredHashes(int64(len(b.lines))-1, line, b.reader())
	if err != nil {
		b.tb.Fatal(err)
	}
	b.hashes = append(b.hashes, more...)
	b.stored = append(b.stored, event.HashLine(line))
}

func (b *book) reader() tlog.HashReaderFunc {
	return func(at []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(at))
		for i, x := range at {
			out[i] = b.hashes[x]
		}
		return out, nil
	}
}

func (b *book) root() tlog.Hash {
	h, err := tlog.TreeHash(int64(len(b.lines)), b.reader())
	if err != nil {
		b.tb.Fatal(err)
	}
	return h
}

// checkpoint signs what is there.
func (b *book) checkpoint() {
	b.notes = append(b.notes, b.signed(fmt.Sprintf("%s\n%d\n%s\n", origin, len(b.lines), b.root())))
}

func (b *book) signed(text string) []byte {
	msg, err := sumnote.Sign(&sumnote.Note{Text: text}, b.key)
	if err != nil {
		b.tb.Fatal(err)
	}
	return msg
}

// object stores data and returns its name.
func (b *book) object(data string) string {
	d := event.Digest(sha256.Sum256([]byte(data)))
	b.objects[d] = []byte(data)
	return d.String()
}

func (b *book) Extent() Extent { return b.ext }

func (b *book) Key() string {
	if b.held != "" {
		return b.held
	}
	return b.key.pub
}

func each[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func (b *book) Records(context.Context) iter.Seq2[[]byte, error] { return each(b.lines) }

func (b *book) Hashes(context.Context) iter.Seq2[event.Digest, error] { return each(b.stored) }

func (b *book) Checkpoints(context.Context) iter.Seq2[[]byte, error] { return each(b.notes) }

func (b *book) Object(_ context.Context, d event.Digest) ([]byte, error) {
	if data, ok := b.objects[d]; ok {
		return data, nil
	}
	return nil, ErrNoObject
}

// verify runs Verify and requires that the source could be read.
func (b *book) verify(opt Options) *Report {
	b.tb.Helper()
	rep, err := Verify(context.Background(), b, opt)
	if err != nil {
		b.tb.Fatal(err)
	}
	return rep
}

// capture takes in n envelopes.
func (b *book) capture(first, n uint64) uint64 {
	return b.put(event.Subject{Env: event.EnvelopeNo(first)}, &event.EnvelopeCaptured{Bytes: 10 * n, Count: n,
		List: b.object(fmt.Sprintf("list %d+%d", first, n)), Queue: "orders.fulfillment.dlq"})
}

var limits = event.Limits{Burst: 10, Exposure: 20, RateMilli: 100_000, Window: 4}

// plan freezes generation gen with ten members in stages of 2, 5, 10, one
// deduplicated and two withheld.
func (b *book) plan(gen event.GenerationNo) *event.GenerationPlanned {
	p := &event.GenerationPlanned{Deduplicated: 1, Limits: limits, Manifest: b.manifest(gen), Members: 10,
		Stages: []uint64{2, 5, 10}, Withheld: 2}
	b.add(gen, p)
	return p
}

func (b *book) manifest(gen event.GenerationNo) string {
	return b.object(fmt.Sprintf("manifest %d", gen))
}

func (b *book) approve(gen event.GenerationNo) {
	b.add(gen, &event.GenerationApproved{Expires: b.next.TS + day, Manifest: b.manifest(gen)})
}

func (b *book) start(gen event.GenerationNo) {
	b.add(gen, &event.GenerationStarted{Manifest: b.manifest(gen)})
}

// run brings a new ledger to a running generation 1 with all stages open.
func running(tb testing.TB) *book {
	tb.Helper()
	b := newBook(tb)
	b.capture(1, 13)
	b.plan(1)
	b.approve(1)
	b.start(1)
	b.wait(1000)
	b.add(1, &event.GenerationAdvanced{Stage: 1, Why: "baked"})
	b.add(1, &event.GenerationAdvanced{Stage: 2, Why: "baked"})
	return b
}

func pos(ns ...uint64) event.Ranges { return event.RangesOf(ns...) }

func (b *book) intend(t event.Try, ns ...uint64) uint64 {
	return b.add(1, &event.MemberIntended{Pos: pos(ns...), Try: t})
}

func (b *book) resolve(res event.Resolution, t event.Try, ns ...uint64) uint64 {
	return b.add(1, &event.MemberResolved{Pos: pos(ns...), Resolution: res, Try: t})
}

// moved intends and confirms.
func (b *book) moved(ns ...uint64) {
	b.intend(1, ns...)
	b.resolve(event.Confirmed, 1, ns...)
}

func (b *book) outcome(o event.Outcome, t event.Try, ns ...uint64) uint64 {
	return b.add(1, &event.OutcomeReported{Outcome: o, Pos: pos(ns...), Try: t, Via: "broker"})
}

// back lets member p of generation 1, which is envelope p+1, come back as a new
// envelope.
func (b *book) back(child event.EnvelopeNo, p event.Position, t event.Try, again uint8) uint64 {
	return b.put(event.Subject{Env: child, Gen: 1}, &event.EnvelopeReturned{Again: again, Parent: event.EnvelopeNo(p) + 1, Pos: p, Try: t})
}
