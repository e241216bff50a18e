package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redrivehq/redrive/quarantine"
)

// Source implements quarantine.Source. Each session has a connection of its
// own, so that a message that ends one does not end the others, and so that a
// broker that blocks publishers does not block settlements.
type Source struct {
	control *control
	survey  *surveyor

	mu       sync.Mutex
	sessions map[*session]struct{}
	closed   bool
}

var _ quarantine.Source = (*Source)(nil)

// NewSource connects to the broker. Its errors wrap ErrRefused or
// ErrUnreachable of package quarantine, or say what is wrong with c.
func NewSource(ctx context.Context, c Config) (*Source, error) {
	k, err := newControl(ctx, c, "redrive capture")
	if err != nil {
		return nil, err
	}
	return &Source{control: k, survey: newSurveyor(k), sessions: map[*session]struct{}{}}, nil
}

// Caps implements quarantine.Source.
func (s *Source) Caps() quarantine.SourceCaps {
	return quarantine.SourceCaps{
		Broker:         s.control.id.product,
		Version:        s.control.id.version,
		Cluster:        s.control.id.cluster,
		VHost:          s.control.cfg.VHost,
		DeliveryCounts: true, // quorum queues count
	}
}

// Depth implements quarantine.Source.
func (s *Source) Depth(ctx context.Context, queue string) (quarantine.Depth, error) {
	if err := queueName(queue); err != nil {
		return quarantine.Depth{}, err
	}
	ready, consumers, err := s.control.queue(ctx, queue)
	if err != nil {
		return quarantine.Depth{}, fmt.Errorf("depth of queue %q: %w", queue, classify(err, opening))
	}
	at := time.Now()
	return quarantine.Depth{Ready: ready, Consumers: consumers, Kind: s.control.kind(ctx, queue), At: at}, nil
}

// queueName refuses names that cannot be: an empty one would mean the queue
// that was last declared on the channel, a long one ends the connection.
func queueName(queue string) error {
	if queue == "" {
		return fmt.Errorf("%w: no queue name is given", quarantine.ErrQueueMissing)
	}
	if len(queue) > maxShort {
		return fmt.Errorf("%w: the name has %d bytes, at most %d are possible", quarantine.ErrQueueMissing, len(queue), maxShort)
	}
	return nil
}

// Open implements quarantine.Source.
func (s *Source) Open(ctx context.Context, o quarantine.SessionOptions) (quarantine.Session, error) {
	if err := queueName(o.Queue); err != nil {
		return nil, err
	}
	if err := prefetchRange(o.Prefetch); err != nil {
		return nil, err
	}
	n := newSession(s, o)
	if err := s.add(n); err != nil {
		return nil, err
	}
	err := n.start(ctx, s.control.cfg, s.control.id)
	if err == nil {
		err = n.Err() // Close may have been faster
	}
	if err != nil {
		n.end(err)
		n.drop()
		return nil, fmt.Errorf("capture from queue %q: %w", o.Queue, err)
	}
	return n, nil
}

func (s *Source) add(n *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return quarantine.ErrClosed
	}
	s.sessions[n] = struct{}{}
	return nil
}

func (s *Source) remove(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, n)
}

// Close implements quarantine.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	var open []*session
	for n := range s.sessions {
		open = append(open, n)
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	errs := make([]error, len(open))
	for i, n := range open {
		all.Go(func() { errs[i] = n.Close(context.Background()) })
	}
	all.Wait()
	s.survey.close()
	s.control.close()
	return errors.Join(errs...)
}
