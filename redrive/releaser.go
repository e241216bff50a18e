package redrive

import (
	"context"
	"errors"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Releaser publishes messages again and reports what became of each publish.
//
// Implementations are safe for concurrent use. Every driver passes the suite
// in internal/broker/brokertest.
type Releaser interface {
	// Caps says what this broker can and cannot do. It never changes while the
	// Releaser is open.
	Caps() ReleaserCaps

	// Route looks at a destination; nothing arrives there. A missing queue or
	// exchange is a Route with Exists false, not an error; errors mean that
	// the broker did not answer.
	Route(ctx context.Context, d Destination) (Route, error)

	// Open starts a channel with a window of its own.
	Open(ctx context.Context, o ChannelOptions) (Channel, error)

	// Close ends all channels; what they had in flight resolves as ambiguous.
	// It is idempotent.
	Close() error
}

// ReleaserCaps describes a broker as data.
type ReleaserCaps struct {
	Broker      string
	Version     string
	Cluster     string // same meaning as quarantine.SourceCaps.Cluster
	VHost       string
	MaxBody     int    // bytes, 0 when the broker does not bound it
	MaxHeader   int    // bytes of one content header frame payload, 0 when not bounded
	UserID      string // the user that a user-id property may name, "" when unchecked
	ConfirmsAll bool   // every publish is answered while the channel lives
}

// Destination says where released messages go.
type Destination struct {
	Exchange   string // "" is the default exchange: RoutingKey names the queue
	RoutingKey string
	// Original stands for the exchange and routing key with which each message
	// was first published; the other fields are then empty. Only For makes it a
	// place to publish to.
	Original bool
}

// For is the destination of one message.
func (d Destination) For(f *quarantine.Facts) Destination {
	if !d.Original {
		return d
	}
	return Destination{Exchange: f.OriginExchange, RoutingKey: f.OriginRoutingKey}
}

// SingleQueue reports whether a publish to d can reach one queue only, so that
// a nack is definite.
func (d Destination) SingleQueue() bool { return d.Exchange == "" && !d.Original }

// Route is what the broker says about a destination at one moment.
type Route struct {
	Exists    bool
	Ready     int    // -1 when unknown
	Consumers int    // -1 when unknown
	Kind      string // of a single queue, as in quarantine.Depth; "" when unknown or no queue
	// Receivers are the queues that a publish would reach now, sorted. It is
	// nil when they are unknown; then a finding says why.
	Receivers []string
	// Findings say what becomes of a message that the broker accepts here, in
	// the order of quarantine.SortFindings.
	Findings []quarantine.Finding
	// Denied is why the broker would refuse every publish there, in its own
	// words: no permission, or an exchange that is not for clients. "" when it
	// would not, or when that is unknown.
	Denied string
	// Refuses and Loses list header values by the letters of their kinds in
	// package amqpwire, at any depth: a message with one of the first is not
	// taken there, one of the second does not arrive as it was sent.
	Refuses, Loses string
	At             time.Time
}

// ChannelOptions bounds a channel.
type ChannelOptions struct {
	// Window is the most publishes without a result. Range 1 to 4096. Publish
	// blocks while it is full.
	Window int
	// ConfirmDeadline is how long a publish may wait for its confirm before it
	// resolves as ambiguous. Range 100 ms to 10 min. After the first one the
	// channel accepts no further publish.
	ConfirmDeadline time.Duration
	// LateGrace is how much longer the channel stays open for late confirms.
	LateGrace time.Duration
}

// Channel publishes in order and yields exactly one result for each accepted
// message, and at most one late confirm after an ambiguous one.
type Channel interface {
	// Publish hands one message to the broker, mandatory. With a nil error or
	// any error other than ErrNotSent, exactly one Result follows. ErrNotSent
	// (wrapped, with the reason) promises that not one byte was written and
	// that no Result follows.
	Publish(ctx context.Context, m Message) error

	// Results yields the results. It is closed after the last result when the
	// channel is over. The caller must keep reading.
	Results() <-chan Result

	// Close stops accepting messages, waits for outstanding confirms until ctx
	// ends, resolves the rest as ambiguous and closes Results. It is
	// idempotent.
	Close(ctx context.Context) error
}

// Message is one publish.
type Message struct {
	Token      uint64 // chosen by the caller, echoed in the Result
	Dest       Destination
	Properties []byte // AMQP 0-9-1 basic property flags and list, sent as they are
	Body       []byte
}

// Result is what became of a publish.
type Result struct {
	Token      uint64
	Resolution event.Resolution // confirmed, returned, nacked or ambiguous
	Reason     string           // stable code, e.g. "no_route", "connection_lost", "confirm_deadline"
	Detail     string           // the broker's own words, for people; never a message's content
	Late       bool             // a confirm that came after its publish was called ambiguous
}

// ErrNotSent is returned by Channel.Publish when the message was refused
// before anything was written. The member goes back to waiting or is
// undelivered, by its reason.
var ErrNotSent = errors.New("not sent")

// RefusedError says why a message was not sent. It wraps ErrNotSent.
type RefusedError struct {
	Reason string // stable code: "not_connected", "body_too_large", "header_too_large", "invalid_property", "no_permission", "channel_closed"
	Detail string // for people; never a message's content
}

func (e *RefusedError) Error() string { return "not sent: " + e.Reason + ": " + e.Detail }

// Unwrap makes errors.Is(err, ErrNotSent) true.
func (e *RefusedError) Unwrap() error { return ErrNotSent }
