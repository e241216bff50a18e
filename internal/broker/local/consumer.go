package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redrivehq/redrive/quarantine"
)

// maxPrefetch is the largest bound of a session.
const maxPrefetch = 1000

// Consumer receives from one queue. It is a quarantine.Session; Ack, Nack and
// Reject are there for those who play the consumer of a system.
type Consumer struct {
	b *Broker
	q *queue
	// deliveries has room for the largest prefetch, so that the loop never
	// waits for a reader: what is in it is not settled and counts.
	deliveries chan quarantine.Delivery

	mu  sync.Mutex
	err error

	// What follows belongs to the loop.

	prefetch  int
	unsettled map[quarantine.Receipt]*entry
	gone      error // why it is over, nil while it lives
}

var _ quarantine.Session = (*Consumer)(nil)

// Consume starts to receive from a queue, at most prefetch unsettled messages
// at a time. The errors are those of quarantine.Source.
func (b *Broker) Consume(ctx context.Context, queue string, prefetch int) (*Consumer, error) {
	if queue == "" {
		return nil, fmt.Errorf("%w: no queue named", quarantine.ErrRefused)
	}
	if err := checkPrefetch(prefetch); err != nil {
		return nil, err
	}
	c := &Consumer{
		b: b, prefetch: prefetch, unsettled: map[quarantine.Receipt]*entry{},
		deliveries: make(chan quarantine.Delivery, maxPrefetch),
	}
	err := b.do(ctx, func(*turn) error {
		if c.q = b.queues[queue]; c.q == nil {
			return missing(queue)
		}
		if c.gone != nil {
			return c.gone
		}
		c.q.consumers = append(c.q.consumers, c)
		return nil
	})
	if err != nil {
		// The caller gets none, so what is started all the same must end.
		b.abandon(c)
		return nil, err
	}
	return c, nil
}

// abandon ends a consumer that nobody got to see.
func (b *Broker) abandon(c *Consumer) {
	_ = b.inbox.put(request{
		apply: func(t *turn) error { t.endConsumer(c, quarantine.ErrClosed); return nil },
		done:  func(error) {},
	})
}

func checkPrefetch(n int) error {
	if n < 1 || n > maxPrefetch {
		return fmt.Errorf("%w: prefetch %d is not between 1 and %d", quarantine.ErrRefused, n, maxPrefetch)
	}
	return nil
}

// Deliveries is part of quarantine.Session.
func (c *Consumer) Deliveries() <-chan quarantine.Delivery { return c.deliveries }

// Settle is part of quarantine.Session. It settles all or, with ErrReceipt,
// none.
func (c *Consumer) Settle(ctx context.Context, rs []quarantine.Receipt) error {
	return c.change(ctx, rs, func(t *turn, e *entry) { t.remove(c.q, e) })
}

// Return is part of quarantine.Session. Every return counts against the
// delivery limit of the queue.
func (c *Consumer) Return(ctx context.Context, rs []quarantine.Receipt) error {
	return c.change(ctx, rs, func(t *turn, e *entry) { t.giveBack(c.q, e) })
}

// Ack settles messages.
func (c *Consumer) Ack(ctx context.Context, rs ...quarantine.Receipt) error {
	return c.Settle(ctx, rs)
}

// Nack gives messages back, or dead-letters them when requeue is false.
func (c *Consumer) Nack(ctx context.Context, requeue bool, rs ...quarantine.Receipt) error {
	if requeue {
		return c.Return(ctx, rs)
	}
	return c.Reject(ctx, rs...)
}

// Reject dead-letters messages; without dead-letter target they are dropped.
func (c *Consumer) Reject(ctx context.Context, rs ...quarantine.Receipt) error {
	return c.change(ctx, rs, func(t *turn, e *entry) { t.deadLetter(c.q, e, reasonRejected) })
}

// change takes receipts out of the session and does something with each
// message, in the order given.
func (c *Consumer) change(ctx context.Context, rs []quarantine.Receipt, each func(*turn, *entry)) error {
	if err := c.Err(); err != nil {
		return err
	}
	if len(rs) == 0 {
		return nil
	}
	rs = slices.Clone(rs)
	return c.b.do(ctx, func(t *turn) error {
		if c.gone != nil {
			return c.gone
		}
		taken := make([]*entry, 0, len(rs))
		for i, r := range rs {
			e := c.unsettled[r]
			if e == nil || slices.Contains(taken, e) {
				return fmt.Errorf("%w: number %d of %d, %d", ErrReceipt, i+1, len(rs), r)
			}
			taken = append(taken, e)
		}
		for i, r := range rs {
			delete(c.unsettled, r)
			each(t, taken[i])
		}
		return nil
	})
}

// SetPrefetch is part of quarantine.Session.
func (c *Consumer) SetPrefetch(ctx context.Context, n int) error {
	if n != 0 {
		if err := checkPrefetch(n); err != nil {
			return err
		}
	}
	return c.b.do(ctx, func(*turn) error {
		if c.gone != nil {
			return c.gone
		}
		c.prefetch = n
		return nil
	})
}

// Err is part of quarantine.Session.
func (c *Consumer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close is part of quarantine.Session.
func (c *Consumer) Close(ctx context.Context) error {
	err := c.b.doAnyway(ctx, func(t *turn) error {
		t.endConsumer(c, quarantine.ErrClosed)
		return nil
	})
	if err == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	// The broker takes no request any more: it ends its consumers itself.
	select {
	case <-c.b.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endConsumer gives back what c has not settled. It does nothing when c is over.
func (t *turn) endConsumer(c *Consumer, why error) {
	if c.gone != nil {
		return
	}
	c.gone = why
	if c.q == nil {
		return
	}
	c.q.consumers = slices.DeleteFunc(c.q.consumers, func(o *Consumer) bool { return o == c })
	for _, r := range slices.Sorted(maps.Keys(c.unsettled)) {
		t.giveBack(c.q, c.unsettled[r])
	}
	clear(c.unsettled)
	t.ended = append(t.ended, func() { c.end(why) })
}

// end tells the reader that it is over. Only the loop calls it, once.
func (c *Consumer) end(why error) {
	c.gone = why
	c.mu.Lock()
	c.err = why
	c.mu.Unlock()
	// What nobody has read yet went back to the queue.
	for {
		select {
		case <-c.deliveries:
			continue
		default:
		}
		break
	}
	close(c.deliveries)
}
