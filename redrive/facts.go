package redrive

import (
	"encoding/binary"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Facts is the set of what is known about a member, over all its tries. Facts
// are only ever added, except that an unresolved intent is replaced by its
// resolution, and an ambiguous one by its ruling.
type Facts uint32

// Facts about a member.
const (
	FactUnresolved     Facts = 1 << iota // an intent without a resolution
	FactConfirmed                        // acked, not returned
	FactConfirmedLate                    // acked after it had been called ambiguous
	FactRuledDelivered                   // by a person
	FactRuledNot                         // by a person: that try was not delivered
	FactUnroutable                       // returned by the broker
	FactNacked
	FactRefused  // never sent, and never to be
	FactWithheld // found unfit at the moment of release
	FactDeadline // the outcome deadline has passed
	FactReturned // came back with a valid stamp
	FactSucceeded
	FactRejected
	FactEffectAmbiguous
	FactDeduplicated
	FactAdmitted
	FactEffected    // business data shows its effect
	FactNotEffected // business data was looked at when the effect should have been there, and did not show it
	FactDouble      // business data shows its effect more than once
)

// Has reports whether any of the facts is in the set.
func (f Facts) Has(some Facts) bool { return f&some != 0 }

// DispositionOf is the table of dispositions, highest first. Ambiguous is the
// set of tries that are ambiguous and not ruled, as bits. Nothing else enters:
// the order in which facts became known never matters.
func DispositionOf(f Facts, ambiguous uint32) event.Disposition {
	switch {
	case f.Has(FactReturned):
		return event.Requarantined
	case f.Has(FactSucceeded) && f.Has(FactRejected):
		return event.AmbiguousEffect
	case f.Has(FactSucceeded):
		return event.Succeeded
	case f.Has(FactRejected):
		return event.RejectedByConsumer
	case f.Has(FactEffectAmbiguous) && !f.Has(FactEffected):
		return event.AmbiguousEffect
	case f.Has(FactDeduplicated):
		return event.DeduplicatedConsumer
	case f.Has(FactEffected):
		return event.Succeeded
	case f.Has(FactAdmitted):
		return event.Admitted
	case f.Has(FactConfirmed | FactConfirmedLate | FactRuledDelivered):
		if f.Has(FactDeadline) {
			return event.Missing
		}
		return event.Pending
	case f.Has(FactUnresolved):
		return event.InFlight
	case ambiguous != 0:
		return event.AmbiguousPublish
	case f.Has(FactUnroutable | FactNacked | FactRefused | FactRuledNot):
		return event.Undelivered
	case f.Has(FactWithheld):
		return event.Withheld
	}
	return event.Waiting
}

// Contradicts reports whether evidence of delivery stands against a definite
// non-delivery. Such a member is counted and shown; the evidence wins.
func (f Facts) Contradicts() bool {
	const delivered = FactConfirmedLate | FactRuledDelivered | FactReturned | FactSucceeded | FactRejected |
		FactEffectAmbiguous | FactDeduplicated | FactAdmitted | FactEffected
	return f.Has(delivered) && f.Has(FactUnroutable|FactRuledNot|FactRefused)
}

// Disputed reports whether business data says otherwise than what was reported:
// an effect of what was rejected or came back, or none of what is said to have
// succeeded. The report keeps its word in the tally; a person has to look.
func (f Facts) Disputed() bool {
	if f.Has(FactEffected) {
		return f.Has(FactRejected | FactReturned)
	}
	return f.Has(FactNotEffected) && f.Has(FactSucceeded|FactDeduplicated)
}

// freed reports whether business data has answered, with no, what nobody else
// could: such a member may be planned again.
func (f Facts) freed() bool {
	conflict := f.Has(FactSucceeded) && f.Has(FactRejected)
	return f.Has(FactNotEffected) && !f.Has(FactEffected) && !conflict
}

// custodyOf is who answers for the envelope of a member.
func custodyOf(m *Member) event.Custody {
	switch d := m.Disposition(); d {
	case event.Missing, event.AmbiguousEffect:
		if m.Facts.freed() {
			return event.Quarantined
		}
	case event.Requarantined:
		return event.ReturnedAsKid
	case event.Succeeded, event.RejectedByConsumer, event.DeduplicatedConsumer:
		return event.ResolvedForNow
	case event.Waiting, event.Withheld, event.Undelivered:
		return event.Quarantined
	}
	return event.Released
}

// Member is the state of one position of a cohort.
type Member struct {
	Facts       Facts
	Ambiguous   uint32 // bit t-1: try t is ambiguous and not ruled
	Restart     uint32 // those of Ambiguous that a restart made, which do not vote for a pause
	RuledNot    uint32 // bit t-1: try t was ambiguous, ruled not delivered, and not confirmed since
	Tries       event.Try
	Reason      uint8  // number in reasonCodes, for undelivered and withheld members
	Nacks       uint8  // definite nacks, where the manifest says that they are tried again
	ConfirmedAt uint32 // seconds since 1970, when it was first known to be delivered
}

// Disposition is what became of the member.
func (m *Member) Disposition() event.Disposition { return DispositionOf(m.Facts, m.Ambiguous) }

const (
	memberSize   = 20
	blockMembers = 202 // fills one page of 4096 bytes with key and headers
)

var bucketMember = ledger.Bucket{Name: "generation.member", Append: true}

// put writes the cell. Restart marks tries that are in Ambiguous, RuledNot such
// as are not any more: one word holds both.
func (m *Member) put(b []byte) {
	e := binary.BigEndian
	e.PutUint32(b, uint32(m.Facts))
	e.PutUint32(b[4:], m.Ambiguous)
	e.PutUint32(b[8:], m.Restart&m.Ambiguous|m.RuledNot)
	e.PutUint32(b[12:], m.ConfirmedAt)
	b[16], b[17], b[18] = byte(m.Tries), m.Reason, m.Nacks
}

func (m *Member) get(b []byte) {
	e := binary.BigEndian
	m.Facts = Facts(e.Uint32(b))
	m.Ambiguous, m.ConfirmedAt = e.Uint32(b[4:]), e.Uint32(b[12:])
	m.Restart, m.RuledNot = e.Uint32(b[8:])&m.Ambiguous, e.Uint32(b[8:])&^m.Ambiguous
	m.Tries, m.Reason, m.Nacks = event.Try(b[16]), b[17], b[18]
}

func memberAt(pos event.Position) (block uint64, offset int) {
	return uint64(pos) / blockMembers, int(pos%blockMembers) * memberSize
}

// GetMember reads one position; a position that nothing has happened to is the
// zero Member.
func GetMember(r ledger.Reader, gen event.GenerationNo, pos event.Position) (m Member) {
	block, off := memberAt(pos)
	if b := r.Get(bucketMember, ledger.Key2(uint64(gen), block)); len(b) >= off+memberSize {
		m.get(b[off:])
	}
	return m
}

// memberEditor changes members, one write for each block.
type memberEditor struct {
	w     ledger.Writer
	gen   event.GenerationNo
	block uint64
	buf   []byte
}

func (e *memberEditor) edit(pos event.Position, fn func(*Member)) error {
	block, off := memberAt(pos)
	if e.buf == nil || block != e.block {
		if err := e.flush(); err != nil {
			return err
		}
		e.block = block
		e.buf = append(make([]byte, 0, blockMembers*memberSize), e.w.Get(bucketMember, ledger.Key2(uint64(e.gen), block))...)
	}
	for len(e.buf) < off+memberSize {
		e.buf = append(e.buf, 0)
	}
	var m Member
	m.get(e.buf[off:])
	fn(&m)
	m.put(e.buf[off:])
	return nil
}

// peek reads a member as it is now, with what has not been written yet.
func (e *memberEditor) peek(pos event.Position) (m Member) {
	block, off := memberAt(pos)
	if e.buf == nil || block != e.block {
		return GetMember(e.w, e.gen, pos)
	}
	if len(e.buf) >= off+memberSize {
		m.get(e.buf[off:])
	}
	return m
}

func (e *memberEditor) flush() error {
	if e.buf == nil {
		return nil
	}
	b := e.buf
	e.buf = nil
	return e.w.Put(bucketMember, ledger.Key2(uint64(e.gen), e.block), b)
}

// reasonCodes are the stable reasons of undelivered and withheld members. The
// list is append-only: its index is stored.
var reasonCodes = []string{
	"", "no_route", "nacked", "held", "purged", "not_quarantined", "payload_gone", "body_too_large",
	"header_too_large", "invalid_property", "unwalkable_headers", "ruled_not_delivered", "refused", "overflow",
	"tries_exhausted", "unreadable", "no_exchange", "queue_full", "no_permission",
	ReasonKeyParked, ReasonKeyRebuild, ReasonRetryExpired,
	ReasonRepairChanged,
}

func reasonNumber(code string) uint8 {
	for i, c := range reasonCodes {
		if c == code {
			return uint8(i)
		}
	}
	return reasonNumber("refused")
}

// ReasonText is the stable code of a member's reason.
func (m *Member) ReasonText() string {
	if int(m.Reason) < len(reasonCodes) {
		return reasonCodes[m.Reason]
	}
	return "refused"
}
