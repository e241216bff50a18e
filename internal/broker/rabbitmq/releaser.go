package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// Releaser implements redrive.Releaser. Each channel has a connection of its
// own: what one message does to it is no other channel's business.
type Releaser struct {
	control *control
	survey  *surveyor
	caps    redrive.ReleaserCaps
	learned atomic.Int64 // the largest body that the broker takes, 0 while it did not say

	mu       sync.Mutex
	channels map[*channel]struct{}
	closed   bool
	closing  sync.WaitGroup // connections that say goodbye
}

var _ redrive.Releaser = (*Releaser)(nil)

// NewReleaser connects to the broker. Its errors wrap ErrRefused or
// ErrUnreachable of package quarantine, or say what is wrong with c.
func NewReleaser(ctx context.Context, c Config) (*Releaser, error) {
	k, err := newControl(ctx, c, "redrive release")
	if err != nil {
		return nil, err
	}
	r := &Releaser{control: k, survey: newSurveyor(k), channels: map[*channel]struct{}{}}
	r.caps = redrive.ReleaserCaps{
		Broker: k.id.product, Version: k.id.version, Cluster: k.id.cluster,
		VHost: k.cfg.VHost, UserID: k.cfg.User, ConfirmsAll: true,
		MaxBody: k.cfg.MaxMessage, MaxHeader: maxHeader(k.link.conn.Config.FrameSize),
	}
	if r.caps.MaxBody == 0 {
		r.caps.MaxBody = defaultMaxMessage(r.caps)
	}
	return r, nil
}

// maxHeader is the largest content header payload under a negotiated frame
// size, 0 when that is unlimited.
func maxHeader(frameSize int) int { return max(0, frameSize-frameOverhead) }

// defaultMaxMessage is max_message_size where nobody changed it, 0 when unknown.
func defaultMaxMessage(caps redrive.ReleaserCaps) int {
	switch v := majorVersion(caps); {
	case v >= 4:
		return 16 << 20
	case v == 3:
		return 128 << 20
	default:
		return 0
	}
}

// majorVersion is the first number of RabbitMQ's version, 0 of another broker.
func majorVersion(caps redrive.ReleaserCaps) int { return of(caps).major() }

// of is the identity that capabilities speak of.
func of(caps redrive.ReleaserCaps) identity {
	return identity{product: caps.Broker, version: caps.Version, cluster: caps.Cluster}
}

// Caps implements redrive.Releaser.
func (r *Releaser) Caps() redrive.ReleaserCaps { return r.caps }

// takes is what the broker takes, as far as it has told by now.
func (r *Releaser) takes() redrive.ReleaserCaps {
	caps := r.caps
	if n := int(r.learned.Load()); n > 0 && (caps.MaxBody == 0 || n < caps.MaxBody) {
		caps.MaxBody = n
	}
	return caps
}

// Route implements redrive.Releaser. Of a queue that may not be looked at, only
// that it may exist is known: its numbers are -1 and its kind is "".
func (r *Releaser) Route(ctx context.Context, d redrive.Destination) (redrive.Route, error) {
	route := redrive.Route{Exists: true, Ready: -1, Consumers: -1}
	if len(d.Exchange) > maxShort || len(d.RoutingKey) > maxShort || d.Exchange == "" && d.RoutingKey == "" {
		route.Exists = false
		route.At = time.Now()
		return route, nil
	}
	var err error
	if d.SingleQueue() {
		route.Ready, route.Consumers, err = r.control.queue(ctx, d.RoutingKey)
	} else {
		err = r.control.exchange(ctx, d.Exchange)
	}
	route.At = time.Now()
	switch replyCode(err) {
	case amqp.AccessRefused, amqp.ResourceLocked:
		route.Ready, route.Consumers, err = -1, -1, nil
	case amqp.NotFound:
		if errors.Is(classify(err, opening), quarantine.ErrQueueMissing) {
			return redrive.Route{Ready: -1, Consumers: -1, At: route.At}, nil
		}
	}
	if err != nil {
		return redrive.Route{}, fmt.Errorf("route: %w", classify(err, opening))
	}
	if d.SingleQueue() {
		route.Kind = r.control.kind(ctx, d.RoutingKey)
	}
	r.judge(ctx, d, &route)
	if route.Kind == quarantine.QueueStream {
		route.Refuses, route.Loses = streamRefuses, r.control.id.streamLoses()
	}
	if answers, err := r.trial(ctx, d); err == nil && answers[0] != nil {
		route.Denied = answers[0].Detail
	}
	return route, nil
}

// Open implements redrive.Releaser.
func (r *Releaser) Open(ctx context.Context, o redrive.ChannelOptions) (redrive.Channel, error) {
	switch {
	case o.Window < 1 || o.Window > 4096:
		return nil, fmt.Errorf("window %d is not between 1 and 4096", o.Window)
	case o.ConfirmDeadline < 100*time.Millisecond || o.ConfirmDeadline > 10*time.Minute:
		return nil, fmt.Errorf("confirm deadline %v is not between 100ms and 10m", o.ConfirmDeadline)
	case o.LateGrace < 0:
		return nil, fmt.Errorf("late grace %v is negative", o.LateGrace)
	}
	c := newChannel(r, o)
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("open a channel for release: %w", classify(err, opening))
	}
	if !r.add(c) {
		c.lose(reasonClosed, "")
		return nil, quarantine.ErrClosed
	}
	return c, nil
}

// add puts c on the list of what Close ends, unless that has happened. A
// channel that is over already is not kept.
func (r *Releaser) add(c *channel) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	select {
	case <-c.ended:
	default:
		r.channels[c] = struct{}{}
	}
	return true
}

func (r *Releaser) remove(c *channel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.channels, c)
}

// Close implements redrive.Releaser.
func (r *Releaser) Close() error {
	r.mu.Lock()
	r.closed = true
	var open []*channel
	for c := range r.channels {
		open = append(open, c)
	}
	r.mu.Unlock()
	for _, c := range open {
		c.lose(reasonClosed, "")
	}
	r.survey.close()
	r.control.close()
	r.closing.Wait()
	return nil
}
