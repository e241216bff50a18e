package redrive

import (
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// ReviseThresholds changes limits of signals, each given as SIGNAL=VALUE.
// Tightening needs nobody; loosening, which is a higher limit, needs the word of
// an approver, which approved says. What is the same already is left out.
func ReviseThresholds(v ledger.View, no event.GenerationNo, settings []string, why string, approved bool) ([]event.Event, error) {
	g, err := act(v, no, event.KindGenerationRevised)
	if err != nil {
		return nil, err
	}
	t, err := ParseThresholds(settings)
	if err != nil {
		return nil, err
	}
	var out []event.Event
	for i := range thresholds {
		x := &thresholds[i]
		now, given := t[x.name]
		before := g.Thresholds.Of(x.name)
		if !given || now == before {
			continue
		}
		if now > before && !approved {
			return nil, fmt.Errorf("%s=%s is looser than the %s of generation %d: somebody who did not plan it has to add --approve: %w",
				x.name, x.spell(now), x.spell(before), no, ErrState)
		}
		out = append(out, one(no, &event.GenerationRevised{Field: fieldThreshold + x.name, New: x.spell(now), Old: x.spell(before), Why: cut(why, maxWhy)})...)
	}
	return out, nil
}
