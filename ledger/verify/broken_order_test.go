package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

// keyList stores a key list in which position n+5 follows position n, and
// position 9 itself when crossed is set; it returns the index.
func (b *book) keyList(members uint32, crossed bool) string {
	var list []byte
	for pos := range members {
		before := uint32(noneFirst)
		if pos >= 5 {
			before = pos - 5
		}
		if crossed && pos == members-1 {
			before = pos
		}
		for _, n := range []uint32{before, noneFirst, 0} {
			list = binary.BigEndian.AppendUint32(list, n)
		}
	}
	b.object(string(list))
	sum := sha256.Sum256(list)
	return b.object(string(sum[:]))
}

// onOrdered builds on a running generation whose key list is as in keyList.
func onOrdered(onFailure string, act func(b *book) uint64) func(*testing.T) (*book, uint64) {
	return onNew(func(b *book) uint64 {
		b.ordered(onFailure, b.keyList(10, false))
		return act(b)
	})
}

func (b *book) ordered(onFailure, keys string) uint64 {
	b.capture(1, 13)
	seq := b.add(1, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(1), Members: 10, Stages: []uint64{10},
		Keys: keys, OnFailure: onFailure})
	b.approve(1)
	b.start(1)
	b.wait(1000)
	return seq
}

func brokenOrder() []brokenCase {
	return []brokenCase{
		{"order-before-it-went", LawOrder, "position 0 before it in its key is waiting", onOrdered("park", func(b *book) uint64 {
			return b.intend(1, 5)
		})},
		{"order-before-the-outcome", LawOrder, "position 1 before it in its key is pending", onOrdered("continue", func(b *book) uint64 {
			b.moved(1)
			return b.intend(1, 6)
		})},
		{"order-both-at-once", LawOrder, "is waiting", onOrdered("continue", func(b *book) uint64 { return b.intend(1, 0, 5) })},
		{"order-after-a-failure", LawOrder, "is undelivered, and after a failure it is to park", onOrdered("park", func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Returned, 1, 0)
			return b.intend(1, 5)
		})},
		{"order-after-a-doubt", LawOrder, "is ambiguous_publish, and after a failure it is to block", onOrdered("block", func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			return b.intend(1, 5)
		})},
		{"order-after-a-revision", LawOrder, "it is to rebuild", onOrdered("block", func(b *book) uint64 {
			b.add(1, &event.GenerationRevised{Field: "on_failure", Old: "block", New: "rebuild", Why: "w"})
			b.intend(1, 0)
			b.resolve(event.Returned, 1, 0)
			return b.intend(1, 5)
		})},
		{"order-revised-to-continue", LawOrder, `from "park" to "continue"`, onOrdered("park", func(b *book) uint64 {
			return b.add(1, &event.GenerationRevised{Field: "on_failure", Old: "park", New: "continue", Why: "w"})
		})},
		{"order-revised-without-one", LawOrder, `it is ""`, onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationRevised{Field: "on_failure", Old: "block", New: "park", Why: "w"})
		})},
		{"order-list-too-short", LawOrder, "9 positions for 10 members", onNew(func(b *book) uint64 {
			return b.ordered("park", b.keyList(9, false))
		})},
		{"order-list-crossed", LawOrder, "position 9 of its key list follows position 9", onNew(func(b *book) uint64 {
			return b.ordered("park", b.keyList(10, true))
		})},
		{"plan-order-without-a-list", LawPlan, `on failure "park"`, onNew(func(b *book) uint64 {
			b.capture(1, 13)
			return b.add(1, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(1), Members: 10, OnFailure: "park"})
		})},
		{"plan-order-on-failure-somehow", LawPlan, `on failure "hope"`, onNew(func(b *book) uint64 {
			b.capture(1, 13)
			return b.add(1, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(1), Members: 10, Keys: b.keyList(10, false), OnFailure: "hope"})
		})},
	}
}

// What the law of order allows: the next one after a good end, and after a
// failed one where the generation goes on.
func TestLegalOrder(t *testing.T) {
	b := newBook(t)
	b.ordered("continue", b.keyList(10, false))
	b.moved(0, 1)
	b.outcome(event.OutcomeSucceeded, 1, 0)
	b.intend(1, 5)
	b.add(1, &event.MemberMissed{Pos: pos(1)})
	b.intend(1, 6)
	b.checkpoint()
	if rep := b.verify(Options{Replay: true}); len(rep.Findings) > 0 {
		t.Errorf("%v", rep.Findings)
	}
}

// Without its key list a ledger is not wrong, and not checked either.
func TestKeyListMissing(t *testing.T) {
	for drop := range 2 {
		b := newBook(t)
		index := b.keyList(10, false)
		b.ordered("park", index)
		b.checkpoint()
		for d, data := range b.objects {
			if (d.String() == index) == (drop == 0) && (drop == 0 || len(data) == 10*listItem) {
				delete(b.objects, d)
			}
		}
		rep := b.verify(Options{Replay: true})
		if len(rep.Findings) > 0 || rep.ExitCode() != 3 ||
			!slices.ContainsFunc(rep.Incomplete, func(s string) bool { return strings.Contains(s, "order within keys was not checked") }) {
			t.Errorf("%d: exit %d, %v, %v", drop, rep.ExitCode(), rep.Findings, rep.Incomplete)
		}
	}
}
