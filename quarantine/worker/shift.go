package worker

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redrivehq/redrive/quarantine"
)

// maxInHand is the largest prefetch there is.
const maxInHand = 1000

// shift works what one session delivers. Its lanes run one message at a time
// each. A message with an ordering key has its lane by the key, so that those of
// one key run in the order in which they came; all others are taken by whichever
// lane is free.
type shift struct {
	w *worker
	s quarantine.Session

	// ctx ends when the time of the messages in hand is up: the limit of a drain.
	ctx    context.Context //nolint:containedctx // the life of the session, which the lanes share
	cancel context.CancelFunc
	// leave ends when messages that have not begun shall not begin any more.
	leave context.Context //nolint:containedctx // as above
	hurry context.CancelFunc

	free  chan *Message
	lanes []chan *Message
	done  sync.WaitGroup

	settled atomic.Int64
	wary    atomic.Bool // with one message at a time
	raise   sync.Mutex
}

func newShift(ctx context.Context, w *worker, s quarantine.Session) *shift {
	sh := &shift{w: w, s: s, free: make(chan *Message, maxInHand)}
	sh.ctx, sh.cancel = context.WithCancel(context.WithoutCancel(ctx))
	sh.leave, sh.hurry = context.WithCancel(sh.ctx)
	sh.wary.Store(true)
	for range w.o.Concurrency {
		lane := make(chan *Message, maxInHand)
		sh.lanes = append(sh.lanes, lane)
		sh.done.Go(func() { sh.work(lane) })
	}
	return sh
}

func (sh *shift) progress() bool { return sh.settled.Load() > 0 }

// take gives a delivery to a lane. It never blocks: nothing exceeds the
// prefetch.
func (sh *shift) take(d quarantine.Delivery) {
	m := sh.w.message(d)
	sh.w.o.Observe(StepReceived, m)
	if m.Key == "" {
		sh.free <- m
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(m.Key)) // a hash never fails
	sh.lanes[int(h.Sum32()%uint32(len(sh.lanes)))] <- m
}

// work is the life of a lane.
func (sh *shift) work(lane <-chan *Message) {
	free := sh.unkeyed()
	for lane != nil || free != nil {
		var m *Message
		var ok bool
		select {
		case m, ok = <-lane:
			if !ok {
				lane = nil
			}
		case m, ok = <-free:
			if !ok {
				free = nil
			}
		}
		if ok && sh.leave.Err() == nil {
			sh.process(m)
		}
	}
}

func (sh *shift) unkeyed() <-chan *Message { return sh.free }

// end waits for the lanes. Those of a lost session begin nothing any more. After
// the drain limit, handlers are told to stop, and what has not ended by then is
// left to the broker.
func (sh *shift) end(lost bool) {
	if lost {
		sh.hurry()
	}
	close(sh.free)
	for _, lane := range sh.lanes {
		close(lane)
	}
	idle := make(chan struct{})
	go func() { sh.done.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-sh.w.conn.Clock.After(sh.w.o.DrainLimit):
		sh.hurry()
		sh.cancel()
		<-idle
	}
	sh.cancel()
}

// process takes a message to its end: settled, or left to the broker. While a
// dependency seems to be down, messages without a key take turns in probing it,
// so that one which is itself the trouble does not speak for all.
func (sh *shift) process(first *Message) {
	pending := []*Message{first}
	for len(pending) > 0 {
		m := pending[0]
		d, ok := sh.attempt(m)
		if !ok {
			return // what is pending goes back with the session
		}
		if d.Act != ActHold {
			pending = pending[1:]
			sh.conclude(m, d)
			continue
		}
		select {
		case next, ok := <-sh.free:
			if ok {
				pending = append([]*Message{next}, pending...)
			}
		default:
		}
		if last := len(pending) - 1; last > 0 && m.Key == "" {
			at := slices.Index(pending, m)
			pending = append(slices.Delete(pending, at, at+1), m)
		}
	}
}

// attempt lets a message run when the gate does. ok is false when the session
// has no time for it.
func (sh *shift) attempt(m *Message) (d Decision, ok bool) {
	probe, err := sh.w.gate.pass(sh.leave, m.Received.Add(sh.w.o.HoldLimit))
	switch {
	case errors.Is(err, errHeldTooLong):
		return postpone(m), true
	case err != nil:
		return Decision{}, false
	}
	d = sh.judge(m, probe)
	if sh.ctx.Err() != nil && d.Act != ActDone && d.Act != ActDrop && d.Act != ActReject {
		return d, false // the run was ended by us: its error proves nothing
	}
	return d, true
}

// postpone is what becomes of a message that was held for too long.
func postpone(m *Message) Decision {
	d := Decision{Text: "a dependency was down before this message could run"}
	if m.hold != nil {
		d = *m.hold
	}
	d.Act = ActPostpone
	return d
}

// conclude does what was decided about a message.
func (sh *shift) conclude(m *Message, d Decision) {
	if err := sh.finish(m, d); err != nil {
		sh.leftBehind(m, d, err)
		return
	}
	sh.count(m)
}

// count notes a settlement. The first one of a message that nobody had before
// shows that no killer is at the head of the queue: what came back is delivered
// before what is new. Any number of redelivered ones shows nothing, since those
// that a dead worker had in hand all come back, and the killer among them.
func (sh *shift) count(m *Message) {
	sh.settled.Add(1)
	if m.Redelivered || !sh.wary.Load() {
		return
	}
	sh.raise.Lock()
	defer sh.raise.Unlock()
	if sh.wary.Swap(false) {
		if err := sh.s.SetPrefetch(sh.ctx, sh.w.q.Prefetch); err != nil {
			sh.wary.Store(true) // the next settlement tries again, or the session is lost
		}
	}
}

// settle acknowledges a message.
func (sh *shift) settle(m *Message) error {
	if err := sh.s.Settle(context.WithoutCancel(sh.ctx), []quarantine.Receipt{m.delivery.Receipt}); err != nil {
		return err
	}
	sh.w.o.Observe(StepSettled, m)
	return nil
}
