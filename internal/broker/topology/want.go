package topology

import (
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Role is what a queue is for.
type Role string

// Roles.
const (
	RoleMain       Role = "main"       // work comes here
	RoleRetry      Role = "retry"      // waits here for its next run
	RoleQuarantine Role = "quarantine" // dead letters, until they are captured
	RoleOutcomes   Role = "outcomes"   // reports of consumers
)

// Unlimited is the delivery limit of a queue that must not have one. From
// RabbitMQ 4.0 on that has to be said.
const Unlimited = -2

// Wanted is a queue as a policy needs it. All of them are durable, keep what
// they have, and belong to nobody.
type Wanted struct {
	Name string
	Role Role
	Kind string // Quorum or Classic
	// DeliveryLimit is that of a quorum queue: a number, Unlimited, or None,
	// which leaves what the broker does by default.
	DeliveryLimit int64
	// DeadLetterTo is the queue for its dead letters, "" for none: then nothing
	// may die in it. It is reached through the default exchange, and at least
	// once.
	DeadLetterTo string
	// Delay is the longest wait in a retry queue, jitter included.
	Delay time.Duration
}

// Want are the queues that a policy needs for one queue, the targets of dead
// letters before what feeds them. A queue that is wanted in two roles is there
// once, in the first one.
func Want(q policy.Queue) []Wanted {
	q = q.WithDefaults()
	main := Wanted{Name: q.Name, Role: RoleMain, Kind: q.Kind, DeliveryLimit: None, DeadLetterTo: q.Quarantine}
	if q.Kind == Quorum {
		main.DeliveryLimit = int64(q.DeliveryLimit)
	}
	out := []Wanted{{Name: q.Quarantine, Role: RoleQuarantine, Kind: Quorum, DeliveryLimit: Unlimited}, main}
	delay := map[string]time.Duration{}
	for run := 1; run <= q.Retries; run++ {
		name := q.RetryQueueFor(run)
		delay[name] = max(delay[name], q.DelayFor(run, justBelow1))
	}
	for _, name := range q.RetryQueues() {
		out = append(out, Wanted{Name: name, Role: RoleRetry, Kind: Quorum, DeliveryLimit: None, DeadLetterTo: q.Name, Delay: delay[name]})
	}
	return out
}

// justBelow1 asks for the longest delay that jitter makes.
const justBelow1 = 0.999999999

// WantOutcomes is the queue of the exchange of outcomes. Both have one name.
func WantOutcomes() Wanted {
	return Wanted{Name: outcome.Queue, Role: RoleOutcomes, Kind: Quorum, DeliveryLimit: Unlimited}
}

// Arguments are those that a queue is declared with, by RabbitMQ's names. Major
// is the first number of its version: before 4.0 quorum queues have no limit of
// deliveries by default, and a negative one means 0.
func (w Wanted) Arguments(major int) []quarantine.Setting {
	out := []quarantine.Setting{{Name: "x-queue-type", Value: w.Kind}}
	for _, s := range w.properties(major) {
		out = append(out, quarantine.Setting{Name: "x-" + s.Name, Value: s.Value})
	}
	return out
}

// Names of properties, as policies write them.
const (
	propLimit    = "delivery-limit"
	propExchange = "dead-letter-exchange"
	propKey      = "dead-letter-routing-key"
	propStrategy = "dead-letter-strategy"
	propOverflow = "overflow"
)

// properties are those of w that arguments and broker policies can set.
func (w Wanted) properties(major int) []quarantine.Setting {
	var out []quarantine.Setting
	switch {
	case w.Kind != Quorum:
	case w.DeliveryLimit >= 0:
		out = append(out, quarantine.Setting{Name: propLimit, Value: w.DeliveryLimit})
	case w.DeliveryLimit == Unlimited && major >= 4:
		out = append(out, quarantine.Setting{Name: propLimit, Value: int64(-1)})
	}
	if w.DeadLetterTo == "" {
		return out
	}
	out = append(out, quarantine.Setting{Name: propExchange, Value: ""}, quarantine.Setting{Name: propKey, Value: w.DeadLetterTo})
	if w.Kind == Quorum {
		out = append(out, quarantine.Setting{Name: propStrategy, Value: "at-least-once"}, quarantine.Setting{Name: propOverflow, Value: string(RejectPublish)})
	}
	return out
}
