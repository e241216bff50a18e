package verify

import (
	"github.com/redrivehq/redrive/ledger/event"
)

// memberAct checks the records about members. Each changes the facts of the
// members it names; the counters follow the facts.
func (g *generation) memberAct(r *event.Record) error {
	switch b := r.Body.(type) {
	case *event.MemberIntended:
		return g.intend(r, b)
	case *event.MemberResolved:
		return g.resolve(b)
	case *event.MemberConfirmedLate:
		return g.each(b.Pos, b.Try, func(m *member, t *try) error {
			if *t&tryEnd != tryAmbiguous || *t&lateConfirm != 0 {
				return broken(LawTry, "a late confirm of a try that is not ambiguous or was confirmed before")
			}
			*t |= lateConfirm
			m.evidence |= bit(b.Try)
			return nil
		})
	case *event.MemberRuled:
		return g.rule(b)
	case *event.MemberWithheld:
		return g.withhold(b)
	case *event.MemberMissed:
		return g.each(b.Pos, 0, func(m *member, _ *try) error {
			if m.n == 0 {
				return broken(LawFacts, "a deadline of a member that was never released")
			}
			m.facts |= hasMissed
			return nil
		})
	case *event.OutcomeReported:
		return g.each(b.Pos, b.Try, func(m *member, _ *try) error {
			if outcomes[b.Outcome] == 0 {
				return broken(LawFacts, "outcome %q is none", b.Outcome)
			}
			m.facts |= outcomes[b.Outcome]
			m.evidence |= bit(b.Try)
			return nil
		})
	case *event.EnvelopeReturned:
		return g.back(b)
	case *event.MemberReconciled:
		return g.observe(b)
	}
	return nil
}

// each changes the members of a set and moves the counters. With a try that is
// not 0, change gets that try, which must have been intended.
func (g *generation) each(pos event.Ranges, no event.Try, change func(*member, *try) error) error {
	if len(pos) == 0 {
		return broken(LawFacts, "it names no member")
	}
	last := pos[len(pos)-1].Last
	if last >= g.plan.Members || no > event.MaxTries {
		return broken(LawFacts, "position %d, try %d: there are %d members and at most %d tries", last, no, g.plan.Members, event.MaxTries)
	}
	if grow := int(last) + 1 - len(g.members); grow > 0 {
		g.members = append(g.members, make([]member, grow)...)
	}
	for p := range pos.All() {
		m := &g.members[p]
		var t *try
		if no > 0 {
			if uint8(no) > m.n {
				return broken(LawTry, "position %d, try %d was never intended", p, no)
			}
			t = &m.tries[no-1]
		}
		before := *m
		if err := change(m, t); err != nil {
			return err
		}
		g.recount(&before, m)
	}
	return nil
}

func (g *generation) recount(before, after *member) {
	add := func(m *member, one uint64) {
		g.counts[m.disposition()] += one
		g.contradictions += m.contradictions() * one
		if m.moved() {
			g.moved += one
		}
		if both := hasSucceeded | hasRejected; m.facts&both == both {
			g.conflicts += one
		}
	}
	add(before, ^uint64(0))
	add(after, 1)
}

// intend checks everything that must hold when the decision to publish becomes
// durable. Window and exposure are bounds on what may be begun: tightening them
// later puts nothing in the wrong.
func (g *generation) intend(r *event.Record, b *event.MemberIntended) error {
	n, budget := b.Pos.Count(), g.plan.Members
	if len(g.plan.Stages) > 0 {
		budget = g.plan.Stages[g.stage]
	}
	switch {
	case g.orphans > 0:
		return broken(LawOrphan, "an intent while %d of an earlier epoch are unresolved", g.orphans)
	case g.due() != "":
		return broken(LawGate, "an intent after an evaluation that said %s", g.due())
	case n > 0 && b.Pos[len(b.Pos)-1].Last >= budget:
		return broken(LawStage, "position %d, but stage %d ends at %d", b.Pos[len(b.Pos)-1].Last, g.stage, budget)
	case g.open+n > uint64(g.limits.Window):
		return broken(LawWindow, "%d unresolved intents, the window is %d", g.open+n, g.limits.Window)
	case b.Try == 0:
		return broken(LawTry, "an intent without a try")
	}
	for p := range b.Pos.All() {
		if p < g.plan.Members {
			if err := g.order.fits(g, p); err != nil {
				return err
			}
		}
	}
	err := g.each(b.Pos, 0, func(m *member, _ *try) error {
		switch {
		case b.Try > event.MaxTries || uint8(b.Try) != m.n+1:
			return broken(LawTry, "try %d follows try %d", b.Try, m.n)
		case m.n > 0 && !m.tries[m.n-1].repeatable():
			return broken(LawTry, "try %d, but try %d is unresolved or final", b.Try, m.n)
		case m.moved() || m.facts&hasWithheld != 0:
			return broken(LawTry, "an intent for a member that is %s", m.disposition())
		}
		m.tries[m.n] = tryOpen
		m.n++
		return nil
	})
	if err != nil {
		return err
	}
	g.open += n
	if !g.bucket.take(g.limits, r.Mono, n) {
		return broken(LawRate, "too many intents: the rate is %d in 1000 s with a burst of %d", g.limits.RateMilli, g.limits.Burst)
	}
	if atRisk, elsewhere := g.exposed(), g.beside(); atRisk+elsewhere > uint64(g.limits.Exposure) {
		return broken(LawExposure, "%d members are exposed, and %d of other generations of the destination; the cap is %d", atRisk, elsewhere, g.limits.Exposure)
	}
	return nil
}

func (g *generation) resolve(b *event.MemberResolved) error {
	end := resolutions[b.Resolution]
	if b.Again == 1 && b.Resolution == event.Refused {
		end = tryAgain
	}
	switch {
	case end == 0 || b.Try == 0 || b.Again > 1 || b.Again == 1 && end != tryAgain:
		return broken(LawTry, "resolution %q of try %d with again %d", b.Resolution, b.Try, b.Again)
	case g.orphans > 0 && end != tryAmbiguous:
		return broken(LawOrphan, "an intent of an earlier epoch ends %s", b.Resolution)
	}
	return g.each(b.Pos, b.Try, func(_ *member, t *try) error {
		if *t != tryOpen {
			return broken(LawTry, "try %d is resolved a second time", b.Try)
		}
		*t = end
		g.open--
		g.orphans -= min(g.orphans, 1)
		return nil
	})
}

func (g *generation) rule(b *event.MemberRuled) error {
	ruled := map[event.Ruling]try{event.RuledDelivered: ruledYes, event.RuledNotDelivered: ruledNo}[b.Ruling]
	if ruled == 0 || b.Try == 0 {
		return broken(LawRuling, "ruling %q of try %d", b.Ruling, b.Try)
	}
	return g.each(b.Pos, b.Try, func(_ *member, t *try) error {
		if *t != tryAmbiguous {
			return broken(LawRuling, "a ruling about try %d, which is not ambiguous or not any more", b.Try)
		}
		*t |= ruled
		return nil
	})
}

// withhold takes members out of the release. Whatever is known about earlier
// tries stands above it in the table, so those do not matter.
func (g *generation) withhold(b *event.MemberWithheld) error {
	return g.each(b.Pos, 0, func(m *member, _ *try) error {
		if m.n > 0 && m.tries[m.n-1] == tryOpen || m.facts&hasWithheld != 0 {
			return broken(LawFacts, "withheld is a member that is in flight, or was withheld before")
		}
		m.facts |= hasWithheld
		return nil
	})
}

// back books a message that came back with a valid stamp. The stamp names its
// try, so it proves that this try was sent; when the resolution says otherwise
// that is a contradiction, and no breach of a law.
func (g *generation) back(b *event.EnvelopeReturned) error {
	if b.Try == 0 {
		return broken(LawFacts, "a return without a try")
	}
	if g.parents == nil {
		g.parents = map[event.Position]event.EnvelopeNo{}
		g.children = map[event.EnvelopeNo]event.Position{}
	}
	if known, ok := g.parents[b.Pos]; ok && known != b.Parent {
		return broken(LawFacts, "position %d was envelope %d before, now %d", b.Pos, known, b.Parent)
	}
	if at, ok := g.children[b.Parent]; ok && at != b.Pos {
		return broken(LawFacts, "envelope %d stands at positions %d and %d", b.Parent, at, b.Pos)
	}
	g.parents[b.Pos], g.children[b.Parent] = b.Parent, b.Pos
	return g.each(event.RangesOf(b.Pos), b.Try, func(m *member, _ *try) error {
		// A second try that comes back after the first changes no tally either
		// way, so writers may flag it or not.
		first, again := m.returned == 0, m.returned&bit(b.Try) != 0
		if b.Again > 1 || first && b.Again == 1 || again && b.Again == 0 {
			return broken(LawFacts, "again is %d, but whether try %d came back before says otherwise", b.Again, b.Try)
		}
		m.returned |= bit(b.Try)
		m.evidence |= bit(b.Try)
		return nil
	})
}
