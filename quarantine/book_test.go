package quarantine_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

var here = quarantine.Origin{Cluster: "c1", VHost: "/"}

const origin = "test.example/quarantine"

// tb is what the harness needs of a test; a property's T has it too.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(fn func())
}

// book is a quarantine on a real store, without generations: what they would
// know is in releases.
type book struct {
	tb
	dir      string
	store    *bolt.Store
	keys     *keyfile.Keys
	log      *ledger.Log
	now      time.Time
	pr       quarantine.Preparer
	releases releases
	reserved map[event.EnvelopeNo]event.GenerationNo
	last     quarantine.Receipt
	rough    bool   // the state was changed by hand, and the ledger does not know
	from     string // queue of deliveries. Defaults to orders.dlq
}

func newBook(t testing.TB) *book { return openBook(t, t.TempDir()) }

func openBook(t tb, dir string) *book {
	t.Helper()
	b := &book{tb: t, dir: dir, now: time.UnixMilli(1_790_000_000_000), reserved: map[event.EnvelopeNo]event.GenerationNo{}}
	data := filepath.Join(dir, "data")
	b.ok(bolt.Create(data))
	b.ok(keyfile.Create(data, origin))
	var err error
	b.keys, err = keyfile.Open(data)
	b.ok(err)
	b.store, err = bolt.Open(data, bolt.Options{Command: "test", MinFree: 1, Reserve: 1})
	b.ok(err)
	t.Cleanup(func() { b.ok(b.store.Close()) })
	b.releases = releases{key: b.keys.Stamp, of: map[stamp.Stamp]quarantine.Release{}}
	judge, err := quarantine.NewJudge(&policy.Policy{Version: "7", DefaultOwner: "on-call", Reasons: map[string]policy.Reason{
		"unknown_sku": {Class: event.Permanent, Owner: "catalog"}, "timeout": {Class: event.Transient}}}, nil, time.Time{})
	b.ok(err)
	b.pr = quarantine.Preparer{Rules: quarantine.DefaultRules(), Judge: judge, Keys: b.keys, Blobs: b.store, Random: rand.Reader}
	b.log, err = ledger.Open(b.store, ledger.Options{Program: "test", Origin: origin, Signer: b.keys.Signer, VerifierKey: b.keys.Verifier,
		Now: func() time.Time { return b.now }, Projectors: b.projectors()})
	b.ok(err)
	t.Cleanup(b.check)
	return b
}

func (b *book) projectors() []ledger.Projector {
	return []ledger.Projector{quarantine.Projector{Keys: b.keys}}
}

func (b *book) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%v", err)
	}
}

// check rebuilds the state from the ledger, compares it with the live one, and
// opens every original that should be there against its commitment.
func (b *book) check() {
	b.Helper()
	if b.rough {
		return
	}
	scratch := filepath.Join(b.dir, "scratch")
	b.ok(bolt.Create(scratch))
	kv, err := bolt.Open(scratch, bolt.Options{Command: "test", MinFree: 1, Reserve: 1})
	b.ok(err)
	defer func() { b.ok(kv.Close()); b.ok(os.RemoveAll(scratch)) }()
	b.ok(ledger.Rebuild(context.Background(), b.store, kv, b.projectors()))
	diffs, err := ledger.Compare(b.store, kv, b.projectors())
	b.ok(err)
	for _, d := range diffs {
		b.Errorf("rebuilt state differs: %s at %x", d.Bucket, d.Key)
	}
	b.view(b.commitments)
}

// commitments holds every original against the capture list of its batch.
func (b *book) commitments(v ledger.View) {
	b.ok(ledger.Records(v, 1, func(r *event.Record) bool {
		c, ok := r.Body.(*event.EnvelopeCaptured)
		if !ok {
			return true
		}
		object, err := ledger.GetObject(v, c.List)
		b.ok(err)
		list, err := quarantine.ParseCaptureList(object)
		b.ok(err)
		if uint64(len(list)) != c.Count {
			b.Errorf("%d entries for %d envelopes", len(list), c.Count)
		}
		for i, e := range list {
			no := r.Subj.Env + event.EnvelopeNo(i)
			if cell, _ := quarantine.GetCell(v, no); cell.Flags.Has(quarantine.PayloadGone) {
				continue
			}
			got, err := quarantine.Commitment(v, b.keys, b.store, no)
			if err != nil || got != e.Commitment {
				b.Errorf("commitment of envelope %d: %v", no, err)
			}
		}
		return true
	}))
}

func (b *book) view(fn func(v ledger.View)) {
	b.Helper()
	b.ok(b.log.View(func(v ledger.View) error { fn(v); return nil }))
}

func (b *book) update(decide ledger.Decide) (ledger.Receipt, error) {
	return b.log.Update(context.Background(), ledger.Request{Actor: event.Actor{Auth: "os", Subject: "operator"}}, decide)
}

func (b *book) must(decide ledger.Decide) ledger.Receipt {
	b.Helper()
	rc, err := b.update(decide)
	b.ok(err)
	return rc
}

func (b *book) facts(no event.EnvelopeNo) (f *quarantine.Facts) {
	b.Helper()
	b.view(func(v ledger.View) {
		var err error
		f, err = quarantine.GetFacts(v, no)
		b.ok(err)
	})
	return f
}

func (b *book) cell(no event.EnvelopeNo) (c quarantine.Cell) {
	b.Helper()
	b.view(func(v ledger.View) {
		var ok bool
		if c, ok = quarantine.GetCell(v, no); !ok {
			b.Fatalf("envelope %d does not exist", no)
		}
	})
	return c
}

func (b *book) original(no event.EnvelopeNo) (o *quarantine.Original, err error) {
	b.Helper()
	b.view(func(v ledger.View) { o, err = quarantine.GetOriginal(v, b.keys, b.store, no) })
	return o, err
}

// delivery is a message with the given body and properties.
func (b *book) delivery(body string, v amqpwire.View) quarantine.Delivery {
	b.Helper()
	if len(v.Headers) > 0 {
		v.Present |= amqpwire.Headers
	}
	props, err := amqpwire.Build(v)
	b.ok(err)
	b.last++
	return quarantine.Delivery{Receipt: b.last, Queue: cmp.Or(b.from, "orders.dlq"), Exchange: "ex", RoutingKey: "rk", Properties: props,
		Body: []byte(body), DeliveryCount: -1}
}

func texts(pairs ...string) (out []amqpwire.Field) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, amqpwire.StringField(pairs[i], pairs[i+1]))
	}
	return out
}

func headers(pairs ...string) amqpwire.View { return amqpwire.View{Headers: texts(pairs...)} }

func (b *book) prepare(d quarantine.Delivery) *quarantine.Prepared {
	b.Helper()
	p, err := b.pr.Prepare(d, here, b.now)
	b.ok(err)
	return p
}

// capture takes deliveries in one batch.
func (b *book) capture(ds ...quarantine.Delivery) (nos []event.EnvelopeNo, rc ledger.Receipt) {
	b.Helper()
	var batch quarantine.Batch
	for _, d := range ds {
		batch.New = append(batch.New, b.prepare(d))
	}
	return b.captured(batch)
}

func (b *book) captured(batch quarantine.Batch) (nos []event.EnvelopeNo, rc ledger.Receipt) {
	b.Helper()
	var first event.EnvelopeNo
	rc = b.must(func(v ledger.View) ([]event.Event, error) {
		first = quarantine.Count(v) + 1
		return quarantine.Capture(v, b.keys, batch, b.releases)
	})
	for i := range batch.New {
		nos = append(nos, first+event.EnvelopeNo(i))
	}
	return nos, rc
}

// orders captures n messages that differ.
func (b *book) orders(n int) []event.EnvelopeNo {
	b.Helper()
	var ds []quarantine.Delivery
	for i := range n {
		ds = append(ds, b.delivery(fmt.Sprint(b.last), headers("x-operation-id", fmt.Sprint("op", b.last, i), "x-death-reason", "unknown_sku")))
	}
	nos, _ := b.capture(ds...)
	return nos
}

// releases answers for stamps as a book of generations would.
type releases struct {
	key stamp.Key
	of  map[stamp.Stamp]quarantine.Release
}

func (r releases) Find(_ ledger.Reader, s stamp.Stamp) (quarantine.Release, bool, error) {
	rel, ok := r.of[s]
	return rel, ok, nil
}

func (r releases) Verify(s stamp.Stamp, rel quarantine.Release, mac stamp.MAC) bool {
	return r.key.Verify(s, rel.Exchange, rel.RoutingKey, mac)
}

func (b *book) isReserved(no event.EnvelopeNo) event.GenerationNo { return b.reserved[no] }
