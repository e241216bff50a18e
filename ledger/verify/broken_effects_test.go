package verify

import (
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

func (b *book) effect(e event.Effect, evidence string, ns ...uint64) uint64 {
	return b.add(1, &event.MemberReconciled{Effect: e, Evidence: evidence, Pos: pos(ns...)})
}

func brokenEffects() []brokenCase {
	return []brokenCase{
		{"effects-never-released", LawEffects, "never released", onRunning(func(b *book) uint64 {
			return b.effect(event.Effected, "e1", 0)
		})},
		{"effects-without-evidence", LawEffects, "without evidence", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.effect(event.Effected, "", 0)
		})},
		{"effects-somehow", LawEffects, `effect "perhaps"`, onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.effect("perhaps", "e1", 0)
		})},
		{"effects-none-too-early", LawEffects, "that is pending", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.effect(event.NotEffected, "e1", 0)
		})},
		{"effects-then-a-try", LawTry, "that is succeeded", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			b.effect(event.Effected, "e1", 0)
			return b.intend(2, 0)
		})},
		{"effects-do-not-sum-up", LawEffects, "3 checked are not", onRunning(func(b *book) uint64 {
			b.moved(0, 1, 2)
			b.effect(event.Effected, "e1", 0, 1)
			return b.add(1, &event.GenerationReconciled{Checked: 3, Effected: 2, Evidence: "e1", Source: "csv"})
		})},
		{"effects-more-than-released", LawEffects, "2 were released", onRunning(func(b *book) uint64 {
			b.moved(0, 1)
			b.effect(event.Effected, "e1", 0, 1)
			return b.add(1, &event.GenerationReconciled{Checked: 2, Effected: 2, NotCheckable: 1, Evidence: "e1", Source: "csv"})
		})},
		{"effects-hidden", LawEffects, "names 1 members double, the records before it name 2", onRunning(func(b *book) uint64 {
			b.moved(0, 1)
			b.effect(event.DoubleEffect, "e1", 0, 1)
			return b.add(1, &event.GenerationReconciled{Checked: 2, Effected: 1, Double: 1, Evidence: "e1", Source: "csv"})
		})},
		{"effects-of-nowhere", LawEffects, "without evidence", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationReconciled{Source: "csv"})
		})},
	}
}

// A reconciliation may name more than its records do: what was known before is
// not recorded again.
func TestEffectsThatAreKnown(t *testing.T) {
	b := running(t)
	b.moved(0, 1, 2)
	b.add(1, &event.MemberMissed{Pos: pos(0, 1, 2)})
	b.effect(event.Effected, "e1", 0)
	b.effect(event.NotEffected, "e1", 1)
	b.add(1, &event.GenerationReconciled{Checked: 3, Effected: 1, NotEffected: 2, Evidence: "e1", Source: "csv"})
	b.effect(event.DoubleEffect, "e2", 2)
	b.add(1, &event.GenerationReconciled{Checked: 3, Effected: 1, NotEffected: 1, Double: 1, Evidence: "e2", Source: "sql"})
	b.add(1, &event.GenerationReconciled{Checked: 2, Effected: 1, Double: 1, NotCheckable: 1, Evidence: "e2", Source: "sql"})
	b.checkpoint()
	rep := b.verify(Options{Pub: b.key.pub, Replay: true})
	if rep.ExitCode() != 0 {
		t.Fatalf("%s: %v %v", rep.Verdict(), rep.Findings, rep.Incomplete)
	}
	got := rep.Generations[0].Counts
	if got[event.Succeeded] != 2 || got[event.Missing] != 1 {
		t.Errorf("%v", got)
	}
}
