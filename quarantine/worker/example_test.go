package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/dedup/bolt"
	"github.com/redrivehq/redrive/quarantine/worker/drivers"
)

// check ends an example that cannot go on.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// shop is a broker file with a queue, its retry queue and its quarantine, and
// three orders in it. RabbitMQ takes the place of the file in production: see
// package worker/rabbitmq.
func shop(dir string, p *policy.Policy) *local.Broker {
	b, err := local.Open(filepath.Join(dir, "broker"), local.Options{})
	check(err)
	ctx := context.Background()
	q := p.Queues[0].WithDefaults()
	err = errors.Join(
		b.Declare(ctx, local.QueueSpec{Name: q.Name}),
		b.Declare(ctx, local.QueueSpec{Name: q.Quarantine}),
		b.Declare(ctx, local.QueueSpec{Name: q.RetryQueueFor(1), DeadLetter: local.ToQueue(q.Name)}),
	)
	for _, id := range []string{"order-1", "order-2", "order-3"} {
		props, failed := amqpwire.Build(amqpwire.View{Present: amqpwire.MessageID, MessageID: id})
		_, lost := b.Publish(ctx, local.Message{RoutingKey: q.Name, Properties: props})
		err = errors.Join(err, failed, lost)
	}
	check(err)
	return b
}

// A handler says what went wrong; the policy says what that means.
func ExampleRun() {
	p := &policy.Policy{
		Reasons: map[string]policy.Reason{
			"unknown_sku": {Class: event.Permanent, Owner: "Catalog team"},
			"db_conflict": {Class: event.Transient, Codes: []string{"40001", "40P01"}},
		},
		Queues: []policy.Queue{{Name: "orders", Retries: 1, Delays: []time.Duration{time.Second}}},
	}
	dir, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(dir)
	b := shop(dir, p)
	defer b.Close()

	handle := func(_ context.Context, m *worker.Message) error {
		switch {
		case m.ID == "order-2":
			return worker.Permanent("unknown_sku", errors.New("no SKU 88"))
		case m.ID == "order-3" && m.Run == 1:
			return worker.Transient("", errors.New("deadlock")).WithCode("40P01")
		}
		fmt.Printf("%s shipped in run %d\n", m.ID, m.Run)
		return nil
	}

	ctx, stop := context.WithCancel(context.Background())
	settled := 0
	options := worker.Options{
		Version: "shop 1.0",
		Scale:   0.001, // milliseconds for seconds, in this example
		Log:     slog.New(slog.DiscardHandler),
		Observe: func(s worker.Step, _ *worker.Message) {
			if s == worker.StepSettled {
				if settled++; settled == 4 { // three orders, one of them twice
					stop()
				}
			}
		},
	}
	conn := drivers.Conn(local.NewSource(b), local.NewReleaser(b))
	check(worker.Run(ctx, conn, p, handle, options))
	left, err := b.Stats(context.Background(), "orders.dlq")
	check(err)
	fmt.Println(left.Ready, "in quarantine")
	// Output:
	// order-1 shipped in run 1
	// order-3 shipped in run 2
	// 1 in quarantine
}

// What the policy knows of a reason comes before the class that the handler
// gave; what the handler says of an effect stands.
func ExampleDecide() {
	p := &policy.Policy{
		Reasons:    map[string]policy.Reason{"unknown_sku": {Class: event.Permanent, Owner: "Catalog team"}},
		NeverRetry: policy.NeverRetry{Codes: []string{"131047"}, Reason: "meta_error_{code}"},
	}
	q := policy.Queue{Name: "orders", Retries: 5}.WithDefaults()
	show := func(f *worker.Failure, retries int) {
		d := worker.Decide(p, &q, f, retries)
		fmt.Printf("%s %q %q\n", d.Act, d.Reason, d.Last)
	}
	show(worker.Transient("unknown_sku", nil), 0)
	show(worker.Transient("carrier_busy", nil), 4)
	show(worker.Transient("carrier_busy", nil), 5)
	show(worker.Transient("carrier_busy", nil).WithCode("131047"), 0)
	show(worker.Ambiguous("unknown_sku", nil), 0)
	// Output:
	// quarantine "unknown_sku" ""
	// retry "carrier_busy" ""
	// quarantine "retries_exhausted" "carrier_busy"
	// quarantine "meta_error_131047" ""
	// quarantine "unknown_sku" ""
}

// An inbox keeps a handler from having an effect twice.
func ExampleInbox() {
	dir, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(dir)
	inbox, err := bolt.Open(filepath.Join(dir, "inbox"), 30*24*time.Hour)
	check(err)
	defer inbox.Close()

	ctx := context.Background()
	op := worker.Operation{ID: "order-1", Now: time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)}
	first, _ := inbox.Begin(ctx, op)
	_ = inbox.Done(ctx, op, "shipment 9")
	second, _ := inbox.Begin(ctx, op)
	fmt.Println(first.State, second.State, second.Effect)
	// Output: new done shipment 9
}
