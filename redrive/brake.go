package redrive

import (
	"fmt"
	"strings"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
)

// maxNacks bounds the nacks that are remembered, the latest ones: more than any
// rule looks at.
const maxNacks = 128

// evaluated keeps the last result of a signal.
func (a *applying) evaluated(b *event.GenerationEvaluated) {
	g := a.g
	to := &g.Results
	key, result := strings.TrimSpace(b.Signal+" "+b.Scope), b.Result
	if formula, _, _ := strings.Cut(b.Rule, " "); formula == formulaExternal || formula == formulaSilence {
		to, key, result = &g.External, b.Signal, b.Result+" "+b.Action
	}
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[key] = result
}

// nacked remembers a nack as long as a rule may look at it.
func (a *applying) nacked() {
	g := a.g
	g.Nacked++
	kept := make([]Nack, 0, len(g.Nacks)+1)
	for _, n := range g.Nacks {
		if n.At+nackSpan > a.r.TS || n.Resolved+nackTries > g.Resolved {
			kept = append(kept, n)
		}
	}
	kept = append(kept, Nack{At: a.r.TS, Resolved: g.Resolved})
	g.Nacks = kept[max(len(kept)-maxNacks, 0):]
	g.Pace.slower()
}

// resumed clears reasons. A person who resumes has looked at everything that is
// bad so far; the system has not.
func (a *applying) resumed(b *event.GenerationResumed) {
	g := a.g
	var left []Pause
	for _, p := range g.Pauses {
		cleared := false
		for _, c := range b.Cleared {
			cleared = cleared || c == p.Reason
		}
		if !cleared {
			left = append(left, p)
		}
	}
	for _, c := range b.Cleared {
		delete(g.External, c)
	}
	g.Pauses = left
	g.State = event.Paused
	if a.r.Actor == event.System {
		g.Pace.begin()
		g.Auto = append(recent(g.Auto, a.r.TS), a.r.TS)
	} else {
		g.Seen = votes(a.w, g)
		g.Results = nil
	}
	if len(left) == 0 {
		g.State = event.Running
		g.Changed = a.r.TS
		a.emptyBucket()
	}
}

// recent keeps the moments of the last hour.
func recent(all []uint64, now uint64) (out []uint64) {
	for _, at := range all {
		if at+uint64(time.Hour.Milliseconds()) > now {
			out = append(out, at)
		}
	}
	return out
}

// revised changes a threshold, or what a failure does to its key.
func (a *applying) revised(b *event.GenerationRevised) error {
	if b.Field == fieldOnFailure {
		a.g.OnFailure = b.New
		return nil
	}
	name, ok := strings.CutPrefix(b.Field, fieldThreshold)
	if !ok {
		return nil
	}
	t := Thresholds{}
	for k, v := range a.g.Thresholds {
		t[k] = v
	}
	if err := t.Set(name + "=" + b.New); err != nil {
		return fmt.Errorf("revision: %w", err)
	}
	a.g.Thresholds = t
	return nil
}

// fieldThreshold begins the field of a revised threshold.
const fieldThreshold = "threshold "

// latencyBounds are the upper ends, in seconds, of the classes in which the time
// from delivery to the outcome is counted. What is below the first one is as
// fast as can be told.
var latencyBounds = []uint64{2, 3, 5, 8, 12, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400}

// latencies counts how long the outcomes of members took that had none yet.
func (a *applying) latencies(pos event.Ranges) {
	for p := range pos.All() {
		m := GetMember(a.w, a.g.No, event.Position(p))
		if m.ConfirmedAt == 0 || matured(m.Disposition()) || a.r.TS/1000 < uint64(m.ConfirmedAt) {
			continue
		}
		took, i := a.r.TS/1000-uint64(m.ConfirmedAt), 0
		for i < len(latencyBounds) && took >= latencyBounds[i] {
			i++
		}
		for len(a.g.Latency) <= i {
			a.g.Latency = append(a.g.Latency, 0)
		}
		a.g.Latency[i]++
	}
}

// OutcomeP95 is the time within which 95 of 100 outcomes came, rounded up to a
// class; 0 when none came, or they come faster than can be told.
func (g *Generation) OutcomeP95() time.Duration {
	var all, sum uint64
	for _, n := range g.Latency {
		all += uint64(n)
	}
	for i, n := range g.Latency {
		if sum += uint64(n); n > 0 && sum*100 >= all*95 {
			if i == 0 {
				return 0
			}
			return time.Duration(latencyBounds[min(i, len(latencyBounds)-1)]) * time.Second
		}
	}
	return 0
}
