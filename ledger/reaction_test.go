package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// echo answers the note "x>y+z" with the notes "y" and "z", and each of them
// with what stands behind its own next arrow.
type echo struct{ name string }

func (e echo) React(v ledger.View, r *event.Record) ([]event.Event, error) {
	b, ok := r.Body.(*event.EnvelopeAnnotated)
	if !ok {
		return nil, nil
	}
	var out []event.Event
	if head, rest, answers := strings.Cut(b.Note, ">"); answers && strings.HasPrefix(head, e.name) {
		for text := range strings.SplitSeq(rest, "+") {
			out = append(out, note1(text))
		}
	}
	return out, nil
}

// Answers follow their record at once, with all that follows from them, before
// what the decision still has; of several reactors in their order.
func TestAnswersComeBeforeTheRestOfTheDecision(t *testing.T) {
	b := newBook(t)
	b.o.Reactors = []ledger.Reactor{echo{"a"}, echo{"ab"}, answerer{}}
	b.open()
	if _, err := b.add(note1("ab>a>x+y"), hold(), note1("last")); err != nil {
		t.Fatal(err)
	}
	// The first reactor and the second both answer "ab>…" with two notes, and
	// the first one answers "a>x" in turn.
	want := "ledger.created | ledger.opened | ab>a>x+y | a>x | x | y | a>x | x | y | envelope.held | held 1 | last"
	if got := b.story(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// lamp is a projection that is lit by the n-th hold; whatever lights it again
// is refused, and its reactor lights it when enough is held.
type lamp struct{ n uint64 }

var bucketLamp = ledger.Bucket{Name: "lamp"}

func (lamp) Name() string             { return "lamp" }
func (lamp) Buckets() []ledger.Bucket { return []ledger.Bucket{bucketLamp} }
func (lamp) Apply(w ledger.Writer, r *event.Record) error {
	if b, ok := r.Body.(*event.EnvelopeAnnotated); !ok || b.Note != "lit" {
		return nil
	}
	if w.Get(bucketLamp, []byte("lit")) != nil {
		return errors.New("lit already")
	}
	return w.Put(bucketLamp, []byte("lit"), []byte{1})
}

func (l lamp) React(v ledger.View, r *event.Record) ([]event.Event, error) {
	if r.Body.Kind() != event.KindEnvelopeHeld || count(v, event.KindEnvelopeHeld) < l.n || v.Get(bucketLamp, []byte("lit")) != nil {
		return nil, nil
	}
	return []event.Event{note1("lit")}, nil
}

// A decision that goes on behind the fact that ends something is no
// contradiction: the next fact finds it ended.
func TestFactsBehindTheLastOne(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		l := lamp{n: 1 + rnd.Uint64N(5)}
		b := newBook(t)
		b.o.Projectors = append(b.o.Projectors, l)
		b.o.Reactors = []ledger.Reactor{l}
		b.open()
		var want []string
		for held := uint64(0); held < 12; {
			var decision []event.Event
			for range 1 + rnd.IntN(6) {
				decision = append(decision, hold())
				want = append(want, "envelope.held")
				if held++; held == l.n {
					want = append(want, "lit")
				}
			}
			if _, err := b.add(decision...); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if got := strings.Join(want, " | "); !strings.HasSuffix(b.story(), "ledger.opened | "+got) {
			t.Fatalf("seed %d: got  %s\nwant … %s", seed, b.story(), got)
		}
	}
}

// restless answers every note with another one.
type restless struct{}

func (restless) React(_ ledger.View, r *event.Record) ([]event.Event, error) {
	if _, ok := r.Body.(*event.EnvelopeAnnotated); !ok {
		return nil, nil
	}
	return []event.Event{note1("again")}, nil
}

// Reactors that answer each other without end refuse the decision, and leave
// nothing of it.
func TestAnswersWithoutEnd(t *testing.T) {
	b := newBook(t)
	b.o.Reactors = []ledger.Reactor{restless{}}
	b.open()
	if _, err := b.add(hold()); err != nil {
		t.Fatal(err)
	}
	before := b.story()
	if _, err := b.add(hold(), note1("one")); !errors.Is(err, ledger.ErrIntegrity) {
		t.Errorf("got %v", err)
	}
	if got := b.story(); got != before {
		t.Errorf("it left %s", strings.TrimPrefix(got, before))
	}
	if _, err := b.add(hold()); err != nil {
		t.Errorf("the next decision: %v", err)
	}
}

// Whoever asks later in an epoch still learns that it began uncleanly.
func TestRecoveryIsNeededForTheWholeEpoch(t *testing.T) {
	b := newBook(t)
	for epoch := range 3 {
		b.open()
		for i := range 2 {
			if b.NeedsRecovery() != (epoch > 0) {
				t.Errorf("epoch %d, after %d records: recovery needed is %v", epoch, i, b.NeedsRecovery())
			}
			if _, err := b.add(note1(fmt.Sprint(epoch, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
}
