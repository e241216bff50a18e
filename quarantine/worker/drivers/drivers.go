// Package drivers puts a worker onto what brokers offer to the rest of this
// module: any quarantine.Source to receive from and any redrive.Releaser to
// publish copies with. Package worker/rabbitmq does it for RabbitMQ.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/redrive"
)

// Window and ConfirmDeadline bound the copies that wait for their confirm.
const (
	Window          = 256
	ConfirmDeadline = 30 * time.Second
)

// Conn makes the world of a worker from a source and a releaser, with the
// system's clock and randomness. Closing is for their owner; Publisher of the
// Conn needs none.
func Conn(s quarantine.Source, r redrive.Releaser) worker.Conn {
	return worker.Conn{Source: s, Publisher: NewPublisher(r), Clock: Clock{}, Random: rand.Float64}
}

// Clock is the system's clock.
type Clock struct{}

// Now implements worker.Clock.
func (Clock) Now() time.Time { return time.Now() }

// After implements worker.Clock.
func (Clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Publisher implements worker.Publisher on one channel of a Releaser, which it
// opens when it is needed and again after it was lost.
type Publisher struct {
	r redrive.Releaser

	mu   sync.Mutex
	line *line // nil before the first publish
}

var _ worker.Publisher = (*Publisher)(nil)

// NewPublisher publishes through r, whose end ends it.
func NewPublisher(r redrive.Releaser) *Publisher { return &Publisher{r: r} }

// Limits implements worker.Publisher.
func (p *Publisher) Limits() quarantine.Limits {
	c := p.r.Caps()
	return quarantine.Limits{MaxBody: c.MaxBody, MaxHeader: c.MaxHeader, UserID: c.UserID}
}

// Publish implements worker.Publisher.
func (p *Publisher) Publish(ctx context.Context, c worker.Copy) error {
	m := redrive.Message{Dest: redrive.Destination{Exchange: c.Exchange, RoutingKey: c.RoutingKey}, Properties: c.Properties, Body: c.Body}
	for again := true; ; again = false {
		l, err := p.open(ctx)
		if err != nil {
			return &worker.PublishError{Resolution: event.Refused, Reason: reasonNotConnected, Detail: err.Error()}
		}
		err = l.publish(ctx, m)
		// A channel may have ended since its last use, which only a use shows.
		if !errors.Is(err, errOver) {
			return err
		}
		p.forget(l)
		if !again {
			return &worker.PublishError{Resolution: event.Refused, Reason: reasonNotConnected, Detail: "the channel ended before the copy was sent"}
		}
	}
}

const (
	reasonNotConnected = "not_connected"
	reasonClosed       = "channel_closed"
)

// open returns the channel in use, or another one after it.
func (p *Publisher) open(ctx context.Context) (*line, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line != nil && !p.line.over() {
		return p.line, nil
	}
	ch, err := p.r.Open(ctx, redrive.ChannelOptions{Window: Window, ConfirmDeadline: ConfirmDeadline, LateGrace: 0})
	if err != nil {
		return nil, err
	}
	p.line = &line{ch: ch, waiting: map[uint64]chan<- redrive.Result{}}
	go p.line.read()
	return p.line, nil
}

func (p *Publisher) forget(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == l {
		p.line = nil
	}
}

// line is one channel and those who wait for its results.
type line struct {
	ch redrive.Channel

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan<- redrive.Result
	ended   bool
}

// errOver tells that a channel takes nothing more and that nothing was sent.
var errOver = errors.New("channel is over")

func (l *line) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// read hands out results until the channel is over.
func (l *line) read() {
	for r := range l.ch.Results() {
		if r.Late {
			continue // it was ambiguous, and was published again
		}
		l.mu.Lock()
		w := l.waiting[r.Token]
		delete(l.waiting, r.Token)
		l.mu.Unlock()
		if w != nil {
			w <- r
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for token, w := range l.waiting { // none, unless the driver breaks its contract
		w <- redrive.Result{Token: token, Resolution: event.Ambiguous, Reason: "connection_lost", Detail: "the channel ended without a result"}
	}
	clear(l.waiting)
}

func (l *line) publish(ctx context.Context, m redrive.Message) error {
	result := make(chan redrive.Result, 1)
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return errOver
	}
	l.next++
	m.Token = l.next
	l.waiting[m.Token] = result
	l.mu.Unlock()
	if err := l.ch.Publish(ctx, m); errors.Is(err, redrive.ErrNotSent) {
		l.mu.Lock()
		delete(l.waiting, m.Token)
		l.mu.Unlock()
		return notSent(err)
	}
	select {
	case r := <-result:
		if r.Resolution == event.Confirmed {
			return nil
		}
		return &worker.PublishError{Resolution: r.Resolution, Reason: r.Reason, Detail: r.Detail}
	case <-ctx.Done():
		return fmt.Errorf("the copy was sent and not confirmed: %w", ctx.Err())
	}
}

// notSent makes an error of a worker's port from one of a releaser's.
func notSent(err error) error {
	var refused *redrive.RefusedError
	switch {
	case !errors.As(err, &refused):
		return err // the context has ended
	case refused.Reason == reasonNotConnected || refused.Reason == reasonClosed:
		return errOver
	}
	return &worker.PublishError{Resolution: event.Refused, Reason: refused.Reason, Detail: refused.Detail}
}
