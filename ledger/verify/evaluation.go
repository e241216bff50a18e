package verify

import (
	"math/big"
	"strings"

	"github.com/redrivehq/redrive/ledger/event"
)

// formulaVersion is the first version whose rules name their formula.
const formulaVersion = "2026-12.1"

// evaluate judges a stored evaluation again, by the rules of its time.
func (g *generation) evaluate(b *event.GenerationEvaluated) error {
	formula, version, _ := strings.Cut(b.Rule, " ")
	if version != formulaVersion {
		return g.evaluateOld(b)
	}
	if !follows(formula, b) {
		return broken(LawGate, "signal %s: rule %q with %d of %d, limit %d, floor %d, z %d was judged %s, %s",
			b.Signal, b.Rule, b.Bad, b.Of, b.Limit, b.Floor, b.Z, b.Result, b.Action)
	}
	if g.state == event.Running {
		g.dueStop = g.dueStop || stops(b)
		g.dueThrottle = g.dueThrottle || b.Action == "throttle"
	}
	return nil
}

func stops(b *event.GenerationEvaluated) bool { return b.Action == "pause" || b.Action == "abort" }

// follows reports whether result and action follow from the numbers.
func follows(formula string, b *event.GenerationEvaluated) bool {
	switch formula {
	case "count", "ratio", "wilson", "external":
		if breaches(formula, b) {
			return b.Result == "breach" && (stops(b) || b.Action == "throttle")
		}
		return b.Result == "ok" && b.Action == "none"
	case "silence":
		silent := b.Result == "inconclusive" || b.Result == "error" || b.Result == "stale"
		if b.Bad >= b.Limit {
			return silent && b.Limit > 0 && b.Action == "pause"
		}
		return silent && b.Action == "hold"
	}
	return false
}

// due is what an evaluation asked for and nothing did yet.
func (g *generation) due() string {
	switch {
	case g.dueStop:
		return "pause"
	case g.dueThrottle:
		return "throttle"
	}
	return ""
}

// evaluateOld judges by the one formula of the first rules, a count. A limit of
// 0 is a signal that is switched off.
func (g *generation) evaluateOld(b *event.GenerationEvaluated) error {
	breach := b.Result == "breach"
	if b.Limit > 0 && breach != (b.Bad >= b.Limit) || b.Action == "pause" && !breach {
		return broken(LawGate, "signal %s: %d of %d against a limit of %d was judged %s, %s", b.Signal, b.Bad, b.Of, b.Limit, b.Result, b.Action)
	}
	g.dueStop = g.dueStop || b.Action == "pause" && g.state == event.Running
	return nil
}

func breaches(formula string, b *event.GenerationEvaluated) bool {
	switch formula {
	case "ratio":
		share := new(big.Int).Mul(num(b.Bad), num(1000))
		return b.Of >= b.Floor && b.Of > 0 && share.Cmp(new(big.Int).Mul(num(b.Limit), num(b.Of))) >= 0
	case "wilson":
		return b.Bad >= b.Floor && b.Bad <= b.Of && b.Of > 0 && wilsonAbove(b)
	}
	return b.Bad >= b.Limit
}

func num(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// wilsonAbove reports whether the lower bound is above the limit. With L the
// limit, the bound (x + z²/2 − z·√(x(n−x)/n + z²/4)) / (n + z²) is above L when
// a = x + z²/2 − L(n+z²) is positive and a² > z²(x(n−x)/n + z²/4). All is
// multiplied until it is whole: a by 2·10⁷, so a² and the right side by 4·10¹⁴,
// and both by n.
func wilsonAbove(b *event.GenerationEvaluated) bool {
	x, n, l := num(b.Bad), num(b.Of), num(b.Limit)
	zz := new(big.Int).Mul(num(b.Z), num(b.Z)) // 10⁴ z²
	times := func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

	a := times(x, num(20_000_000))
	a.Add(a, times(zz, num(1000)))
	whole := times(n, num(10_000))
	a.Sub(a, times(times(whole.Add(whole, zz), l), num(2)))
	if a.Sign() <= 0 {
		return false
	}
	left := times(times(a, a), n)
	spread := times(times(x, new(big.Int).Sub(n, x)), num(40_000_000_000))
	spread.Add(spread, times(times(zz, n), num(1_000_000)))
	return left.Cmp(times(zz, spread)) > 0
}

// throttle checks a throttle: it never loosens beyond the limits, and lifts
// only what is there.
func (g *generation) throttle(b *event.GenerationThrottled) error {
	g.dueThrottle = false
	_, there := g.throttles[b.Reason]
	switch {
	case b.Permille < 1 || b.Permille > 1000 || b.Reason == "":
		return broken(LawGate, "a throttle to %d per mille for %q", b.Permille, b.Reason)
	case b.Permille == 1000 && !there:
		return broken(LawGate, "lifted is a throttle for %q, which is not there", b.Reason)
	case b.Permille == 1000:
		delete(g.throttles, b.Reason)
		return nil
	}
	if g.throttles == nil {
		g.throttles = map[string]uint64{}
	}
	g.throttles[b.Reason] = b.Permille
	return nil
}

// revise checks a change of the plan: it says what changes, and by whom a
// loosening was answered for is in the record's actor.
func (g *generation) revise(b *event.GenerationRevised) error {
	if b.Field == "" || b.New == b.Old {
		return broken(LawState, "a revision of %q from %q to %q", b.Field, b.Old, b.New)
	}
	if b.Field == "on_failure" {
		return g.reviseOrder(b)
	}
	return nil
}

// exposed is the number of members whose effect is not known.
func (g *generation) exposed() uint64 {
	return g.counts[event.InFlight] + g.counts[event.Pending] + g.counts[event.Admitted] + g.counts[event.AmbiguousPublish]
}

// beside is what other generations have exposed at the same destination.
func (p *replay) beside(g *generation) (n uint64) {
	if g.plan.Destination == "" {
		return 0
	}
	for _, other := range p.gens {
		// One that is closed has answered for what stayed open.
		if other != g && other.plan.Destination == g.plan.Destination && other.state != event.Closed {
			n += other.exposed()
		}
	}
	return n
}
