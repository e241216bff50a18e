package verify

import (
	"github.com/redrivehq/redrive/ledger/event"
)

func brokenTries() []brokenCase {
	return []brokenCase{
		{"try-zero", LawTry, "without a try", onRunning(func(b *book) uint64 { return b.intend(0, 0) })},
		{"try-two-first", LawTry, "try 2 follows try 0", onRunning(func(b *book) uint64 { return b.intend(2, 0) })},
		{"try-unresolved", LawTry, "unresolved or final", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			return b.intend(2, 0)
		})},
		{"try-after-returned", LawTry, "unresolved or final", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Returned, 1, 0)
			return b.intend(2, 0)
		})},
		{"try-after-confirmed", LawTry, "unresolved or final", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.intend(2, 0)
		})},
		{"try-after-late-confirm", LawTry, "unresolved or final", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			b.add(1, &event.MemberConfirmedLate{Pos: pos(0), Try: 1})
			return b.intend(2, 0)
		})},
		{"try-after-outcome", LawTry, "that is succeeded", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			b.outcome(event.OutcomeSucceeded, 1, 0)
			return b.intend(2, 0)
		})},
		{"try-after-withheld", LawTry, "that is withheld", onRunning(func(b *book) uint64 {
			b.add(1, &event.MemberWithheld{Pos: pos(0), Reason: "held"})
			return b.intend(1, 0)
		})},
		{"try-same-again", LawTry, "try 1 follows try 1", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.again(1, 0)
			return b.intend(1, 0)
		})},
		{"try-beyond-last", LawTry, "follows try 32", onRunning(func(b *book) uint64 {
			b.slowly(event.MaxTries)
			return b.intend(event.MaxTries+1, 0)
		})},
		{"resolved-twice", LawTry, "a second time", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.resolve(event.Ambiguous, 1, 0)
		})},
		{"resolved-not-intended", LawTry, "never intended", onRunning(func(b *book) uint64 {
			return b.resolve(event.Confirmed, 1, 0)
		})},
		{"resolved-somehow", LawTry, `resolution "lost"`, onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			return b.resolve("lost", 1, 0)
		})},
		{"resolved-nacked-again", LawTry, "with again 1", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			return b.add(1, &event.MemberResolved{Again: 1, Pos: pos(0), Resolution: event.Nacked, Try: 1})
		})},
		{"resolved-again-2", LawTry, "with again 2", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			return b.add(1, &event.MemberResolved{Again: 2, Pos: pos(0), Resolution: event.Refused, Try: 1})
		})},
		{"resolved-without-try", LawTry, "of try 0", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			return b.resolve(event.Confirmed, 0, 0)
		})},
		{"late-confirm-of-confirmed", LawTry, "late confirm", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.add(1, &event.MemberConfirmedLate{Pos: pos(0), Try: 1})
		})},
		{"late-confirm-twice", LawTry, "late confirm", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			b.add(1, &event.MemberConfirmedLate{Pos: pos(0), Try: 1})
			return b.add(1, &event.MemberConfirmedLate{Pos: pos(0), Try: 1})
		})},
		{"ruled-confirmed", LawRuling, "not ambiguous", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.rule(event.RuledDelivered, 1, 0)
		})},
		{"ruled-twice", LawRuling, "not any more", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			b.rule(event.RuledNotDelivered, 1, 0)
			return b.rule(event.RuledDelivered, 1, 0)
		})},
		{"ruled-somehow", LawRuling, `ruling "perhaps"`, onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			b.resolve(event.Ambiguous, 1, 0)
			return b.rule("perhaps", 1, 0)
		})},
	}
}

func (b *book) again(t event.Try, ns ...uint64) {
	b.add(1, &event.MemberResolved{Again: 1, Pos: pos(ns...), Resolution: event.Refused, Reason: "paused", Try: t})
}

// slowly spends n tries of member 0.
func (b *book) slowly(n event.Try) {
	for t := event.Try(1); t <= n; t++ {
		b.intend(t, 0)
		b.again(t, 0)
		b.wait(100)
	}
}

func (b *book) rule(r event.Ruling, t event.Try, ns ...uint64) uint64 {
	return b.add(1, &event.MemberRuled{Pos: pos(ns...), Ruling: r, Try: t, Why: "seen in the inbox"})
}

func brokenFacts() []brokenCase {
	return []brokenCase{
		{"facts-nobody", LawFacts, "names no member", onRunning(func(b *book) uint64 { return b.intend(1) })},
		{"facts-outside", LawFacts, "position 10", onRunning(func(b *book) uint64 {
			return b.outcome(event.OutcomeSucceeded, 1, 10)
		})},
		{"facts-outcome-unknown", LawFacts, `outcome "perhaps"`, onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.outcome("perhaps", 1, 0)
		})},
		{"facts-outcome-not-intended", LawTry, "never intended", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.outcome(event.OutcomeSucceeded, 2, 0)
		})},
		{"facts-missed-waiting", LawFacts, "never released", onRunning(func(b *book) uint64 {
			return b.add(1, &event.MemberMissed{Pos: pos(0)})
		})},
		{"facts-withheld-in-flight", LawFacts, "in flight", onRunning(func(b *book) uint64 {
			b.intend(1, 0)
			return b.add(1, &event.MemberWithheld{Pos: pos(0), Reason: "held"})
		})},
		{"facts-withheld-twice", LawFacts, "withheld before", onRunning(func(b *book) uint64 {
			b.add(1, &event.MemberWithheld{Pos: pos(0), Reason: "held"})
			return b.add(1, &event.MemberWithheld{Pos: pos(0), Reason: "held"})
		})},
		{"returned-waiting", LawTry, "never intended", onRunning(func(b *book) uint64 {
			b.capture(14, 1)
			return b.back(14, 0, 1, 0)
		})},
		{"returned-without-try", LawFacts, "without a try", onRunning(func(b *book) uint64 {
			b.moved(0)
			b.capture(14, 1)
			return b.back(14, 0, 0, 0)
		})},
		{"returned-again-first", LawFacts, "again is 1", onRunning(func(b *book) uint64 {
			b.moved(0)
			b.capture(14, 1)
			return b.back(14, 0, 1, 1)
		})},
		{"returned-late-try-unflagged", LawFacts, "again is 0", onRunning(func(b *book) uint64 {
			b.slowly(event.MaxTries - 1)
			b.intend(event.MaxTries, 0)
			b.capture(14, 2)
			b.back(14, 0, event.MaxTries, 0)
			return b.back(15, 0, event.MaxTries, 0)
		})},
		{"returned-twice-unflagged", LawFacts, "again is 0", onRunning(func(b *book) uint64 {
			b.moved(0)
			b.capture(14, 2)
			b.back(14, 0, 1, 0)
			return b.back(15, 0, 1, 0)
		})},
		{"returned-position-of-two", LawFacts, "was envelope 1 before", onRunning(func(b *book) uint64 {
			b.moved(0)
			b.capture(14, 2)
			b.back(14, 0, 1, 0)
			return b.put(event.Subject{Env: 15, Gen: 1}, &event.EnvelopeReturned{Again: 1, Parent: 2, Pos: 0, Try: 1})
		})},
		{"returned-envelope-of-two", LawFacts, "stands at positions 0 and 1", onRunning(func(b *book) uint64 {
			b.moved(0, 1)
			b.capture(14, 2)
			b.back(14, 0, 1, 0)
			return b.put(event.Subject{Env: 15, Gen: 1}, &event.EnvelopeReturned{Parent: 1, Pos: 1, Try: 1})
		})},
	}
}

func brokenEnvelopes() []brokenCase {
	one := pos(1)
	// after applies bodies to a ledger with one envelope; the last one is wrong.
	after := func(bodies ...event.Body) func(b *book) uint64 {
		return func(b *book) uint64 {
			b.capture(1, 1)
			var seq uint64
			for _, body := range bodies {
				seq = b.add(0, body)
			}
			return seq
		}
	}
	return []brokenCase{
		{"envelopes-gap", LawEnvelope, "from number 3, the last one was 1", onNew(func(b *book) uint64 {
			b.capture(1, 1)
			return b.capture(3, 1)
		})},
		{"envelopes-overlap", LawEnvelope, "from number 2, the last one was 2", onNew(func(b *book) uint64 {
			b.capture(1, 2)
			return b.capture(2, 1)
		})},
		{"envelopes-none", LawEnvelope, "captured are 0", onNew(func(b *book) uint64 {
			b.capture(1, 1)
			return b.put(event.Subject{Env: 2}, &event.EnvelopeCaptured{List: b.object("list 1+1")})
		})},
		{"envelopes-settled-unknown", LawEnvelope, "captured are 1 to 1", onNew(after(&event.EnvelopeSettled{Envs: pos(1, 2)}))},
		{"envelopes-settled-twice", LawEnvelope, "settled before", onNew(after(&event.EnvelopeSettled{Envs: one}, &event.EnvelopeSettled{Envs: one}))},
		{"envelopes-merged-settled", LawEnvelope, "settled before", onNew(after(&event.EnvelopeSettled{Envs: one}, &event.EnvelopeMerged{Envs: one}))},
		{"envelopes-purged-held", LawEnvelope, "held, or purged", onNew(after(&event.EnvelopeHeld{Envs: one}, &event.EnvelopePurged{Envs: one}))},
		{"envelopes-purged-twice", LawEnvelope, "purged before", onNew(after(&event.EnvelopePurged{Envs: one}, &event.EnvelopePurged{Envs: one}))},
		{"envelopes-held-purged", LawEnvelope, "purged before", onNew(after(&event.EnvelopePurged{Envs: one}, &event.EnvelopeHeld{Envs: one}))},
		{"envelopes-resolved-purged", LawEnvelope, "purged before", onNew(after(&event.EnvelopePurged{Envs: one}, &event.EnvelopeResolved{Envs: one}))},
		{"envelopes-viewed-purged", LawEnvelope, "purged before", onNew(after(&event.EnvelopePurged{Envs: one}, &event.EnvelopeViewed{Envs: one}))},
		{"envelopes-overdue-purged", LawEnvelope, "purged before", onNew(after(&event.EnvelopePurged{Envs: one}, &event.EnvelopeOverdue{Envs: one}))},
		{"envelopes-expired-held", LawEnvelope, "was held", onNew(after(&event.EnvelopeHeld{Envs: one}, &event.EnvelopeExpired{Envs: one}))},
		{"envelopes-unheld-free", LawEnvelope, "not held", onNew(after(&event.EnvelopeUnheld{Envs: one}))},
		{"envelopes-unheld-unknown", LawEnvelope, "captured are 1 to 1", onNew(after(&event.EnvelopeUnheld{Envs: pos(2)}))},
		{"envelopes-annotated-unknown", LawEnvelope, "captured are 1 to 1", onNew(after(&event.EnvelopeAnnotated{Envs: pos(2)}))},
		{"envelopes-classified-unknown", LawEnvelope, "captured are 1 to 1", onNew(after(&event.EnvelopeClassified{Envs: pos(0)}))},
		{"source-pinned-without-reason", LawSource, `cluster "b", vhost "x" is pinned instead of cluster "a", vhost "x", without a reason`, onNew(func(b *book) uint64 {
			b.add(0, &event.SourcePinned{Broker: "RabbitMQ", Cluster: "a", VHost: "x"})
			return b.add(0, &event.SourcePinned{Broker: "RabbitMQ", Cluster: "b", VHost: "x"})
		})},
		{"source-captured-elsewhere", LawSource, `captured in vhost "", pinned is vhost "x"`, onNew(func(b *book) uint64 {
			b.add(0, &event.SourcePinned{Broker: "RabbitMQ", Cluster: "a", VHost: ""})
			b.capture(1, 1)
			b.add(0, &event.SourcePinned{Broker: "RabbitMQ", Cluster: "a", VHost: "x", Why: "the vhost was renamed"})
			return b.capture(2, 1)
		})},
		{"envelopes-assigned-nothing", LawEnvelope, "no envelope", onNew(after(&event.EnvelopeAssigned{}))},
		{"envelopes-child-is-parent", LawEnvelope, "cannot be the parent", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.back(1, 0, 1, 0)
		})},
		{"envelopes-child-unknown", LawEnvelope, "captured are 1 to 13", onRunning(func(b *book) uint64 {
			b.moved(0)
			return b.back(14, 0, 1, 0)
		})},
		{"envelopes-child-of-two", LawEnvelope, "child of another", onRunning(func(b *book) uint64 {
			b.moved(0, 1)
			b.capture(14, 1)
			b.back(14, 0, 1, 0)
			return b.back(14, 1, 1, 0)
		})},
	}
}
