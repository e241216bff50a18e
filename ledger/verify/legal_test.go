package verify

import (
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

// TestLegal has histories that come close to a breach and are none.
func TestLegal(t *testing.T) {
	for name, act := range map[string]func(b *book){
		"resumed within a day": func(b *book) {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			b.wait(day - 1000)
			b.add(1, &event.GenerationResumed{Cleared: []string{"operator"}})
			b.intend(1, 0)
		},
		"resumed after a day with a new approval": func(b *book) {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			b.wait(2 * day)
			b.approve(1)
			b.add(1, &event.GenerationResumed{Cleared: []string{"operator"}})
			b.intend(1, 0)
		},
		"one of two reasons cleared after a day": func(b *book) {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			b.add(1, &event.GenerationPaused{Reason: "failures"})
			b.add(1, &event.GenerationPaused{Reason: "failures"})
			b.wait(2 * day)
			b.add(1, &event.GenerationResumed{Cleared: []string{"failures"}})
		},
		"resumed after checks that said no and others that did not": func(b *book) {
			b.add(1, &event.GenerationPaused{Reason: "operator"})
			b.checked("resume", "depth")
			b.checked("plan", "route") // of a plan stands in nobody's way
			b.checked("resume")
			b.add(1, &event.GenerationResumed{Cleared: []string{"operator"}})
		},
		"within a millisecond of the rate": func(b *book) {
			b.slow()
			b.intend(1, 0, 1)
			b.wait(99) // cut off from 99.9
			b.intend(1, 2)
			b.resolve(event.Confirmed, 1, 0, 1, 2)
			b.wait(100)
			b.intend(1, 3)
		},
		"window and exposure used up, then tightened": func(b *book) {
			b.add(1, &event.GenerationLimited{Limits: event.Limits{Burst: 9, Exposure: 4, RateMilli: 1000, Window: 4}})
			b.intend(1, 0, 1, 2, 3)
			b.add(1, &event.GenerationLimited{Limits: event.Limits{Burst: 1, Exposure: 1, RateMilli: 1, Window: 1}})
			b.resolve(event.Confirmed, 1, 0, 1, 2, 3)
			b.outcome(event.OutcomeAdmitted, 1, 0, 1, 2, 3)
		},
		"an evaluation and its pause": func(b *book) {
			b.add(1, &event.GenerationEvaluated{Action: "none", Bad: 2, Limit: 3, Of: 5, Result: "ok"})
			b.add(1, &event.GenerationEvaluated{Action: "none", Bad: 2, Of: 5, Result: "ok"}) // switched off
			b.add(1, &event.GenerationEvaluated{Action: "pause", Bad: 3, Limit: 3, Of: 5, Result: "breach"})
			b.add(1, &event.GenerationPaused{Reason: "failures"})
			b.add(1, &event.GenerationEvaluated{Action: "pause", Bad: 4, Limit: 3, Of: 5, Result: "breach"})
			b.add(1, &event.GenerationResumed{Cleared: []string{"failures"}})
			b.intend(1, 0)
		},
		"a crash, orphans, and a second try": func(b *book) {
			b.intend(1, 0, 1)
			b.reopen()
			b.add(0, &event.LedgerRecovered{})
			b.resolve(event.Ambiguous, 1, 0, 1)
			b.rule(event.RuledNotDelivered, 1, 0)
			b.intend(2, 0)
			b.resolve(event.Confirmed, 2, 0)
			b.add(1, &event.MemberConfirmedLate{Pos: pos(0, 1), Try: 1})
		},
		"a confirm after a final ruling": func(b *book) {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			b.rule(event.RuledNotDelivered, 1, 0)
			b.add(1, &event.MemberConfirmedLate{Pos: pos(0), Try: 1})
		},
		"both tries come back": func(b *book) {
			b.intend(1, 0)
			b.resolve(event.Nacked, 1, 0)
			b.intend(2, 0)
			b.capture(14, 1)
			b.back(14, 0, 2, 0) // before its resolution
			b.resolve(event.Confirmed, 2, 0)
			b.capture(15, 2)
			b.back(15, 0, 1, 0) // flagged or not
			b.back(16, 0, 2, 1)
		},
		"facts after the close": func(b *book) {
			b.moved(0)
			b.add(1, &event.GenerationAborted{Freed: 9})
			b.add(1, &event.GenerationSettling{})
			b.add(1, &event.GenerationClosed{Withheld: 2})
			b.outcome(event.OutcomeSucceeded, 1, 0)
			b.add(1, &event.MemberMissed{Pos: pos(0)})
		},
		"approved, limited, approved again, rejected": func(b *book) {
			b.plan(2)
			b.approve(2)
			b.add(2, &event.GenerationLimited{Limits: limits})
			b.approve(2)
			b.add(2, &event.GenerationRejected{Why: "not now"})
		},
		"no stages": func(b *book) {
			b.add(2, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(2), Members: 3})
			b.approve(2)
			b.wait(day + slack) // the record may be stamped a little later
			b.start(2)
			b.add(2, &event.MemberIntended{Pos: pos(0, 1, 2), Try: 1})
		},
		"nobody in it": func(b *book) {
			b.add(2, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(2), Withheld: 3})
			b.approve(2)
			b.start(2)
			b.add(2, &event.GenerationSettling{})
			b.add(2, &event.GenerationClosed{Withheld: 3})
		},
		"life of an envelope": func(b *book) {
			b.add(0, &event.EnvelopeMerged{Envs: pos(1)})
			b.add(0, &event.EnvelopeSettled{Envs: pos(1)})
			b.add(0, &event.EnvelopeHeld{Envs: pos(1)})
			b.add(0, &event.EnvelopeHeld{Envs: pos(1)})
			b.add(0, &event.EnvelopeUnheld{Envs: pos(1)})
			b.add(0, &event.EnvelopeAnnotated{Envs: pos(1)})
			b.add(0, &event.EnvelopeClassified{Envs: pos(1)})
			b.add(0, &event.EnvelopeAssigned{Envs: pos(1)})
			b.add(0, &event.EnvelopeOverdue{Envs: pos(1)})
			b.add(0, &event.EnvelopeViewed{Envs: pos(1)})
			b.add(0, &event.EnvelopeResolved{Envs: pos(1)})
			b.add(0, &event.EnvelopeExpired{Envs: pos(1)})
			b.add(0, &event.EnvelopePurged{Envs: pos(1)})
			b.add(0, &event.EnvelopeAnnotated{Envs: pos(1)})
		},
		"repairs of an envelope": func(b *book) {
			made := &event.EnvelopeRepaired{Candidate: 1, Commitment: commitment(1)}
			b.put(event.Subject{Env: 1}, made)
			b.put(event.Subject{Env: 2}, made)
			b.put(event.Subject{Env: 1}, &event.EnvelopeRepaired{Candidate: 2, Commitment: commitment(2), NewCommand: 1})
			b.by("os:somebody else", event.Subject{Env: 1}, &event.EnvelopeRepairApproved{Candidate: 2, Commitment: commitment(2)})
			b.put(event.Subject{Env: 1}, &event.EnvelopeRepairChosen{Candidate: 1})
			b.put(event.Subject{Env: 1}, &event.EnvelopeRepairChosen{Candidate: 2})
			b.put(event.Subject{Env: 1}, &event.EnvelopeRepairWithdrawn{Candidate: 2})
			b.put(event.Subject{Env: 1}, &event.EnvelopeRepairChosen{})
		},
		"an export": func(b *book) { b.add(0, &event.LedgerExported{Scope: "all", Size: uint64(len(b.lines))}) },
	} {
		b := running(t)
		act(b)
		if rep := b.verify(Options{Replay: true}); rep.ExitCode() != 0 {
			t.Errorf("%s: %v %v", name, rep.First(), rep.Incomplete)
		}
	}
}
