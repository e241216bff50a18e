package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Conn is the world outside of a worker. All fields are needed.
type Conn struct {
	Source    quarantine.Source
	Publisher Publisher
	Clock     Clock
	// Random yields numbers in [0, 1), for jitter. It is safe for concurrent use.
	Random func() float64
}

// Clock tells and waits for the time. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// After sends once, when d has passed.
	After(d time.Duration) <-chan time.Time
}

// Publisher puts copies onto a broker, one that may be another than the
// Source's.
//
// Implementations are safe for concurrent use.
type Publisher interface {
	// Limits are what the broker takes of one publish.
	Limits() quarantine.Limits
	// Publish returns nil only when the broker has confirmed the copy, which is
	// mandatory: one that reaches no queue is an error. Errors are a *PublishError,
	// or that of ctx, after which the copy may or may not be there. A lost
	// connection is made again by a later call.
	Publish(ctx context.Context, c Copy) error
}

// Copy is one publish.
type Copy struct {
	Exchange   string // "" is the default exchange: RoutingKey names the queue
	RoutingKey string
	Properties []byte // AMQP 0-9-1 basic property flags and list, sent as they are
	Body       []byte
}

// PublishError says that a copy is not known to have arrived.
type PublishError struct {
	// Resolution is returned, nacked, ambiguous, or refused before anything was
	// sent. Only an ambiguous copy may be there all the same.
	Resolution event.Resolution
	Reason     string // stable code, such as "no_route", "connection_lost", "header_too_large"
	Detail     string // the broker's own words, never a message's content
}

func (e *PublishError) Error() string {
	return fmt.Sprintf("%s (%s): %s", e.Resolution, e.Reason, e.Detail)
}

// hopeless tells whether another try with the same bytes ends the same way,
// whatever happens to the broker.
func (e *PublishError) hopeless() bool {
	switch e.Reason {
	case "header_too_large", "body_too_large", "invalid_property", "unwalkable_headers":
		return true
	}
	return false
}

// Operation is what an Inbox remembers: a business operation and its meaning.
type Operation struct {
	ID          string
	Fingerprint [16]byte // see quarantine.Fingerprint
	// Now is when this is asked or said, by the worker's clock: what is older than
	// the inbox's horizon is forgotten.
	Now time.Time
}

// Seen is what an Inbox knows of an operation.
type Seen struct {
	State SeenState
	// Effect refers to the effect of an operation that is done, "" when nobody
	// said so.
	Effect string
}

// SeenState is how far an operation has come.
type SeenState string

// States of operations.
const (
	SeenNew      SeenState = "new"      // nobody has begun it within the horizon
	SeenBegun    SeenState = "begun"    // a run has begun and nobody knows how it ended
	SeenDone     SeenState = "done"     // its effect is there
	SeenConflict SeenState = "conflict" // the id is another message's, with another meaning
)

// Inbox remembers which operations have had their effect, so that a message
// that comes twice has it once. It helps handlers that cannot recognize
// duplicates themselves; it does not make effect and memory one transaction: a
// crash between the two leaves an operation begun, and the handler is told so.
//
// Implementations are safe for concurrent use, also by several processes where
// they share it. An error of Begin counts as a systemic failure: the message
// waits.
type Inbox interface {
	// Begin notes that a run begins, unless the operation is done or its id is
	// another's. It returns what was known before.
	Begin(ctx context.Context, op Operation) (Seen, error)
	// Done notes that the effect is there. It is idempotent.
	Done(ctx context.Context, op Operation, effect string) error
	// Forget takes back a Begin after a run without effect. An operation that is
	// done stays done.
	Forget(ctx context.Context, op Operation) error
}

// Keys remembers which ordering keys have a quarantined message.
//
// Implementations are safe for concurrent use. An error counts as a systemic
// failure: the message waits.
type Keys interface {
	// Shared tells whether all replicas of the worker see the same keys.
	Shared() bool
	// Parked tells whether a key of a queue has a quarantined message.
	Parked(ctx context.Context, queue, key string) (bool, error)
	// Park notes that a message of the key is quarantined. It is idempotent.
	Park(ctx context.Context, queue, key string, now time.Time) error
	// Clear notes that none is any more. It is idempotent.
	Clear(ctx context.Context, queue, key string) error
}

// HeaderLastOfKey marks the last released message of an ordering key: when it
// has had its effect, the key is no longer parked.
const HeaderLastOfKey = quarantine.HeaderLastOfKey

// Step is a moment in the life of a delivery, see the package comment.
type Step string

// Steps.
const (
	StepReceived Step = "received" // nothing was done with it
	StepRun      Step = "run"      // the handler has returned
	StepCopied   Step = "copied"   // the broker has confirmed the copy
	StepReported Step = "reported" // the outcome report was confirmed, or none is due
	StepSettled  Step = "settled"  // the broker has processed the acknowledgement
	StepHeld     Step = "held"     // it cannot be copied and stays unacknowledged
)
