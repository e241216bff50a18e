package quarantine

import (
	"context"
	"errors"

	"github.com/redrivehq/redrive/quarantine/policy"
)

// ErrDenied is returned when the user may not make something. The broker's own
// words follow. Give the user the right, or let somebody make it who has it.
var ErrDenied = errors.New("the broker denies it to this user")

// Layout holds a broker against the queues that a policy names, and makes what
// is missing. What is there is never changed and never deleted. It is safe for
// concurrent use.
type Layout interface {
	// Compare says what is there, what is missing and what differs, for these
	// queues together with their retry queues, their quarantine and the exchange
	// of outcomes. It changes nothing. ErrUnreachable or ErrRefused are returned
	// when the broker did not answer; what it would not tell is among the
	// findings, with the severity Unknown, and never passes for right.
	Compare(ctx context.Context, qs []policy.Queue) (Comparison, error)
	// Make does one step of Compare for the same queues, one that has the state
	// StepMissing. Making what is there by now is no error when it has the same
	// form. It returns ErrRefused when it has another one, ErrDenied when the
	// user may not, and ErrUnreachable when the broker did not answer: then
	// Compare tells whether it was made.
	Make(ctx context.Context, qs []policy.Queue, s Step) error
	// Close ends the connections. It is called once.
	Close() error
}

// Comparison is what a Layout found, at one moment.
type Comparison struct {
	Broker SourceCaps // who answered
	// Steps are in the order in which they can be done.
	Steps []Step
	// Findings are in the order of SortFindings. Those that are not Unknown are
	// drift: the broker, its queues or its consumers are not as the policy says.
	Findings []Finding
	// Notes are about the policy itself, and about what follows from it even
	// when all is as it says.
	Notes []Finding
}

// Step is one thing that a policy needs at a broker.
type Step struct {
	Object Object
	Name   string
	State  StepState
	Text   string // what is so, or what would be done
	Advice string // how a person can mend it, "" when nothing is to be done
	// Settings are the properties that it is made with, in the broker's words
	// and in their order.
	Settings []Setting
}

// Setting is a property of what is made: a text, a whole number or a truth.
type Setting struct {
	Name  string
	Value any // string, int64 or bool
}

// Object is a kind of things at a broker.
type Object string

// Objects. The name of a binding is that of its exchange, an arrow and its
// queue.
const (
	ObjectQueue        Object = "queue"
	ObjectExchange     Object = "exchange"
	ObjectBinding      Object = "binding"
	ObjectBrokerPolicy Object = "broker_policy"
)

// StepState says how far a step is.
type StepState string

// States of steps.
const (
	StepMissing StepState = "missing" // Make can do it
	StepRight   StepState = "right"   // nothing is to be done
	StepDiffers StepState = "differs" // it is there in another form, and only a person can change it
	StepUnknown StepState = "unknown" // it could not be looked at
)

// Codes of findings about a broker that is not as a policy says. They are only
// ever added; docs/topology.md explains each. Findings of the other list can
// come beside them.
const (
	// About what is there.
	DriftQueueMissing    = "queue_missing"
	DriftKind            = "wrong_kind"
	DriftOutcomesMissing = "outcomes_missing"
	DriftOutcomesUnbound = "outcomes_unbound"

	// About deliveries and the way of dead letters.
	DriftDeliveryLimit = "delivery_limit_differs"
	DriftOverridden    = "delivery_limit_overridden"
	DriftElsewhere     = "dead_letters_elsewhere"

	// About a retry queue.
	DriftRetryNoReturn  = "retry_no_way_back"
	DriftRetryElsewhere = "retry_elsewhere"
	DriftRetryConsumed  = "retry_consumed"
	DriftRetryCut       = "retry_ttl_short"
	DriftRetryLimited   = "retry_limited"

	// About the quarantine.
	DriftRetentionCut = "retention_cut"

	// About the consumers.
	DriftNoConsumer = "no_consumer"
	DriftReplicas   = "replicas_missing"
	DriftPrefetch   = "prefetch_above"
	DriftTimeout    = "consumer_timeout_short"
)

// Codes of notes.
const (
	NoteBound       = "deliveries_bound"
	NoteCap         = "unusual_cap"
	NoteLimits      = "limits_unequal"
	NoteSharedRetry = "shared_retry_waits"
	NoteClassic     = "classic_unlimited"
)
