package quarantine

import (
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Why a redelivered message was merged with an envelope.
const (
	MergedNotSettled = "not_settled" // this process captured it and never wrote its settlement
	MergedMessageID  = "message_id"  // the same bytes with the same message id
)

// recentlySettled bounds how many settled envelopes are remembered, to flag
// redeliveries that a broker sends although it had processed the settlement.
const recentlySettled = 100_000

// Matcher recognises redelivered messages of one queue. It belongs to the one
// goroutine that captures and settles that queue.
type Matcher struct {
	open    map[[16]byte][]*unsettled
	byNo    map[event.EnvelopeNo]*unsettled
	settled map[[16]byte]event.EnvelopeNo
	order   [][16]byte // of settled, oldest first
}

type unsettled struct {
	no      event.EnvelopeNo
	wire    [16]byte
	count   int64 // the broker's delivery count when it was captured, -1 without one
	written bool  // its settlement may have reached the broker
	taken   bool  // already matched with a delivery of this session
}

// LoadMatcher reads the envelopes of one broker's queue whose settlement is not
// recorded. A process before this one may have settled each of them.
func LoadMatcher(r ledger.Reader, from Origin, queue string) (*Matcher, error) {
	m := &Matcher{open: map[[16]byte][]*unsettled{}, byNo: map[event.EnvelopeNo]*unsettled{}, settled: map[[16]byte]event.EnvelopeNo{}}
	var err error
	r.Scan(bucketUnsettled, nil, func(k, _ []byte) bool {
		var f *Facts
		no := event.EnvelopeNo(ledger.Unkey(k))
		if f, err = GetFacts(r, no); err != nil {
			return false
		}
		if f.Queue == queue && f.Cluster == from.Cluster && f.VHost == from.VHost {
			m.add(no, f, true)
		}
		return true
	})
	return m, err
}

func (m *Matcher) add(no event.EnvelopeNo, f *Facts, written bool) {
	u := &unsettled{no: no, wire: f.Wire, count: f.DeliveryCount, written: written}
	m.open[u.wire] = append(m.open[u.wire], u)
	m.byNo[no] = u
}

// Captured notes an envelope that this process has just made durable.
func (m *Matcher) Captured(no event.EnvelopeNo, p *Prepared) {
	m.add(no, &p.facts, false)
	m.byNo[no].taken = true // by the delivery that it was captured from
}

// SessionLost frees the deliveries that were not settled, to be matched again
// when the broker redelivers them.
func (m *Matcher) SessionLost() {
	for _, u := range m.byNo {
		u.taken = false
	}
}

// Settling notes that the settlement of an envelope is about to be written.
func (m *Matcher) Settling(no event.EnvelopeNo) {
	if u := m.byNo[no]; u != nil {
		u.written = true
	}
}

// Settled notes that the broker has processed the settlement.
func (m *Matcher) Settled(no event.EnvelopeNo) {
	u := m.byNo[no]
	if u == nil {
		return
	}
	delete(m.byNo, no)
	rest := m.open[u.wire][:0]
	for _, o := range m.open[u.wire] {
		if o != u {
			rest = append(rest, o)
		}
	}
	if m.open[u.wire] = rest; len(rest) == 0 {
		delete(m.open, u.wire)
	}
	if _, known := m.settled[u.wire]; !known {
		m.order = append(m.order, u.wire)
	}
	m.settled[u.wire] = no
	if len(m.order) > recentlySettled {
		delete(m.settled, m.order[0])
		m.order = m.order[1:]
	}
}

// Match decides about a delivery. With merged the message is certainly the one
// of envelope no, for the reason why. Otherwise it is captured anew, and no, if
// not 0, is the envelope that it may be a duplicate of.
func (m *Matcher) Match(p *Prepared) (no event.EnvelopeNo, why string, merged bool) {
	if p.facts.Redelivered == 0 {
		return 0, "", false
	}
	var link *unsettled
	for _, u := range m.open[p.facts.Wire] {
		switch {
		case u.taken:
		case u.count >= 0 && u.count == p.facts.DeliveryCount:
			// A broker that counts has counted on since that delivery, so this is
			// another copy of the message. RabbitMQ 4.0 marks as redelivered, with
			// the count of the queue it died in, what it delivers for the first time.
			no = u.no
		case !u.written:
			u.taken = true
			return u.no, MergedNotSettled, true
		case p.HasMessageID():
			u.taken = true
			return u.no, MergedMessageID, true
		default:
			link = u
		}
	}
	switch {
	case link != nil:
		link.taken, no = true, link.no // twins are linked one for one too
	case no == 0:
		no = m.settled[p.facts.Wire]
	}
	return no, "", false
}
