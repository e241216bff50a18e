package control_test

import (
	"cmp"
	"context"
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

// queue makes a queue of the pond whose sessions are given in turn; the last
// one serves all others too.
func (w *world) queue(name string, visits ...func() *visit) {
	w.pond.script[name] = func(n int, _ quarantine.SessionOptions) (*visit, error) {
		return visits[min(n, len(visits)-1)](), nil
	}
}

func hands(groups ...[]quarantine.Delivery) func() *visit {
	return func() *visit { return &visit{groups: slices.Clone(groups)} }
}

// lost is a session that breaks when its first batch is settled.
func lost(ds ...quarantine.Delivery) func() *visit {
	return func() *visit { return &visit{groups: [][]quarantine.Delivery{ds}, lose: 1} }
}

// fresh is a group of n messages, altered by each of the functions.
func fresh(name string, n int, alter ...func(*quarantine.Delivery)) (ds []quarantine.Delivery) {
	for i := range n {
		d := dead(fmt.Sprintf("%s-%d", name, i), []byte("body"))
		for _, fn := range alter {
			fn(&d)
		}
		ds = append(ds, d)
	}
	return ds
}

func redelivered(d *quarantine.Delivery) { d.Redelivered = true }

func counted(n int) func(*quarantine.Delivery) {
	return func(d *quarantine.Delivery) { d.Redelivered, d.DeliveryCount = true, n }
}

func (w *world) parkedFor(queue string) (why string) {
	w.Helper()
	must(w, w.store.View(func(r ledger.Reader) error {
		p, _, err := quarantine.Parked(r, queue)
		why = p.Reason
		return err
	}))
	return why
}

// capture captures with the error of whatever went wrong.
func (w *world) captured(req api.CaptureRequest) (api.CaptureSummary, error) {
	sum, err := api.Call(as("ann"), w.c, api.CaptureRun, req, nil)
	return sum, cmp.Or(err, sum.Err())
}

// One queue that cannot be captured stops no other one.
func TestOneFailingQueueStopsNoOther(t *testing.T) {
	w := newWorld(t)
	w.pond.script["bad"] = func(int, quarantine.SessionOptions) (*visit, error) { return nil, quarantine.ErrRefused }
	w.queue("good", hands(fresh("good", 30), fresh("more", 30)))
	_, err := w.captured(api.CaptureRequest{Queues: []string{"bad", "good"}})
	if !refusedWith(err, api.CodeBroker) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("the capture ended with %v", err)
	}
	if d := do(w, api.SourceDepth, api.DepthRequest{Queue: "good"}); d.StoreOpen != 60 {
		t.Errorf("%d captured of the good queue, want 60", d.StoreOpen)
	}
}

// When several queues cannot be captured, each is named.
func TestEachFailingQueueIsNamed(t *testing.T) {
	w := newWorld(t)
	w.queue("large", hands([]quarantine.Delivery{dead("big", make([]byte, quarantine.MaxBody+1))}))
	w.pond.script["bad"] = func(int, quarantine.SessionOptions) (*visit, error) { return nil, quarantine.ErrRefused }
	_, err := w.captured(api.CaptureRequest{Queues: []string{"large", "bad"}})
	if err == nil || !strings.Contains(err.Error(), "large") || !strings.Contains(err.Error(), "bad") {
		t.Errorf("the capture ended with %v", err)
	}
}

// Sessions that are lost with messages in flight cost their delivery limit:
// after a few the queue is parked, also when it is followed, until somebody
// unparks it.
func TestLostSessionsPark(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow %v", follow), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ds := fresh("x", 3, redelivered)
			w.queue("q", lost(ds...), lost(ds...), lost(ds...), hands(ds))
			_, err := w.captured(api.CaptureRequest{Queues: []string{"q"}, Follow: follow})
			if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), "sessions_lost") {
				t.Fatalf("the capture ended with %v", err)
			}
			if why := w.parkedFor("q"); why != "sessions_lost" {
				t.Errorf("parked for %q", why)
			}
			if n := len(w.pond.sessions("q")); n != 3 {
				t.Errorf("%d sessions, want 3", n)
			}
			if _, err := w.captured(api.CaptureRequest{Queues: []string{"q"}}); !refusedWith(err, api.CodeRefused) {
				t.Errorf("a parked queue is captured: %v", err)
			}
			if n := len(w.pond.sessions("q")); n != 3 {
				t.Errorf("a parked queue has session %d", n)
			}
			got := do(w, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}, Unpark: true})
			if got.Captured+got.Merged != 3 || w.parkedFor("q") != "" {
				t.Errorf("%+v after --unpark, parked for %q", got, w.parkedFor("q"))
			}
			if d := do(w, api.SourceDepth, api.DepthRequest{Queue: "q"}); d.StoreOpen != 3 {
				t.Errorf("%d envelopes of 3 messages", d.StoreOpen)
			}
		})
	}
}

// Sessions that are lost after something was settled go forward, and do not
// park the queue, however many they are.
func TestSettledSessionsDoNotPark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var visits []func() *visit
	for i := range 3 {
		visits = append(visits, lost(fresh(fmt.Sprint("l", i), 1)...), func() *visit {
			return &visit{groups: [][]quarantine.Delivery{fresh(fmt.Sprint("s", i), 1), fresh(fmt.Sprint("t", i), 1)}, lose: 2}
		})
	}
	w.queue("q", append(visits, hands(fresh("last", 2)))...)
	got := do(w, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}})
	if got.Captured != 3+6+2 || w.parkedFor("q") != "" {
		t.Errorf("%+v, parked for %q", got, w.parkedFor("q"))
	}
}

// A session begins with one message in flight, and doubles that. After a
// process that died, redelivered ones do not raise the number: it may have had
// many of them in flight.
func TestPrefetchGrows(t *testing.T) {
	for _, c := range []struct {
		name string
		died bool
		want []int
	}{{"after an orderly start", false, []int{2, 4, 8, 16, 32, 64, 128, 200}}, {"after an unclean start", true, []int{2, 4, 8}}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.orders(1) // begins an epoch
			if c.died {
				w.crash()
			} else {
				must(t, w.c.Close())
				w.open()
			}
			w.queue("q", hands(fresh("a", 1, redelivered), fresh("b", 1), fresh("c", 2), fresh("d", 2, redelivered),
				fresh("e", 4), fresh("f", 1, counted(2)), fresh("g", 1, counted(1)), fresh("h", 1, redelivered), fresh("i", 1, redelivered)))
			do(w, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}})
			if got := w.pond.sessions("q"); len(got) != 1 || got[0].Prefetch != 1 {
				t.Errorf("sessions %+v, want one that begins with 1", got)
			}
			if got := w.pond.visits[0].prefetches; !slices.Equal(got, c.want) {
				t.Errorf("prefetch went to %v, want %v", got, c.want)
			}
		})
	}
}

// What is in flight is bounded by its bytes, which several queues share.
func TestPrefetchIsBoundedByBytes(t *testing.T) {
	w := newWorld(t)
	sized := func(name string, size int) []quarantine.Delivery {
		return []quarantine.Delivery{dead(name, make([]byte, size))}
	}
	q := func(name string) func() *visit {
		return hands(sized(name+"0", 100), sized(name+"1", 100), sized(name+"2", 100), sized(name+"3", 100), sized(name+"4", 100), sized(name+"5", 100),
			sized(name+"large", 1<<20), sized(name+"6", 100), sized(name+"huge", 20<<20), sized(name+"7", 100))
	}
	w.queue("one", q("one"))
	do(w, api.CaptureRun, api.CaptureRequest{Queues: []string{"one"}, Prefetch: 1000})
	if got, want := w.pond.visits[0].prefetches, []int{2, 4, 8, 16, 32, 64, 16, 32, 1}; !slices.Equal(got, want) {
		t.Errorf("alone, prefetch went to %v, want %v", got, want)
	}
	w.queue("two", q("two"))
	w.queue("three", hands())
	do(w, api.CaptureRun, api.CaptureRequest{Queues: []string{"two", "three"}, Prefetch: 1000})
	for i, o := range w.pond.opened[1:] {
		if got, want := w.pond.visits[i+1].prefetches, []int{2, 4, 8, 16, 32, 64, 8, 16, 1}; o.Queue == "two" && !slices.Equal(got, want) {
			t.Errorf("of two, prefetch went to %v, want %v", got, want)
		}
	}
}

// A message that will never fit parks its queue by name, and stays there.
func TestWhatCannotBeStoredParks(t *testing.T) {
	w := newWorld(t)
	big := dead("big", make([]byte, quarantine.MaxBody+1))
	w.queue("q", hands([]quarantine.Delivery{big}))
	_, err := w.captured(api.CaptureRequest{Queues: []string{"q"}})
	if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), "cannot_be_stored") || !strings.Contains(err.Error(), "queue q ") {
		t.Errorf("the capture ended with %v", err)
	}
	if why := w.parkedFor("q"); why != "cannot_be_stored" {
		t.Errorf("parked for %q", why)
	}
	if w.pond.visits[0].settled != 0 {
		t.Error("it was settled")
	}
	var parked []string
	must(t, w.store.View(func(r ledger.Reader) error {
		return ledger.Records(r, 1, func(rec *event.Record) bool {
			if b, ok := rec.Body.(*event.SourceParked); ok {
				parked = append(parked, b.Queue+": "+b.Reason)
			}
			return true
		})
	}))
	if !slices.Equal(parked, []string{"q: cannot_be_stored"}) {
		t.Errorf("the ledger has %q", parked)
	}
}

// A queue that is followed is captured until its context ends.
func TestFollowEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	w.queue("q", hands(fresh("a", 2), fresh("b", 2)))
	ctx, cancel := context.WithTimeout(as("ann"), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := api.Call(ctx, w.c, api.CaptureRun, api.CaptureRequest{Queues: []string{"q"}, Follow: true}, nil)
		done <- err
	}()
	w.until("all is captured", func() bool {
		return do(w, api.SourceDepth, api.DepthRequest{Queue: "q"}).StoreOpen == 4
	})
	cancel()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(patience):
		t.Fatal("the capture does not end")
	}
}
