package local

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redrivehq/redrive/internal/broker/topology"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// Releaser is a Broker as a redrive.Releaser. Closing it leaves the Broker open.
type Releaser struct {
	b *Broker

	mu       sync.Mutex
	closed   bool
	channels map[*channel]struct{}
}

var _ redrive.Releaser = (*Releaser)(nil)

// NewReleaser returns a Releaser of b.
func NewReleaser(b *Broker) *Releaser {
	return &Releaser{b: b, channels: map[*channel]struct{}{}}
}

// Caps is part of redrive.Releaser.
func (r *Releaser) Caps() redrive.ReleaserCaps {
	return redrive.ReleaserCaps{
		Broker: Product, Version: strconv.Itoa(formatVersion), Cluster: r.b.cluster,
		MaxBody: r.b.opts.MaxBody, ConfirmsAll: true,
	}
}

// Route is part of redrive.Releaser.
func (r *Releaser) Route(ctx context.Context, d redrive.Destination) (redrive.Route, error) {
	if err := r.check(); err != nil {
		return redrive.Route{}, err
	}
	route := redrive.Route{Ready: -1, Consumers: -1}
	err := r.b.do(ctx, func(t *turn) error {
		route.At = time.UnixMilli(t.now)
		if d.Exchange == "" {
			if q := r.b.queues[d.RoutingKey]; q != nil {
				route.Exists, route.Ready, route.Consumers, route.Kind = true, len(q.ready), len(q.consumers), quarantine.QueueLocal
			}
		} else if x := r.b.exchanges[d.Exchange]; x != nil {
			route.Exists = true
		}
		if route.Exists {
			route.Receivers, route.Findings = topology.Target(chart{r.b}, d.Exchange, d.RoutingKey)
			route.Findings = quarantine.SortFindings(route.Findings)
		}
		return nil
	})
	if err != nil {
		return redrive.Route{}, err
	}
	return route, nil
}

// Open is part of redrive.Releaser.
func (r *Releaser) Open(ctx context.Context, o redrive.ChannelOptions) (redrive.Channel, error) {
	switch {
	case o.Window < 1 || o.Window > 4096:
		return nil, fmt.Errorf("%w: window %d is not between 1 and 4096", ErrSpec, o.Window)
	case o.ConfirmDeadline < 100*time.Millisecond || o.ConfirmDeadline > 10*time.Minute:
		return nil, fmt.Errorf("%w: confirm deadline %v is not between 100ms and 10m", ErrSpec, o.ConfirmDeadline)
	case o.LateGrace < 0:
		return nil, fmt.Errorf("%w: late grace %v is negative", ErrSpec, o.LateGrace)
	}
	// A broker that has failed or was closed opens no channel.
	if err := r.b.do(ctx, func(*turn) error { return nil }); err != nil {
		return nil, err
	}
	c := newChannel(r, o)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("releaser: %w", quarantine.ErrClosed)
	}
	r.channels[c] = struct{}{}
	go c.pump()
	return c, nil
}

func (r *Releaser) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("releaser: %w", quarantine.ErrClosed)
	}
	return nil
}

func (r *Releaser) forget(c *channel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.channels, c)
}

// Close is part of redrive.Releaser.
func (r *Releaser) Close() error {
	r.mu.Lock()
	r.closed = true
	var open []*channel
	for c := range r.channels {
		open = append(open, c)
	}
	r.mu.Unlock()
	for _, c := range open {
		c.abort("releaser_closed")
	}
	return nil
}
