package verify

import (
	"crypto/sha256"

	"github.com/redrivehq/redrive/ledger/event"
)

// commitment is one of a candidate.
func commitment(n byte) string { return event.Digest(sha256.Sum256([]byte{n})).String() }

// by writes a record of somebody.
func (b *book) by(who string, subj event.Subject, body event.Body) uint64 {
	r := b.next
	r.Seq, r.Subj, r.Body, r.Actor.Subject = uint64(len(b.lines))+1, subj, body, who
	return b.write(&r)
}

func brokenRepairs() []brokenCase {
	env := event.Subject{Env: 1}
	made := &event.EnvelopeRepaired{Candidate: 1, Commitment: commitment(1)}
	command := &event.EnvelopeRepaired{Candidate: 1, Commitment: commitment(1), NewCommand: 1}
	approved := &event.EnvelopeRepairApproved{Candidate: 1, Commitment: commitment(1)}
	// steps writes records about the one envelope that there is.
	steps := func(bodies ...event.Body) func(b *book) uint64 {
		return func(b *book) (last uint64) {
			b.capture(1, 1)
			for _, body := range bodies {
				last = b.put(env, body)
			}
			return last
		}
	}
	return []brokenCase{
		{"repair-number-skipped", LawEnvelope, "repair 2 of envelope 1, which has 0", onNew(steps(&event.EnvelopeRepaired{Candidate: 2, Commitment: commitment(1)}))},
		{"repair-number-again", LawEnvelope, "repair 1 of envelope 1, which has 1", onNew(steps(made, made))},
		{"repair-without-commitment", LawEnvelope, "commitment is none", onNew(steps(&event.EnvelopeRepaired{Candidate: 1}))},
		{"repair-of-purged", LawEnvelope, "purged before", onNew(steps(&event.EnvelopePurged{Envs: event.RangesOf(event.EnvelopeNo(1))}, made))},
		{"repair-of-nobody", LawEnvelope, "captured are 1 to 1", onNew(func(b *book) uint64 {
			b.capture(1, 1)
			return b.put(event.Subject{Env: 2}, made)
		})},
		{"repair-chosen-of-purged", LawEnvelope, "purged before", onNew(steps(made, &event.EnvelopePurged{Envs: event.RangesOf(event.EnvelopeNo(1))}, &event.EnvelopeRepairChosen{}))},
		{"repair-chosen-unknown", LawEnvelope, "has 0 repairs", onNew(steps(&event.EnvelopeRepairChosen{Candidate: 1}))},
		{"repair-chosen-withdrawn", LawEnvelope, "withdrawn before", onNew(steps(made, &event.EnvelopeRepairWithdrawn{Candidate: 1}, &event.EnvelopeRepairChosen{Candidate: 1}))},
		{"repair-withdrawn-twice", LawEnvelope, "withdrawn before", onNew(steps(made, &event.EnvelopeRepairWithdrawn{Candidate: 1}, &event.EnvelopeRepairWithdrawn{Candidate: 1}))},
		{"repair-withdrawn-original", LawEnvelope, "not a repair 0", onNew(steps(made, &event.EnvelopeRepairWithdrawn{}))},
		{"repair-chosen-not-approved", LawEnvelope, "nobody approved", onNew(steps(command, &event.EnvelopeRepairChosen{Candidate: 1}))},
		{"repair-approved-by-author", LawEnvelope, "needs no approval", onNew(steps(command, approved))},
		{"repair-approved-without-need", LawEnvelope, "needs no approval", onNew(func(b *book) uint64 {
			steps(made)(b)
			return b.by("os:somebody else", env, approved)
		})},
		{"repair-approved-twice", LawEnvelope, "needs no approval", onNew(func(b *book) uint64 {
			steps(command)(b)
			b.by("os:somebody else", env, approved)
			return b.by("os:somebody else", env, approved)
		})},
		{"repair-approved-another", LawEnvelope, "needs no approval", onNew(func(b *book) uint64 {
			steps(command)(b)
			return b.by("os:somebody else", env, &event.EnvelopeRepairApproved{Candidate: 1, Commitment: commitment(2)})
		})},
	}
}
