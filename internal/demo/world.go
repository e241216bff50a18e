package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// Names of the demo's queues. They are its own, so that a shared broker is not
// disturbed.
const (
	Orders   = "redrive-demo.orders.fulfillment"
	Dead     = "redrive-demo.orders.fulfillment.dlq"
	Outcomes = "redrive-demo.outcomes"
)

// World is the shop: its broker, its catalogue and its order book.
type World struct {
	source  quarantine.Source
	release redrive.Releaser

	mu        sync.Mutex
	catalogue map[string]bool // SKUs that the consumer knows
	timeouts  bool            // the warehouse is slow
	fulfilled map[string]bool // operations that had their effect
	seen      int             // messages the consumer has dealt with
	changed   chan struct{}
}

// New makes a world on a broker whose queues exist.
func New(source quarantine.Source, release redrive.Releaser) *World {
	return &World{source: source, release: release, catalogue: map[string]bool{"SKU-1": true, "SKU-2": true, "SKU-3": true},
		timeouts: true, fulfilled: map[string]bool{}, changed: make(chan struct{})}
}

// Learn adds a SKU to the catalogue that the consumer uses.
func (w *World) Learn(sku string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catalogue[sku] = true
}

// Fulfil notes an order as done by another way than the queue.
func (w *World) Fulfil(operation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fulfilled[operation] = true
}

// Order is one message of the demo.
type Order struct {
	Operation string `json:"order_id"`
	SKU       string `json:"sku"`
	Quantity  int    `json:"quantity"`
	Broken    bool   `json:"-"` // the producer sends it without its SKU
	Slow      bool   `json:"slow,omitempty"`
}

// Day makes the orders of a day. The seed changes how many of each kind there
// are; the kinds are always the same.
func Day(seed uint64) []Order {
	r := rand.New(rand.NewPCG(seed, 2))
	var orders []Order
	add := func(n int, o Order) {
		for range n {
			o.Operation = fmt.Sprintf("order-%04d", 1000+len(orders))
			o.Quantity = 1 + r.IntN(5)
			orders = append(orders, o)
		}
	}
	add(15+r.IntN(10), Order{SKU: "SKU-1"})
	add(28+r.IntN(8), Order{SKU: NewSKU})
	add(3+r.IntN(4), Order{SKU: "SKU-2", Broken: true})
	add(2+r.IntN(4), Order{SKU: "SKU-3", Slow: true})
	add(10+r.IntN(10), Order{SKU: "SKU-2"})
	r.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	return append(orders, Order{Operation: "order-test", SKU: Poison, Quantity: 1})
}

// NewSKU is what the catalogue does not know at first, and Poison what it will
// never know.
const (
	NewSKU = "SKU-88"
	Poison = "SKU-DISCONTINUED"
)

// Produce publishes orders, the last-but-one twice under the same operation.
func (w *World) Produce(ctx context.Context, orders []Order, twice string) error {
	ch, err := w.release.Open(ctx, redrive.ChannelOptions{Window: 64, ConfirmDeadline: 10 * time.Second, LateGrace: time.Second})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		var err error
		for r := range ch.Results() {
			if r.Resolution != event.Confirmed {
				err = fmt.Errorf("the broker did not take an order: %s %s", r.Resolution, r.Reason)
			}
		}
		failed <- err
	}()
	n := uint64(0)
	for _, o := range orders {
		copies := 1
		if o.Operation == twice {
			copies = 2
		}
		for range copies {
			n++
			m, err := message(o)
			if err != nil {
				return err
			}
			m.Token = n
			if err := ch.Publish(ctx, m); err != nil {
				return err
			}
		}
	}
	if err := ch.Close(ctx); err != nil {
		return err
	}
	return <-failed
}

func message(o Order) (redrive.Message, error) {
	body, err := json.Marshal(o)
	if o.Broken {
		body, err = []byte(fmt.Sprintf(`{"order_id":%q,"quantity":%d}`, o.Operation, o.Quantity)), nil
	}
	if err != nil {
		return redrive.Message{}, err
	}
	props, err := amqpwire.Build(amqpwire.View{
		Present:     amqpwire.ContentType | amqpwire.DeliveryMode | amqpwire.MessageID | amqpwire.Type | amqpwire.Headers,
		ContentType: "application/json", DeliveryMode: 2, MessageID: o.Operation, Type: "order.placed",
		Headers: []amqpwire.Field{amqpwire.StringField("x-operation-id", o.Operation), amqpwire.StringField("x-schema-version", "3")},
	})
	return redrive.Message{Dest: redrive.Destination{RoutingKey: Orders}, Properties: props, Body: body}, err
}

// Consume runs the consumer until ctx ends: it fulfils orders, moves what
// fails to the dead-letter queue with its context, and reports outcomes of
// released messages.
func (w *World) Consume(ctx context.Context) error {
	s, err := w.source.Open(ctx, quarantine.SessionOptions{Queue: Orders, Prefetch: 1})
	if err != nil {
		return err
	}
	ch, err := w.release.Open(ctx, redrive.ChannelOptions{Window: 8, ConfirmDeadline: 10 * time.Second, LateGrace: time.Second})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = ch.Close(end) // the demo is over
		_ = s.Close(end)
	}()
	for {
		select {
		case d, ok := <-s.Deliveries():
			if !ok {
				return s.Err()
			}
			if err := w.handle(ctx, ch, d); err != nil {
				return err
			}
			if err := s.Settle(ctx, []quarantine.Receipt{d.Receipt}); err != nil {
				return err
			}
			w.tick()
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *World) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
	close(w.changed)
	w.changed = make(chan struct{})
}

// Await waits until the consumer has dealt with n messages in all.
func (w *World) Await(ctx context.Context, n int) error {
	for {
		w.mu.Lock()
		seen, changed := w.seen, w.changed
		w.mu.Unlock()
		if seen >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handle is the consumer's decision about one message.
func (w *World) handle(ctx context.Context, ch redrive.Channel, d quarantine.Delivery) error {
	v := amqpwire.Parse(d.Properties)
	var o Order
	reason, detail := "", ""
	result := event.OutcomeSucceeded
	w.mu.Lock()
	switch err := json.Unmarshal(d.Body, &o); {
	case err != nil || o.SKU == "":
		reason, detail = "schema_invalid", "field sku is missing"
	case w.fulfilled[o.Operation]:
		result = event.OutcomeDeduplicated
	case !w.catalogue[o.SKU]:
		reason, detail = "unknown_sku", "catalogue answers 404 for "+o.SKU
	case o.Slow && w.timeouts:
		reason, detail = "downstream_timeout", "warehouse did not answer within 5 s"
	default:
		w.fulfilled[o.Operation] = true
	}
	w.mu.Unlock()
	if reason != "" {
		m, err := aside(d, reason, detail)
		if err != nil {
			return err
		}
		return publish(ctx, ch, m)
	}
	st, mac, present, err := stamp.Read(v)
	if !present {
		return nil
	}
	if err != nil {
		return err
	}
	m, err := report(st, mac, result, o.Operation)
	if err != nil {
		return err
	}
	return publish(ctx, ch, m)
}

// aside is the copy of a failed message for the dead-letter queue.
func aside(d quarantine.Delivery, reason, detail string) (redrive.Message, error) {
	e := amqpwire.Edit(d.Properties)
	e.Set(amqpwire.StringField("x-death-reason", reason), amqpwire.LongField("x-retry-count", 0),
		amqpwire.StringField("x-last-error", detail), amqpwire.StringField("x-consumer-version", "fulfillment-worker 1.4.0"))
	props, err := e.Bytes()
	if err != nil {
		return redrive.Message{}, err
	}
	return redrive.Message{Dest: redrive.Destination{RoutingKey: Dead}, Properties: props, Body: d.Body}, nil
}

func report(st stamp.Stamp, mac stamp.MAC, o event.Outcome, operation string) (redrive.Message, error) {
	r := outcome.Report{Stamp: st, MAC: mac, Outcome: o, Operation: operation, Effect: "shipment-of-" + operation, ConsumerVersion: "fulfillment-worker 1.4.0"}
	body, err := r.Encode()
	return redrive.Message{Dest: redrive.Destination{RoutingKey: Outcomes}, Properties: []byte{0, 0}, Body: body}, err
}

// publish hands one message over and waits for its confirm: the original is
// only settled after that.
func publish(ctx context.Context, ch redrive.Channel, m redrive.Message) error {
	if err := ch.Publish(ctx, m); err != nil {
		return err
	}
	select {
	case r := <-ch.Results():
		if r.Resolution != event.Confirmed {
			return fmt.Errorf("the broker did not take a copy: %s %s", r.Resolution, r.Reason)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
