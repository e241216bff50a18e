package redrive

import (
	"cmp"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// MinLooks is how often a probe must have said ok since a stage came to rest.
const MinLooks = 3

// enough is how many members of a stage must have matured, when it has so many.
const enough = 50

// Required are the probes of which a stage needs an explicit ok, by name, with
// the moment since which each has said nothing but ok and how often.
type Required map[string]Clear

// Clear is how long and how often a probe has said ok without a break.
type Clear struct {
	Since  time.Time // zero: its last word was not ok
	Rounds int
}

// Advance opens the next stage when the current one has ended: all its members
// were decided, their outcomes are known or the evidence mode does not wait for
// them, the bake time has passed since the last change, and every signal says
// ok. No data is not ok.
func Advance(v ledger.View, no event.GenerationNo, required Required) ([]event.Event, error) {
	g, err := Get(v, no)
	if err != nil || g.State != event.Running || int(g.Stage)+1 >= len(g.Stages) {
		return nil, err
	}
	why := "outcomes_known"
	if g.Evidence != EvidenceOutcomes {
		why = "baked"
	}
	if !g.rests(v) || v.Now.Before(time.UnixMilli(int64(g.Changed)).Add(g.BakeTime())) || !g.allOK(v, required) {
		return nil, nil
	}
	return one(no, &event.GenerationAdvanced{Stage: g.Stage + 1, Why: why}), nil
}

// rests reports whether nothing of the current stage is left to wait for but
// time and probes.
func (g *Generation) rests(v ledger.View) bool {
	c := &g.Counts
	done := uint64(g.Next) >= g.stageEnd() && len(g.Again) == 0
	if g.ordered() {
		done = !g.undecided(v)
	}
	if !done || g.Unresolved > 0 || g.Retries > 0 {
		return false
	}
	return g.Evidence != EvidenceOutcomes || c[event.Pending]+c[event.Admitted]+c[event.AmbiguousPublish] == 0
}

// BakeTime is how long a stage waits after its last change: what was configured,
// but at least twice as long as 95 of 100 outcomes took.
func (g *Generation) BakeTime() time.Duration {
	return max(time.Duration(g.Bake)*time.Millisecond, 2*g.OutcomeP95())
}

// allOK reports whether every signal says ok explicitly.
func (g *Generation) allOK(v ledger.View, required Required) bool {
	for _, ru := range g.rules(v, uint64(v.Now.UnixMilli())) {
		if ru.breach() && ru.action != ActionThrottle {
			return false
		}
	}
	if g.Evidence == EvidenceOutcomes {
		known := g.Counts[event.Withheld] + g.Counts[event.Undelivered]
		for d, n := range g.Counts {
			if matured(event.Disposition(d)) {
				known += n
			}
		}
		if known < min(g.stageEnd(), enough) {
			return false
		}
	}
	for name, c := range required {
		said := cmp.Or(g.External[name], "none")
		if said != ResultOK+" "+ActionNone || c.Since.IsZero() || c.Rounds < MinLooks {
			return false
		}
	}
	return true
}
