package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// parcel is a message of the kill tests. Its body is its name.
type parcel struct {
	name      string
	messageID bool // the publisher named it
	operation bool // it says for which business operation it is
}

// parcels makes n of them, of all kinds in turn.
func parcels(first, n int) []parcel {
	out := make([]parcel, n)
	for i := range out {
		k := first + i
		out[i] = parcel{name: fmt.Sprintf(`{"parcel":%d}`, k), messageID: k%3 != 2, operation: k%3 != 1}
	}
	return out
}

// found is a message that a test took out of a queue.
type found struct {
	name   string
	intent string // its stamp's, "" without
}

// venue is a broker with the queues orders and orders.dlq, on which the same
// kill test runs.
type venue interface {
	config() string
	publish(queue string, ps ...parcel)
	ready(queue string) int
	// drain takes everything out of a queue.
	drain(queue string) []found
}

// venueConfig follows the broker's line.
const venueConfig = `
sources: [{queue: orders.dlq, prefetch: 5}]
destinations: [{queue: orders}]
approvals: {planner_up_to: 100000}
store: {min_free_mib: 16}
brake: {hold_down: 1ms, watch: [none]}
`

// embedded is the embedded broker in the data directory of a site. The test
// opens its file only while no program does.
type embedded struct {
	t    testing.TB
	path string
}

func newEmbedded(t testing.TB) *embedded {
	t.Helper()
	e := &embedded{t: t, path: filepath.Join(t.TempDir(), "broker.db")}
	e.with(func(ctx context.Context, b *local.Broker) error {
		if err := b.Declare(ctx, local.QueueSpec{Name: "orders.dlq", DeliveryLimit: 20}); err != nil {
			return err
		}
		return b.Declare(ctx, local.QueueSpec{Name: "orders", DeliveryLimit: 5, DeadLetter: local.ToQueue("orders.dlq")})
	})
	return e
}

func (e *embedded) with(fn func(ctx context.Context, b *local.Broker) error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	b, err := local.Open(e.path, local.Options{})
	if err != nil {
		e.t.Fatal(err)
	}
	if err := fn(ctx, b); err != nil {
		e.t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		e.t.Fatal(err)
	}
}

func (e *embedded) config() string {
	return fmt.Sprintf("version: 1\nbroker: {url: \"local:%s\"}\n", e.path) + venueConfig
}

func (e *embedded) publish(queue string, ps ...parcel) {
	e.t.Helper()
	var ms []local.Message
	for _, p := range ps {
		v := amqpwire.View{Present: amqpwire.DeliveryMode, DeliveryMode: 2}
		if p.messageID {
			v.Present |= amqpwire.MessageID
			v.MessageID = "id of " + p.name
		}
		if p.operation {
			v.Present |= amqpwire.Headers
			v.Headers = []amqpwire.Field{amqpwire.StringField("x-operation-id", "operation of "+p.name)}
		}
		props, err := amqpwire.Build(v)
		if err != nil {
			e.t.Fatal(err)
		}
		ms = append(ms, local.Message{RoutingKey: queue, Properties: props, Body: []byte(p.name)})
	}
	e.with(func(ctx context.Context, b *local.Broker) error {
		_, err := b.Publish(ctx, ms...)
		return err
	})
}

func (e *embedded) ready(queue string) (n int) {
	e.t.Helper()
	e.with(func(ctx context.Context, b *local.Broker) error {
		d, err := b.Depth(ctx, queue)
		n = d.Ready
		return err
	})
	return n
}

func (e *embedded) drain(queue string) []found {
	e.t.Helper()
	var out []found
	e.with(func(ctx context.Context, b *local.Broker) error {
		d, err := b.Depth(ctx, queue)
		if err != nil {
			return err
		}
		c, err := b.Consume(ctx, queue, 100)
		if err != nil {
			return err
		}
		for range d.Ready {
			d := <-c.Deliveries()
			v := amqpwire.Parse(d.Properties)
			intent, _ := v.Text("x-redrive-intent")
			out = append(out, found{name: string(d.Body), intent: intent})
			if err := c.Ack(ctx, d.Receipt); err != nil {
				return err
			}
		}
		return c.Close(ctx)
	})
	return out
}

// genuine is a RabbitMQ.
type genuine struct{ *rabbit }

func newGenuine(t testing.TB) genuine {
	t.Helper()
	r := newRabbit(t)
	r.declareOrders()
	return genuine{r}
}

func (r genuine) config() string {
	return fmt.Sprintf("version: 1\nbroker: {url: \"amqp://%s/%s\", user: %s, password_file: password}\n",
		r.node.Addr(), r.vhost, brokerUser) + venueConfig
}

func (r genuine) publish(queue string, ps ...parcel) {
	r.t.Helper()
	var ms []amqp.Publishing
	for _, p := range ps {
		m := amqp.Publishing{Body: []byte(p.name), Headers: amqp.Table{}}
		if p.messageID {
			m.MessageId = "id of " + p.name
		}
		if p.operation {
			m.Headers["x-operation-id"] = "operation of " + p.name
		}
		ms = append(ms, m)
	}
	r.rabbit.publish(queue, ms...)
}

func (r genuine) drain(queue string) []found {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	var out []found
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			r.t.Fatal(err)
		}
		if !ok {
			return out
		}
		intent, _ := d.Headers["x-redrive-intent"].(string)
		out = append(out, found{name: string(d.Body), intent: intent})
	}
}
