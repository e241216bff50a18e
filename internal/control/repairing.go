package control

import (
	"fmt"
	"slices"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// outgoing opens what goes out for an envelope: a repair of it, or the original
// when the candidate is 0.
func (c *Controller) outgoing(v ledger.View, no event.EnvelopeNo, candidate uint64) (*quarantine.Original, error) {
	if candidate == 0 {
		return quarantine.GetOriginal(v, c.o.Keys, c.o.Blobs, no)
	}
	return quarantine.GetRepair(v, c.o.Keys, no, candidate)
}

// outgoingNow opens what would go out for an envelope if it were planned now.
func (c *Controller) outgoingNow(v ledger.View, no event.EnvelopeNo) (*quarantine.Original, error) {
	rs, err := quarantine.GetRepairs(v, no)
	if err != nil {
		return nil, err
	}
	return c.outgoing(v, no, rs.Live)
}

// factsNow are the Facts of what would go out for an envelope if it were
// planned now.
func factsNow(v ledger.View, no event.EnvelopeNo) (*quarantine.Facts, error) {
	rs, err := quarantine.GetRepairs(v, no)
	if err != nil {
		return nil, err
	}
	return quarantine.Outgoing(v, no, rs.Live)
}

// outgoingOf opens what goes out for a member, as the plan froze it.
func (c *Controller) outgoingOf(v ledger.View, g *redrive.Generation, repairs *redrive.RepairLists, p redrive.Pick) (*quarantine.Original, error) {
	frozen, err := repairs.Of(v, g, p.Pos)
	if err != nil || frozen.Candidate == 0 {
		return c.outgoing(v, p.Env, 0)
	}
	rs, err := quarantine.GetRepairs(v, p.Env)
	if err != nil {
		return nil, err
	}
	if n := int(frozen.Candidate); n > len(rs.Candidates) || rs.Candidates[n-1].Commitment != frozen.Commitment.String() {
		return nil, fmt.Errorf("repair %d of envelope #%d is not the one of the plan: %w", frozen.Candidate, p.Env, ledger.ErrIntegrity)
	}
	return c.outgoing(v, p.Env, frozen.Candidate)
}

// candidate is an envelope as the choice of the cohort sees it, with the
// operation that goes out for it.
func (p *planning) candidate(v ledger.View, no event.EnvelopeNo, cell *quarantine.Cell) (redrive.Candidate, error) {
	c := redrive.Candidate{No: no}
	var err error
	if c.Cell, err = quarantine.Effective(v, no, *cell); err != nil {
		return c, err
	}
	if quarantine.TwinGone(v, no, cell) {
		c.Cell.Flags &^= quarantine.FlagPossibleDuplicate
	}
	if cell.Flags.Has(quarantine.FlagRepaired) {
		rs, err := quarantine.GetRepairs(v, no)
		if err != nil {
			return c, err
		}
		m := redrive.RepairedMember{Candidate: rs.Live}
		if m.Commitment, err = event.ParseDigest(rs.Candidates[rs.Live-1].Commitment); err != nil {
			return c, err
		}
		p.repairs[no] = m
	}
	if p.req.ToOriginal {
		f, err := quarantine.GetFacts(v, no)
		if err != nil {
			return c, err
		}
		if f.OriginKnown == 0 {
			c.Unfit = redrive.ReasonNoOrigin
		}
	}
	return c, nil
}

// repaired lists the members that go out as a repair, in release order.
func (p *planning) repaired() []redrive.RepairedMember {
	if len(p.repairs) == 0 {
		return nil
	}
	var out []redrive.RepairedMember
	for i, no := range p.members {
		if m, ok := p.repairs[no]; ok {
			m.Pos = event.Position(i)
			out = append(out, m)
		}
	}
	return out
}

// forces takes over which reasons to stay the plan overrules.
func (p *planning) forces() error {
	p.m.Forced = slices.Compact(slices.Sorted(slices.Values(p.req.Force)))
	p.m.ForceWhy = p.req.ForceWhy
	return usage(redrive.CheckForce(p.m.Forced, p.m.ForceWhy))
}
