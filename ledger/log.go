package ledger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/redrivehq/redrive/ledger/event"
)

// View is what a decision may look at: the state that includes all decisions
// before it, and the moment of the decision.
type View struct {
	Reader
	Now   time.Time // wall clock; decides deadlines, never order
	Mono  uint64    // ms since the epoch began
	Epoch uint64
	Seq   uint64 // of the last record before this decision
}

// Decide looks at the view and returns the events to record, or an error to
// refuse. It must be pure and short: it runs inside the write transaction and
// may run again.
type Decide func(v View) ([]event.Event, error)

// Request says for whom a decision is made.
type Request struct {
	Actor event.Actor
	ID    string
	// Urgent lets a stop through when space is short, using the reserve.
	Urgent bool
}

// Receipt tells where a decision's records went. First is 0 when it had none.
type Receipt struct {
	First, Last uint64
	Records     []*event.Record
}

// Projector keeps state derived from records, inside their transaction.
type Projector interface {
	// Name is for errors and for Rebuild's report.
	Name() string
	// Buckets lists what the Projector owns: nobody else writes there.
	Buckets() []Bucket
	// Apply changes the state by one record. It ignores kinds that do not
	// concern it. An error means that the record contradicts the state.
	Apply(w Writer, r *event.Record) error
}

// Reactor may answer a record with further events, in the same transaction,
// after all Projectors have applied it.
type Reactor interface {
	React(v View, r *event.Record) ([]event.Event, error)
}

// Options configures a Log.
type Options struct {
	// Program is the version written to ledger.opened.
	Program string
	// Origin is the first line of checkpoints, unique to this ledger.
	Origin string
	// Signer signs checkpoints, and VerifierKey is its public half in note
	// form, recorded when the ledger is created.
	Signer      note.Signer
	VerifierKey string
	// Now is the clock. Its monotonic reading, when it has one, orders time
	// within the epoch.
	Now func() time.Time
	// CheckpointEvery bounds the age of the newest checkpoint while the ledger
	// grows. Defaults to 60 s.
	CheckpointEvery time.Duration
	Projectors      []Projector
	Reactors        []Reactor
	// Before is called with the records of a group right before its commit,
	// for gates that must close before a stop is durable. It must not block.
	Before func([]*event.Record)
	// After is called with the records of a group once they are durable.
	After func([]*event.Record)
	// Exported is called with each checkpoint once it is durable.
	Exported func(size uint64, signed []byte)
}

// Log is the one committer of a ledger.
type Log struct {
	kv    KV
	o     Options
	start time.Time

	jobs chan *job
	stop chan struct{}
	done chan struct{} // closed when the committer has ended
	once sync.Once
	mu   sync.Mutex
	dead error // why the Log cannot be used any more

	unclean bool // the process before did not close the ledger; never changes
	tip     tip  // owned by the committer
}

// tip is the committer's knowledge of the end of the ledger.
type tip struct {
	seq     uint64
	prev    event.Digest
	epoch   uint64
	opened  bool // this process has written ledger.opened
	unclean bool // the last process did not write ledger.closed
	signed  uint64
	at      time.Time // when signed was made, or when this process began
	mono    uint64
}

type job struct {
	ctx    context.Context //nolint:containedctx // of the call that waits for this job
	req    Request
	decide Decide
	store  []event.Object
	sign   bool
	done   chan struct{}

	receipt Receipt
	err     error
}

// Open reads the end of the ledger and starts the committer. It writes
// nothing: an epoch begins with the first update.
func Open(kv KV, o Options) (*Log, error) {
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = time.Minute
	}
	if o.Now == nil || o.Signer == nil || o.Origin == "" {
		return nil, fmt.Errorf("ledger: Now, Signer and Origin are required")
	}
	l := &Log{kv: kv, o: o, start: o.Now(), jobs: make(chan *job, 1024), stop: make(chan struct{}), done: make(chan struct{})}
	l.tip.at = l.start
	err := kv.View(func(r Reader) error { return l.readTip(r) })
	if err != nil {
		return nil, err
	}
	l.unclean = l.tip.unclean && l.tip.seq > 0
	go l.run()
	return l, nil
}

func (l *Log) readTip(r Reader) error {
	k, line := r.Last(bucketLog)
	if k == nil {
		return nil
	}
	rec, err := parse(Unkey(k), line)
	if err != nil {
		return fmt.Errorf("last record of the ledger: %w", err)
	}
	l.tip.seq, l.tip.epoch, l.tip.prev = rec.Seq, rec.Epoch, event.HashLine(line)
	l.tip.unclean = rec.Body.Kind() != event.KindLedgerClosed
	if k, _ := r.Last(bucketCheckpoint); k != nil {
		l.tip.signed = Unkey(k)
	}
	if l.tip.signed > l.tip.seq {
		return fmt.Errorf("checkpoint over %d records, but the ledger has %d: it was cut or rolled back: %w", l.tip.signed, l.tip.seq, ErrIntegrity)
	}
	return nil
}

// Update queues a decision and waits until its group is durable or refused.
// A context that ends while the decision still waits in the queue withdraws
// it; after that the answer is waited for, so that the caller never has to
// guess.
func (l *Log) Update(ctx context.Context, req Request, decide Decide) (Receipt, error) {
	return l.enqueue(&job{ctx: ctx, req: req, decide: decide, done: make(chan struct{})})
}

// Checkpoint signs the current size unless that has been done.
func (l *Log) Checkpoint(ctx context.Context) error {
	_, err := l.enqueue(&job{ctx: ctx, sign: true, done: make(chan struct{}),
		decide: func(View) ([]event.Event, error) { return nil, nil }})
	return err
}

// Store makes objects durable before a record refers to them, so that a later
// decision stays small. Objects that no record ever names are harmless.
func (l *Log) Store(ctx context.Context, req Request, objects []event.Object) error {
	_, err := l.enqueue(&job{ctx: ctx, req: req, store: objects, done: make(chan struct{}),
		decide: func(View) ([]event.Event, error) { return nil, nil }})
	return err
}

func (l *Log) enqueue(j *job) (Receipt, error) {
	select {
	case <-l.stop:
		return Receipt{}, l.closedErr()
	case <-j.ctx.Done():
		return Receipt{}, j.ctx.Err()
	case l.jobs <- j:
	}
	select {
	case <-j.done:
		return j.receipt, j.err
	case <-l.done:
		select {
		case <-j.done: // answered just before the end
			return j.receipt, j.err
		default:
			return Receipt{}, l.closedErr()
		}
	}
}

func (l *Log) closedErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return l.dead
	}
	return ErrClosed
}

// View runs fn on the last durable state.
func (l *Log) View(fn func(View) error) error {
	now := l.o.Now()
	if err := l.Err(); err != nil {
		return err // the map may show what is not durable
	}
	return l.kv.View(func(r Reader) error {
		v := View{Reader: r, Now: now}
		if k, line := r.Last(bucketLog); k != nil {
			rec, err := parse(Unkey(k), line)
			if err != nil {
				return fmt.Errorf("last record of the ledger: %w", err)
			}
			v.Seq, v.Epoch = rec.Seq, rec.Epoch
		}
		return fn(v)
	})
}

// NeedsRecovery reports whether the process before this one ended without
// closing the ledger.
func (l *Log) NeedsRecovery() bool { return l.unclean }

// Close records the orderly end of the epoch, signs a last checkpoint and
// stops the committer. A Log that wrote nothing closes without a trace.
func (l *Log) Close() error {
	var err error
	l.once.Do(func() {
		_, err = l.enqueue(&job{ctx: context.Background(), req: Request{Actor: event.System, Urgent: true}, sign: true,
			done: make(chan struct{}), decide: l.decideClose})
		close(l.stop)
		<-l.done
	})
	return err
}

// decideClose runs on the committer, which owns the tip.
func (l *Log) decideClose(View) ([]event.Event, error) {
	if !l.tip.opened {
		return nil, nil
	}
	return []event.Event{{Body: &event.LedgerClosed{}}}, nil
}

// Dead is closed when the committer has ended, in order or not; Err then says
// why.
func (l *Log) Dead() <-chan struct{} { return l.done }

// Err is nil while the Log can be used and after an orderly Close.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// Queued is the number of decisions that wait for the committer.
func (l *Log) Queued() int { return len(l.jobs) }

// CheckpointIfDue signs the current size when the ledger has grown and the
// newest checkpoint is older than Options.CheckpointEvery.
func (l *Log) CheckpointIfDue(ctx context.Context) error {
	_, err := l.enqueue(&job{ctx: ctx, done: make(chan struct{}),
		decide: func(View) ([]event.Event, error) { return nil, nil }})
	return err
}
