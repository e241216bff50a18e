package quarantine_test

import (
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// matching is a queue being captured, as far as the matcher sees it.
type matching struct {
	*book
	m *quarantine.Matcher
}

func (b *book) match() *matching {
	b.Helper()
	out := &matching{book: b}
	b.view(func(v ledger.View) {
		var err error
		out.m, err = quarantine.LoadMatcher(v, here, "orders.dlq")
		b.ok(err)
	})
	return out
}

func named(id string) amqpwire.View {
	return amqpwire.View{Present: amqpwire.MessageID, MessageID: id}
}

// first captures a delivery that the broker sends for the first time.
func (m *matching) first(v amqpwire.View) event.EnvelopeNo {
	m.Helper()
	p := m.prepare(m.delivery("body", v))
	if no, why, same := m.m.Match(p); no != 0 || same {
		m.Errorf("a first delivery was matched with %d (%s)", no, why)
	}
	nos, _ := m.captured(quarantine.Batch{New: []*quarantine.Prepared{p}})
	m.m.Captured(nos[0], p)
	return nos[0]
}

// again matches a redelivery.
func (m *matching) again(v amqpwire.View) (event.EnvelopeNo, string, bool) {
	m.Helper()
	d := m.delivery("body", v)
	d.Redelivered = true
	return m.m.Match(m.prepare(d))
}

func (m *matching) want(v amqpwire.View, no event.EnvelopeNo, why string, merged bool) {
	m.Helper()
	if n, w, same := m.again(v); n != no || w != why || same != merged {
		m.Errorf("matched with %d (%q, merged %v), want %d (%q, %v)", n, w, same, no, why, merged)
	}
}

func TestSettlementNeverWrittenIsMerged(t *testing.T) {
	m := newBook(t).match()
	no := m.first(amqpwire.View{})
	m.m.SessionLost()
	m.want(amqpwire.View{}, no, quarantine.MergedNotSettled, true)
}

func TestSettlementWrittenNeedsAMessageID(t *testing.T) {
	m := newBook(t).match()
	plain, id := m.first(amqpwire.View{}), m.first(named("m1"))
	m.m.Settling(plain)
	m.m.Settling(id)
	m.m.SessionLost()
	m.want(named("m1"), id, quarantine.MergedMessageID, true)
	m.want(named("m2"), 0, "", false)                 // other bytes
	m.want(amqpwire.View{}, plain, "", false)         // only linked
	m.want(amqpwire.View{}, 0, "", false)             // by one delivery of each session
	if f := m.linked(plain); f.DuplicateOf != plain { // and kept
		m.Errorf("%+v", f)
	}
}

// linked captures a possible duplicate of an envelope.
func (m *matching) linked(of event.EnvelopeNo) *quarantine.Facts {
	m.Helper()
	d := m.delivery("body", amqpwire.View{})
	d.Redelivered = true
	nos, _ := m.captured(quarantine.Batch{New: []*quarantine.Prepared{m.prepare(d)}, Doubles: []event.EnvelopeNo{of}})
	if c := m.cell(nos[0]); !c.Flags.Has(quarantine.FlagPossibleDuplicate) || c.Custody != event.Quarantined {
		m.Errorf("%+v", c)
	}
	return m.facts(nos[0])
}

// Twins are interchangeable, so each redelivery takes one of them, and what is
// left over is kept.
func TestIdenticalTwinsAreMatchedOneForOne(t *testing.T) {
	m := newBook(t).match()
	a, c := m.first(named("m")), m.first(named("m"))
	m.m.SessionLost()
	m.want(named("m"), a, quarantine.MergedNotSettled, true)
	m.want(named("m"), c, quarantine.MergedNotSettled, true)
	m.want(named("m"), 0, "", false)
	m.m.SessionLost() // and once more in the next session
	m.m.Settling(a)
	m.want(named("m"), a, quarantine.MergedMessageID, true)
	m.want(named("m"), c, quarantine.MergedNotSettled, true)
	m.want(named("m"), 0, "", false)
}

// A twin that was never in the store is not flagged because another one comes
// back.
func TestTwinsAreLinkedOneForOne(t *testing.T) {
	m := newBook(t).match()
	a, b := m.first(amqpwire.View{}), m.first(amqpwire.View{})
	m.m.Settling(a)
	m.m.SessionLost()
	m.want(amqpwire.View{}, b, quarantine.MergedNotSettled, true) // certain, so it goes before
	m.want(amqpwire.View{}, a, "", false)
	m.want(amqpwire.View{}, 0, "", false)
	m.m.SessionLost()
	m.m.Settling(b)
	m.want(amqpwire.View{}, b, "", false)
	m.want(amqpwire.View{}, a, "", false)
	m.want(amqpwire.View{}, 0, "", false)
}

func TestDeliveryInHandIsNotMatchedWithItself(t *testing.T) {
	m := newBook(t).match()
	m.first(named("m"))
	m.want(named("m"), 0, "", false) // the first one is still with this session
}

func TestSettledRecentlyIsLinkedOnly(t *testing.T) {
	m := newBook(t).match()
	no := m.first(named("m"))
	m.m.Settling(no)
	m.m.Settled(no)
	m.m.SessionLost()
	m.want(named("m"), no, "", false)
}

func TestAfterARestartEverySettlementMayHaveBeenWritten(t *testing.T) {
	b := newBook(t)
	m := b.match()
	plain, id, done := m.first(amqpwire.View{}), m.first(named("m1")), m.first(named("m2"))
	b.must(func(ledger.View) ([]event.Event, error) { return quarantine.SettledEvents(event.RangesOf(done)), nil })
	if !b.cell(done).Flags.Has(quarantine.Settled) || b.cell(id).Flags.Has(quarantine.Settled) {
		t.Error("settlements are not recorded")
	}
	m = b.match()
	m.want(named("m1"), id, quarantine.MergedMessageID, true)
	m.want(amqpwire.View{}, plain, "", false)
	m.want(named("m2"), 0, "", false)
}

func TestOtherQueuesAreNotMatched(t *testing.T) {
	b := newBook(t)
	d := b.delivery("body", named("m"))
	d.Queue = "payments.dlq"
	b.capture(d)
	b.match().want(named("m"), 0, "", false)
	for _, elsewhere := range []quarantine.Origin{{Cluster: "c2", VHost: "/"}, {Cluster: "c1", VHost: "other"}} {
		p, err := b.pr.Prepare(b.delivery("body", named("m")), elsewhere, b.now)
		b.ok(err)
		b.captured(quarantine.Batch{New: []*quarantine.Prepared{p}})
	}
	b.match().want(named("m"), 0, "", false)
}

// A message that died in a queue that had counted its deliveries comes to the
// next queue with that count, marked as redelivered, although it was never
// delivered there. Its twin, which was captured and settled without the answer,
// is another message: to merge the two would lose one.
func TestTwinWithTheSameCountIsNotMerged(t *testing.T) {
	m := newBook(t).match()
	stale := func(n int) *quarantine.Prepared {
		d := m.delivery("body", named("m"))
		d.Redelivered, d.DeliveryCount = true, n
		return m.prepare(d)
	}
	first := stale(3)
	nos, _ := m.captured(quarantine.Batch{New: []*quarantine.Prepared{first}})
	m.m.Captured(nos[0], first)
	m.m.Settling(nos[0])
	m.m.SessionLost()
	if no, why, same := m.m.Match(stale(3)); no != nos[0] || same {
		t.Errorf("the twin was matched with %d (%q, merged %v), want it linked to %d", no, why, same, nos[0])
	}
	// The one that really comes back has the count of this queue.
	if no, why, same := m.m.Match(stale(1)); no != nos[0] || !same || why != quarantine.MergedMessageID {
		t.Errorf("the redelivery was matched with %d (%q, merged %v)", no, why, same)
	}
}

// Counters that the broker changes from delivery to delivery are no part of
// the message.
func TestBrokerCountersDoNotHideARedelivery(t *testing.T) {
	m := newBook(t).match()
	no := m.first(named("m"))
	m.m.SessionLost()
	v := named("m")
	v.Present |= amqpwire.Headers
	v.Headers = []amqpwire.Field{amqpwire.LongField("x-delivery-count", 1)}
	m.want(v, no, quarantine.MergedNotSettled, true)
}

func TestMergesAreRecorded(t *testing.T) {
	b := newBook(t)
	nos := b.orders(3)
	_, rc := b.captured(quarantine.Batch{Settled: event.RangesOf(nos[2]), Merged: map[string]event.Ranges{
		quarantine.MergedMessageID: event.RangesOf(nos[0]), quarantine.MergedNotSettled: event.RangesOf(nos[1])}})
	var got []string
	for _, r := range rc.Records {
		switch e := r.Body.(type) {
		case *event.EnvelopeSettled:
			got = append(got, "settled "+e.Envs.String())
		case *event.EnvelopeMerged:
			got = append(got, e.Why+" "+e.Envs.String())
		}
	}
	if len(got) != 3 || got[0] != "settled 3" || got[1] != "not_settled 2" || got[2] != "message_id 1" {
		t.Errorf("recorded %v", got)
	}
}
