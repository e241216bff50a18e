package topology

import (
	"fmt"
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// brokerTimeout is the consumer timeout of RabbitMQ by default.
const brokerTimeout = 30 * time.Minute

// drift judges a queue that is there by what is wanted of it.
func drift(m Map, w Wanted, q *Queue, p policy.Queue) []quarantine.Finding {
	f := findings{subject: q.Name}
	if q.Kind != w.Kind && q.Kind != quarantine.QueueLocal && q.Kind != "" {
		f.loses(quarantine.DriftKind, fmt.Sprintf("it is a %s queue, and a %s queue is wanted: %s", q.Kind, w.Kind, kindMeans(w, q)),
			"have a "+w.Kind+" queue of another name declared and named in the policy; no queue changes its kind")
	}
	switch w.Role {
	case RoleMain:
		f.main(m, w, q, p)
	case RoleRetry:
		f.retry(m, w, q)
	case RoleQuarantine:
		f.aside(m, q, p)
	}
	return f.list
}

func kindMeans(w Wanted, q *Queue) string {
	switch {
	case q.Kind == Classic && w.Role == RoleMain:
		return "it has no delivery limit, so that a message which kills its worker is delivered for ever"
	case q.Kind == Classic && w.Role == RoleRetry:
		return "it dead-letters at most once, so that a message whose delay ends while the main queue is away is dropped"
	case q.Kind == Stream:
		return "nothing that is read from a stream leaves it"
	case q.Kind == Classic:
		return "what is in it is on one node only"
	}
	return "limits and ways of dead letters are others there"
}

// main judges the queue where work comes in.
func (f *findings) main(m Map, w Wanted, q *Queue, p policy.Queue) {
	f.storage(q)
	if q.MessageTTL != None {
		f.gone(q, quarantine.FoundMessageTTL, fmt.Sprintf("messages leave it after %v, whether a worker has seen them or not", q.MessageTTL),
			"have its owner take off x-message-ttl, or the policy's message-ttl")
	}
	if q.limited() && q.Overflow == DropHead {
		f.gone(q, quarantine.FoundDropHead, fmt.Sprintf("it keeps no more than %s: when it is full the oldest leave before a worker has seen them", q.limits()),
			"set overflow to reject-publish, so that producers hear of it")
	}
	if q.SingleActive {
		f.risks(quarantine.FoundSingleActive, "only one consumer at a time gets messages: further replicas wait, and one slow message holds up all others", "have a queue without x-single-active-consumer, unless this order is meant")
	}
	f.limit(w, q)
	f.way(m, w, q)
	f.consumers(q, p)
	f.state(q)
	f.incomplete(q)
}

// limit judges the broker's own limit of deliveries.
func (f *findings) limit(w Wanted, q *Queue) {
	if w.DeliveryLimit < 0 || q.Kind != Quorum && q.Kind != quarantine.QueueLocal || q.DeliveryLimit == w.DeliveryLimit {
		return
	}
	const advice = "keep both numbers equal: see redrive policy apply"
	switch {
	case q.ArgumentLimit == w.DeliveryLimit && q.DeliveryLimit != None:
		by := "a broker policy"
		if q.OperatorPolicy != "" {
			by = "the operator policy " + q.OperatorPolicy
		}
		f.risks(quarantine.DriftOverridden, fmt.Sprintf("its own delivery limit is %d, but %s makes it %d: the broker gives messages up earlier than the policy says", w.DeliveryLimit, by, q.DeliveryLimit),
			"have delivery-limit taken out of that policy, or set to "+fmt.Sprint(w.DeliveryLimit))
	case q.DeliveryLimit != None:
		f.risks(quarantine.DriftDeliveryLimit, fmt.Sprintf("its delivery limit is %d, and the policy says %d: what kills its worker is given up after %d deliveries instead of %d", q.DeliveryLimit, w.DeliveryLimit, q.DeliveryLimit+1, w.DeliveryLimit+1), advice)
	case q.Incomplete != "":
		f.add(quarantine.Unknown, quarantine.DriftDeliveryLimit, "whether a broker policy limits its deliveries is not known: "+q.Incomplete, "")
	case w.DeliveryLimit == 0 && q.Kind == quarantine.QueueLocal: // this broker cannot say 0
	default:
		f.risks(quarantine.DriftDeliveryLimit, fmt.Sprintf("it has no delivery limit, and the policy says %d: a message that kills its worker is delivered again for ever", w.DeliveryLimit), advice)
	}
}

// way judges where dead letters go.
func (f *findings) way(m Map, w Wanted, q *Queue) {
	if q.DeadLetter == nil {
		if q.Incomplete != "" {
			f.add(quarantine.Unknown, quarantine.FoundNoDLX, "whether a broker policy gives it a dead-letter exchange is not known: "+q.Incomplete, "")
			return
		}
		if w.Role == RoleRetry {
			f.loses(quarantine.DriftRetryNoReturn, "it has no dead-letter exchange: a message whose delay ends is dropped instead of going back to "+w.DeadLetterTo, "see redrive policy apply")
			return
		}
		f.loses(quarantine.FoundNoDLX, "it has no dead-letter exchange: what the broker gives up is dropped instead of going to "+w.DeadLetterTo, "see redrive policy apply")
		return
	}
	found := DeadLetters(m, q)
	f.list = append(f.list, found...)
	if losesDeadLetters(found) {
		return // that it does not lead there either goes without saying
	}
	ok, err := leadsTo(m, q, w)
	switch {
	case err != nil:
		f.notKnown(err)
	case ok:
	case w.Role == RoleRetry:
		f.loses(quarantine.DriftRetryElsewhere, "messages whose delay ends do not go back to "+w.DeadLetterTo+", but to "+destination(q.DeadLetter), "have its dead-letter exchange and routing key lead to "+w.DeadLetterTo)
	default:
		f.risks(quarantine.DriftElsewhere, "its dead letters do not come to "+w.DeadLetterTo+", but go to "+destination(q.DeadLetter), "have its dead-letter exchange and routing key lead to "+w.DeadLetterTo+", or name that queue in the policy")
	}
}

func destination(d *DeadLetter) string {
	switch {
	case d.HasKey && d.Exchange == "":
		return "queue " + d.RoutingKey
	case d.HasKey:
		return fmt.Sprintf("exchange %s with the routing key %q", d.Exchange, d.RoutingKey)
	}
	return exchangeName(d.Exchange) + " with their own routing keys"
}

// consumers judges the workers by what the broker sees of them.
func (f *findings) consumers(q *Queue, p policy.Queue) {
	switch {
	case q.Consumers == None:
		f.add(quarantine.Unknown, quarantine.DriftNoConsumer, "how many consumers it has is not known", "")
	case q.Consumers == 0:
		f.risks(quarantine.DriftNoConsumer, "it has no consumer at this moment: nothing is worked", "start the worker")
	case q.Consumers < p.Replicas:
		f.risks(quarantine.DriftReplicas, fmt.Sprintf("it has %d consumers, and the policy says %d replicas", q.Consumers, p.Replicas), "see why replicas are missing")
	}
	most := -1
	for _, n := range q.Prefetches {
		if n == 0 {
			f.risks(quarantine.DriftPrefetch, fmt.Sprintf("a consumer has no prefetch limit of its own, and the policy says %d: all that waits can be handed to it at once, and a crash spends a delivery of each", p.Prefetch),
				"set the prefetch of the worker, for each consumer")
			most = -1
			break
		}
		most = max(most, n)
	}
	if most > p.Prefetch {
		f.risks(quarantine.DriftPrefetch, fmt.Sprintf("a consumer has a prefetch of %d, and the policy says %d: a slow message holds up more than that, and a crash spends a delivery of each", most, p.Prefetch),
			"set the prefetch of the worker, or write its number into the policy")
	}
	if q.Prefetches == nil && q.Consumers > 0 {
		f.add(quarantine.Unknown, quarantine.DriftPrefetch, "the prefetch of its consumers is not known", "")
	}
	timeout, by := q.ConsumerTimeout, "its consumer timeout"
	if timeout == None {
		timeout, by = brokerTimeout, "RabbitMQ's consumer timeout, unless its configuration says another one,"
	}
	if p.Timeout >= timeout {
		f.risks(quarantine.DriftTimeout, fmt.Sprintf("a handler may run for %v, and %s is %v: the broker takes the message back before, and closes the channel", p.Timeout, by, timeout),
			"make the handler's time-out shorter")
	}
}

// retry judges a queue where messages wait for their next run.
func (f *findings) retry(m Map, w Wanted, q *Queue) {
	f.storage(q)
	f.way(m, w, q)
	if q.Consumers > 0 {
		f.risks(quarantine.DriftRetryConsumed, fmt.Sprintf("it has %d consumers: what they take does not wait, and does not go back by itself", q.Consumers), "stop them: nobody but the broker takes messages from a retry queue")
	}
	if q.MessageTTL != None && q.MessageTTL < w.Delay {
		f.risks(quarantine.DriftRetryCut, fmt.Sprintf("its message-ttl of %v is shorter than the delay of up to %v: messages come back too early", q.MessageTTL, w.Delay), "have message-ttl taken off: each message carries its own delay")
	}
	if q.limited() {
		f.risks(quarantine.DriftRetryLimited, fmt.Sprintf("it keeps no more than %s: when it is full, messages come back too early, or the worker cannot put a copy there and waits", q.limits()), "have the length limit taken off")
	}
	f.state(q)
	f.incomplete(q)
}

// aside judges the quarantine.
func (f *findings) aside(m Map, q *Queue, p policy.Queue) {
	f.list = append(f.list, AsSource(q)...)
	f.list = append(f.list, DeadLetters(m, q)...)
	if q.MessageTTL != None && q.MessageTTL < p.Retention {
		f.loses(quarantine.DriftRetentionCut, fmt.Sprintf("its message-ttl of %v is shorter than the retention of %v", q.MessageTTL, p.Retention), "have message-ttl taken off: redrive keeps the retention, and removes nothing that is open")
	}
}

// Notes says what follows from a policy by itself.
func Notes(q policy.Queue) []quarantine.Finding {
	q = q.WithDefaults()
	f := findings{subject: q.Name}
	const low, high = 3, 10
	if q.Kind == Classic {
		f.risks(quarantine.NoteClassic, "a classic queue has no delivery limit and dead-letters at most once: a message that kills its worker is delivered for ever", "use a quorum queue")
	} else {
		f.risks(quarantine.NoteBound, fmt.Sprintf("a message that fails and kills workers in turn is delivered at most %d times: (%d retries + 1) × (delivery limit %d + 1)", q.MaxDeliveries(), q.Retries, q.DeliveryLimit), "")
	}
	if q.Retries < low || q.Retries > high {
		f.risks(quarantine.NoteCap, fmt.Sprintf("%d retries are outside of the usual %d to %d: too few give up on what passes by itself, too many hold poison for long", q.Retries, low, high), "")
	}
	if q.Kind != Classic && q.DeliveryLimit != q.Retries {
		f.risks(quarantine.NoteLimits, fmt.Sprintf("the delivery limit is %d, and there are %d retries: the worker's way and the broker's way give a message up after different numbers of deliveries", q.DeliveryLimit, q.Retries), "write the same number for both")
	}
	if q.Mode == policy.Shared && differ(q.Delays) {
		f.risks(quarantine.NoteSharedRetry, fmt.Sprintf("all delays share the queue %s, and a broker expires messages at the head only: a message with a delay of %v can wait behind one of %v", q.RetryQueue, q.Delays[0], longest(q.Delays)),
			"use the mode per-delay")
	}
	return f.list
}

func differ(ds []time.Duration) bool { return len(ds) > 0 && longest(ds) > ds[0] }

func longest(ds []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range ds {
		most = max(most, d)
	}
	return most
}
