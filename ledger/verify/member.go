package verify

import (
	"math/bits"

	"github.com/redrivehq/redrive/ledger/event"
)

// try is one publish of a member: how it ended, and what was learnt later.
type try uint8

const (
	tryOpen try = iota + 1
	tryConfirmed
	tryAmbiguous
	tryNacked
	tryRefused     // returned by the broker, or refused for good
	tryAgain       // not sent, and free to be sent later
	tryEnd     try = 0x0f

	lateConfirm   try = 0x10
	ruledYes      try = 0x20
	ruledNo       try = 0x40
	tryDelivering     = lateConfirm | ruledYes
)

func (t try) delivered() bool { return t&tryEnd == tryConfirmed || t&tryDelivering != 0 }

// undelivered reports a definite non-delivery that stays with the member.
func (t try) undelivered() bool {
	end := t & tryEnd
	return !t.delivered() && (end == tryNacked || end == tryRefused || end == tryAmbiguous && t&ruledNo != 0)
}

// repeatable reports whether a further try may follow t.
func (t try) repeatable() bool {
	switch t & tryEnd {
	case tryNacked, tryAgain:
		return true
	case tryAmbiguous:
		return !t.delivered()
	}
	return false
}

// resolutions says how each resolution ends a try that is not sent again.
var resolutions = map[event.Resolution]try{
	event.Confirmed: tryConfirmed, event.Returned: tryRefused, event.Nacked: tryNacked,
	event.Refused: tryRefused, event.Ambiguous: tryAmbiguous,
}

// facts are what is known about a member besides its tries.
type facts uint16

const (
	hasSucceeded facts = 1 << iota
	hasRejected
	hasAmbiguousEffect
	hasDeduplicated
	hasAdmitted
	hasMissed
	hasWithheld
	hasEffect
	anyOutcome = hasSucceeded | hasRejected | hasAmbiguousEffect | hasDeduplicated | hasAdmitted
)

var outcomes = map[event.Outcome]facts{
	event.OutcomeSucceeded: hasSucceeded, event.OutcomeRejected: hasRejected, event.OutcomeAmbiguous: hasAmbiguousEffect,
	event.OutcomeDeduplicated: hasDeduplicated, event.OutcomeAdmitted: hasAdmitted,
}

// member is the set of facts about one position.
type member struct {
	tries    [event.MaxTries]try
	n        uint8 // tries so far
	facts    facts
	returned tryBits // tries that came back with a valid stamp
	evidence tryBits // tries whose message somebody has seen
}

// tryBits is a set of tries, each by bit.
type tryBits uint32

// The bits of a set must be enough for all tries; this does not compile when
// they are not.
const _ = uint(32 - event.MaxTries)

func bit(no event.Try) tryBits { return 1 << (no - 1) }

// moved reports evidence of delivery. It is written apart from disposition, so
// that the second sum of the tally compares two things.
func (m *member) moved() bool {
	if m.returned != 0 || m.facts&(anyOutcome|hasEffect) != 0 {
		return true
	}
	for _, t := range m.tries[:m.n] {
		if t.delivered() {
			return true
		}
	}
	return false
}

// disposition is the table of the tally, highest first.
func (m *member) disposition() event.Disposition {
	if d, ok := m.said(); ok {
		return d
	}
	var delivered, open, doubtful, undelivered bool
	for _, t := range m.tries[:m.n] {
		delivered = delivered || t.delivered()
		open = open || t&tryEnd == tryOpen
		doubtful = doubtful || t == tryAmbiguous
		undelivered = undelivered || t.undelivered()
	}
	switch {
	case delivered && m.facts&hasMissed != 0:
		return event.Missing
	case delivered:
		return event.Pending
	case open:
		return event.InFlight
	case doubtful:
		return event.AmbiguousPublish
	case undelivered:
		return event.Undelivered
	case m.facts&hasWithheld != 0:
		return event.Withheld
	}
	return event.Waiting
}

// said is the upper part of the table: what those say who have seen the
// message, or what it did. ok is false when nobody has.
func (m *member) said() (d event.Disposition, ok bool) {
	has := func(f facts) bool { return m.facts&f == f }
	switch {
	case m.returned != 0:
		return event.Requarantined, true
	case has(hasSucceeded | hasRejected):
		return event.AmbiguousEffect, true
	case has(hasSucceeded):
		return event.Succeeded, true
	case has(hasRejected):
		return event.RejectedByConsumer, true
	case has(hasAmbiguousEffect) && !has(hasEffect):
		return event.AmbiguousEffect, true
	case has(hasDeduplicated):
		return event.DeduplicatedConsumer, true
	case has(hasEffect):
		return event.Succeeded, true
	case has(hasAdmitted):
		return event.Admitted, true
	}
	return 0, false
}

// contradictions counts tries that somebody has seen although their resolution
// or ruling says that they were never delivered. A nack is none: it is definite
// only where one queue is bound, which no record says.
func (m *member) contradictions() uint64 {
	var gone tryBits
	for i, t := range m.tries[:m.n] {
		if end := t & tryEnd; end == tryRefused || end == tryAgain || t&ruledNo != 0 {
			gone |= bit(event.Try(i + 1))
		}
	}
	return uint64(bits.OnesCount32(uint32(gone & m.evidence)))
}
