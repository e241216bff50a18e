package ledger_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// book is a Log on a real store with a projection that counts, a reactor that
// answers every hold with a note, and a clock that stands still.
type book struct {
	*ledger.Log
	kv *faulty
	o  ledger.Options
	t  testing.TB
}

type faulty struct {
	ledger.KV
	commit error // what the next commit fails with, after it took effect
	room   error
}

func (f *faulty) Update(fn func(ledger.Writer) error) error {
	if err := f.KV.Update(fn); err != nil {
		return err
	}
	return f.commit
}

func (f *faulty) Room(urgent bool) error {
	if urgent {
		return nil
	}
	return f.room
}

var counts = ledger.Bucket{Name: "counts"}

// counter counts records by kind and refuses the note "impossible".
type counter struct{}

func (counter) Name() string             { return "counter" }
func (counter) Buckets() []ledger.Bucket { return []ledger.Bucket{counts} }
func (counter) Apply(w ledger.Writer, r *event.Record) error {
	if b, ok := r.Body.(*event.EnvelopeAnnotated); ok {
		switch b.Note {
		case "impossible":
			return errors.New("cannot be")
		case "panic":
			panic("a defect")
		}
	}
	return w.Put(counts, []byte(r.Body.Kind()), ledger.Key(count(w, r.Body.Kind())+1))
}

func count(r ledger.Reader, k event.Kind) uint64 {
	if v := r.Get(counts, []byte(k)); v != nil {
		return ledger.Unkey(v)
	}
	return 0
}

type answerer struct{}

func (answerer) React(v ledger.View, r *event.Record) ([]event.Event, error) {
	if r.Body.Kind() != event.KindEnvelopeHeld {
		return nil, nil
	}
	return []event.Event{note1(fmt.Sprint("held ", count(v, event.KindEnvelopeHeld)))}, nil
}

func note1(s string) event.Event { return event.Event{Body: &event.EnvelopeAnnotated{Note: s}} }

func hold() event.Event { return event.Event{Body: &event.EnvelopeHeld{Why: "w"}} }

func newBook(t testing.TB) *book {
	dir := filepath.Join(tempDir(t), "data")
	if err := bolt.Create(dir); err != nil {
		t.Fatal(err)
	}
	s, err := bolt.Open(dir, bolt.Options{Command: "test", MinFree: 1, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	cleanup(t, func() { _ = s.Close() })
	skey, vkey, err := note.GenerateKey(rand.Reader, "test.example/ledger")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_700_000_000_000)
	b := &book{t: t, kv: &faulty{KV: s}, o: ledger.Options{Program: "test", Origin: "test.example/ledger", Signer: signer, VerifierKey: vkey,
		Now: func() time.Time { return now }, Projectors: []ledger.Projector{counter{}}, Reactors: []ledger.Reactor{answerer{}}}}
	b.open()
	return b
}

func tempDir(t testing.TB) string { return t.TempDir() }

func cleanup(t testing.TB, fn func()) { t.Cleanup(fn) }

func (b *book) open() {
	l, err := ledger.Open(b.kv, b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Log = l
}

func (b *book) add(events ...event.Event) (ledger.Receipt, error) {
	return b.Update(context.Background(), ledger.Request{}, func(ledger.View) ([]event.Event, error) { return events, nil })
}

// story lists kinds and notes of all records.
func (b *book) story() string {
	var out []string
	err := b.kv.View(func(r ledger.Reader) error {
		return ledger.Records(r, 1, func(rec *event.Record) bool {
			s := string(rec.Body.Kind())
			if n, ok := rec.Body.(*event.EnvelopeAnnotated); ok {
				s = n.Note
			}
			out = append(out, s)
			return true
		})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(out, " | ")
}

func TestEpochBeginsWithFirstWriteAndEndsWithClose(t *testing.T) {
	b := newBook(t)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.story(); got != "" {
		t.Errorf("a ledger that wrote nothing holds %s", got)
	}
	b.open()
	if _, err := b.add(note1("one")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.open()
	if b.NeedsRecovery() {
		t.Error("closed in order, yet recovery is asked for")
	}
	if _, err := b.add(note1("two")); err != nil {
		t.Fatal(err)
	}
	want := "ledger.created | ledger.opened | one | ledger.closed | ledger.opened | two"
	if got := b.story(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.open() // as after a kill: nobody closed
	if !b.NeedsRecovery() {
		t.Error("an unclean end was not noticed")
	}
	if _, err := b.Update(context.Background(), ledger.Request{}, func(ledger.View) ([]event.Event, error) { return nil, errors.New("no") }); err == nil {
		t.Error("a refusal was swallowed")
	}
	if got := b.story(); got != want {
		t.Errorf("a refused decision wrote: %s", got)
	}
}

func TestReactionsFollowInTheSameTransaction(t *testing.T) {
	b := newBook(t)
	rc, err := b.add(hold(), note1("own"), hold())
	if err != nil {
		t.Fatal(err)
	}
	want := "ledger.created | ledger.opened | envelope.held | held 1 | own | envelope.held | held 2"
	if got := b.story(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if rc.Last != 7 || rc.Records[len(rc.Records)-1].Actor != event.System {
		t.Errorf("receipt %d-%d", rc.First, rc.Last)
	}
}

// TestNeighboursOfAnImpossibleDecision queues good, refused, impossible,
// panicking and too large decisions while the committer is held up, so that
// they form one group.
func TestNeighboursOfAnImpossibleDecision(t *testing.T) {
	b := newBook(t)
	notes := []string{"a", "impossible", "b", "panic", strings.Repeat("x", 5000), "c"}
	errs := make([]error, len(notes))
	inside, goOn := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = b.Update(context.Background(), ledger.Request{}, func(ledger.View) ([]event.Event, error) {
			close(inside)
			<-goOn
			return nil, nil
		})
	}()
	<-inside
	var wg sync.WaitGroup
	for i, n := range notes {
		wg.Go(func() { _, errs[i] = b.add(note1("first of "+n[:1]), note1(n)) })
	}
	close(goOn)
	wg.Wait()
	for i, want := range []bool{true, false, true, false, false, true} {
		if (errs[i] == nil) != want {
			t.Errorf("decision %d: %v", i, errs[i])
		}
	}
	if !errors.Is(errs[4], event.ErrTooLarge) {
		t.Errorf("too large: %v", errs[4])
	}
	got := b.story()
	for _, n := range []string{"a", "b", "c"} {
		if !strings.Contains(got, "first of "+n+" | "+n) {
			t.Errorf("%s is missing in %s", n, got)
		}
	}
	if strings.Contains(got, "first of i") || strings.Contains(got, "first of p") || strings.Contains(got, "first of x") {
		t.Errorf("part of a refused decision was kept: %s", got)
	}
}

func TestFailedCommitIsTheEnd(t *testing.T) {
	b := newBook(t)
	b.kv.commit = fmt.Errorf("EIO: %w", ledger.ErrCommit)
	if _, err := b.add(note1("doubt")); !errors.Is(err, ledger.ErrCommit) {
		t.Errorf("got %v", err)
	}
	b.kv.commit = nil
	if _, err := b.add(note1("after")); !errors.Is(err, ledger.ErrCommit) {
		t.Errorf("a dead ledger accepted a decision: %v", err)
	}
	<-b.Dead()
	if b.Err() == nil {
		t.Error("no reason for the end")
	}
}

func TestShortOfSpaceOnlyStopsPass(t *testing.T) {
	b := newBook(t)
	b.kv.room = ledger.ErrNoSpace
	if _, err := b.add(note1("work")); !errors.Is(err, ledger.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	if _, err := b.Update(context.Background(), ledger.Request{Urgent: true}, func(ledger.View) ([]event.Event, error) {
		return []event.Event{note1("stop")}, nil
	}); err != nil {
		t.Error(err)
	}
	b.kv.room = nil
	if _, err := b.add(note1("work")); err != nil {
		t.Error(err)
	}
}

func TestCheckpoints(t *testing.T) {
	b := newBook(t)
	sizes := func() string {
		var out []uint64
		if err := b.kv.View(func(r ledger.Reader) error {
			ledger.Checkpoints(r, func(n uint64, signed []byte) bool {
				out = append(out, n)
				v, err := note.NewVerifier(b.o.VerifierKey)
				if err != nil {
					t.Fatal(err)
				}
				n1, err := note.Open(signed, note.VerifierList(v))
				if err != nil {
					t.Fatal(err)
				}
				root, err := ledger.Root(r, n)
				if err != nil || !strings.HasPrefix(n1.Text, fmt.Sprintf("test.example/ledger\n%d\n", n)) || root == (event.Digest{}) {
					t.Errorf("checkpoint %q, %v", n1.Text, err)
				}
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(out)
	}
	do := func(_ ledger.Receipt, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	do(b.add(note1("a"))) // signed at once: it created the ledger
	do(b.add(note1("b"))) // not signed
	do(b.add(event.Event{Subj: event.Subject{Gen: 1}, Body: &event.GenerationPaused{Reason: "operator"}}))
	do(b.add(note1("c")))
	if got := sizes(); got != "[3 5]" {
		t.Errorf("got %s", got)
	}
	do(ledger.Receipt{}, b.Checkpoint(context.Background()))
	do(ledger.Receipt{}, b.Checkpoint(context.Background())) // has not grown
	do(b.add(note1("d")))
	do(ledger.Receipt{}, b.Close())
	if got := sizes(); got != "[3 5 6 8]" {
		t.Errorf("got %s", got)
	}
}

// TestGroupEqualsOneByOne: the same decisions give the same bytes whether they
// are committed one by one or in groups.
func TestGroupEqualsOneByOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		decisions := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 12).Draw(rt, "decisions")
		decide := func(d int) ledger.Decide {
			return func(v ledger.View) ([]event.Event, error) {
				switch d {
				case 0:
					return []event.Event{note1(fmt.Sprint("saw ", v.Seq, count(v, event.KindEnvelopeHeld)))}, nil
				case 1:
					return []event.Event{hold(), note1("after")}, nil
				case 2:
					return nil, errors.New("refused")
				}
				return []event.Event{note1("begun"), note1("impossible")}, nil
			}
		}
		one, many := newBook(t), newBook(t)
		many.o.VerifierKey = one.o.VerifierKey
		if err := many.Close(); err != nil {
			rt.Fatal(err)
		}
		many.open()
		for _, d := range decisions {
			_, _ = one.Update(context.Background(), ledger.Request{}, decide(d))
		}
		inside, goOn := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = many.Update(context.Background(), ledger.Request{}, func(ledger.View) ([]event.Event, error) {
				close(inside)
				<-goOn
				return nil, nil
			})
		}()
		<-inside
		var wg sync.WaitGroup
		for _, d := range decisions {
			queued := many.Queued()
			wg.Go(func() { _, _ = many.Update(context.Background(), ledger.Request{}, decide(d)) })
			for many.Queued() == queued {
				time.Sleep(time.Microsecond) // yields until the decision stands in the queue
			}
		}
		close(goOn)
		wg.Wait()
		if a, b := one.bytes(), many.bytes(); !bytes.Equal(a, b) {
			rt.Fatalf("one by one\n%s\nin a group\n%s", a, b)
		}
	})
}

func (b *book) bytes() []byte {
	var out []byte
	if err := b.kv.View(func(r ledger.Reader) error {
		ledger.Lines(r, 1, func(_ uint64, line []byte) bool {
			out = append(append(out, line...), '\n')
			return true
		})
		d := ledger.StateDigest(r, b.o.Projectors)
		out = append(out, d[:]...)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestRebuildFindsEveryDifference(t *testing.T) {
	b, scratch := newBook(t), newBook(t)
	for range 5 {
		if _, err := b.add(hold(), note1("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := ledger.Rebuild(context.Background(), b.kv, scratch.kv, b.o.Projectors); err != nil {
		t.Fatal(err)
	}
	diff := func() []ledger.Difference {
		d, err := ledger.Compare(b.kv, scratch.kv, b.o.Projectors)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := diff(); len(d) != 0 {
		t.Errorf("a true state differs: %v", d)
	}
	if err := b.kv.Update(func(w ledger.Writer) error {
		return w.Put(counts, []byte(event.KindEnvelopeHeld), ledger.Key(99))
	}); err != nil {
		t.Fatal(err)
	}
	if d := diff(); len(d) != 1 || string(d[0].Key) != string(event.KindEnvelopeHeld) {
		t.Errorf("a false state was not found: %v", d)
	}
}

func TestObjects(t *testing.T) {
	b := newBook(t)
	o, digest := ledger.ObjectOf([]byte("large"))
	if err := b.Store(context.Background(), ledger.Request{}, []event.Object{o}); err != nil {
		t.Fatal(err)
	}
	get := func() ([]byte, error) {
		var v []byte
		err := b.kv.View(func(r ledger.Reader) error {
			got, err := ledger.GetObject(r, digest.String())
			v = bytes.Clone(got)
			return err
		})
		return v, err
	}
	if v, err := get(); err != nil || string(v) != "large" {
		t.Errorf("%q %v", v, err)
	}
	if got := b.story(); got != "" {
		t.Errorf("an object alone made records: %s", got)
	}
	if err := b.kv.Update(func(w ledger.Writer) error { return w.Put(ledger.BucketObject, digest[:], []byte("other")) }); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); !errors.Is(err, ledger.ErrIntegrity) {
		t.Errorf("a changed object was served: %v", err)
	}
}
