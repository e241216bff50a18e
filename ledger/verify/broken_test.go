package verify

import (
	"bytes"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

// change writes a record after changing it by hand.
func (b *book) change(body event.Body, edit func(r *event.Record)) uint64 {
	r := b.next
	r.Seq, r.Body = uint64(len(b.lines))+1, body
	edit(&r)
	b.write(&r)
	return uint64(len(b.lines))
}

func filler() event.Body { return &event.OutcomeUnmatched{Count: 1, Reason: "unknown"} }

func brokenStructure() []brokenCase {
	return []brokenCase{
		{"parse-space", LawParse, "outcome.unmatched", onNew(func(b *book) uint64 {
			b.add(0, filler())
			line := bytes.Replace(b.lines[2], []byte(`,"epoch"`), []byte(`, "epoch"`), 1)
			b.lines, b.hashes, b.stored = b.lines[:2], b.hashes[:3], b.stored[:2]
			b.raw(line)
			return 3
		})},
		{"seq-gap", LawSeq, "has seq 4", onNew(func(b *book) uint64 {
			return b.change(filler(), func(r *event.Record) { r.Seq = 4 })
		})},
		{"seq-repeated", LawSeq, "has seq 2", onNew(func(b *book) uint64 {
			return b.change(filler(), func(r *event.Record) { r.Seq = 2 })
		})},
		{"chain", LawChain, "hash of record 2", onNew(func(b *book) uint64 {
			return b.change(filler(), func(r *event.Record) { r.Prev[7] ^= 1 })
		})},
		{"epoch-back", LawEpoch, "epoch 1 after epoch 2", onNew(func(b *book) uint64 {
			b.add(0, &event.LedgerClosed{})
			b.next.Epoch = 2
			b.add(0, &event.LedgerOpened{})
			b.next.Epoch = 1
			return b.add(0, &event.LedgerOpened{Unclean: 1})
		})},
		{"mono-back", LawEpoch, "from 5 to 4 ms", onNew(func(b *book) uint64 {
			b.wait(5)
			b.add(0, filler())
			b.next.Mono--
			return b.add(0, filler())
		})},
		{"created-twice", LawCreated, "first record", onNew(func(b *book) uint64 {
			return b.add(0, &event.LedgerCreated{Key: b.key.pub, Origin: origin})
		})},
		{"created-missing", LawCreated, "first record", func(t *testing.T) (*book, uint64) {
			t.Helper()
			b := &book{tb: t, key: newSigner(t, 1), next: event.Record{TS: 1, Epoch: 1}}
			seq := b.add(0, &event.LedgerOpened{})
			return b, seq
		}},
		{"key-malformed", LawKey, "verifier key", onNew(func(b *book) uint64 {
			return b.add(0, &event.LedgerRekeyed{Key: strings.Replace(b.key.pub, "+", "++", 1), Why: "lost"})
		})},
		{"key-unchanged", LawKey, "the old one", onNew(func(b *book) uint64 {
			return b.add(0, &event.LedgerRekeyed{Key: b.key.pub, Why: "lost"})
		})},
		{"object-unnamed", LawObject, "digest", onNew(func(b *book) uint64 {
			return b.put(event.Subject{Env: 1}, &event.EnvelopeCaptured{Count: 1, List: "none"})
		})},
	}
}

func brokenSessions() []brokenCase {
	return []brokenCase{
		{"session-not-opened", LawSession, "does not begin", onNew(func(b *book) uint64 {
			b.next.Epoch = 2
			return b.add(0, filler())
		})},
		{"session-opened-twice", LawSession, "opened twice", onNew(func(b *book) uint64 {
			return b.add(0, &event.LedgerOpened{Unclean: 1})
		})},
		{"session-clean-without-close", LawSession, "unclean is 0", onNew(func(b *book) uint64 {
			b.next.Epoch = 2
			return b.add(0, &event.LedgerOpened{})
		})},
		{"session-unclean-after-close", LawSession, "unclean is 1", onNew(func(b *book) uint64 {
			b.add(0, &event.LedgerClosed{})
			b.next.Epoch = 2
			return b.add(0, &event.LedgerOpened{Unclean: 1})
		})},
		{"session-after-close", LawSession, "after ledger.closed", onNew(func(b *book) uint64 {
			b.add(0, &event.LedgerClosed{})
			return b.add(0, filler())
		})},
		{"session-export-of-the-future", LawSession, "export of 3", onNew(func(b *book) uint64 {
			return b.add(0, &event.LedgerExported{Scope: "all", Size: 3})
		})},
		{"orphan-before-intent", LawOrphan, "while 2 of an earlier epoch", onRunning(func(b *book) uint64 {
			b.intend(1, 0, 1, 2)
			b.reopen()
			b.resolve(event.Ambiguous, 1, 1)
			return b.intend(1, 3)
		})},
		{"orphan-confirmed", LawOrphan, "ends confirmed", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.reopen()
			return b.resolve(event.Confirmed, 1, 0)
		})},
	}
}

// reopen ends the epoch without order and begins the next one.
func (b *book) reopen() {
	b.next.Epoch++
	b.next.Mono = 0
	b.add(0, &event.LedgerOpened{Program: "0.1", Unclean: 1})
}

func brokenPlans() []brokenCase {
	plan := func(edit func(p *event.GenerationPlanned)) func(*testing.T) (*book, uint64) {
		return onNew(func(b *book) uint64 {
			b.capture(1, 13)
			p := &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(1), Members: 10, Stages: []uint64{1, 10}}
			edit(p)
			return b.add(1, p)
		})
	}
	return []brokenCase{
		{"plan-number", LawPlan, "planned after generation 0", onNew(func(b *book) uint64 {
			return b.add(2, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(2), Members: 1})
		})},
		{"plan-number-again", LawPlan, "planned after generation 1", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(1), Members: 1})
		})},
		{"plan-unknown", LawPlan, "was not planned", onNew(func(b *book) uint64 {
			return b.add(1, &event.GenerationApproved{Manifest: b.manifest(1)})
		})},
		{"plan-stages-shrink", LawPlan, "do not grow", plan(func(p *event.GenerationPlanned) { p.Stages = []uint64{5, 5, 10} })},
		{"plan-stages-end", LawPlan, "ends at 9", plan(func(p *event.GenerationPlanned) { p.Stages = []uint64{5, 9} })},
		{"plan-without-burst", LawPlan, "limit", plan(func(p *event.GenerationPlanned) { p.Limits.Burst = 0 })},
		{"plan-without-exposure", LawPlan, "limit", plan(func(p *event.GenerationPlanned) { p.Limits.Exposure = 0 })},
		{"plan-without-rate", LawPlan, "limit", plan(func(p *event.GenerationPlanned) { p.Limits.RateMilli = 0 })},
		{"plan-without-window", LawPlan, "limit", plan(func(p *event.GenerationPlanned) { p.Limits.Window = 0 })},
		{"limited-without-window", LawPlan, "limit", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationLimited{Limits: event.Limits{Burst: 1, Exposure: 1, RateMilli: 1}})
		})},
		{"approval-of-another-manifest", LawApproval, "planned is", onNew(func(b *book) uint64 {
			b.plan(1)
			return b.add(1, &event.GenerationApproved{Expires: b.next.TS + day, Manifest: b.manifest(2)})
		})},
		{"approval-expired", LawApproval, "after the approval expired", onNew(func(b *book) uint64 {
			b.plan(1)
			b.approve(1)
			b.wait(day + slack + 1)
			b.start(1)
			return uint64(len(b.lines))
		})},
		{"started-with-another-manifest", LawApproval, "approved is", onNew(func(b *book) uint64 {
			b.plan(1)
			b.approve(1)
			return b.add(1, &event.GenerationStarted{Manifest: b.manifest(2)})
		})},
		{"resumed-after-a-day", LawApproval, "24 h", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			b.wait(day + slack)
			return b.add(1, &event.GenerationResumed{Cleared: []string{"operator"}})
		})},
		{"started-without-approval", LawState, "while planned", onNew(func(b *book) uint64 {
			b.plan(1)
			return b.add(1, &event.GenerationStarted{Manifest: b.manifest(1)})
		})},
		{"started-twice", LawState, "while running", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationStarted{Manifest: b.manifest(1)})
		})},
		{"started-after-reject", LawState, "while rejected", onNew(func(b *book) uint64 {
			b.plan(1)
			b.add(1, &event.GenerationRejected{Why: "no"})
			return b.add(1, &event.GenerationStarted{Manifest: b.manifest(1)})
		})},
		{"started-against-its-checks", LawCheck, "its checks said no", onNew(func(b *book) uint64 {
			b.plan(1)
			b.approve(1)
			b.checked("start", "route")
			return b.add(1, &event.GenerationStarted{Manifest: b.manifest(1)})
		})},
		{"resumed-against-its-checks", LawCheck, "its checks said no", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			b.checked("resume", "depth")
			return b.add(1, &event.GenerationResumed{Cleared: []string{"operator"}})
		})},
		{"checks-of-more-than-all", LawCheck, "2 failed and 0 unknown", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationChecked{Phase: "start", Checks: b.object("checks"), Total: 1, Failed: 2})
		})},
		{"checks-in-the-way-of-none", LawCheck, "1 of them in the way", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationChecked{Phase: "start", Checks: b.object("checks"), Total: 1, Names: []string{"route"}})
		})},
		{"resumed-other-reason", LawState, "not paused", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			return b.add(1, &event.GenerationResumed{Cleared: []string{"crash_loop"}})
		})},
		{"resumed-nothing", LawState, "clears no reason", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			return b.add(1, &event.GenerationResumed{})
		})},
		{"settling-with-waiting", LawState, "9 members waiting", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.add(1, &event.GenerationSettling{})
		})},
		{"settling-in-flight", LawState, "1 intents unresolved", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.add(1, &event.GenerationAborted{Freed: 9})
			return b.add(1, &event.GenerationSettling{})
		})},
		{"settling-not-started", LawState, "without a start", onNew(func(b *book) uint64 {
			b.plan(1)
			b.add(1, &event.GenerationExpired{})
			return b.add(1, &event.GenerationSettling{})
		})},
		{"closed-while-running", LawState, "while running", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationClosed{})
		})},
		{"aborted-frees-too-few", LawClosed, "9 are waiting", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.add(1, &event.GenerationAborted{Freed: 8})
		})},
		{"closed-hides-missing", LawClosed, "there are 1, 1, 3", onRunning(func(b *book) uint64 {
			b.moved(0)
			b.add(1, &event.MemberMissed{Pos: pos(0)})
			b.intend(1, 1)
			b.resolve(event.Ambiguous, 1, 1)
			b.add(1, &event.MemberWithheld{Pos: pos(2), Reason: "held"})
			b.add(1, &event.GenerationAborted{Freed: 7})
			b.add(1, &event.GenerationSettling{})
			return b.add(1, &event.GenerationClosed{Ambiguous: 1, Withheld: 3})
		})},
	}
}

func brokenRelease() []brokenCase {
	return []brokenCase{
		{"gate-before-start", LawGate, "while approved", onNew(func(b *book) uint64 {
			b.plan(1)
			b.approve(1)
			return b.intend(1, 0)
		})},
		{"gate-paused", LawGate, "while paused", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			return b.intend(1, 0)
		})},
		{"gate-still-paused", LawGate, "while paused", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			b.add(1, &event.GenerationPaused{Reason: "failures"})
			b.add(1, &event.GenerationResumed{Cleared: []string{"operator"}})
			return b.intend(1, 0)
		})},
		{"gate-aborted", LawGate, "while aborted", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationAborted{Freed: 10})
			return b.intend(1, 0)
		})},
		{"gate-evaluated", LawGate, "said pause", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationEvaluated{Action: "pause", Bad: 3, Limit: 3, Of: 5, Result: "breach", Signal: "failures"})
			return b.intend(1, 0)
		})},
		{"evaluated-wrongly", LawGate, "judged ok", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationEvaluated{Action: "none", Bad: 3, Limit: 3, Of: 5, Result: "ok", Signal: "failures"})
		})},
		{"evaluated-pause-for-nothing", LawGate, "judged ok, pause", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationEvaluated{Action: "pause", Bad: 2, Limit: 3, Of: 5, Result: "ok", Signal: "failures"})
		})},
		{"window", LawWindow, "5 unresolved", onRunning(func(b *book) uint64 {
			b.intend(1, 0, 1, 2)
			return b.intend(1, 3, 4)
		})},
		{"window-tightened", LawWindow, "the window is 2", onRunning(func(b *book) uint64 {
			b.add(1, &event.GenerationLimited{Limits: event.Limits{Burst: 10, Exposure: 20, RateMilli: 100_000, Window: 2}})
			return b.intend(1, 0, 1, 2)
		})},
		{"exposure", LawExposure, "4 members are exposed", onRunning(func(b *book) uint64 {
			l := limits
			l.Exposure = 3
			b.add(1, &event.GenerationLimited{Limits: l})
			b.moved(0)                              // pending
			b.moved(1)                              // admitted
			b.outcome(event.OutcomeAdmitted, 1, 1)  //
			b.moved(2)                              // done with
			b.outcome(event.OutcomeSucceeded, 1, 2) //
			b.intend(1, 3)                          // ambiguous
			b.resolve(event.Ambiguous, 1, 3)        //
			return b.intend(1, 4)
		})},
		{"rate-burst", LawRate, "burst of 2", onRunning(func(b *book) uint64 {
			b.slow()
			return b.intend(1, 0, 1, 2)
		})},
		{"rate-over-time", LawRate, "burst of 2", onRunning(func(b *book) uint64 {
			b.slow()
			b.intend(1, 0, 1)
			b.wait(100)
			b.intend(1, 2) // one intent drains in 100 ms
			b.resolve(event.Confirmed, 1, 0, 1, 2)
			b.wait(98) // 99 would be forgiven
			return b.intend(1, 3)
		})},
		{"stage-not-open", LawStage, "stage 0 ends at 2", onNew(func(b *book) uint64 {
			b.plan(1)
			b.approve(1)
			b.start(1)
			return b.intend(1, 1, 2)
		})},
		{"stage-skipped", LawStage, "stage 2 after stage 0", onNew(func(b *book) uint64 {
			b.plan(1)
			b.approve(1)
			b.start(1)
			return b.add(1, &event.GenerationAdvanced{Stage: 2})
		})},
		{"stage-beyond-last", LawStage, "stage 3 after stage 2", onRunning(func(b *book) uint64 {
			return b.add(1, &event.GenerationAdvanced{Stage: 3})
		})},
	}
}

// slow sets a rate of 10/s with a burst of 2.
func (b *book) slow() {
	b.add(1, &event.GenerationLimited{Limits: event.Limits{Burst: 2, Exposure: 20, RateMilli: 10_000, Window: 10}})
}

// checked adds a preflight of two checks, of which those named said no.
func (b *book) checked(phase string, stand ...string) {
	b.add(1, &event.GenerationChecked{Phase: phase, Checks: b.object("checks"), Total: 2, Failed: uint64(len(stand)), Names: stand})
}
