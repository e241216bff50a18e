package verify

import (
	"github.com/redrivehq/redrive/ledger/event"
)

// observed counts what records about members say of one piece of evidence,
// until the record that sums it up.
type observed struct {
	evidence string
	counts   map[event.Effect]uint64
}

// observe books what business data says about members. An effect that is not
// there is evidence only about a member that should have one.
func (g *generation) observe(b *event.MemberReconciled) error {
	if b.Evidence == "" {
		return broken(LawEffects, "an effect without evidence")
	}
	if b.Evidence != g.seen.evidence {
		g.seen = observed{evidence: b.Evidence, counts: map[event.Effect]uint64{}}
	}
	g.seen.counts[b.Effect] += b.Pos.Count()
	return g.each(b.Pos, 0, func(m *member, _ *try) error {
		if m.n == 0 {
			return broken(LawEffects, "an effect of a member that was never released")
		}
		switch b.Effect {
		case event.Effected, event.DoubleEffect:
			m.facts |= hasEffect
		case event.NotEffected:
			switch d := m.disposition(); d {
			case event.Missing, event.AmbiguousEffect, event.Succeeded, event.DeduplicatedConsumer:
			default:
				return broken(LawEffects, "no effect of a member that is %s, which proves nothing", d)
			}
		default:
			return broken(LawEffects, "effect %q is none", b.Effect)
		}
		return nil
	})
}

// reconcile checks a statement against the records that it sums up. What was
// known before is not recorded again, so it can name more than they do.
func (g *generation) reconcile(b *event.GenerationReconciled) error {
	if b.Checked != b.Effected+b.Double+b.NotEffected+b.None+b.Early {
		return broken(LawEffects, "%d checked are not %d effected, %d double, %d not effected, %d without and %d early",
			b.Checked, b.Effected, b.Double, b.NotEffected, b.None, b.Early)
	}
	if b.Evidence == "" || b.Source == "" {
		return broken(LawEffects, "a reconciliation without evidence")
	}
	released := uint64(0)
	for i := range g.members {
		if g.members[i].n > 0 {
			released++
		}
	}
	if b.Checked > released || b.NotCheckable > released-b.Checked {
		return broken(LawEffects, "%d members were checked and %d not, %d were released", b.Checked, b.NotCheckable, released)
	}
	if b.Evidence == g.seen.evidence {
		for effect, said := range map[event.Effect]uint64{event.Effected: b.Effected, event.DoubleEffect: b.Double, event.NotEffected: b.NotEffected} {
			if have := g.seen.counts[effect]; have > said {
				return broken(LawEffects, "it names %d members %s, the records before it name %d", said, effect, have)
			}
		}
	}
	g.seen = observed{}
	return nil
}
