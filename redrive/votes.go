package redrive

import (
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// smallStage is the largest stage in which a single bad member pauses.
const smallStage = 10

// Votes counts what the rules look at.
type Votes struct {
	StageBad      uint64
	Unroutable    uint64
	Nacked        uint64
	Doubtful      uint64
	Resolved      uint64
	Foreign       uint64
	Matured       uint64 // members that are in the ratios
	Requarantined uint64
	Rejected      uint64
	Missing       uint64
	Strata        []Stratum
}

// Stratum counts the matured members of one kind: of one reason and type at the
// time of the plan.
type Stratum struct {
	Matured       uint64
	Requarantined uint64
	Rejected      uint64
}

// Nack is one message that the broker did not take.
type Nack struct {
	At       uint64 // ms
	Resolved uint64 // the how manieth resolution of the generation it was
}

// matured reports whether the outcome of a member is known, or did not come in
// time.
func matured(d event.Disposition) bool {
	switch d {
	case event.Succeeded, event.RejectedByConsumer, event.DeduplicatedConsumer, event.AmbiguousEffect, event.Requarantined, event.Missing:
		return true
	}
	return false
}

// counts reports whether a member is in the ratios. Where nobody reports, silence
// is all that a good one says: there everything that moved is in them, or the
// first few that come back would be all that is known.
func (g *Generation) counts(d event.Disposition) bool {
	if g.Evidence == EvidenceOutcomes {
		return matured(d)
	}
	return d.Moved()
}

// small visits the spans of positions of the stages of at most ten members,
// up to the current stage: what a canary tells counts whenever it tells it.
func (g *Generation) small(fn func(from, to uint64)) {
	from := uint64(0)
	for i, to := range g.Stages {
		if i > int(g.Stage) {
			return
		}
		if to-from <= smallStage {
			fn(from, to)
		}
		from = to
	}
}

func (g *Generation) smallMembers() (n uint64) {
	g.small(func(from, to uint64) { n += to - from })
	return n
}

// votes counts what the signals look at. Only small stages are counted member
// by member.
func votes(r ledger.Reader, g *Generation) Votes {
	c := &g.Counts
	vs := Votes{Unroutable: g.Unroutable, Nacked: g.Nacked, Doubtful: g.Doubtful, Resolved: g.Resolved, Foreign: g.Foreign,
		Requarantined: c[event.Requarantined], Rejected: c[event.RejectedByConsumer] + c[event.AmbiguousEffect], Missing: c[event.Missing],
		Strata: append([]Stratum(nil), g.Strata...)}
	for d, n := range c {
		if g.counts(event.Disposition(d)) {
			vs.Matured += n
		}
	}
	g.small(func(from, to uint64) {
		for pos := event.Position(from); uint64(pos) < to; pos++ {
			m := GetMember(r, g.No, pos)
			switch m.Disposition() {
			case event.Requarantined, event.RejectedByConsumer, event.AmbiguousEffect:
				vs.StageBad++
			case event.Undelivered:
				if !g.retryable(&m) {
					vs.StageBad++
				}
			case event.Missing:
				// Where nobody reports, everything that does not come back ends so.
				if g.Evidence == EvidenceOutcomes {
					vs.StageBad++
				}
			case event.AmbiguousPublish:
				if m.Ambiguous&^m.Restart != 0 && !g.retryable(&m) {
					vs.StageBad++
				}
			}
		}
	})
	return vs
}

// any reports whether a resume has looked at something that may become good.
func (seen *Votes) any() bool {
	return seen.StageBad+seen.Matured+seen.Requarantined+seen.Rejected+seen.Missing > 0
}

// forgive lowers what a resume has looked at to what is still there: a member
// that was looked at and has become good since must not hide the next bad one.
func (seen *Votes) forgive(now Votes) {
	for _, p := range []struct {
		was *uint64
		is  uint64
	}{{&seen.StageBad, now.StageBad}, {&seen.Matured, now.Matured}, {&seen.Requarantined, now.Requarantined},
		{&seen.Rejected, now.Rejected}, {&seen.Missing, now.Missing}} {
		*p.was = min(*p.was, p.is)
	}
	for i := range seen.Strata {
		if i < len(now.Strata) {
			s, n := &seen.Strata[i], now.Strata[i]
			s.Matured, s.Requarantined, s.Rejected = min(s.Matured, n.Matured), min(s.Requarantined, n.Requarantined), min(s.Rejected, n.Rejected)
		}
	}
}
