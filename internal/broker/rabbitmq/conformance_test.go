package rabbitmq

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redrivehq/redrive/internal/broker/brokertest"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

func TestConformance(t *testing.T) {
	node := rabbittest.Start(t)
	w := &world{node: node, url: node.URL()}
	brokertest.Run(t, w.harness(t))
}

// world is a broker whose connections can be cut, and which can be stopped.
type world struct {
	node  *rabbittest.Node
	url   string
	names atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// config dials through the world, which keeps the connections in order to cut
// them.
func (w *world) config(t testing.TB) Config {
	t.Helper()
	c := mustParse(t, w.url)
	dial := c.Dial
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.conns = append(w.conns, conn)
		}
		return conn, err
	}
	return c
}

// cut breaks all connections so far.
func (w *world) cut(testing.TB) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func (w *world) name(kind string) string { return fmt.Sprintf("%s-%d", kind, w.names.Add(1)) }

// raw runs f with a client of its own, which is gone when f returns.
func (w *world) raw(t testing.TB, f func(*rawamqp.Client)) {
	t.Helper()
	c := rawamqp.Dial(t, w.url)
	defer c.Close()
	f(c)
}

func (w *world) declare(t testing.TB, kind string, args ...amqpwire.Field) string {
	t.Helper()
	q := w.name(kind)
	w.raw(t, func(c *rawamqp.Client) { c.Declare(q, args...) })
	return q
}

func (w *world) harness(t *testing.T) brokertest.Harness {
	return brokertest.Harness{
		NewSource: func(t testing.TB) quarantine.Source {
			s, err := NewSource(within(t), w.config(t))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		NewReleaser: func(t testing.TB) redrive.Releaser {
			r, err := NewReleaser(within(t), w.config(t))
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		NewLayout: func(t testing.TB) quarantine.Layout {
			l, err := NewLayout(within(t), w.config(t))
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		NewQueue: func(t testing.TB) string { return w.declare(t, "queue") },
		NewExchange: func(t testing.TB, queue, key string) string {
			x := w.name("exchange")
			w.raw(t, func(c *rawamqp.Client) {
				c.DeclareExchange(x, "direct")
				c.Bind(queue, x, key)
			})
			return x
		},
		DeleteQueue: func(t testing.TB, queue string) {
			w.raw(t, func(c *rawamqp.Client) { c.Delete(queue) })
		},
		Publish: func(t testing.TB, ms ...brokertest.Raw) {
			w.raw(t, func(c *rawamqp.Client) {
				for _, m := range ms {
					c.Publish(m.Exchange, m.RoutingKey, m.Properties, m.Body)
				}
			})
		},
		Drain: func(t testing.TB, queue string) (out []brokertest.Raw) {
			w.raw(t, func(c *rawamqp.Client) {
				for _, m := range c.Drain(queue) {
					out = append(out, brokertest.Raw{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Properties: m.Properties, Body: m.Body})
				}
			})
			return out
		},
		DeadLetter: w.deadLetter,
		Exact:      exactBroker(t, w.node.Version()),
		QueueOf: map[string]func(testing.TB) string{
			quarantine.QueueClassic: w.queueOf("classic"),
			quarantine.QueueQuorum:  w.queueOf("quorum"),
			quarantine.QueueStream:  w.queueOf("stream"),
		},
		FullQueue: func(t testing.TB) string {
			q := w.declare(t, "full", amqpwire.LongField("x-max-length", 1), amqpwire.StringField("x-overflow", "reject-publish"))
			w.raw(t, func(c *rawamqp.Client) { c.Publish("", q, []byte{0, 0}, nil) })
			return q
		},
		NewRefused: func(t testing.TB) (quarantine.Source, error) {
			c := w.config(t)
			c.Password = func() (string, error) { return "not the password", nil }
			s, err := NewSource(within(t), c)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Stall: func(t testing.TB) func() {
			pause(t, w.node)
			var once sync.Once
			return func() { once.Do(func() { w.node.Resume(t) }) }
		},
		Cut: w.cut,
	}
}

func (w *world) queueOf(kind string) func(testing.TB) string {
	return func(t testing.TB) string { return w.declare(t, kind, amqpwire.StringField("x-queue-type", kind)) }
}

// exactBroker reports whether a version hands headers on as they came.
func exactBroker(t testing.TB, version string) bool {
	t.Helper()
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("version %q: %v", version, err)
	}
	return major == 3 && minor < 13
}

// deadLetter publishes to a queue and rejects there.
func (w *world) deadLetter(t testing.TB, props, body []byte) (died, holds string) {
	t.Helper()
	holds = w.declare(t, "holds")
	died = w.declare(t, "died", amqpwire.StringField("x-dead-letter-exchange", ""), amqpwire.StringField("x-dead-letter-routing-key", holds))
	w.raw(t, func(c *rawamqp.Client) {
		c.Publish("", died, props, body)
		c.Reject(died)
	})
	return died, holds
}
