package rabbitmq

import (
	"context"
	"fmt"
	"slices"

	"github.com/redrivehq/redrive/quarantine"
)

// Settle implements quarantine.Session. The settlements go out together, then
// a request behind them: its answer says that the broker has processed them,
// which it never says of an acknowledgement itself. When ctx ends before the
// answer, the session is over.
func (s *session) Settle(ctx context.Context, rs []quarantine.Receipt) error {
	return s.request(ctx, "settle", func() error {
		if len(rs) == 0 {
			return s.call(ctx, func() error { return s.barrier(s.ch) })
		}
		full := s.full()
		rest, upTo, all, err := s.take(rs)
		if err != nil {
			return err
		}
		if full && s.outgrown() {
			if err := s.call(ctx, s.cancel); err != nil {
				return err
			}
		}
		err = s.sendAndWait(ctx, func(b []byte, channel uint16) []byte {
			if all > 0 {
				b = appendAck(b, channel, tagOf(upTo), all > 1)
			}
			for _, r := range rest {
				b = appendAck(b, channel, tagOf(r), false)
			}
			return b
		})
		if err != nil {
			return err
		}
		return s.goOn(ctx)
	})
}

// Return implements quarantine.Session.
func (s *session) Return(ctx context.Context, rs []quarantine.Receipt) error {
	return s.request(ctx, "return", func() error {
		if len(rs) == 0 {
			return nil
		}
		if _, _, _, err := s.take(rs); err != nil {
			return err
		}
		if err := s.giveBack(ctx, rs); err != nil {
			return err
		}
		return s.goOn(ctx)
	})
}

func (s *session) giveBack(ctx context.Context, rs []quarantine.Receipt) error {
	return s.sendAndWait(ctx, func(b []byte, channel uint16) []byte {
		for _, r := range rs {
			b = appendGiveBack(b, channel, tagOf(r))
		}
		return b
	})
}

// sendAndWait sends frames and waits for the barrier behind them.
func (s *session) sendAndWait(ctx context.Context, frames func(b []byte, channel uint16) []byte) error {
	return s.call(ctx, func() error {
		err := s.link.tap.out.send(ctx, func(add func([]byte), channel uint16) { add(frames(nil, channel)) })
		if err != nil {
			return err
		}
		return s.barrier(s.ch)
	})
}

// SetPrefetch implements quarantine.Session. RabbitMQ fixes the bound when a
// consumer begins, so another consumer takes over, bounded by what the open
// deliveries leave. While they leave nothing there is none.
//
// What is on its way to a consumer that is cancelled goes back to the queue, and
// a quorum queue counts that as a delivery. So a higher bound waits for the
// moment at which nothing is on its way, because all that the present one allows
// has come; before that the bound does not matter. A lower one is in force at
// once.
func (s *session) SetPrefetch(ctx context.Context, n int) error {
	if n != 0 {
		if err := prefetchRange(n); err != nil {
			return err
		}
	}
	return s.request(ctx, "change prefetch", func() error {
		s.mu.Lock()
		before := s.prefetch
		s.prefetch = n
		s.mu.Unlock()
		if n == before || n > before && s.granted > 0 && !s.full() {
			return nil
		}
		if err := s.call(ctx, s.cancel); err != nil {
			return err
		}
		return s.goOn(ctx)
	})
}

// full reports whether everything has come that the consumer may be sent, so
// that nothing is on its way.
func (s *session) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearch(s.open, s.since+1)
	return s.granted > 0 && len(s.open)-i == s.granted
}

// outgrown reports whether another consumer would be allowed all of the
// prefetch, or twice what this one is.
func (s *session) outgrown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.prefetch - len(s.open)
	return s.granted > s.prefetch || room > s.granted && (len(s.open) == 0 || room >= 2*s.granted)
}

// goOn starts a consumer, when there is none, with all that the prefetch allows
// beside the open deliveries.
func (s *session) goOn(ctx context.Context) error {
	if s.granted > 0 {
		return nil
	}
	s.mu.Lock()
	room := s.prefetch - len(s.open)
	s.since = s.last
	s.mu.Unlock()
	if room <= 0 {
		return nil
	}
	return s.call(ctx, func() error { return s.consume(room) })
}

// request runs f when no other request is under way and the session lives.
func (s *session) request(ctx context.Context, what string, f func() error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-s.ended:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: session is over: %w", what, err)
	}
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// call runs requests under the time limit, and says of an error what it means.
func (s *session) call(ctx context.Context, f func() error) error {
	return classify(s.link.call(ctx, f), running)
}

// Close implements quarantine.Session. What is not settled is given back one
// by one before the channel closes: a broker may count a closed channel as a
// failed delivery, and not a message that was given back.
func (s *session) Close(ctx context.Context) error {
	var err error
	s.closing.Do(func() { err = s.shut(ctx) })
	return err
}

func (s *session) shut(ctx context.Context) error {
	lost := s.Err() != nil
	s.end(quarantine.ErrClosed)
	defer s.drop()
	select {
	case s.turn <- struct{}{}: // kept: nothing follows
	case <-ctx.Done():
		return fmt.Errorf("close: %w", ctx.Err())
	}
	if lost || s.ch == nil {
		return nil
	}
	err := s.call(ctx, s.cancel)
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	if err == nil && len(open) > 0 {
		err = s.giveBack(ctx, open)
	}
	if err == nil {
		err = s.call(ctx, s.link.conn.Close)
	}
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// drop ends the connection whatever its state.
func (s *session) drop() {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.tap.kill()
	}
}
