package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// sources lists what the ledger says about queues.
func (w *world) sources() (out []string) {
	w.Helper()
	must(w, w.store.View(func(r ledger.Reader) error {
		return ledger.Records(r, 1, func(rec *event.Record) bool {
			switch b := rec.Body.(type) {
			case *event.SourceSpent:
				out = append(out, fmt.Sprintf("%s %d", b.Queue, b.Deliveries))
			case *event.SourceParked:
				out = append(out, b.Queue+" parked "+b.Reason)
			case *event.SourceUnparked:
				out = append(out, b.Queue+" unparked")
			}
			return true
		})
	}))
	return out
}

func (w *world) size() (n uint64) {
	w.Helper()
	must(w, w.store.View(func(r ledger.Reader) error { n = ledger.Size(r); return nil }))
	return n
}

// ready says how many messages the broker counts in a queue.
func (w *world) ready(queue string, n int) {
	w.pond.mu.Lock()
	defer w.pond.mu.Unlock()
	if w.pond.ready == nil {
		w.pond.ready = map[string]int{}
	}
	w.pond.ready[queue] = n
}

// last is a visit after which the broker counts nothing in a queue any more.
// It is made while the pond is locked.
func (w *world) last(queue string, v func() *visit) func() *visit {
	return func() *visit { w.pond.ready[queue] = 0; return v() }
}

// dies makes the process die in the n-th commit from now: nothing of it is
// written, and the ledger can only be read by a process that starts afresh.
func (w *world) dies(n int) {
	w.kv.onCommit(func() error {
		if n--; n == 0 {
			return errors.New("killed")
		}
		return nil
	})
}

// A process that dies again and again before it has settled anything spends a
// delivery of the head of the queue each time. It leaves a mark before each,
// and is not let in once more after three.
func TestDyingBeforeAnySettlementParks(t *testing.T) {
	for name, ready := range map[string]int{"ready by the broker's word": 5, "unknown": -1, "ready against the broker's word": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ready("q", ready)
			w.queue("q", hands(fresh("a", 1, redelivered), fresh("b", 4)))
			for i := range quarantine.MaxSpent {
				w.dies(2) // the mark is written, the batch is not
				if _, err := w.captured(api.CaptureRequest{Queues: []string{"q"}}); !refusedWith(err, api.CodeCommit) {
					t.Fatalf("process %d ended with %v", i, err)
				}
				w.kv.onCommit(nil)
				w.open()
			}
			_, err := w.captured(api.CaptureRequest{Queues: []string{"q"}})
			if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), "the processes before this one ended") {
				t.Errorf("the capture ended with %v", err)
			}
			if got, want := w.sources(), []string{"q 1", "q 2", "q 3", "q parked sessions_lost"}; !slices.Equal(got, want) {
				t.Errorf("the ledger has %q, want %q", got, want)
			}
			if n := len(w.pond.sessions("q")); n != quarantine.MaxSpent {
				t.Errorf("%d sessions were opened, want %d", n, quarantine.MaxSpent)
			}
		})
	}
}

// A queue that its process could not even park is not opened, and --unpark
// gives it one try.
func TestUnparkIsOneTry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ready("q", 5)
	broken := func() *visit { return &visit{broken: true, groups: [][]quarantine.Delivery{fresh("a", 1)}} }
	w.queue("q", broken)
	for range 2 {
		if _, err := w.captured(api.CaptureRequest{Queues: []string{"q"}, Unpark: true}); !refusedWith(err, api.CodeRefused) {
			t.Fatalf("the capture ended with %v", err)
		}
	}
	want := []string{"q 1", "q 2", "q 3", "q parked sessions_lost", "q unparked", "q 3", "q parked sessions_lost"}
	if got := w.sources(); !slices.Equal(got, want) {
		t.Errorf("the ledger has %q, want %q", got, want)
	}
	if n := len(w.pond.sessions("q")); n != 4 {
		t.Errorf("%d sessions, want 3 and one more", n)
	}
	// The try works: all is as at first.
	w.queue("q", hands(fresh("a", 1), fresh("b", 2)))
	w.ready("q", 0)
	if sum, err := w.captured(api.CaptureRequest{Queues: []string{"q"}, Unpark: true}); err != nil || sum.Captured != 3 {
		t.Errorf("captured %d, %v", sum.Captured, err)
	}
	must(t, w.store.View(func(r ledger.Reader) error {
		if n := quarantine.Spent(r, "q"); n != 0 {
			t.Errorf("%d are counted after a settlement", n)
		}
		return nil
	}))
}

// Sessions that are lost without a word about what they received count too: a
// message may be what ends them.
func TestSessionsThatReceiveNothingPark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ready("q", 1)
	w.queue("q", func() *visit { return &visit{broken: true} })
	if _, err := w.captured(api.CaptureRequest{Queues: []string{"q"}, Follow: true}); !refusedWith(err, api.CodeRefused) {
		t.Fatalf("the capture ended with %v", err)
	}
	if why := w.parkedFor("q"); why != "sessions_lost" || len(w.pond.sessions("q")) != 3 {
		t.Errorf("parked for %q after %d sessions", why, len(w.pond.sessions("q")))
	}
}

// What the broker says of a message that came back counts: others may have had
// it before. What it says of a first delivery may be of another queue.
func TestDeliveriesThatOthersSpent(t *testing.T) {
	for _, c := range []struct {
		name   string
		counts []int // of the head in each session
		want   []string
	}{
		{"peeked at three times", []int{3, 4}, []string{"q 1", "q 2", "q 5", "q parked delivery_limit_near"}},
		{"with the count of another queue", []int{7, 1, 2}, []string{"q 1", "q 2", "q 3", "q parked sessions_lost"}},
		{"with a count that nobody counts", []int{2, 2, 2}, []string{"q 1", "q 2", "q 3", "q parked sessions_lost"}},
		{"with a count of nobody that is small", []int{1, 1, 1}, []string{"q 1", "q 2", "q 3", "q parked sessions_lost"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.ready("q", 1)
			var visits []func() *visit
			for _, n := range c.counts {
				visits = append(visits, lost(fresh("a", 1, counted(n))...))
			}
			w.queue("q", append(visits, hands())...)
			if _, err := w.captured(api.CaptureRequest{Queues: []string{"q"}}); !refusedWith(err, api.CodeRefused) {
				t.Errorf("the capture ended with %v", err)
			}
			if got := w.sources(); !slices.Equal(got, c.want) {
				t.Errorf("the ledger has %q, want %q", got, c.want)
			}
		})
	}
}

// A session whose settlement reached the broker, but not the answer to it, has
// moved the queue: another message is at its head.
func TestUnansweredSettlementsDoNotPark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ready("q", 5)
	var visits []func() *visit
	for i := range quarantine.MaxSpent + 1 {
		var alter []func(*quarantine.Delivery)
		if i%2 == 1 {
			alter = append(alter, counted(2+i)) // it was in flight behind the ones before
		}
		visits = append(visits, lost(fresh(fmt.Sprint("m", i), 1, alter...)...))
	}
	w.queue("q", append(visits, w.last("q", hands(fresh("last", 1))))...)
	if sum, err := w.captured(api.CaptureRequest{Queues: []string{"q"}}); err != nil || sum.Captured != 5 {
		t.Errorf("captured %d of 5, %v; the ledger has %q", sum.Captured, err, w.sources())
	}
}

// A capture that finds nothing leaves no trace; one that gets nothing of what
// is there takes its mark back.
func TestCaptureOfNothing(t *testing.T) {
	w := newWorld(t)
	w.orders(1)
	before := w.size()
	do(w, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}})
	if n := w.size(); n != before {
		t.Errorf("%d records after a capture of an empty queue, want %d", n, before)
	}
	w.ready("q", 3)
	ctx, cancel := context.WithTimeout(as("ann"), patience)
	defer cancel()
	for range quarantine.MaxSpent + 1 {
		one, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		opened := len(w.pond.sessions("q"))
		go func() {
			defer close(done)
			_, err := api.Call(one, w.c, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}, Follow: true}, nil)
			if err != nil {
				t.Errorf("the capture ended with %v", err)
			}
		}()
		w.until("a session is open", func() bool { return len(w.pond.sessions("q")) > opened })
		stop()
		<-done
	}
	if got, want := w.sources(), []string{"q 1", "q 0", "q 1", "q 0", "q 1", "q 0", "q 1", "q 0"}; !slices.Equal(got, want) {
		t.Errorf("the ledger has %q, want %q", got, want)
	}
}

// While there is no room, no message is asked for: each time would spend a
// delivery of what comes. A capture that follows its queue goes on by itself.
func TestNoRoomOpensNothing(t *testing.T) {
	w := newWorld(t)
	w.ready("q", 2)
	w.queue("q", w.last("q", hands(fresh("a", 1), fresh("b", 1))))
	w.kv.setRoom(ledger.ErrNoSpace)
	for i := range 6 {
		w.ready("q", i%3-1) // whatever the broker says
		if _, err := w.captured(api.CaptureRequest{Queues: []string{"q"}}); !refusedWith(err, api.CodeNoSpace) {
			t.Fatalf("the capture ended with %v", err)
		}
	}
	w.ready("q", 2)
	ctx, cancel := context.WithTimeout(as("ann"), patience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := api.Call(ctx, w.c, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}, Follow: true}, nil); err != nil {
			t.Errorf("the capture ended with %v", err)
		}
	}()
	w.until("it waits", func() bool {
		for _, c := range do(w, api.Status, api.None{}).Captures {
			if c.Queue == "q" && c.State == "waiting" && strings.Contains(c.Detail, "space") {
				return true
			}
		}
		return false
	})
	if n := len(w.pond.sessions("q")); n != 0 {
		t.Errorf("%d sessions were opened without room", n)
	}
	w.kv.setRoom(nil)
	w.until("all is captured", func() bool { return do(w, api.SourceDepth, api.DepthRequest{Queue: "q"}).StoreOpen == 2 })
	cancel()
	<-done
}

// A queue that is deleted is a state of a capture that follows it; a name that
// never was is an error.
func TestFollowWaitsForADeletedQueue(t *testing.T) {
	w := newWorld(t)
	missing := true
	w.pond.script["q"] = func(n int, _ quarantine.SessionOptions) (*visit, error) {
		switch {
		case n == 0:
			return hands(fresh("a", 1))(), nil
		case missing:
			return nil, quarantine.ErrQueueMissing
		}
		return hands(fresh("b", 1))(), nil
	}
	w.pond.script["typo"] = func(int, quarantine.SessionOptions) (*visit, error) { return nil, quarantine.ErrQueueMissing }
	if _, err := w.captured(api.CaptureRequest{Queues: []string{"typo"}, Follow: true}); !refusedWith(err, api.CodeNotFound) {
		t.Errorf("a queue that never was: %v", err)
	}
	ctx, cancel := context.WithTimeout(as("ann"), patience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := api.Call(ctx, w.c, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}, Follow: true}, nil); err != nil {
			t.Errorf("the capture ended with %v", err)
		}
	}()
	open := func() uint64 { return do(w, api.SourceDepth, api.DepthRequest{Queue: "q"}).StoreOpen }
	w.until("the first message is captured", func() bool { return open() == 1 })
	w.pond.lose("q", quarantine.ErrUnreachable)
	w.until("it waits for the queue", func() bool {
		for _, c := range do(w, api.Status, api.None{}).Captures {
			if c.State == "waiting" && strings.Contains(c.Detail, quarantine.ErrQueueMissing.Error()) && time.Since(c.Since) < patience {
				return true
			}
		}
		return false
	})
	w.pond.mu.Lock()
	missing = false
	w.pond.mu.Unlock()
	w.until("the queue is captured again", func() bool { return open() == 2 })
	cancel()
	<-done
}

// A queue is not empty before what it has sent is there.
func TestMessagesOnTheirWay(t *testing.T) {
	w := newWorld(t)
	w.queue("q", func() *visit {
		return &visit{late: true, groups: [][]quarantine.Delivery{fresh("a", 1), fresh("b", 1)}}
	})
	if sum := do(w, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}}); sum.Captured != 2 {
		t.Errorf("%d captured, want 2", sum.Captured)
	}
}

// What a session holds when it has to end is stored, and not given back.
func TestStopStoresWhatItHolds(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(as("ann"))
	defer cancel()
	// The second batch comes while the first is being settled, and the stop too.
	w.queue("q", func() *visit {
		return &visit{groups: [][]quarantine.Delivery{fresh("a", 1), fresh("b", 700)}, settling: func(n int) {
			if n == 1 {
				cancel()
			}
		}}
	})
	sum, err := api.Call(ctx, w.c, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}, Follow: true}, nil)
	if err != nil || sum.Captured != 701 || w.pond.visits[0].settled != 701 {
		t.Errorf("%d captured and %d settled of 701, %v", sum.Captured, w.pond.visits[0].settled, err)
	}
}

// A bound on what is captured holds when the answer to the last settlement is
// lost as well.
func TestMaxHoldsWhenALinkIsLost(t *testing.T) {
	w := newWorld(t)
	w.ready("q", 3)
	w.queue("q", lost(fresh("a", 1)...), hands(fresh("b", 1), fresh("c", 1)))
	sum, err := w.captured(api.CaptureRequest{Queues: []string{"q"}, Max: 1})
	if err != nil || sum.Captured != 1 || len(w.pond.sessions("q")) != 1 {
		t.Errorf("captured %d of at most 1 in %d sessions, %v", sum.Captured, len(w.pond.sessions("q")), err)
	}
}

// Neighbours of a message that cannot be stored are safe, on both sides of it.
func TestNeighboursOfWhatCannotBeStored(t *testing.T) {
	w := newWorld(t)
	w.cfg.Store.MaxBodyMiB = 1
	big := dead("big", make([]byte, 1<<20+1))
	big.Redelivered, big.DeliveryCount = true, 4
	w.queue("q", hands(fresh("first", 1), slices.Concat(fresh("before", 3), []quarantine.Delivery{big}, fresh("after", 3))))
	sum, err := w.captured(api.CaptureRequest{Queues: []string{"q"}})
	if !refusedWith(err, api.CodeRefused) || sum.Captured != 7 || w.pond.visits[0].settled != 7 || sum.Queues[0].Parked != "cannot_be_stored" {
		t.Errorf("captured %d, settled %d of 7, %+v", sum.Captured, w.pond.visits[0].settled, err)
	}
	p := do(w, api.Status, api.None{}).Parked
	if len(p) != 1 || !strings.Contains(p[0].Why, "1048577 bytes") || !strings.Contains(p[0].Why, "delivered 5 times") || !strings.Contains(p[0].Advice, "max_body_mib") {
		t.Errorf("status shows %+v", p)
	}
}

// Reports of outcomes are messages too: one is in flight until one is settled.
func TestReportsBeginWithOneInFlight(t *testing.T) {
	w := newWorld(t)
	reports := &visit{groups: [][]quarantine.Delivery{fresh("a", 1), fresh("b", 3)}}
	w.pond.script["redrive.outcomes"] = func(int, quarantine.SessionOptions) (*visit, error) { return reports, nil }
	id := w.planned(long(w.orders(1)...))
	s := w.shell(api.GenerationStart, api.RunRequest{ID: id})
	w.until("the reports are read", func() bool {
		reports.mu.Lock()
		defer reports.mu.Unlock()
		return reports.settled == 4
	})
	s.cancel()
	<-s.done
	if got := w.pond.sessions("redrive.outcomes"); len(got) != 1 || got[0].Prefetch != 1 || !slices.Equal(reports.prefetches, []int{500}) {
		t.Errorf("sessions %+v, then %v", got, reports.prefetches)
	}
}
