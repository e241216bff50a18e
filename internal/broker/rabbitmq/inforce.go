package rabbitmq

import (
	"math"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/management"
	"github.com/redrivehq/redrive/internal/broker/topology"
)

// defaultDeliveryLimit is that of quorum queues from RabbitMQ 4.0.
const defaultDeliveryLimit = 20

// property is one that arguments ("x-NAME") and policies ("NAME") can set.
type property struct {
	arguments, policy management.Table
	name              string
}

// inForce works out which value holds where the arguments of a queue and its
// policy name the same property. The management API has merged policy and
// operator policy already. The rules are those of the server's modules
// rabbit_amqqueue_process (process_args_policy) and rabbit_quorum_queue
// (gather_policy_config); TestWhatIsInForce holds them against a broker:
//
//	max-length, max-length-bytes, message-ttl, expires      the smaller one
//	delivery-limit                                          the smaller one; from 4.0, when either is negative, the greater one
//	dead-letter-exchange, -routing-key, -strategy           the argument
//	overflow                                                classic: the argument; quorum: the policy
//
// A negative delivery limit means none from 4.0 on. Before, it counts like 0:
// the first return is the last.
func inForce(q *management.Queue, major int) topology.Queue {
	p := func(name string) property { return property{q.Arguments, q.Effective, name} }
	f := topology.NewQueue(q.Name)
	f.Kind, f.Durable, f.AutoDelete, f.Exclusive = q.Type, q.Durable, q.AutoDelete, q.Exclusive
	f.ExclusiveConsumer = q.ExclusiveConsumer != ""
	f.SingleActive = q.Arguments.True("x-single-active-consumer")
	f.Deduplicates = q.Arguments.True("x-message-deduplication")
	f.State, f.Stuck = string(q.State), q.DeadLettering
	f.Policy, f.OperatorPolicy, f.Fixed = string(q.Policy), string(q.OperatorPolicy), map[string]bool{}
	for name := range q.Arguments {
		f.Fixed[strings.TrimPrefix(name, "x-")] = true
	}
	if q.Consumers != nil {
		f.Consumers = *q.Consumers
	}
	if !q.Statistics() {
		f.Incomplete = "the broker's statistics of the queue are not there"
	}
	f.MaxLength, f.MaxBytes = p("max-length").smaller(), p("max-length-bytes").smaller()
	f.MessageTTL, f.Expires = span(p("message-ttl").smaller()), span(p("expires").smaller())
	f.ConsumerTimeout = span(p("consumer-timeout").smaller())
	f.Overflow = overflow(p("overflow"), q.Type)
	if q.Type == topology.Quorum {
		f.DeliveryLimit = p("delivery-limit").deliveryLimit(major)
		if own, ok := q.Arguments.Int("x-delivery-limit"); ok {
			f.ArgumentLimit = max(own, topology.None)
		}
	}
	if exchange, ok := p("dead-letter-exchange").argument(); ok {
		d := &topology.DeadLetter{Exchange: exchange}
		d.RoutingKey, d.HasKey = p("dead-letter-routing-key").argument()
		strategy, _ := p("dead-letter-strategy").argument()
		d.Wanted = strategy == "at-least-once"
		d.AtLeastOnce = d.Wanted && q.Type == topology.Quorum && f.Overflow == topology.RejectPublish
		f.DeadLetter = d
	}
	return f
}

func (p property) ints() (arg, pol int64, hasArg, hasPol bool) {
	arg, hasArg = p.arguments.Int("x-" + p.name)
	pol, hasPol = p.policy.Int(p.name)
	return arg, pol, hasArg, hasPol
}

// smaller is the smaller one, topology.None when there is neither.
func (p property) smaller() int64 {
	arg, pol, hasArg, hasPol := p.ints()
	switch {
	case hasArg && hasPol:
		return min(arg, pol)
	case hasArg:
		return arg
	case hasPol:
		return pol
	}
	return topology.None
}

func (p property) deliveryLimit(major int) int64 {
	arg, pol, hasArg, hasPol := p.ints()
	limit := p.smaller()
	switch {
	case !hasArg && !hasPol:
		if major >= 4 {
			return defaultDeliveryLimit
		}
		return topology.None
	case major == 3:
		return max(limit, 0)
	case hasArg && hasPol && limit < 0:
		limit = max(arg, pol)
	}
	if limit < 0 {
		return topology.None
	}
	return limit
}

// argument is the text of the argument, else that of the policy.
func (p property) argument() (string, bool) {
	if s, ok := p.arguments.Text("x-" + p.name); ok {
		return s, true
	}
	return p.policy.Text(p.name)
}

func overflow(p property, kind string) topology.Overflow {
	s, ok := p.argument()
	if kind == topology.Quorum {
		if policy, has := p.policy.Text(p.name); has {
			s, ok = policy, true
		}
	}
	switch o := topology.Overflow(s); {
	case !ok:
	case o == topology.RejectPublish, o == topology.RejectPublishDLX && kind != topology.Quorum:
		return o
	}
	return topology.DropHead
}

// span is a number of milliseconds as a duration.
func span(ms int64) time.Duration {
	if ms < 0 {
		return topology.None
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
