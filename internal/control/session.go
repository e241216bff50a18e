package control

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"time"

	"github.com/redrivehq/redrive/quarantine"
)

const (
	batchCount = 500
	batchBytes = 8 << 20
	// idleAfter is how long a session is silent before the broker is asked
	// whether the queue is empty. It has to say so twice.
	idleAfter = 250 * time.Millisecond
	// starvedAfter is how many silences end a one-shot capture although the
	// broker says that messages are ready: somebody else gets them.
	starvedAfter = 40
	// drainFor bounds how long a session that has to end stores what it holds.
	drainFor = 10 * time.Second
)

// session captures until the queue is empty (done), or the session is lost. It
// begins with one message in flight: nobody knows how large they are, nor
// whether this one lets a session live.
func (cp *capture) session(ctx context.Context) (done bool, err error) {
	if cp.full() {
		return true, nil // what was lost is the answer to the last settlement
	}
	cp.stands(stateConnecting, "")
	cp.proven, cp.held, cp.room, cp.unstorable = false, 0, 0, nil
	if err := cp.arm(ctx); err != nil {
		return false, err
	}
	prefetch := 1
	s, err := cp.source.Open(ctx, quarantine.SessionOptions{Queue: cp.queue, Prefetch: prefetch})
	if err != nil {
		return false, err
	}
	cp.opened = true
	cp.stands(stateCapturing, "")
	defer func() { cp.end(ctx, s, prefetch, err) }()
	// A request that is broken off costs its connection, and what is in flight.
	work := context.WithoutCancel(ctx)
	var q quiet
	for {
		if err := cp.c.log.Err(); err != nil {
			return false, err
		}
		batch, open := cp.gather(ctx, s)
		if len(batch) > 0 {
			if err := cp.take(work, s, batch); err != nil {
				return false, err
			}
			q = quiet{}
		}
		switch {
		case ctx.Err() != nil:
			return true, errors.Join(cp.drain(work, s), cp.parkHeld())
		case cp.full():
			err := cp.parkHeld()
			return err == nil, err
		case !open:
			return false, s.Err()
		case len(batch) > 0:
			if prefetch, err = cp.grow(work, s, prefetch, batch); err != nil {
				return false, err
			}
			continue
		}
		done, err := cp.idle(work, s, &q)
		if err == nil && (done || cp.follow) {
			err = cp.parkHeld()
		}
		if done || err != nil {
			return err == nil, err
		}
	}
}

// full reports whether as many messages were taken as were asked for.
func (cp *capture) full() bool { return cp.max > 0 && cp.sum.Captured+cp.sum.Merged >= cp.max }

// end closes a session. One that ends in order gives back what is not settled.
func (cp *capture) end(ctx context.Context, s quarantine.Session, prefetch int, err error) {
	lost := s.Err() != nil
	if lost || err != nil {
		cp.matcher.SessionLost()
		cp.wary = max(cp.wary, prefetch)
		cp.spending.over(lost, err)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	if e := s.Close(end); err == nil && e != nil && !errors.Is(e, quarantine.ErrClosed) {
		cp.c.o.Logger.WarnContext(ctx, "close the capture session", slog.String("queue", cp.queue), slog.Any("error", e))
	}
}

// drain stores what a session that has to end holds already. To give it back
// would spend a delivery of each.
func (cp *capture) drain(ctx context.Context, s quarantine.Session) error {
	end, cancel := context.WithTimeout(ctx, drainFor)
	defer cancel()
	if err := s.Settle(ctx, nil); err != nil { // what is on its way comes first
		return err
	}
	if err := s.SetPrefetch(ctx, 0); err != nil {
		return err
	}
	for held := len(s.Deliveries()); held > 0 && end.Err() == nil; {
		batch := cp.buffered(s, held)
		if len(batch) == 0 {
			return nil
		}
		held -= len(batch)
		if err := cp.take(ctx, s, batch); err != nil {
			return err
		}
	}
	return nil
}

// grow lets more messages be in flight after a batch has been settled, as far
// as their sizes allow. While redelivered ones come that a lost session may
// have had in flight, the number stays as it is. What is held because it cannot
// be stored stands in nobody's way: there is room for it beside the others.
func (cp *capture) grow(ctx context.Context, s quarantine.Session, granted int, batch []quarantine.Delivery) (int, error) {
	prefetch := granted - cp.room
	want := min(2*prefetch, cp.prefetch)
	cp.largest -= cp.largest / 8
	again := false
	for _, d := range batch {
		cp.largest = max(cp.largest, len(d.Body)+len(d.Properties))
		again = again || d.Redelivered
	}
	if cp.wary > 0 && again {
		want = min(want, prefetch)
	}
	cp.wary = max(0, cp.wary-len(batch))
	// In powers of two, so that it does not change with every batch.
	want = min(want, 1<<(bits.Len(uint(max(cp.bytes/max(cp.largest, 1), 1)))-1))
	if cp.max > 0 {
		// What is in flight beyond the number that is wanted goes back, and that
		// spends its delivery limit.
		want = min(want, int(min(max(cp.max-min(cp.max, cp.sum.Captured+cp.sum.Merged), 1), 1000)))
	}
	cp.room = cp.held
	want = min(want+cp.room, 1000)
	if want == granted {
		return granted, nil
	}
	return want, s.SetPrefetch(ctx, want)
}

// quiet counts silences in a row, and those in which the broker said that the
// queue was empty.
type quiet struct{ silent, empty int }

// idle uses a silence to record settlements, and decides whether the work is
// done. A queue that is empty by the broker's word may have sent its last
// messages, which are still on their way.
func (cp *capture) idle(ctx context.Context, s quarantine.Session, q *quiet) (done bool, err error) {
	if err := cp.recordSettled(); err != nil || cp.follow {
		return false, err
	}
	if err := cp.depth(ctx); err != nil {
		return false, err
	}
	q.silent++
	if cp.sum.Ready > 0 {
		q.empty = 0
	} else {
		q.empty++
		if err := s.Settle(ctx, nil); err != nil {
			return false, err
		}
	}
	if len(s.Deliveries()) > 0 {
		return false, nil
	}
	return q.empty >= 2 || q.silent >= starvedAfter, nil
}

func (cp *capture) depth(ctx context.Context) error {
	d, err := cp.source.Depth(ctx, cp.queue)
	if err == nil {
		cp.sum.Ready = d.Ready
	}
	return err
}

// gather waits for a delivery and takes what else is there. It returns nothing
// after idleAfter; open is false when the session is over.
func (cp *capture) gather(ctx context.Context, s quarantine.Session) (batch []quarantine.Delivery, open bool) {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	select {
	case d, ok := <-s.Deliveries():
		if !ok {
			return nil, false
		}
		batch = append(batch, d)
	case <-idle.C:
		return nil, true
	case <-ctx.Done():
		return nil, true
	}
	return append(batch, cp.buffered(s, batchCount-1, batch...)...), s.Err() == nil
}

// buffered takes at most n of the messages that wait in s, as many as fit into
// a batch with those that are taken already.
func (cp *capture) buffered(s quarantine.Session, n int, taken ...quarantine.Delivery) (batch []quarantine.Delivery) {
	size := 0
	for _, d := range taken {
		size += len(d.Body) + len(d.Properties)
	}
	if cp.max > 0 {
		n = int(min(uint64(n), cp.max-min(cp.max, cp.sum.Captured+cp.sum.Merged+uint64(len(taken)))))
	}
	for len(batch) < n && size < batchBytes {
		select {
		case d, ok := <-s.Deliveries():
			if !ok {
				return batch
			}
			batch, size = append(batch, d), size+len(d.Body)+len(d.Properties)
		default:
			return batch
		}
	}
	return batch
}
