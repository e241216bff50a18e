package local

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redrivehq/redrive/quarantine"
)

// Product is the name under which this broker presents itself.
const Product = "local"

// Source is a Broker as a quarantine.Source. Closing it leaves the Broker open.
type Source struct {
	b *Broker

	mu       sync.Mutex
	closed   bool
	sessions map[*Consumer]struct{}
}

var _ quarantine.Source = (*Source)(nil)

// NewSource returns a Source of b.
func NewSource(b *Broker) *Source {
	return &Source{b: b, sessions: map[*Consumer]struct{}{}}
}

// Caps is part of quarantine.Source.
func (s *Source) Caps() quarantine.SourceCaps {
	return quarantine.SourceCaps{
		Broker: Product, Version: strconv.Itoa(formatVersion), Cluster: s.b.cluster, DeliveryCounts: true,
	}
}

// Open is part of quarantine.Source.
func (s *Source) Open(ctx context.Context, o quarantine.SessionOptions) (quarantine.Session, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c, err := s.b.Consume(ctx, o.Queue, o.Prefetch)
	if err != nil {
		return nil, err
	}
	if !s.keep(c) {
		return nil, fmt.Errorf("source: %w", joinClose(context.WithoutCancel(ctx), c))
	}
	return c, nil
}

// joinClose ends a session that was opened while its Source was closed.
func joinClose(ctx context.Context, c *Consumer) error {
	if err := c.Close(ctx); err != nil {
		return fmt.Errorf("%w: %w", quarantine.ErrClosed, err)
	}
	return quarantine.ErrClosed
}

// keep remembers a session for Close and forgets those that are over. It is
// false when the Source has been closed in the meantime.
func (s *Source) keep(c *Consumer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for old := range s.sessions {
		if old.Err() != nil {
			delete(s.sessions, old)
		}
	}
	s.sessions[c] = struct{}{}
	return true
}

func (s *Source) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("source: %w", quarantine.ErrClosed)
	}
	return nil
}

// Depth is part of quarantine.Source.
func (s *Source) Depth(ctx context.Context, queue string) (quarantine.Depth, error) {
	if err := s.check(); err != nil {
		return quarantine.Depth{}, err
	}
	return s.b.Depth(ctx, queue)
}

// Close is part of quarantine.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	sessions := s.sessions
	s.sessions = nil
	s.mu.Unlock()
	var first error
	for c := range sessions {
		if err := c.Close(context.Background()); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Depth tells how many messages of a queue wait for a consumer. It returns
// quarantine.ErrQueueMissing when there is no such queue.
func (b *Broker) Depth(ctx context.Context, queue string) (quarantine.Depth, error) {
	s, err := b.Stats(ctx, queue)
	if err != nil {
		return quarantine.Depth{}, err
	}
	return quarantine.Depth{Ready: s.Ready, Consumers: s.Consumers, Kind: quarantine.QueueLocal, At: s.At}, nil
}

// Stats are counts of one queue at one moment.
type Stats struct {
	Ready     int // waiting for a consumer
	Unsettled int // handed out
	Consumers int
	Dropped   int // dead letters without target, route or way out of a circle, since Open
	At        time.Time
}

// Stats counts what a queue holds. It returns quarantine.ErrQueueMissing when
// there is no such queue.
func (b *Broker) Stats(ctx context.Context, queue string) (Stats, error) {
	var out Stats
	err := b.do(ctx, func(t *turn) error {
		q := b.queues[queue]
		if q == nil {
			return missing(queue)
		}
		out = Stats{Ready: len(q.ready), Consumers: len(q.consumers), Dropped: q.dropped, At: time.UnixMilli(t.now)}
		for _, c := range q.consumers {
			out.Unsettled += len(c.unsettled)
		}
		return nil
	})
	if err != nil {
		return Stats{}, err
	}
	return out, nil
}
