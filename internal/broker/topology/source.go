package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrivehq/redrive/quarantine"
)

// AsSource judges a queue that is captured, by its own facts.
func AsSource(q *Queue) []quarantine.Finding {
	f := findings{subject: q.Name}
	if q.Kind == Stream {
		f.blocks(quarantine.FoundStream, "it is a stream, and streams cannot be captured in this version: nothing that is read from one leaves it",
			"name a classic or a quorum queue")
		return f.list
	}
	if q.AutoDelete {
		f.blocks(quarantine.FoundAutoDelete, "it deletes itself, with everything in it, when its last consumer leaves; a capture that ends is such a consumer",
			"have its owner declare a queue that stays")
	}
	if q.Exclusive {
		f.blocks(quarantine.FoundExclusive, "it belongs to one connection of somebody else, and goes with it", "have its owner declare a queue that is not exclusive")
	}
	if q.ExclusiveConsumer {
		f.blocks(quarantine.FoundExclusive, "a consumer has it for itself: the broker refuses any other", "stop that consumer")
	}
	if q.SingleActive {
		f.risks(quarantine.FoundSingleActive, "only one consumer at a time gets messages: the capture waits while another one is there", "stop other consumers")
	}
	f.storage(q)
	f.age(q)
	f.length(q)
	f.deliveries(q)
	f.state(q)
	f.incomplete(q)
	return f.list
}

// findings collects what is found about one subject.
type findings struct {
	subject string
	list    []quarantine.Finding
}

func (f *findings) add(s quarantine.Severity, code, text, advice string) {
	f.list = append(f.list, quarantine.Finding{Code: code, Severity: s, Subject: f.subject, Text: text, Advice: advice})
}

func (f *findings) blocks(code, text, advice string) { f.add(quarantine.Blocks, code, text, advice) }
func (f *findings) loses(code, text, advice string)  { f.add(quarantine.Loses, code, text, advice) }
func (f *findings) risks(code, text, advice string)  { f.add(quarantine.Risks, code, text, advice) }

// gone reports a way in which messages leave a queue by themselves: into its
// dead-letter exchange, if it has one, or into nothing.
func (f *findings) gone(q *Queue, code, text, advice string) {
	switch {
	case q.DeadLetter != nil:
		f.risks(code, text+"; they go to "+exchangeName(q.DeadLetter.Exchange), advice)
	case q.Incomplete != "":
		f.loses(code, text+"; where they go is not known", advice)
	default:
		f.loses(code, text+"; they are lost", advice)
	}
}

func (f *findings) storage(q *Queue) {
	if !q.Durable {
		f.loses(quarantine.FoundNotDurable, "it is not durable: it is gone, with everything in it, when the broker restarts", "have its owner declare a durable queue")
	}
	if q.Expires != None {
		f.loses(quarantine.FoundQueueExpires, fmt.Sprintf("it is deleted, with everything in it, when nobody has used it for %v", q.Expires),
			"have its owner take off x-expires, or the policy's expires")
	}
}

func (f *findings) age(q *Queue) {
	if q.MessageTTL != None {
		f.gone(q, quarantine.FoundMessageTTL, fmt.Sprintf("messages leave it after %v", q.MessageTTL),
			"have its owner take off x-message-ttl, or the policy's message-ttl")
	}
}

// length is about a source that is full.
func (f *findings) length(q *Queue) {
	if !q.limited() {
		return
	}
	const advice = "have its owner take off the length limit, or capture so often that it never fills"
	switch q.Overflow {
	case RejectPublish:
		f.loses(quarantine.FoundRejectPublish, fmt.Sprintf("it takes no more than %s: dead letters that come when it is full are dropped, unless they come from a queue that dead-letters at least once", q.limits()), advice)
	case RejectPublishDLX:
		f.gone(q, quarantine.FoundRejectPublish, fmt.Sprintf("it takes no more than %s, and dead-letters what comes when it is full", q.limits()), advice)
	default:
		f.gone(q, quarantine.FoundDropHead, fmt.Sprintf("it keeps no more than %s: when it is full the oldest leave before they are captured", q.limits()), advice)
	}
}

// deliveries is about a source whose messages have a limited number of lives.
func (f *findings) deliveries(q *Queue) {
	if q.DeliveryLimit == None || q.DeadLetter == nil && q.Incomplete != "" {
		return
	}
	f.gone(q, quarantine.FoundDeliveryLimit, fmt.Sprintf("a message that is returned more than %d times leaves it, and each lost connection returns all that was in flight", q.DeliveryLimit),
		"keep prefetch small, or have its owner set delivery-limit to -1 (from RabbitMQ 4.0) or give it a dead-letter exchange")
}

// sick are the states in which a queue answers nobody.
var sick = map[string]bool{"down": true, "crashed": true, "minority": true, "stopped": true}

func (f *findings) state(q *Queue) {
	if sick[q.State] {
		f.risks(quarantine.FoundQueueState, "the broker says that it is "+q.State+": nothing can be taken from it or given to it", "look at the broker's nodes")
	}
}

func (f *findings) incomplete(q *Queue) {
	if q.Incomplete != "" {
		f.add(quarantine.Unknown, quarantine.FoundNotInspected, "the policies in force are not known: "+q.Incomplete, "ask again in some seconds")
	}
}

// DeadLetters judges the way of dead messages out of a queue.
func DeadLetters(m Map, q *Queue) []quarantine.Finding {
	f := findings{subject: q.Name}
	if q.Stuck > 0 {
		f.risks(quarantine.FoundStuck, fmt.Sprintf("%d dead messages wait inside it and reach no queue", q.Stuck),
			"look at its dead-letter exchange and at the queues behind it: missing, without binding, or full")
	}
	if q.DeadLetter == nil {
		return f.list
	}
	f.route(m, q)
	if q.Kind == Quorum && !q.DeadLetter.AtLeastOnce && q.Incomplete == "" {
		f.strategy(q)
	}
	return f.list
}

func (f *findings) strategy(q *Queue) {
	if q.DeadLetter.Wanted {
		f.loses(quarantine.FoundFallsBack, "its dead-letter-strategy at-least-once is not in force, because its overflow is not reject-publish: dead messages that find their queue missing, full or away are dropped",
			"set overflow to reject-publish as well")
		return
	}
	f.loses(quarantine.FoundAtMostOnce, "it dead-letters at most once: dead messages that find their queue missing, full or away are dropped",
		"set dead-letter-strategy to at-least-once, and overflow to reject-publish")
}

// route looks whether dead messages of q find a queue.
func (f *findings) route(m Map, q *Queue) {
	d := q.DeadLetter
	if !d.HasKey && d.Exchange == "" {
		return // every queue is its own way back; which one a message takes is in the message
	}
	if d.Exchange != "" {
		x, err := m.Exchange(d.Exchange)
		switch {
		case errors.Is(err, ErrMissing):
			f.loses(quarantine.FoundDLXMissing, "its dead-letter exchange "+d.Exchange+" does not exist: what dies in it is lost", "have the exchange declared, and bound to the dead-letter queue")
			return
		case err != nil:
			f.notKnown(err)
			return
		case x.Alternate != "":
			f.risks(quarantine.FoundAlternate, "its dead-letter exchange "+d.Exchange+" hands what fits no binding to exchange "+x.Alternate+": such dead letters do not come here, and nobody is told",
				"see where the alternate exchange leads")
		}
		if len(x.Bindings) == 0 && x.Alternate == "" && x.Incomplete == "" {
			f.loses(quarantine.FoundDLXUnroutable, "its dead-letter exchange "+d.Exchange+" is bound to nothing: what dies in it is lost", "have the exchange bound to the dead-letter queue")
			return
		}
	}
	keys := []string{d.RoutingKey}
	if !d.HasKey {
		var err error
		if keys, err = m.Keys(q.Name); err != nil {
			f.notKnown(err)
			return
		}
	}
	for _, key := range keys {
		r, err := Reach(m, d.Exchange, key)
		if err != nil {
			f.notKnown(err)
			return
		}
		if len(r.Queues) == 0 {
			f.loses(quarantine.FoundDLXUnroutable, fmt.Sprintf("%s has no queue for the routing key %q: what dies in it under that key is lost", exchangeName(d.Exchange), key),
				"have the exchange bound for that key, or set another dead-letter-routing-key")
		}
	}
}

func (f *findings) notKnown(err error) {
	f.add(quarantine.Unknown, quarantine.FoundDLXUnroutable, "whether its dead messages find a queue is not known: "+err.Error(), "")
}

// Feeders judges the queues whose dead letters end in target, and says which
// other queues lose their dead letters: one of those may be meant to feed it.
func Feeders(m Map, target string, all []Queue) []quarantine.Finding {
	var out []quarantine.Finding
	var missing, limited, unknown []string
	var why error
	for i := range all {
		q := &all[i]
		switch {
		case q.Name == target || q.Kind == Stream:
			continue
		case q.DeadLetter != nil:
		case q.Incomplete != "":
			unknown, why = append(unknown, q.Name), errors.New(q.Incomplete)
			continue
		default:
			if q.DeliveryLimit != None {
				limited = append(limited, q.Name)
			}
			continue
		}
		found := DeadLetters(m, q)
		ok, err := feeds(m, q, target)
		switch {
		case err != nil:
			unknown, why = append(unknown, q.Name), err
		case ok:
			out = append(out, found...)
			f := findings{subject: q.Name}
			f.storage(q)
			out = append(out, f.list...)
		case losesDeadLetters(found):
			missing = append(missing, q.Name)
		}
	}
	f := findings{}
	if len(missing) > 0 {
		f.loses(quarantine.FoundDLXMissing, "what dies in "+some(missing)+" is lost: the dead-letter exchange is missing, or has no queue for it",
			"have the exchange declared, and bound to a dead-letter queue")
	}
	if len(limited) > 0 {
		f.loses(quarantine.FoundLimitNoDLX, "what is delivered too often in "+some(limited)+" is dropped: there is a delivery limit, and no dead-letter exchange",
			"give the queues a dead-letter exchange, where their messages matter")
	}
	if len(unknown) > 0 {
		f.add(quarantine.Unknown, quarantine.FoundFeedersUnknown, "where dead letters of "+some(unknown)+" go is not known: "+why.Error(), "")
	}
	return append(out, f.list...)
}

func losesDeadLetters(fs []quarantine.Finding) bool {
	for _, f := range fs {
		if f.Severity == quarantine.Loses && (f.Code == quarantine.FoundDLXMissing || f.Code == quarantine.FoundDLXUnroutable) {
			return true
		}
	}
	return false
}

// feeds reports whether dead letters of q can end in target.
func feeds(m Map, q *Queue, target string) (bool, error) {
	d := q.DeadLetter
	var ok bool
	var err error
	switch {
	case d.HasKey:
		var r Reached
		r, err = Reach(m, d.Exchange, d.RoutingKey)
		ok = slices.Contains(r.Queues, target)
	case d.Exchange != "": // else each message goes back to a queue that its own routing key names
		ok, err = Leads(m, d.Exchange, target)
	}
	if errors.Is(err, ErrMissing) {
		return false, nil
	}
	return ok, err
}

// shown is how many names a text holds.
const shown = 5

// some names the first few.
func some(names []string) string {
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
