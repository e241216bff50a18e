package local

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Message is one message to publish.
type Message struct {
	Exchange   string // "" is the default exchange: RoutingKey names the queue
	RoutingKey string
	// Properties are AMQP 0-9-1 basic property flags and list, stored as they
	// are. Nil stands for none.
	Properties []byte
	Body       []byte
}

// Outcome is what became of one publish.
type Outcome struct {
	Resolution event.Resolution // confirmed, returned or nacked
	Reason     string           // "" when confirmed, "no_route" or "queue_full"
	Detail     string           // for people
}

// maxExpiration is the largest per-message TTL that RabbitMQ takes, in
// milliseconds.
const maxExpiration = 1<<32 - 1

// Publish stores messages and waits until they are durable. All are mandatory:
// one without route is returned. There is one Outcome for each message, in
// order. ErrSpec is returned when one of them is invalid; then none was
// stored. With any other error, including that of ctx, each may be stored or
// not.
func (b *Broker) Publish(ctx context.Context, ms ...Message) ([]Outcome, error) {
	ready := make([]prepared, len(ms))
	for i, m := range ms {
		var err error
		if ready[i], err = b.prepare(m); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outs := make([]Outcome, len(ms))
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = err
		}
	}
	for i := range ready {
		wait.Add(1)
		err := b.put(ready[i], func(out Outcome, err error) {
			outs[i] = out
			note(err)
			wait.Done()
		})
		if err != nil {
			note(err)
			wait.Done()
			break
		}
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if failed != nil {
		return nil, failed
	}
	return outs, nil
}

// prepared is a valid message with its own time-to-live, -1 for none.
type prepared struct {
	Message
	ttl int64
}

// prepare checks a message and makes it independent of the caller's memory.
func (b *Broker) prepare(m Message) (prepared, error) {
	p := prepared{Message: m, ttl: -1}
	if m.Properties == nil {
		p.Properties = []byte{0, 0}
	}
	p.Properties, p.Body = bytes.Clone(p.Properties), bytes.Clone(m.Body)
	switch {
	case len(m.Exchange) > 255 || len(m.RoutingKey) > 255:
		return p, fmt.Errorf("%w: exchange and routing key must have at most 255 bytes", ErrSpec)
	case len(m.Body) > b.opts.MaxBody:
		return p, fmt.Errorf("%w: body of %d bytes, at most %d are taken", ErrSpec, len(m.Body), b.opts.MaxBody)
	}
	// Asking for an edit finds out whether the bytes can be walked at all: what
	// cannot be walked cannot be dead-lettered with its history.
	e := amqpwire.Edit(p.Properties)
	e.Strip(amqpwire.HeaderDeath)
	if _, err := e.Bytes(); err != nil {
		return p, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	v := amqpwire.Parse(p.Properties)
	if !v.Has(amqpwire.Expiration) {
		return p, nil
	}
	n, err := strconv.ParseUint(v.Expiration, 10, 64)
	if err != nil || n > maxExpiration {
		return p, fmt.Errorf("%w: expiration is not a number of milliseconds from 0 to %d", ErrSpec, maxExpiration)
	}
	p.ttl = int64(n)
	return p, nil
}

// put hands a message to the loop. With a nil error, done is called once.
func (b *Broker) put(p prepared, done func(Outcome, error)) error {
	var out Outcome
	return b.inbox.put(request{
		apply: func(t *turn) error { out = t.publish(p); return nil },
		done:  func(err error) { done(out, err) },
	})
}

// publish stores a message in all queues that it reaches, or in none.
func (t *turn) publish(p prepared) Outcome {
	if p.Exchange != "" && t.b.exchanges[p.Exchange] == nil {
		return Outcome{event.Returned, "no_route", "NO_ROUTE: no such exchange"}
	}
	targets := t.b.route(p.Exchange, p.RoutingKey)
	if len(targets) == 0 {
		return Outcome{event.Returned, "no_route", "NO_ROUTE"}
	}
	for _, q := range targets {
		if q.spec.Overflow == RejectPublish && q.full() {
			return Outcome{event.Nacked, "queue_full", fmt.Sprintf("queue %q has its maximum length of %d", q.spec.Name, q.spec.MaxLength)}
		}
	}
	for _, q := range targets {
		t.enqueue(q, t.record(q, p.Message, p.ttl))
	}
	return Outcome{Resolution: event.Confirmed}
}

// record is what q stores of m, which has a time-to-live of its own unless ttl
// is negative. The shorter one counts.
func (t *turn) record(q *queue, m Message, ttl int64) record {
	r := record{arrived: t.now, exchange: m.Exchange, routingKey: m.RoutingKey, properties: m.Properties, body: m.Body}
	if limit := int64(q.spec.MessageTTL / time.Millisecond); limit > 0 && (ttl < 0 || limit < ttl) {
		ttl = limit
	}
	if ttl >= 0 {
		r.expires = t.now + ttl
	}
	return r
}
