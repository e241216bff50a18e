package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/drivers"
)

const mainQueue = "orders.fulfillment"

// reference is the policy of the reference system, as far as a worker reads it.
func reference() *policy.Policy {
	return &policy.Policy{
		Version: "2026-12-01", DefaultOwner: "Fulfillment on-call",
		Reasons: map[string]policy.Reason{
			"schema_invalid":     {Class: event.Permanent, Owner: "Orders API team"},
			"unknown_sku":        {Class: event.Permanent, Owner: "Catalog team", Codes: []string{"404"}},
			"duplicate_order":    {Action: policy.ActionDrop, Owner: "Fulfillment team"},
			"downstream_timeout": {Class: event.Transient, Owner: "Fulfillment team", Codes: []string{"timeout"}},
			"db_conflict":        {Class: event.Transient, Owner: "Fulfillment team", Codes: []string{"40001", "40P01"}},
			"unknown":            {Class: event.Transient, Owner: "Fulfillment on-call"},
			"warehouse_down":     {Class: event.Systemic, Owner: "Fulfillment team"},
		},
		NeverRetry: policy.NeverRetry{Codes: []string{"131047"}, Reason: "meta_error_{code}", Owner: "Messaging team"},
		Masks:      []policy.Mask{{Name: "wa_phone", Pattern: `\b(\d{2})\d{6,11}(\d{2})\b`}},
		Queues: []policy.Queue{policy.Queue{
			Name: mainQueue, Retries: 5, Prefetch: 10, Replicas: 1, Jitter: 0.2,
			Words: policy.Words{Duplicate: "duplicate_order"},
		}.WithDefaults()},
	}
}

// world is the reference system on the embedded broker.
type world struct {
	t      testing.TB
	broker *local.Broker
	conn   worker.Conn
	policy *policy.Policy
	opts   worker.Options
	logs   *logs
	clock  *clock // nil for the system's
}

func newWorld(t testing.TB) *world { return open(t, nil) }

func open(t testing.TB, c *clock) *world {
	t.Helper()
	o := local.Options{}
	if c != nil {
		o.Clock = c.Now
	}
	b, err := local.Open(filepath.Join(t.TempDir(), "broker"), o)
	must(t, err)
	w := &world{t: t, broker: b, policy: reference(), logs: &logs{}, clock: c}
	src, rel := local.NewSource(b), local.NewReleaser(b)
	t.Cleanup(func() { _ = rel.Close(); _ = src.Close(); must(t, b.Close()) })
	w.conn = drivers.Conn(src, rel)
	if c != nil {
		w.conn.Clock = c
	}
	w.opts = worker.Options{Scale: 0.001, Version: "fulfillment-worker 1.4.0", Log: slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	w.declare()
	return w
}

// declare makes the topology of the policy's queue.
func (w *world) declare() {
	w.t.Helper()
	q := &w.policy.Queues[0]
	ctx := w.t.Context()
	must(w.t, w.broker.Declare(ctx, local.QueueSpec{Name: q.Quarantine}))
	must(w.t, w.broker.Declare(ctx, local.QueueSpec{Name: q.Name, DeliveryLimit: q.DeliveryLimit, DeadLetter: local.ToQueue(q.Quarantine)}))
	w.declareRetries()
}

// declareRetries makes the retry queues of the policy's queue.
func (w *world) declareRetries() {
	w.t.Helper()
	q := &w.policy.Queues[0]
	for _, name := range q.RetryQueues() {
		must(w.t, w.broker.Declare(w.t.Context(), local.QueueSpec{Name: name, DeadLetter: local.ToQueue(q.Name)}))
	}
}

// outcomes declares the exchange of outcome reports.
func (w *world) outcomes() {
	ctx := w.t.Context()
	must(w.t, w.broker.Declare(ctx, local.QueueSpec{Name: outcome.Queue}))
	must(w.t, w.broker.DeclareExchange(ctx, local.ExchangeSpec{Name: outcome.Exchange, Kind: local.Fanout}))
	must(w.t, w.broker.Bind(ctx, local.Binding{Exchange: outcome.Exchange, Queue: outcome.Queue}))
}

// order is the properties of an order, changed by edits.
func order(t testing.TB, id string, edits ...func(*amqpwire.View)) []byte {
	t.Helper()
	v := amqpwire.View{Present: amqpwire.MessageID | amqpwire.Type | amqpwire.DeliveryMode | amqpwire.Headers, MessageID: id, Type: "order.placed", DeliveryMode: 2}
	for _, edit := range edits {
		edit(&v)
	}
	b, err := amqpwire.Build(v)
	must(t, err)
	return b
}

// with puts headers onto an order.
func with(fields ...amqpwire.Field) func(*amqpwire.View) {
	return func(v *amqpwire.View) { v.Headers = append(v.Headers, fields...) }
}

func (w *world) publish(properties []byte, body string) {
	w.t.Helper()
	w.publishTo("", mainQueue, properties, body)
}

func (w *world) publishTo(exchange, key string, properties []byte, body string) {
	w.t.Helper()
	out, err := w.broker.Publish(w.t.Context(), local.Message{Exchange: exchange, RoutingKey: key, Properties: properties, Body: []byte(body)})
	must(w.t, err)
	if out[0].Resolution != event.Confirmed {
		w.t.Fatalf("publish: %+v", out[0])
	}
}

// start runs a worker until stop is called, which returns its error.
func (w *world) start(h worker.Handler) (stop func() error) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, w.conn, w.policy, h, w.opts) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = w.over(done) })
		return err
	}
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

// over waits for the end of a worker. A clock that stands still would keep its
// limits from passing.
func (w *world) over(done <-chan error) error {
	if w.clock == nil {
		return <-done
	}
	for {
		select {
		case err := <-done:
			return err
		case <-w.clock.added:
		case <-time.After(time.Millisecond):
		}
		w.clock.advance(time.Minute)
	}
}

// work runs a worker until n messages have been settled for good, and stops it.
func (w *world) work(n int, h worker.Handler) {
	w.t.Helper()
	settled := w.steps(worker.StepSettled)
	stop := w.start(h)
	w.await(settled, n)
	must(w.t, stop())
}

// steps yields the messages that reach a step.
func (w *world) steps(which worker.Step) <-chan *worker.Message {
	ch := make(chan *worker.Message, 10000)
	before := w.opts.Observe
	w.opts.Observe = func(s worker.Step, m *worker.Message) {
		if before != nil {
			before(s, m)
		}
		if s == which {
			ch <- m
		}
	}
	return ch
}

func (w *world) await(ch <-chan *worker.Message, n int) (out []*worker.Message) {
	w.t.Helper()
	for range n {
		select {
		case m := <-ch:
			out = append(out, m)
		case <-w.t.Context().Done():
			w.t.Fatal("the test is over")
		case <-time.After(time.Minute): // ends a hang, measures nothing
			w.t.Fatalf("%d of %d\n%s", len(out), n, w.logs)
		}
	}
	return out
}

// drain takes everything out of a queue.
func (w *world) drain(queue string) []quarantine.Delivery {
	w.t.Helper()
	ctx := w.t.Context()
	c, err := w.broker.Consume(ctx, queue, 1000)
	must(w.t, err)
	var out []quarantine.Delivery
	for {
		s, err := w.broker.Stats(ctx, queue)
		must(w.t, err)
		if s.Ready == 0 && s.Unsettled == 0 {
			must(w.t, c.Close(ctx))
			return out
		}
		var rs []quarantine.Receipt
		for range s.Unsettled {
			d := <-c.Deliveries()
			out, rs = append(out, d), append(rs, d.Receipt)
		}
		must(w.t, c.Ack(ctx, rs...))
	}
}

// rest checks that nothing is left in any queue but those named.
func (w *world) rest(but ...string) {
	w.t.Helper()
	q := &w.policy.Queues[0]
	for _, name := range append([]string{q.Name, q.Quarantine}, q.RetryQueues()...) {
		s, err := w.broker.Stats(w.t.Context(), name)
		must(w.t, err)
		if n := s.Ready + s.Unsettled; n > 0 != slices.Contains(but, name) {
			w.t.Errorf("%s has %d messages", name, n)
		}
	}
}

// headers spells the headers of a delivery, the times and nothing else hidden.
func headers(d quarantine.Delivery) string {
	v := amqpwire.Parse(d.Properties)
	var out []string
	for _, f := range v.Headers {
		text, _ := f.Text()
		switch f.Name {
		case "x-first-failed-at", quarantine.HeaderDiedAt:
			if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
				text = "T"
			}
		case amqpwire.HeaderDeath:
			text = "…"
		}
		out = append(out, f.Name+"="+text)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// logs keeps log records.
type logs struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// events are the records of one event.
func (l *logs) events(t testing.TB, name string) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var rec map[string]any
		must(t, json.Unmarshal([]byte(line), &rec))
		if rec["event"] == name {
			out = append(out, rec)
		}
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock stands still until it is told to go on.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []timer
	added  chan struct{} // rings when somebody begins to wait
}

type timer struct {
	at   time.Time
	wait time.Duration
	ch   chan time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC), added: make(chan struct{}, 1)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if d <= 0 {
		ch <- c.now
		return ch
	}
	c.timers = append(c.timers, timer{c.now.Add(d), d, ch})
	select {
	case c.added <- struct{}{}:
	default:
	}
	return ch
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.timers = slices.DeleteFunc(c.timers, func(t timer) bool {
		if t.at.After(c.now) {
			return false
		}
		t.ch <- c.now
		return true
	})
}

// await waits until somebody waits for exactly that long.
func (c *clock) await(t testing.TB, d time.Duration) {
	t.Helper()
	for {
		c.mu.Lock()
		var all []string
		found := false
		for _, w := range c.timers {
			found = found || w.wait == d
			all = append(all, w.wait.String())
		}
		c.mu.Unlock()
		if found {
			return
		}
		select {
		case <-c.added:
		case <-time.After(time.Minute): // ends a hang, measures nothing
			t.Fatalf("nobody waits for %v, but for %v", d, all)
		}
	}
}
