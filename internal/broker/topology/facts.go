package topology

import (
	"errors"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/quarantine"
)

// None is the value of a limit that is not set.
const None = -1

// Kinds of queues that are judged in their own ways.
const (
	Classic = quarantine.QueueClassic
	Quorum  = quarantine.QueueQuorum
	Stream  = quarantine.QueueStream
)

// Overflow is what a full queue does.
type Overflow string

// The ways to overflow.
const (
	DropHead         Overflow = "drop-head"
	RejectPublish    Overflow = "reject-publish"
	RejectPublishDLX Overflow = "reject-publish-dlx" // and dead-letters what it rejects
)

// Queue is what is known about a queue. NewQueue returns one without limits.
type Queue struct {
	Name       string
	Kind       string
	Durable    bool
	AutoDelete bool
	Exclusive  bool // to one connection
	// ExclusiveConsumer tells that one consumer keeps all others out.
	ExclusiveConsumer bool
	SingleActive      bool // one consumer at a time gets messages
	Deduplicates      bool // by a plugin

	MaxLength     int64 // messages, None
	MaxBytes      int64 // None
	Overflow      Overflow
	MessageTTL    time.Duration // None
	Expires       time.Duration // unused for that long it is deleted; None
	DeliveryLimit int64         // None

	// DeadLetter is where its dead messages go, nil for nowhere.
	DeadLetter *DeadLetter
	// Stuck is how many dead messages wait inside for a way out.
	Stuck int64

	Consumers int // None when unknown
	// Prefetches are the limits of its consumers, one for each, 0 for one without
	// a limit of its own; nil when they are not known.
	Prefetches []int
	// ConsumerTimeout is how long a delivery may stay unsettled; None when nothing
	// says so, and the broker's default holds.
	ConsumerTimeout time.Duration
	State           string // the broker's word for it, "" when unknown
	// Fixed names the properties, such as dead-letter-exchange, that its own
	// arguments set, and ArgumentLimit is the delivery limit among them, None
	// without one. No broker policy takes them back.
	Fixed         map[string]bool
	ArgumentLimit int64
	// Policy and OperatorPolicy are the names of the broker's policies in force
	// there, "" for none.
	Policy, OperatorPolicy string
	// Incomplete says why policies are not among the facts, "" when they are.
	// A limit that is known is in force all the same; that one is absent, or
	// that there is no dead-letter exchange, is not known then.
	Incomplete string
}

// DeadLetter is the way of dead messages out of a queue.
type DeadLetter struct {
	Exchange   string // "" is the default exchange
	RoutingKey string
	HasKey     bool // false: each message keeps its own routing key
	// AtLeastOnce tells that a dead message stays until its next queue has it.
	// Wanted tells that this was asked for, whether it is in force or not.
	AtLeastOnce, Wanted bool
}

// NewQueue is a durable classic queue without limits.
func NewQueue(name string) Queue {
	return Queue{Name: name, Kind: Classic, Durable: true, Overflow: DropHead, Consumers: None,
		MaxLength: None, MaxBytes: None, MessageTTL: None, Expires: None, DeliveryLimit: None, ConsumerTimeout: None, ArgumentLimit: None}
}

func (q *Queue) limited() bool { return q.MaxLength != None || q.MaxBytes != None }

// limits names the length limits for people.
func (q *Queue) limits() string {
	switch {
	case q.MaxBytes == None:
		return fmt.Sprintf("%d messages", q.MaxLength)
	case q.MaxLength == None:
		return fmt.Sprintf("%d bytes", q.MaxBytes)
	}
	return fmt.Sprintf("%d messages or %d bytes", q.MaxLength, q.MaxBytes)
}

// Exchange is what is known about an exchange.
type Exchange struct {
	Name      string // "" is the default exchange, which has no bindings here
	Type      string // direct, fanout, topic, headers, or that of a plugin
	Internal  bool   // no client may publish to it
	Alternate string // exchange for what has no route, "" for none
	Bindings  []Binding
	// Incomplete says why a policy is not among the facts, "" when it is.
	Incomplete string
}

// Binding leads from an exchange to a queue or to another exchange.
type Binding struct {
	Queue    string // "" when it leads to an exchange
	Exchange string
	Key      string
	// Arguments tells that the binding has arguments, which a headers exchange
	// goes by.
	Arguments bool
}

// ErrMissing is returned by a Map for what does not exist.
var ErrMissing = errors.New("does not exist")

// Map looks up queues and exchanges. Errors other than ErrMissing mean that
// the answer is not known.
type Map interface {
	// Queue returns ErrMissing when there is no such queue.
	Queue(name string) (*Queue, error)
	// Exchange returns ErrMissing when there is no such exchange. It is not
	// asked for the default exchange.
	Exchange(name string) (*Exchange, error)
	// Keys lists the routing keys under which messages come to a queue, as far
	// as its bindings name them.
	Keys(queue string) ([]string, error)
}

func exchangeName(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return "exchange " + name
}
