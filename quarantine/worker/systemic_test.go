package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/quarantine/worker"
)

// runs notes which message ran, in order.
type runs struct {
	mu  sync.Mutex
	all []string
}

func (r *runs) add(m *worker.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%s/%d", m.ID, m.Run))
}

func (r *runs) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.all, " ")
}

// TestSystemic spends no retry on a warehouse that is down, asks it after 1 s,
// 2 s, … or as late as it wants, and goes on when it is back.
func TestSystemic(t *testing.T) {
	c := newClock()
	w := open(t, c)
	w.opts.Scale = 1
	for i := range 3 {
		w.publish(order(t, fmt.Sprint(i)), "{}")
	}
	settled := w.steps(worker.StepSettled)
	answers := []error{
		worker.Transient("warehouse_down", errors.New("connection refused")), // by the policy's class
		worker.Systemic("busy", 0, nil),
		worker.Systemic("busy", 90*time.Second, nil),
	}
	var ran runs
	stop := w.start(func(_ context.Context, m *worker.Message) error {
		ran.add(m)
		if len(answers) == 0 {
			return nil
		}
		err := answers[0]
		answers = answers[1:]
		return err
	})
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 90 * time.Second} {
		c.await(t, wait)
		if len(settled) > 0 {
			t.Fatal("something was acknowledged")
		}
		c.advance(wait)
	}
	w.await(settled, 3)
	must(t, stop())
	if got := ran.String(); got != "0/1 0/1 0/1 0/1 1/1 2/1" {
		t.Errorf("%s", got)
	}
	w.rest()
	if p, r := len(w.logs.events(t, "worker_paused")), len(w.logs.events(t, "worker_resumed")); p != 3 || r != 1 {
		t.Errorf("%d pauses, %d resumptions", p, r)
	}
}

// TestSystemicForLong moves a message to the last retry queue, with its count
// unchanged, before the broker takes it back for being unacknowledged.
func TestSystemicForLong(t *testing.T) {
	c := newClock()
	w := open(t, c)
	w.opts.Scale, w.opts.HoldLimit = 1, 2*time.Second
	w.publish(order(t, "m", with(long("x-retry-count", 3))), "{}")
	settled := w.steps(worker.StepSettled)
	stop := w.start(func(context.Context, *worker.Message) error {
		return worker.Systemic("warehouse_down", time.Hour, errors.New("down"))
	})
	c.await(t, 2*time.Second)
	c.advance(2 * time.Second)
	w.await(settled, 1)
	got := w.drain("orders.fulfillment.retry.10m")
	if len(got) != 1 {
		t.Fatalf("%d copies", len(got))
	}
	if h := headers(got[0]); !strings.Contains(h, "x-retry-count=3") || !strings.Contains(h, "x-last-reason=warehouse_down") || strings.Contains(h, "x-first-failed-at") {
		t.Errorf("%s", h)
	}
	must(t, stop())
	w.rest()
}

// TestOneThatStopsAll: a message that fails like this while others get through
// is itself the trouble, and ends in quarantine.
func TestOneThatStopsAll(t *testing.T) {
	w := newWorld(t)
	w.policy.Queues[0].Retries = 1
	const n = 30
	w.publish(order(t, "ok-first"), "{}")
	w.publish(order(t, "bad"), "{}")
	for i := range n {
		w.publish(order(t, fmt.Sprint("ok-", i)), "{}")
	}
	settled := w.steps(worker.StepSettled)
	stop := w.start(func(_ context.Context, m *worker.Message) error {
		if m.ID == "bad" {
			return worker.Systemic("warehouse_down", 0, errors.New("503"))
		}
		return nil
	})
	w.await(settled, n+1+1) // all others, and the retry of the bad one
	// Its last run needs others as well, that get through.
	for i := range n {
		w.publish(order(t, fmt.Sprint("later-", i)), "{}")
	}
	w.await(settled, n+1)
	must(t, stop())
	got := w.drain("orders.fulfillment.dlq")
	if len(got) != 1 || !strings.Contains(headers(got[0]), "x-death-reason=retries_exhausted") || !strings.Contains(headers(got[0]), "x-last-reason=warehouse_down") {
		t.Errorf("%+v", got)
	}
	w.rest()
}

// TestDrain finishes what is in hand when it is told to stop, and gives back
// what would take too long.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name string
		ends bool // the handler returns by itself
		left int  // messages in the queue afterwards
	}{{"in time", true, 0}, {"too slow", false, 1}} {
		t.Run(c.name, func(t *testing.T) {
			k := newClock()
			w := open(t, k)
			w.publish(order(t, "m"), "{}")
			begun, goOn := make(chan struct{}), make(chan struct{})
			stop := w.start(func(ctx context.Context, _ *worker.Message) error {
				close(begun)
				if c.ends {
					<-goOn
					return ctx.Err()
				}
				<-ctx.Done()
				return ctx.Err()
			})
			<-begun
			done := make(chan error, 1)
			go func() { done <- stop() }()
			if c.ends {
				close(goOn)
			}
			must(t, <-done)
			s, err := w.broker.Stats(t.Context(), mainQueue)
			must(t, err)
			if s.Ready != c.left || s.Unsettled != 0 {
				t.Errorf("%+v, want %d ready", s, c.left)
			}
			w.rest([]string{mainQueue}[:c.left]...)
		})
	}
}

// TestLanes runs messages of one key in order and never two at once, whatever
// the concurrency, and others beside them.
func TestLanes(t *testing.T) {
	w := newWorld(t)
	w.policy.Queues[0].Ordering.Key = "header:x-key"
	w.policy.Queues[0].Prefetch = 50
	w.opts.Concurrency = 8
	const keys, each = 5, 20
	for i := range each {
		for k := range keys {
			w.publish(order(t, fmt.Sprintf("%d-%02d", k, i), with(text("x-key", fmt.Sprint(k)))), "{}")
		}
		w.publish(order(t, "free"), "{}")
	}
	var mu sync.Mutex
	busy := map[string]bool{}
	got := map[string][]string{}
	w.work((keys+1)*each, func(_ context.Context, m *worker.Message) error {
		mu.Lock()
		if m.Key != "" && busy[m.Key] {
			t.Errorf("two of key %s at once", m.Key)
		}
		busy[m.Key] = true
		got[m.Key] = append(got[m.Key], m.ID)
		mu.Unlock()
		mu.Lock()
		busy[m.Key] = false
		mu.Unlock()
		return nil
	})
	for k := range keys {
		if ids := got[fmt.Sprint(k)]; len(ids) != each || !slices.IsSorted(ids) {
			t.Errorf("key %d: %q", k, ids)
		}
	}
}

// TestWary takes one message at a time until one is settled that nobody had
// before.
func TestWary(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.publish(order(t, fmt.Sprint(i)), "{}")
	}
	// Somebody took two and died.
	other, err := w.broker.Consume(t.Context(), mainQueue, 2)
	must(t, err)
	<-other.Deliveries()
	<-other.Deliveries()
	must(t, other.Close(t.Context()))
	received := w.steps(worker.StepReceived)
	goOn := make(chan struct{})
	w.start(func(context.Context, *worker.Message) error { <-goOn; return nil })
	for i := range 3 {
		m := w.await(received, 1)[0]
		if m.Redelivered != (i < 2) {
			t.Errorf("%d: %v", i, m.Redelivered)
		}
		s, err := w.broker.Stats(t.Context(), mainQueue)
		must(t, err)
		if s.Unsettled != 1 || len(received) > 0 {
			t.Errorf("%d: %d in hand", i, s.Unsettled)
		}
		goOn <- struct{}{}
	}
	w.await(received, 10) // all at once: the handler has not let go of the first
	close(goOn)
}
