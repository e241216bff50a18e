package topology

import (
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/quarantine"
)

// maxReceivers bounds how many receiving queues are judged one by one.
const maxReceivers = 20

// Target judges where messages are released to: an exchange with a routing key,
// or through the default exchange a queue. Receivers are the queues that get a
// copy, sorted, nil when they are not known. A destination that does not exist
// has neither: the caller has looked.
func Target(m Map, exchange, key string) (receivers []string, found []quarantine.Finding) {
	f := findings{subject: exchange}
	if exchange != "" {
		x, err := m.Exchange(exchange)
		if err != nil {
			f.receiversUnknown(err)
			return nil, f.list
		}
		f.exchange(x)
	}
	r, err := Reach(m, exchange, key)
	switch {
	case err != nil:
		f.receiversUnknown(err)
		return nil, f.list
	case len(r.Queues) == 0 && exchange != "":
		f.blocks(quarantine.FoundNoRoute, fmt.Sprintf("no queue is bound to it for the routing key %q: the broker would give every message back", key),
			"have a queue bound for that key, or name another destination")
	case len(r.Alternates) > 0:
		f.risks(quarantine.FoundNoRoute, fmt.Sprintf("no binding takes the routing key %q: the messages go to the alternate exchange %s", key, r.Alternates[0]),
			"check that this is meant")
	}
	for _, name := range r.Queues[:min(len(r.Queues), maxReceivers)] {
		q, err := m.Queue(name)
		if errors.Is(err, ErrMissing) {
			continue // deleted meanwhile
		}
		if err != nil {
			f.add(quarantine.Unknown, quarantine.FoundNotInspected, "queue "+name+" could not be looked at: "+err.Error(), "")
			break
		}
		f.list = append(f.list, AsTarget(q)...)
		f.list = append(f.list, DeadLetters(m, q)...)
	}
	return r.Queues, f.list
}

func (f *findings) receiversUnknown(err error) {
	f.add(quarantine.Unknown, quarantine.FoundReceiversUnknown, "which queues get a copy is not known: "+err.Error(), "")
}

func (f *findings) exchange(x *Exchange) {
	if x.Internal {
		f.blocks(quarantine.FoundInternal, "it is internal: the broker lets no client publish to it", "name an exchange in front of it, or the queue itself")
	}
	switch x.Type {
	case "x-delayed-message":
		f.risks(quarantine.FoundDelayed, "it delays messages that have the header x-delay, and gives those back as if they had no route; x-delay is stripped, so that they go at once",
			"do not keep the header x-delay")
	case "x-message-deduplication":
		f.loses(quarantine.FoundDeduplication, "it drops what it has seen before, and confirms it all the same", "release to the queue itself")
	}
	if x.Alternate != "" {
		f.risks(quarantine.FoundAlternate, "what fits no binding goes to its alternate exchange "+x.Alternate+", and counts as delivered", "check the routing key")
	} else if x.Incomplete != "" {
		f.add(quarantine.Unknown, quarantine.FoundAlternate, "whether it has an alternate exchange is not known: "+x.Incomplete, "")
	}
}

// AsTarget judges a queue that messages are released to: what it takes is not
// always what it keeps.
func AsTarget(q *Queue) []quarantine.Finding {
	f := findings{subject: q.Name}
	if q.Kind == Stream {
		f.risks(quarantine.FoundStream, "it is a stream: it keeps every copy, also the second one, drops nested headers and refuses decimal ones", "")
		return f.list
	}
	if q.Exclusive {
		f.loses(quarantine.FoundExclusive, "it belongs to one connection, and goes with it", "have its owner declare a queue that is not exclusive")
	}
	if q.AutoDelete {
		f.loses(quarantine.FoundAutoDelete, "it deletes itself, with everything in it, when its last consumer leaves", "have its owner declare a queue that stays")
	}
	if q.Deduplicates {
		f.loses(quarantine.FoundDeduplication, "it drops what it has seen before", "see by which header it does; a released message keeps its headers")
	}
	f.storage(q)
	f.age(q)
	f.room(q)
	f.end(q)
	f.state(q)
	f.incomplete(q)
	return f.list
}

// room is about a destination that fills up.
func (f *findings) room(q *Queue) {
	if !q.limited() {
		return
	}
	const advice = "release no faster than its consumers work: window, rate, stages"
	switch q.Overflow {
	case RejectPublish, RejectPublishDLX:
		f.risks(quarantine.FoundRejectPublish, fmt.Sprintf("it takes no more than %s: when it is full it refuses, and the members are undelivered", q.limits()), advice)
	default:
		f.gone(q, quarantine.FoundDropHead, fmt.Sprintf("it keeps no more than %s: when it is full it confirms a message and drops the oldest", q.limits()), advice)
	}
}

// end is about messages that fail there again.
func (f *findings) end(q *Queue) {
	if q.DeadLetter != nil || q.Incomplete != "" {
		return
	}
	const advice = "give the queue a dead-letter exchange that leads to a captured queue"
	if q.DeliveryLimit != None {
		f.loses(quarantine.FoundLimitNoDLX, fmt.Sprintf("it has no dead-letter exchange: what its consumer rejects, or fails more than %d times, is dropped and does not come back", q.DeliveryLimit), advice)
		return
	}
	f.loses(quarantine.FoundNoDLX, "it has no dead-letter exchange: what its consumer rejects is dropped and does not come back", advice)
}
