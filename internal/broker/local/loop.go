package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/quarantine"
)

const (
	// maxTurn bounds how many requests share a transaction.
	maxTurn = 1024
	// pollClock is how often a clock that is not the system's is looked at
	// while something can expire.
	pollClock = 5 * time.Millisecond
)

// Broker is an open broker file. Its methods are safe for concurrent use.
type Broker struct {
	db      *bbolt.DB
	opts    Options
	polled  bool // the clock is not the system's, a timer cannot follow it
	cluster string
	inbox   *inbox
	over    chan struct{} // closed when the loop has ended

	closeOnce sync.Once
	closeErr  error

	// What follows belongs to the loop.

	exchanges map[string]*exchange
	queues    map[string]*queue
	order     []*queue           // by number, so that every run visits them alike
	receipts  quarantine.Receipt // never reused, so that a receipt means nothing in another session
}

// Cluster is the random id of this broker, stored in its file.
func (b *Broker) Cluster() string { return b.cluster }

// Close finishes what was asked for before, ends all consumers and closes the
// file. It is idempotent.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		b.inbox.close(fmt.Errorf("broker: %w", quarantine.ErrClosed))
		<-b.over
		b.closeErr = b.db.Close()
	})
	return b.closeErr
}

// request is one thing for the loop to do.
type request struct {
	// apply changes state and transaction. With an error it changed nothing.
	apply func(*turn) error
	// done is called once with the error of apply, after the commit, or with
	// the reason why there is none. It must not block.
	done func(error)
}

// inbox holds requests that wait for the loop. Its size is bounded by its
// users: each waits for its answer or has a window.
type inbox struct {
	mu     sync.Mutex
	list   []request
	closed error
	wake   chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put hands over a request, or returns why the broker takes none.
func (in *inbox) put(r request) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed != nil {
		return in.closed
	}
	in.list = append(in.list, r)
	in.ring()
	return nil
}

// take returns at most maxTurn requests, and the reason once no more can come.
func (in *inbox) take() ([]request, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := min(len(in.list), maxTurn)
	batch := in.list[:n:n]
	in.list = in.list[n:]
	if len(in.list) > 0 {
		in.ring()
	}
	return batch, in.closed
}

func (in *inbox) close(why error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed == nil {
		in.closed = why
	}
	in.ring()
}

func (in *inbox) ring() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// do runs apply in the loop and waits for its durable outcome. When ctx ends
// first, the outcome is unknown.
func (b *Broker) do(ctx context.Context, apply func(*turn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.doAnyway(ctx, apply)
}

// doAnyway is do, except that the request goes out even when ctx has ended.
func (b *Broker) doAnyway(ctx context.Context, apply func(*turn) error) error {
	reply := make(chan error, 1)
	if err := b.inbox.put(request{apply, func(err error) { reply <- err }}); err != nil {
		return err
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop owns all state. It ends when the inbox is closed and empty, or with the
// first failed commit.
func (b *Broker) loop() {
	defer close(b.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch, closed := b.inbox.take()
		if len(batch) == 0 && closed != nil {
			b.endConsumers(fmt.Errorf("%w: the broker was closed", quarantine.ErrUnreachable))
			return
		}
		if err := b.run(batch); err != nil {
			b.fail(batch, err)
			return
		}
		if closed != nil {
			continue // one ring may have stood for the request and the close
		}
		timer.Reset(b.untilDue())
		select {
		case <-b.inbox.wake:
		case <-timer.C:
		}
	}
}

// fail refuses what is there and what is to come.
func (b *Broker) fail(batch []request, cause error) {
	why := fmt.Errorf("%w: %w: %w", quarantine.ErrUnreachable, ErrFailed, cause)
	b.inbox.close(why)
	b.endConsumers(why)
	for {
		for _, r := range batch {
			r.done(why)
		}
		if batch, _ = b.inbox.take(); len(batch) == 0 {
			return
		}
	}
}

func (b *Broker) endConsumers(why error) {
	for _, q := range b.order {
		for _, c := range q.consumers {
			c.end(why)
		}
		q.consumers = nil
	}
}

// run applies a batch in one transaction, commits, and only then tells anyone.
func (b *Broker) run(batch []request) (err error) {
	tx, err := b.db.Begin(true)
	if err != nil {
		return err
	}
	t := &turn{b: b, tx: tx, now: b.opts.Clock().UnixMilli()}
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(fmt.Errorf("storage: %v", p), rollback(tx))
		}
	}()
	t.touched = append(t.touched, b.order...)
	t.sweep()
	errs := make([]error, len(batch))
	for i, r := range batch {
		errs[i] = r.apply(t)
		t.sweep()
	}
	t.dispatch()
	if t.broken != nil {
		return errors.Join(t.broken, tx.Rollback())
	}
	if err := t.finish(); err != nil {
		return err
	}
	t.handOver()
	for i, r := range batch {
		r.done(errs[i])
	}
	return nil
}

// rollback ends a transaction in which something has panicked.
func rollback(tx *bbolt.Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("rollback: %v", p)
		}
	}()
	return tx.Rollback()
}

// finish makes the turn durable; one that only read costs no fsync.
func (t *turn) finish() error {
	if !t.dirty {
		return t.tx.Rollback()
	}
	if stall := t.b.opts.stall; stall != nil {
		if err := stall(); err != nil {
			return errors.Join(err, t.tx.Rollback())
		}
	}
	return t.tx.Commit()
}

// untilDue is how long the loop may sleep before something expires.
func (b *Broker) untilDue() time.Duration {
	const long = time.Hour
	wait := long
	now := b.opts.Clock().UnixMilli()
	for _, q := range b.order {
		if e := q.head(); e != nil && e.expires != 0 {
			wait = min(wait, max(time.Duration(e.expires-now)*time.Millisecond, time.Millisecond))
		}
	}
	if b.polled && wait < long {
		return pollClock
	}
	return wait
}
