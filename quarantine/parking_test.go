package quarantine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

func (b *book) record(bodies ...event.Body) {
	b.Helper()
	b.must(func(ledger.View) (out []event.Event, _ error) {
		for _, body := range bodies {
			out = append(out, event.Event{Body: body})
		}
		return out, nil
	})
}

func (b *book) spent(queue string) (n uint64) {
	b.Helper()
	b.view(func(v ledger.View) { n = quarantine.Spent(v, queue) })
	return n
}

// A parked queue is known with its reason and its time until it is unparked,
// and parking again replaces both.
func TestParkedQueues(t *testing.T) {
	b := newBook(t)
	parked := func() (out []string) {
		b.view(func(v ledger.View) {
			all, err := quarantine.ParkedQueues(v)
			b.ok(err)
			for _, p := range all {
				one, ok, err := quarantine.Parked(v, p.Queue)
				b.ok(err)
				if !ok || one != p || p.Since.UnixMilli() != b.now.UnixMilli() {
					t.Errorf("%+v is listed, and looked up as %+v at %v", p, one, b.now)
				}
				out = append(out, fmt.Sprintf("%s: %s, %s", p.Queue, p.Reason, p.Why))
			}
			if _, ok, err := quarantine.Parked(v, "never seen"); ok || err != nil {
				t.Errorf("a queue that nobody parked: %v, %v", ok, err)
			}
		})
		return out
	}
	if got := parked(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	b.record(&event.SourceParked{Queue: "r", Reason: "sessions_lost", Why: "three"},
		&event.SourceParked{Queue: "q", Reason: "sessions_lost"}, &event.SourceParked{Queue: "q", Reason: "cannot_be_stored", Why: "large"})
	if got, want := parked(), []string{"q: cannot_be_stored, large", "r: sessions_lost, three"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	b.record(&event.SourceUnparked{Queue: "q"})
	if got, want := parked(), []string{"r: sessions_lost, three"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What a queue has spent is forgotten with the first recorded settlement of
// that queue, and of no other one.
func TestSpentUntilSomethingIsSettled(t *testing.T) {
	b := newBook(t)
	nos := b.orders(2)
	b.record(&event.SourceSpent{Queue: "orders.dlq", Deliveries: 2}, &event.SourceSpent{Queue: "other", Deliveries: 1})
	if n, m := b.spent("orders.dlq"), b.spent("other"); n != 2 || m != 1 {
		t.Errorf("spent %d and %d, want 2 and 1", n, m)
	}
	b.must(func(ledger.View) ([]event.Event, error) { return quarantine.SettledEvents(event.RangesOf(nos[0])), nil })
	if n, m := b.spent("orders.dlq"), b.spent("other"); n != 0 || m != 1 {
		t.Errorf("after a settlement %d and %d, want 0 and 1", n, m)
	}
	b.record(&event.SourceSpent{Queue: "other"})
	if n := b.spent("other"); n != 0 {
		t.Errorf("taken back to %d", n)
	}
}

// Whoever unparks a queue gets one try, and not as many as at first.
func TestUnparkedIsTriedOnce(t *testing.T) {
	b := newBook(t)
	b.record(&event.SourceSpent{Queue: "q", Deliveries: 9}, &event.SourceParked{Queue: "q", Reason: "sessions_lost"},
		&event.SourceUnparked{Queue: "q"})
	if n := b.spent("q"); n != quarantine.MaxSpent-1 {
		t.Errorf("spent %d, want %d", n, quarantine.MaxSpent-1)
	}
	b.record(&event.SourceSpent{Queue: "r", Deliveries: 1}, &event.SourceUnparked{Queue: "r"})
	if n := b.spent("r"); n != 1 {
		t.Errorf("spent %d, want 1", n)
	}
}
