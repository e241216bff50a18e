package redrive

import (
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Throttle is one reason why a generation goes slower than its limits allow.
type Throttle struct {
	Reason   string
	Permille uint64 // of rate and window
	At       uint64 // ms
	Why      string
}

// minPermille is the strongest throttle: what should go slower than that has to
// be paused.
const minPermille = 50

// throttled halves what a reason leaves of the limits.
func (g *Generation) throttled(reason, why string) *event.GenerationThrottled {
	permille := uint64(1000)
	for _, t := range g.Throttles {
		if t.Reason == reason {
			permille = t.Permille
		}
	}
	return &event.GenerationThrottled{Permille: max(permille/2, minPermille), Reason: reason, Why: cut(why, maxWhy)}
}

// Permille is what all throttles together leave of the limits: the strongest
// one counts.
func (g *Generation) Permille() uint64 {
	p := uint64(1000)
	for _, t := range g.Throttles {
		p = min(p, t.Permille)
	}
	return p
}

// EffectiveRate is the rate that holds now, in messages per 1000 seconds. It is
// never above the limit.
func (g *Generation) EffectiveRate() uint64 {
	return max(g.Limits.RateMilli*g.Permille()/1000, 1)
}

// EffectiveWindow is the window that holds now, never above the limit.
func (g *Generation) EffectiveWindow() uint32 {
	w := max(uint32(uint64(g.Limits.Window)*g.Permille()/1000), 1)
	if g.Pace.Window > 0 {
		w = min(w, g.Pace.Window)
	}
	return w
}

// Pace is the window of a release that feels its way: one more for each clean
// window of which at least half was used, half of it when something says slow.
type Pace struct {
	Window uint32 // 0: it is not feeling its way
	Clean  uint32 // confirmed in a row since the window changed
	Peak   uint32 // most that were unresolved since then
}

// begin makes a release feel its way from one message on.
func (p *Pace) begin() { *p = Pace{Window: 1} }

func (p *Pace) sent(unresolved uint64) { p.Peak = max(p.Peak, uint32(min(unresolved, MaxWindow))) }

// confirmed counts clean answers, and opens the window when it was full of them.
func (p *Pace) confirmed(n uint64, limit uint32) {
	if p.Window == 0 {
		return
	}
	if p.Clean += uint32(n); p.Clean < p.Window {
		return
	}
	if 2*p.Peak >= p.Window && p.Window < limit {
		p.Window++
	}
	p.Clean, p.Peak = 0, 0
}

func (p *Pace) slower() {
	if p.Window > 0 {
		*p = Pace{Window: max(p.Window/2, 1)}
	}
}

// lastStage reports whether the current stage is the last of several: the one
// that feels its way.
func (g *Generation) lastStage() bool {
	return len(g.Stages) > 1 && int(g.Stage)+1 == len(g.Stages)
}

func (a *applying) throttle(b *event.GenerationThrottled) {
	g := a.g
	var left []Throttle
	for _, t := range g.Throttles {
		if t.Reason != b.Reason {
			left = append(left, t)
		}
	}
	if b.Permille < 1000 {
		left = append(left, Throttle{Reason: b.Reason, Permille: b.Permille, At: a.r.TS, Why: b.Why})
		g.Pace.slower()
	}
	g.Throttles = left
	// At another pace the bucket would fill by itself: it begins empty.
	a.emptyBucket()
}

// liftNacked takes the throttle of nacks off when a minute went by without one.
func liftNacked(g *Generation, now uint64) []event.Event {
	for _, t := range g.Throttles {
		if minute, _ := g.nacks(now); t.Reason == SignalNacked && minute == 0 && now >= t.At+nackSpan {
			return one(g.No, &event.GenerationThrottled{Permille: 1000, Reason: SignalNacked, Why: "no nack for a minute"})
		}
	}
	return nil
}

// exposedBeside is what other generations have exposed at the same destination,
// whose cap they share. Where nobody reports, exposure says nothing and is not
// shared.
func (g *Generation) exposedBeside(r ledger.Reader) (uint64, error) {
	if g.Shared == "" {
		return 0, nil
	}
	gens, err := Unfinished(r)
	if err != nil {
		return 0, fmt.Errorf("exposure of %s: %w", g.Shared, err)
	}
	var n uint64
	for _, other := range gens {
		if other.No != g.No && other.Shared == g.Shared {
			n += other.Exposed()
		}
	}
	return n, nil
}
