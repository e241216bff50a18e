package verify

import (
	"math"
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

const rule = " " + formulaVersion

// brokenBrake are evaluations that say otherwise than their numbers, and what
// follows from them and did not.
func brokenBrake() []brokenCase {
	judged := func(e event.GenerationEvaluated) func(*testing.T) (*book, uint64) {
		return onRunning(func(b *book) uint64 { return b.add(1, &e) })
	}
	return []brokenCase{
		{"evaluated-count-passed", LawGate, "judged ok", judged(event.GenerationEvaluated{Action: "none", Bad: 1, Limit: 1, Of: 1, Result: "ok", Rule: "count" + rule, Signal: "unroutable"})},
		{"evaluated-ratio-passed", LawGate, "judged ok", judged(event.GenerationEvaluated{Action: "none", Bad: 1, Floor: 20, Limit: 50, Of: 20, Result: "ok", Rule: "ratio" + rule, Signal: "missing"})},
		{"evaluated-ratio-below-floor", LawGate, "judged breach", judged(event.GenerationEvaluated{Action: "pause", Bad: 19, Floor: 20, Limit: 50, Of: 19, Result: "breach", Rule: "ratio" + rule, Signal: "missing"})},
		{"evaluated-wilson-passed", LawGate, "judged ok", judged(event.GenerationEvaluated{Action: "none", Bad: 3, Floor: 3, Limit: 100, Of: 3, Result: "ok", Rule: "wilson" + rule, Signal: "requarantined", Z: 196})},
		{"evaluated-wilson-by-ratio", LawGate, "judged breach", judged(event.GenerationEvaluated{Action: "pause", Bad: 3, Floor: 3, Limit: 100, Of: 20, Result: "breach", Rule: "wilson" + rule, Signal: "requarantined", Z: 196})},
		{"evaluated-breach-without-action", LawGate, "judged breach, none", judged(event.GenerationEvaluated{Action: "none", Bad: 1, Limit: 1, Of: 1, Result: "breach", Rule: "count" + rule, Signal: "unroutable"})},
		{"evaluated-silence-passed", LawGate, "judged error, hold", judged(event.GenerationEvaluated{Action: "hold", Bad: 3, Limit: 3, Of: 3, Result: "error", Rule: "silence" + rule, Signal: "warehouse"})},
		{"evaluated-silence-is-ok", LawGate, "judged ok", judged(event.GenerationEvaluated{Action: "none", Bad: 1, Limit: 3, Of: 1, Result: "ok", Rule: "silence" + rule, Signal: "warehouse"})},
		{"evaluated-by-no-rule", LawGate, "feeling", judged(event.GenerationEvaluated{Action: "none", Limit: 3, Of: 1, Result: "ok", Rule: "feeling" + rule, Signal: "warehouse"})},
		{"gate-aborting", LawGate, "said pause", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationEvaluated{Action: "abort", Bad: 10, Floor: 10, Limit: 500, Of: 10, Result: "breach", Rule: "wilson" + rule, Signal: "requarantined", Z: 196})
			return b.intend(1, 0)
		})},
		{"gate-throttling", LawGate, "said throttle", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationEvaluated{Action: "throttle", Bad: 1, Limit: 1, Of: 1, Result: "breach", Rule: "count" + rule, Signal: "nacked"})
			return b.intend(1, 0)
		})},
		{"throttled-beyond-the-limits", LawGate, "1001 per mille", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationThrottled{Permille: 1001, Reason: "nacked"})
		})},
		{"throttle-lifted-that-is-not-there", LawGate, "not there", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationThrottled{Permille: 500, Reason: "nacked"})
			return b.add(1, &event.GenerationThrottled{Permille: 1000, Reason: "depth"})
		})},
		{"revised-to-the-same", LawState, "a revision of", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationRevised{Field: "threshold rejected", New: "5%", Old: "5%"})
		})},
		{"exposure-of-two-generations", LawExposure, "2 of other generations", func(t *testing.T) (*book, uint64) {
			b := newBook(t)
			b.capture(1, 26)
			for gen := event.GenerationNo(1); gen <= 2; gen++ {
				l := limits
				l.Exposure = 3
				b.add(gen, &event.GenerationPlanned{Destination: "/orders", Limits: l, Manifest: b.manifest(gen), Members: 10, Stages: []uint64{10}})
				b.approve(gen)
				b.start(gen)
			}
			b.wait(1000)
			b.moved(0, 1)
			seq := b.add(2, &event.MemberIntended{Pos: pos(0, 1), Try: 1})
			return b, seq
		}},
	}
}

func TestWilsonBound(t *testing.T) {
	for n := uint64(1); n <= 200; n++ {
		for bad := range n + 1 {
			for _, z := range []uint64{196, 258} {
				for _, permille := range []uint64{1, 50, 100, 500, 999} {
					x, m, zz := float64(bad), float64(n), float64(z)/100
					lower := (x + zz*zz/2 - zz*math.Sqrt(x*(m-x)/m+zz*zz/4)) / (m + zz*zz)
					limit := float64(permille) / 1000
					if math.Abs(lower-limit) < 1e-9 {
						continue // a float does not tell
					}
					if got := wilsonAbove(&event.GenerationEvaluated{Bad: bad, Of: n, Limit: permille, Z: z}); got != (lower > limit) {
						t.Fatalf("%d of %d, z %d, limit %d: %v, the bound is %v", bad, n, z, permille, got, lower)
					}
				}
			}
		}
	}
}
