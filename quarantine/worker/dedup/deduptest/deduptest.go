// Package deduptest is the suite that every store of operations and parked keys
// passes.
package deduptest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/quarantine/worker"
)

// Store is what the suite tests.
type Store interface {
	worker.Inbox
	worker.Keys
}

// Run runs the suite. Open opens the same store each time it is called with the
// same t, and keeps what it holds.
func Run(t *testing.T, open func(t *testing.T, horizon time.Duration) Store) {
	start := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	at := func(d time.Duration) worker.Operation {
		return worker.Operation{ID: "order-7", Fingerprint: [16]byte{7}, Now: start.Add(d)}
	}
	begin := func(t *testing.T, s Store, op worker.Operation, want worker.Seen) {
		t.Helper()
		if got, err := s.Begin(t.Context(), op); err != nil || got != want {
			t.Errorf("begin: %+v, %v; want %+v", got, err, want)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	t.Run("life of an operation", func(t *testing.T) {
		s := open(t, time.Hour)
		begin(t, s, at(0), worker.Seen{State: worker.SeenNew})
		begin(t, s, at(1), worker.Seen{State: worker.SeenBegun})
		must(t, s.Forget(t.Context(), at(2)))
		begin(t, s, at(3), worker.Seen{State: worker.SeenNew})
		must(t, s.Done(t.Context(), at(4), "shipment 9"))
		begin(t, s, at(5), worker.Seen{State: worker.SeenDone, Effect: "shipment 9"})
		must(t, s.Forget(t.Context(), at(6))) // done stays done
		must(t, s.Done(t.Context(), at(7), "another"))
		begin(t, s, at(8), worker.Seen{State: worker.SeenDone, Effect: "shipment 9"})
	})
	t.Run("another meaning", func(t *testing.T) {
		s := open(t, time.Hour)
		begin(t, s, at(0), worker.Seen{State: worker.SeenNew})
		other := at(1)
		other.Fingerprint[0]++
		begin(t, s, other, worker.Seen{State: worker.SeenConflict})
		must(t, s.Forget(t.Context(), other)) // is not its to forget
		begin(t, s, at(2), worker.Seen{State: worker.SeenBegun})
		must(t, s.Done(t.Context(), at(3), ""))
		begin(t, s, other, worker.Seen{State: worker.SeenConflict})
	})
	t.Run("horizon", func(t *testing.T) {
		s := open(t, time.Hour)
		begin(t, s, at(0), worker.Seen{State: worker.SeenNew})
		must(t, s.Done(t.Context(), at(time.Minute), "x"))
		begin(t, s, at(61*time.Minute), worker.Seen{State: worker.SeenDone, Effect: "x"})
		begin(t, s, at(62*time.Minute), worker.Seen{State: worker.SeenNew})
		// Many old ones go a few at a time.
		for i := range 100 {
			op := at(0)
			op.ID = fmt.Sprint("old-", i)
			begin(t, s, op, worker.Seen{State: worker.SeenNew})
		}
		for i := range 10 {
			op := at(3 * time.Hour)
			op.ID = fmt.Sprint("new-", i)
			begin(t, s, op, worker.Seen{State: worker.SeenNew})
		}
		op := at(0) // asked as of then, it would still be known
		op.ID = "old-99"
		begin(t, s, op, worker.Seen{State: worker.SeenNew})
	})
	t.Run("survives", func(t *testing.T) {
		s := open(t, time.Hour)
		must(t, s.Done(t.Context(), at(0), "x"))
		must(t, s.Park(t.Context(), "q", "k", start))
		s = open(t, time.Hour)
		begin(t, s, at(1), worker.Seen{State: worker.SeenDone, Effect: "x"})
		if parked, err := s.Parked(t.Context(), "q", "k"); err != nil || !parked {
			t.Errorf("%v, %v", parked, err)
		}
	})
	t.Run("keys", func(t *testing.T) {
		s := open(t, time.Hour)
		parked := func(queue, key string, want bool) {
			t.Helper()
			if got, err := s.Parked(t.Context(), queue, key); err != nil || got != want {
				t.Errorf("%s %s: %v, %v", queue, key, got, err)
			}
		}
		parked("q", "k", false)
		must(t, s.Park(t.Context(), "q", "k", start))
		must(t, s.Park(t.Context(), "q", "k", start))
		parked("q", "k", true)
		parked("qk", "", false)
		parked("other", "k", false)
		must(t, s.Clear(t.Context(), "q", "k"))
		must(t, s.Clear(t.Context(), "q", "k"))
		parked("q", "k", false)
	})
	t.Run("many at once", func(t *testing.T) {
		s := open(t, time.Hour)
		var all sync.WaitGroup
		news := make(chan worker.SeenState, 32)
		for range cap(news) {
			all.Go(func() {
				seen, err := s.Begin(t.Context(), at(0))
				if err != nil {
					t.Error(err)
				}
				news <- seen.State
			})
		}
		all.Wait()
		close(news)
		n := 0
		for state := range news {
			if state == worker.SeenNew {
				n++
			} else if state != worker.SeenBegun {
				t.Errorf("%s", state)
			}
		}
		if n != 1 {
			t.Errorf("%d of %d began it first", n, cap(news))
		}
	})
}
