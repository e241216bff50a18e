package control

import (
	"errors"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// brake sets the stages and the limits of the signals.
func (p *planning) brake() (err error) {
	r, m := &p.req, &p.m
	if r.NoStages && len(r.Stages) > 0 {
		return usage(errors.New("give one of --stages and --no-stages"))
	}
	if r.NoStages {
		m.Stages = []uint64{m.Members}
	} else if m.Stages, err = stages(r.Stages, m.Members); err != nil {
		return err
	}
	if r.NoStages || len(m.Stages) == 1 && m.Members > unstagedFrom {
		m.Unstaged = 1
	}
	t, err := redrive.ParseThresholds(p.c.o.Config.Thresholds.List())
	if err != nil {
		return err
	}
	for _, text := range r.Thresholds {
		if err := t.Set(text); err != nil {
			return usage(err)
		}
	}
	m.Thresholds = t.List()
	m.Watched = p.c.signals(m.Destination())
	return nil
}

// unstagedFrom is the largest cohort that may go out at once without a word: no
// more than a small stage.
const unstagedFrom = 10

// strata tells the members apart by reason and type.
func (p *planning) strata() ([]event.Object, []string, error) {
	type kind struct{ reason, typ quarantine.Word }
	numbers := map[kind]uint8{}
	kinds := make([]uint8, 0, len(p.members))
	err := p.eachMember(func(v ledger.View, no event.EnvelopeNo) error {
		cell, _ := quarantine.GetCell(v, no)
		k := kind{cell.Reason, cell.Type}
		n, ok := numbers[k]
		if !ok {
			n = uint8(min(len(numbers), redrive.MaxStrata-1))
			numbers[k] = n
		}
		kinds = append(kinds, n)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	objects, digests := redrive.StratumObjects(kinds)
	return objects, digests, nil
}
