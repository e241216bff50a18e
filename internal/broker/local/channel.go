package local

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// Stable reasons of results and refusals.
const (
	reasonDeadline     = "confirm_deadline"
	reasonLost         = "connection_lost"
	reasonClosed       = "channel_closed"
	reasonNotConnected = "not_connected"
	reasonBody         = "body_too_large"
	reasonProperty     = "invalid_property"
)

// channel publishes with a window. The loop answers its tries in order; the
// pump hands results to the reader, so that the loop never waits for one.
//
// A channel is open, then closing (no further publish) and then over. It
// starts closing when its owner closes it or when a confirm is overdue; it is
// over when no try is unresolved and no late confirm is waited for.
type channel struct {
	r       *Releaser
	o       redrive.ChannelOptions
	slots   chan struct{} // one token for each publish without a result
	results chan redrive.Result
	wake    chan struct{} // tells the pump to look again
	shut    chan struct{} // closed with closing, so that a waiting Publish gives up
	over    chan struct{} // closed after results

	mu       sync.Mutex
	tries    []*try // unresolved or overdue, oldest first
	out      []redrive.Result
	unread   int // results that are not in the channel of results yet
	closing  bool
	noGrace  bool      // the owner closed it: late confirms are not waited for
	graceEnd time.Time // when late confirms are no longer waited for, zero while none is
}

// try is one publish that waits for its answer.
type try struct {
	token    uint64
	deadline time.Time
	overdue  bool // resolved as ambiguous; an answer would be late
}

func newChannel(r *Releaser, o redrive.ChannelOptions) *channel {
	return &channel{
		r: r, o: o,
		slots: make(chan struct{}, o.Window),
		// Room for a window of results and of late confirms: a caller that
		// publishes one window, closes and reads then is not kept waiting.
		results: make(chan redrive.Result, 2*o.Window),
		wake:    make(chan struct{}, 1),
		shut:    make(chan struct{}),
		over:    make(chan struct{}),
	}
}

func refuse(reason, detail string) error {
	return &redrive.RefusedError{Reason: reason, Detail: detail}
}

// Publish is part of redrive.Channel.
func (c *channel) Publish(ctx context.Context, m redrive.Message) error {
	if len(m.Body) > c.r.b.opts.MaxBody {
		return refuse(reasonBody, fmt.Sprintf("%d bytes, at most %d are taken", len(m.Body), c.r.b.opts.MaxBody))
	}
	if m.Properties == nil {
		return refuse(reasonProperty, "no property flags")
	}
	p, err := c.r.b.prepare(Message{m.Dest.Exchange, m.Dest.RoutingKey, m.Properties, m.Body})
	if err != nil {
		return refuse(reasonProperty, err.Error())
	}
	// Ended contexts and closed channels come first: select picks at random.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", redrive.ErrNotSent, err)
	}
	select {
	case <-c.shut:
		return refuse(reasonClosed, "the channel takes no further message")
	default:
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.shut:
		return refuse(reasonClosed, "the channel takes no further message")
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", redrive.ErrNotSent, ctx.Err())
	}
	if err := c.send(m.Token, p); err != nil {
		<-c.slots
		return err
	}
	return nil
}

// send queues a message while it holds the lock, so that tries and requests
// have the same order.
func (c *channel) send(token uint64, p prepared) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return refuse(reasonClosed, "the channel takes no further message")
	}
	t := &try{token: token, deadline: time.Now().Add(c.o.ConfirmDeadline)}
	if err := c.r.b.put(p, func(out Outcome, err error) { c.answer(t, out, err) }); err != nil {
		return refuse(reasonNotConnected, err.Error())
	}
	c.tries = append(c.tries, t)
	c.ring()
	return nil
}

// answer is called by the loop once for each try.
func (c *channel) answer(t *try, out Outcome, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.ring()
	i := slices.Index(c.tries, t)
	if i < 0 {
		return // resolved when the channel was ended
	}
	c.tries = slices.Delete(c.tries, i, i+1)
	res := redrive.Result{Token: t.token, Resolution: out.Resolution, Reason: out.Reason, Detail: out.Detail}
	switch {
	case err != nil && t.overdue:
		return
	case err != nil:
		res.Resolution, res.Reason, res.Detail = event.Ambiguous, reasonLost, err.Error()
	case t.overdue && out.Resolution != event.Confirmed:
		return
	}
	res.Late = t.overdue
	c.yield(res)
}

// yield queues a result for the pump. The caller holds the lock.
func (c *channel) yield(res redrive.Result) {
	c.out = append(c.out, res)
	c.unread++
}

// Results is part of redrive.Channel.
func (c *channel) Results() <-chan redrive.Result { return c.results }

// Close is part of redrive.Channel.
func (c *channel) Close(ctx context.Context) error {
	c.mu.Lock()
	c.stopAccepting()
	c.noGrace = true
	c.mu.Unlock()
	c.ring()
	select {
	case <-c.over:
		return nil
	case <-ctx.Done():
	}
	c.abort(reasonClosed)
	return nil
}

// abort resolves what is in flight as ambiguous and waits until the reader can
// see that, unless the reader has stopped reading.
func (c *channel) abort(reason string) {
	c.mu.Lock()
	c.stopAccepting()
	c.noGrace = true
	for _, t := range c.tries {
		c.resolveAmbiguous(t, reason)
	}
	c.tries = nil
	room := c.unread <= cap(c.results)-len(c.results)
	c.mu.Unlock()
	c.ring()
	if room {
		<-c.over
	}
}

// stopAccepting begins the end. The caller holds the lock.
func (c *channel) stopAccepting() {
	if !c.closing {
		c.closing = true
		close(c.shut)
	}
}

// resolveAmbiguous adds the result of a try that has none. The caller holds
// the lock.
func (c *channel) resolveAmbiguous(t *try, reason string) {
	if !t.overdue {
		t.overdue = true
		c.yield(redrive.Result{Token: t.token, Resolution: event.Ambiguous, Reason: reason, Detail: "no confirm"})
	}
}

func (c *channel) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// pump hands over results and watches the deadlines until the channel is over.
func (c *channel) pump() {
	defer close(c.over)
	defer close(c.results)
	defer c.r.forget(c)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		out, wait, over := c.step(time.Now())
		for _, res := range out {
			c.place(res)
		}
		if over {
			return
		}
		if len(out) > 0 {
			continue // time has passed while the reader took its results
		}
		timer.Reset(wait)
		select {
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// place gives one result to the reader, and its slot back.
func (c *channel) place(res redrive.Result) {
	c.results <- res
	if !res.Late {
		<-c.slots
	}
	c.mu.Lock()
	c.unread--
	c.mu.Unlock()
}

// step applies the deadlines and returns the results to hand over, how long
// to sleep then, and whether these results were the last.
func (c *channel) step(now time.Time) ([]redrive.Result, time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := time.Hour
	open := 0
	for _, t := range c.tries {
		if !t.overdue && !now.Before(t.deadline) {
			c.resolveAmbiguous(t, reasonDeadline)
			c.stopAccepting()
			if c.graceEnd.IsZero() {
				c.graceEnd = now.Add(c.o.LateGrace)
			}
		}
		if !t.overdue {
			open++
			wait = min(wait, t.deadline.Sub(now))
		}
	}
	if !c.graceEnd.IsZero() {
		if !now.Before(c.graceEnd) {
			for _, t := range c.tries {
				c.resolveAmbiguous(t, reasonDeadline)
			}
			c.tries, open = nil, 0
		} else {
			wait = min(wait, c.graceEnd.Sub(now))
		}
	}
	waiting := len(c.tries) > 0 && !c.noGrace || open > 0
	out := c.out
	c.out = nil
	return out, wait, c.closing && !waiting
}

var _ redrive.Channel = (*channel)(nil)
