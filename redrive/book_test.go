package redrive_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/ledger/verify"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/redrive"
)

const origin = "test.example/redrive"

// tb is what the harness needs of a test; a property's T has it too.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(fn func())
}

// book is a ledger on a real store with the projectors and the reactor of
// production and a clock that only the test moves. When the test ends the whole
// ledger is verified and rebuilt.
type book struct {
	tb
	dir    string
	store  *bolt.Store
	keys   *keyfile.Keys
	stamps redrive.Stamps
	log    *ledger.Log
	now    time.Time
	actor  event.Actor
	pr     quarantine.Preparer
	last   quarantine.Receipt
}

func newBook(t testing.TB) *book { return openBook(t, t.TempDir()) }

func openBook(t tb, dir string) *book {
	t.Helper()
	b := &book{tb: t, dir: dir, now: time.UnixMilli(1_790_000_000_000), actor: event.Actor{Auth: "os", Subject: "operator"}}
	data := filepath.Join(dir, "data")
	b.ok(bolt.Create(data))
	b.ok(keyfile.Create(data, origin))
	var err error
	b.keys, err = keyfile.Open(data)
	b.ok(err)
	b.stamps = redrive.Stamps{Key: b.keys.Stamp}
	b.store, err = bolt.Open(data, bolt.Options{Command: "test", MinFree: 1, Reserve: 1})
	b.ok(err)
	t.Cleanup(func() { b.ok(b.store.Close()) })
	judge, err := quarantine.NewJudge(&policy.Policy{Version: "7", DefaultOwner: "on-call", Reasons: map[string]policy.Reason{
		"unknown_sku": {Class: event.Permanent, Owner: "catalog"}, "half_done": {Class: event.AmbiguousOutcome, Owner: "payments"}}}, nil, time.Time{})
	b.ok(err)
	b.pr = quarantine.Preparer{Rules: quarantine.DefaultRules(), Judge: judge, Keys: b.keys, Blobs: b.store, Random: rand.Reader}
	b.open()
	t.Cleanup(b.check)
	return b
}

func (b *book) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%v", err)
	}
}

func (b *book) open() {
	b.Helper()
	l, err := ledger.Open(b.store, ledger.Options{Program: "test", Origin: origin, Signer: b.keys.Signer, VerifierKey: b.keys.Verifier,
		Now: func() time.Time { return b.now }, Projectors: control.Projectors(b.keys), Reactors: []ledger.Reactor{redrive.Reactor{}}})
	b.ok(err)
	b.log = l
}

// restart ends the process, in order or not, and begins the next epoch.
func (b *book) restart(clean bool) {
	b.Helper()
	if clean {
		b.ok(b.log.Close())
	} // an unclean end leaves the committer waiting for ever, and writes nothing
	b.open()
	b.must(func(ledger.View) ([]event.Event, error) {
		return []event.Event{{Body: &event.LedgerRecovered{}}}, nil
	})
}

func (b *book) update(decide ledger.Decide) (ledger.Receipt, error) {
	return b.log.Update(context.Background(), ledger.Request{Actor: b.actor}, decide)
}

func (b *book) must(decide ledger.Decide) ledger.Receipt {
	b.Helper()
	rc, err := b.update(decide)
	b.ok(err)
	return rc
}

func (b *book) view(fn func(v ledger.View)) {
	b.Helper()
	b.ok(b.log.View(func(v ledger.View) error { fn(v); return nil }))
}

func (b *book) gen(no event.GenerationNo) (g *redrive.Generation) {
	b.Helper()
	b.view(func(v ledger.View) {
		var err error
		g, err = redrive.Get(v, no)
		b.ok(err)
	})
	return g
}

func (b *book) member(no event.GenerationNo, pos event.Position) (m redrive.Member) {
	b.Helper()
	b.view(func(v ledger.View) { m = redrive.GetMember(v, no, pos) })
	return m
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

func (b *book) custody(no event.EnvelopeNo, want event.Custody) {
	b.Helper()
	if got := b.cell(no).Custody; got != want {
		b.Fatalf("envelope %d is %s, want %s", no, got, want)
	}
}

func (b *book) state(no event.GenerationNo, want event.State) *redrive.Generation {
	b.Helper()
	g := b.gen(no)
	if g.State != want {
		b.Fatalf("generation %d is %s, want %s (%v)", no, g.State, want, g.Pauses)
	}
	return g
}

// check is what must hold at the end of every test: both sums of the tally,
// counters that equal a recount, a rebuild that equals the live state, and a
// ledger that an independent reader accepts with all its laws.
func (b *book) check() {
	b.Helper()
	b.ok(b.log.Checkpoint(context.Background()))
	b.laws()
	scratch := filepath.Join(b.dir, fmt.Sprintf("scratch%d", b.now.UnixNano()))
	b.ok(bolt.Create(scratch))
	kv, err := bolt.Open(scratch, bolt.Options{Command: "test", MinFree: 1, Reserve: 1})
	b.ok(err)
	defer func() { b.ok(kv.Close()); b.ok(os.RemoveAll(scratch)) }()
	ps := control.Projectors(b.keys)
	b.ok(ledger.Rebuild(context.Background(), b.store, kv, ps))
	diffs, err := ledger.Compare(b.store, kv, ps)
	b.ok(err)
	for _, d := range diffs {
		b.Errorf("rebuilt state differs: %s %s at %x", d.Projector, d.Bucket, d.Key)
	}
	src, err := control.NewStoreSource(b.store, b.keys, b.store, origin, b.keys.Verifier)
	b.ok(err)
	rep, err := verify.Verify(context.Background(), src, verify.Options{Pub: b.keys.Verifier, Replay: true, Payloads: true, References: control.References})
	b.ok(err)
	if rep.ExitCode() != 0 {
		b.Errorf("verify: %s: %v %v", rep.Verdict(), rep.Findings, rep.Incomplete)
	}
}

// laws checks the sums of every generation, and that no envelope is in two
// open ones.
func (b *book) laws() {
	b.Helper()
	b.view(func(v ledger.View) {
		gens, err := redrive.All(v)
		b.ok(err)
		holder := map[event.EnvelopeNo]event.GenerationNo{}
		for _, g := range gens {
			if _, err := g.Tally(); err != nil {
				b.Errorf("%v", err)
			}
			if got := redrive.Recount(v, g); got != g.Counts {
				b.Errorf("generation %d counts %v, recounted %v", g.No, g.Counts, got)
			}
			if !g.State.Open() {
				continue
			}
			b.ok(redrive.EachMember(v, g, func(_ event.Position, env event.EnvelopeNo) error {
				if other, taken := holder[env]; taken {
					b.Errorf("envelope %d is in generations %d and %d, both open", env, other, g.No)
				}
				holder[env] = g.No
				return nil
			}))
		}
	})
}

// id makes a ULID that is new in this store.
func (b *book) id() string { return ulid.MustNew(ulid.Timestamp(b.now), rand.Reader).String() }

// resumption is a resume by somebody who did not plan, has looked again, and
// waited long enough.
func (b *book) resumption(v ledger.View, no event.GenerationNo, why string) ([]event.Event, error) {
	g, err := redrive.Get(v, no)
	if err != nil {
		return nil, err
	}
	return redrive.Resume(v, no, redrive.Resumption{By: event.Actor{Auth: "os", Subject: "another"}, Why: why, Digest: g.Manifest, HoldDown: -1})
}
