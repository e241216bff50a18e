package redrive

import (
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Tally is the count of a generation. Every selected envelope is in exactly
// one of the fourteen dispositions.
type Tally struct {
	Selected uint64
	Moved    uint64
	By       [event.NumDispositions]uint64
}

// Tally sums the counters and checks both laws:
//
//	selected = waiting + in_flight + withheld + deduplicated_plan + undelivered + ambiguous_publish + moved
//	moved    = pending + admitted + succeeded + rejected + requarantined + missing
//	           + deduplicated_consumer + ambiguous_effect
//
// An error wraps ledger.ErrIntegrity and means that a law is broken.
func (g *Generation) Tally() (Tally, error) {
	t := Tally{By: g.Counts, Selected: g.Members + g.Withheld + g.Deduplicated}
	t.By[event.Withheld] += g.Withheld
	t.By[event.DeduplicatedPlan] += g.Deduplicated
	var sum uint64
	for d, n := range t.By {
		sum += n
		if event.Disposition(d).Moved() {
			t.Moved += n
		}
	}
	if sum != t.Selected {
		return t, fmt.Errorf("generation %d: %d members are accounted for, %d were selected: %w", g.No, sum, t.Selected, ledger.ErrIntegrity)
	}
	return t, nil
}

// Ambiguous is both kinds of ambiguity together, as the funnel shows them.
func (t Tally) Ambiguous() uint64 {
	return t.By[event.AmbiguousPublish] + t.By[event.AmbiguousEffect]
}

// Recount derives the counters from the members themselves, for checks and
// tests: a read never needs it.
func Recount(r ledger.Reader, g *Generation) [event.NumDispositions]uint64 {
	var by [event.NumDispositions]uint64
	for pos := range event.Position(g.Members) {
		m := GetMember(r, g.No, pos)
		by[m.Disposition()]++
	}
	return by
}
