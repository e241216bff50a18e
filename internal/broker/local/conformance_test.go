package local

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/brokertest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

func TestConformance(t *testing.T) { brokertest.Run(t, newWorld(t).harness()) }

// world is a broker that tests can stall.
type world struct {
	*Broker
	gate  sync.RWMutex // held for writing while the broker is stalled
	names atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	w.Broker = open(t, filepath.Join(t.TempDir(), "broker"), Options{MaxBody: 2 << 20, stall: func() error {
		w.gate.RLock()
		defer w.gate.RUnlock()
		return nil
	}})
	return w
}

// open opens a broker that must open, and closes it when t ends.
func open(t testing.TB, path string, o Options) *Broker {
	t.Helper()
	b, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) name(kind string) string { return fmt.Sprintf("%s-%d", kind, w.names.Add(1)) }

func (w *world) queue(t testing.TB, s QueueSpec) string {
	t.Helper()
	s.Name = w.name("queue")
	must(t, w.Declare(within(t), s))
	return s.Name
}

func (w *world) publishRaw(t testing.TB, ms ...brokertest.Raw) {
	t.Helper()
	for _, m := range ms {
		out, err := w.Publish(within(t), Message(m))
		must(t, err)
		if out[0].Reason != "" {
			t.Fatalf("publish: %+v", out[0])
		}
	}
}

// drain takes everything out of a queue.
func drain(t testing.TB, b *Broker, queue string) []quarantine.Delivery {
	t.Helper()
	ctx := within(t)
	c, err := b.Consume(ctx, queue, 1000)
	must(t, err)
	var out []quarantine.Delivery
	for {
		s, err := b.Stats(ctx, queue)
		must(t, err)
		if s.Ready == 0 && s.Unsettled == 0 {
			must(t, c.Close(ctx))
			return out
		}
		var rs []quarantine.Receipt
		for range s.Unsettled {
			d := <-c.Deliveries()
			out, rs = append(out, d), append(rs, d.Receipt)
		}
		must(t, c.Ack(ctx, rs...))
	}
}

func (w *world) harness() brokertest.Harness {
	return brokertest.Harness{
		NewSource:   func(testing.TB) quarantine.Source { return NewSource(w.Broker) },
		NewReleaser: func(testing.TB) redrive.Releaser { return NewReleaser(w.Broker) },
		NewLayout:   func(testing.TB) quarantine.Layout { return NewLayout(w.Broker) },
		NewQueue:    func(t testing.TB) string { return w.queue(t, QueueSpec{}) },
		NewExchange: func(t testing.TB, queue, key string) string {
			x := w.name("exchange")
			must(t, w.DeclareExchange(within(t), ExchangeSpec{Name: x, Kind: Direct}))
			must(t, w.Bind(within(t), Binding{Exchange: x, Queue: queue, Key: key}))
			return x
		},
		DeleteQueue: func(t testing.TB, queue string) { must(t, w.DeleteQueue(within(t), queue)) },
		Publish:     w.publishRaw,
		Drain: func(t testing.TB, queue string) []brokertest.Raw {
			var out []brokertest.Raw
			for _, d := range drain(t, w.Broker, queue) {
				out = append(out, brokertest.Raw{Exchange: d.Exchange, RoutingKey: d.RoutingKey, Properties: d.Properties, Body: d.Body})
			}
			return out
		},
		DeadLetter: func(t testing.TB, properties, body []byte) (string, string) {
			holds := w.queue(t, QueueSpec{})
			died := w.queue(t, QueueSpec{DeadLetter: ToQueue(holds)})
			w.publishRaw(t, brokertest.Raw{RoutingKey: died, Properties: properties, Body: body})
			c, err := w.Consume(within(t), died, 1)
			must(t, err)
			d := <-c.Deliveries()
			must(t, c.Reject(within(t), d.Receipt))
			must(t, c.Close(within(t)))
			return died, holds
		},
		Exact: true,
		QueueOf: map[string]func(testing.TB) string{
			quarantine.QueueLocal: func(t testing.TB) string { return w.queue(t, QueueSpec{}) },
		},
		FullQueue: func(t testing.TB) string {
			q := w.queue(t, QueueSpec{MaxLength: 1})
			w.publishRaw(t, brokertest.Raw{RoutingKey: q, Properties: []byte{0, 0}})
			return q
		},
		Stall: func(testing.TB) func() {
			w.gate.Lock()
			var once sync.Once
			return func() { once.Do(w.gate.Unlock) }
		},
	}
}
