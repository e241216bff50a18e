package quarantine

import (
	"context"
	"errors"
	"time"
)

// Source is where dead messages come from. It speaks of receipts and
// settlement rather than of AMQP tags, so that a broker with offsets or
// visibility time-outs fits behind it as well.
//
// Implementations are safe for concurrent use. Every driver passes the suite
// in internal/broker/brokertest.
type Source interface {
	// Caps says what this broker can and cannot do. It never changes while the
	// Source is open.
	Caps() SourceCaps

	// Open starts a session that receives from one queue. The queue must exist:
	// it is never declared or changed. It returns ErrQueueMissing when there is
	// no such queue, ErrRefused when the broker denies access for good (wrong
	// password, unknown vhost, no permission, exclusive elsewhere) or when the
	// queue is one from which settling removes nothing, and ErrUnreachable when
	// trying again later can help.
	Open(ctx context.Context, o SessionOptions) (Session, error)

	// Depth reports what the broker says about a queue. A broker that does not
	// answer yields an error, never a zero.
	Depth(ctx context.Context, queue string) (Depth, error)

	// Inspect looks for what loses messages of a queue before or while they are
	// captured: its own limits, and the way that dead letters take to it. It
	// changes nothing and consumes nothing. It returns the errors of Depth; what
	// a reachable broker does not tell is a finding of severity Unknown, not an
	// error.
	Inspect(ctx context.Context, queue string) (Inspection, error)

	// Close ends all sessions. Deliveries that were not settled go back to
	// their queues. It is idempotent.
	Close() error
}

// SourceCaps describes a broker as data, so that callers never switch on types.
type SourceCaps struct {
	Broker  string // product name, for people: "RabbitMQ", "local"
	Version string // product version, "" when the broker does not say
	Cluster string // name that identifies this broker installation, "" when unknown
	VHost   string // namespace of the queues, "" when the broker has none

	// DeliveryCounts tells whether each lost session may spend a redelivery of
	// everything that was in flight. CountsIn says it of one kind of queue.
	DeliveryCounts bool
}

// CountsIn reports whether a lost session may spend redeliveries in a queue of
// that kind, as Depth tells it. In one of unknown kind it may.
func (c SourceCaps) CountsIn(kind string) bool {
	return c.DeliveryCounts && kind != QueueClassic && kind != QueueStream
}

// Kinds of queues, as Depth and redrive.Route name them.
const (
	QueueClassic = "classic" // RabbitMQ: redelivers without limit
	QueueQuorum  = "quorum"  // RabbitMQ: replicated, counts deliveries, may drop at a limit
	QueueStream  = "stream"  // RabbitMQ: a log, from which settling removes nothing
	QueueLocal   = "local"   // the embedded broker: counts deliveries, may drop at a limit
)

// SessionOptions says how one session receives.
type SessionOptions struct {
	Queue string // exact name; "" is refused
	// Prefetch bounds the deliveries that are handed out and not settled.
	// Range 1 to 1000. It can be raised later with Session.SetPrefetch.
	Prefetch int
}

// Session receives from one queue until it is closed or lost. A lost session
// never comes back: the caller opens another one, and receipts of the old one
// are worthless there.
type Session interface {
	// Deliveries hands over messages in broker order. It is closed when the
	// session is over, for whatever reason; Err then says which.
	Deliveries() <-chan Delivery

	// Settle removes deliveries from the queue for good. It returns nil once
	// the broker has processed the settlement of every receipt given. With an
	// error, some, all or none of them may be settled: the caller must not
	// assume either. Settling a receipt twice is an error of the caller. Without
	// receipts it only waits: then all that the broker had sent is in Deliveries.
	Settle(ctx context.Context, rs []Receipt) error

	// Return gives deliveries back to the queue, to be delivered again.
	Return(ctx context.Context, rs []Receipt) error

	// SetPrefetch changes the bound for deliveries to come. Range 0 to 1000; with
	// 0 none come any more but those that are on their way. A lower bound may
	// give those back.
	SetPrefetch(ctx context.Context, n int) error

	// Err is nil while the session lives, ErrClosed after Close, and otherwise
	// the reason why it was lost, wrapping one of the sentinels below.
	Err() error

	// Close stops receiving and gives back what is not settled. It waits until
	// the broker has answered or ctx ends. It is idempotent.
	Close(ctx context.Context) error
}

// Receipt names a delivery within its session.
type Receipt uint64

// Delivery is one message exactly as it was on the wire.
type Delivery struct {
	Receipt    Receipt
	Queue      string // the queue it was received from
	Exchange   string // exchange of the last publish, "" for the default exchange
	RoutingKey string
	// Properties holds the AMQP 0-9-1 basic property flags and list, byte for
	// byte as received (see package amqpwire). Never nil: a message without
	// properties has two zero bytes.
	Properties  []byte
	Body        []byte // may be empty; owned by the receiver
	Redelivered bool   // the broker says that it may have been delivered before
	// DeliveryCount is how often the broker says it was delivered before this
	// time, -1 when it does not say.
	DeliveryCount int
}

// Depth is what a broker says about a queue at one moment.
type Depth struct {
	Ready     int       // messages that wait for a consumer; unsettled ones are not among them
	Consumers int       // -1 when unknown
	Kind      string    // one of the kinds of queues above, "" when unknown
	At        time.Time // when the broker answered
}

// Errors of a Source and its sessions. Drivers wrap them, keeping the broker's
// own words.
var (
	// ErrClosed is returned when the Source or Session was closed by its owner.
	ErrClosed = errors.New("closed")
	// ErrQueueMissing is returned when the queue does not exist. Check the
	// name, or let its owner declare it.
	ErrQueueMissing = errors.New("queue does not exist")
	// ErrRefused is returned when the broker will refuse every further attempt
	// too. Change credentials, vhost or permissions.
	ErrRefused = errors.New("refused by the broker")
	// ErrUnreachable is returned when the broker did not answer or went away.
	// Try again with back-off.
	ErrUnreachable = errors.New("broker not reachable")
)
