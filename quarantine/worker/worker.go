package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// worker is one call of Run.
type worker struct {
	conn  Conn
	p     *policy.Policy
	q     policy.Queue
	h     Handler
	o     Options
	masks []quarantine.Mask
	gate  *gate

	reports reporter
}

// Run works a queue until ctx ends, and then returns nil after it has finished
// or given back what it had in hand. A lost connection is made again, with
// back-off. It returns an error that wraps ErrOptions, quarantine.ErrQueueMissing
// or quarantine.ErrRefused when going on is of no use.
func Run(ctx context.Context, conn Conn, p *policy.Policy, h Handler, o Options) error {
	w, err := newWorker(conn, p, h, o)
	if err != nil {
		return err
	}
	backoff := time.Duration(0)
	for {
		progress, err := w.session(ctx)
		switch {
		case ctx.Err() != nil:
			if err != nil && !errors.Is(err, ctx.Err()) {
				w.o.Log.LogAttrs(ctx, slog.LevelWarn, "the last session did not end in order", slog.String("queue", w.q.Name), slog.Any("error", err))
			}
			return nil
		case errors.Is(err, quarantine.ErrQueueMissing), errors.Is(err, quarantine.ErrRefused):
			return err
		}
		if progress {
			backoff = 0
		}
		backoff = min(max(2*backoff, w.scaled(leastBackoff)), w.scaled(mostBackoff/2))
		w.o.Log.LogAttrs(ctx, slog.LevelWarn, "session lost, the worker connects again",
			slog.String("queue", w.q.Name), slog.Duration("after", backoff), slog.Any("error", err))
		select {
		case <-ctx.Done():
			return nil
		case <-w.conn.Clock.After(backoff):
		}
	}
}

// session receives from the queue until the session is lost or ctx ends.
// Progress tells whether anything was settled.
func (w *worker) session(ctx context.Context) (progress bool, err error) {
	s, err := w.conn.Source.Open(ctx, quarantine.SessionOptions{Queue: w.q.Name, Prefetch: 1})
	if err != nil {
		return false, err
	}
	sh := newShift(ctx, w, s)
	for {
		select {
		case d, ok := <-s.Deliveries():
			if !ok {
				sh.end(true)
				return sh.progress(), s.Err()
			}
			sh.take(d)
		case <-ctx.Done():
			return sh.progress(), w.drain(ctx, sh)
		}
	}
}

// drain ends a session in order: nothing new comes, what is in hand is finished
// as far as the limit allows, the rest goes back.
func (w *worker) drain(ctx context.Context, sh *shift) error {
	ctx = context.WithoutCancel(ctx) // the driver bounds each request
	err := sh.s.SetPrefetch(ctx, 0)
	for {
		select {
		case d, ok := <-sh.s.Deliveries():
			if ok {
				sh.take(d)
				continue
			}
		default:
		}
		break
	}
	sh.end(err != nil || w.gate.shut())
	return errors.Join(err, sh.s.Close(ctx))
}
