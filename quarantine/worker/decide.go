package worker

import (
	"slices"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Act is what becomes of a delivery.
type Act string

// Acts.
const (
	ActDone       Act = "done"       // the effect is there: acknowledge
	ActDrop       Act = "drop"       // it was there before: acknowledge, report deduplicated
	ActReject     Act = "reject"     // the business said no: acknowledge, report rejected
	ActRetry      Act = "retry"      // copy to the retry queue of the run, count it, acknowledge
	ActQuarantine Act = "quarantine" // copy to the quarantine queue, acknowledge
	ActHold       Act = "hold"       // keep it, wait, try again: nothing is counted
	ActPostpone   Act = "postpone"   // held for too long: copy to the last retry queue, count unchanged
)

// Decision is what becomes of a delivery, and why.
type Decision struct {
	Act    Act
	Class  event.Class
	Reason string // stable name
	// Last is the reason of the run that used the retries up, "" otherwise: then
	// Reason says that they are used up.
	Last      string
	Owner     string
	Code      string
	Reference string
	Text      string        // of the error, as it came: neither masked nor cut
	After     time.Duration // of ActHold: how long the dependency asks to be left alone
}

// Words that reasons are made of when neither the handler nor the policy names
// one.
const (
	reasonTooLarge = "header_too_large"
	reasonConflict = "identity_conflict"
	reasonNoRoom   = "cannot_be_copied"
)

// maxReason bounds names of reasons and codes in bytes: they stand in headers.
const maxReason = 128

// Decide says what the failure f of a run means under a policy. Retries is how
// often the message was retried before.
//
// What a handler says about an effect stands: Duplicate, Rejected and Ambiguous
// are obeyed whatever the policy says about their reason. A never-retry code is
// next. For the rest the reason decides, which is the handler's or the one that
// the policy gives to the code: its action and its class in the policy come
// before the class that the handler gave, so that the numbers and words are in
// one place.
func Decide(p *policy.Policy, q *policy.Queue, f *Failure, retries int) Decision {
	d := Decision{Class: f.Class, Reason: f.Reason, Code: f.Code, Reference: f.Reference, Text: f.Error(), After: f.After}
	d.Code = cut(d.Code, maxReason)
	known := d.named(p, q, f)
	d.Act = d.act(f, known, p.NeverRetry)
	d.exhaust(q, retries)
	_, d.Owner = p.Classify(d.Reason, d.Last)
	if p.NeverRetry.Owner != "" && slices.Contains(p.NeverRetry.Codes, d.Code) {
		d.Owner = p.NeverRetry.Owner
	}
	return d
}

// exhaust turns a retry into a quarantine when no retry is left.
func (d *Decision) exhaust(q *policy.Queue, retries int) {
	if d.Act == ActRetry && retries >= q.Retries {
		d.Act = ActQuarantine
		d.Last, d.Reason = d.Reason, q.Words.Exhausted
	}
}

// named finds the reason and its class, and returns what the policy knows of it.
func (d *Decision) named(p *policy.Policy, q *policy.Queue, f *Failure) policy.Reason {
	byCode, _ := p.ReasonOf(d.Code)
	switch {
	case f.duplicate:
		d.Reason = q.Words.Duplicate
	case byCode != "" && (d.Reason == "" || slices.Contains(p.NeverRetry.Codes, d.Code)):
		d.Reason = byCode
	}
	if d.Reason == "" {
		d.Reason = q.Words.Unknown
		if f.Class != event.Unclassified {
			d.Reason = f.Class.String()
		}
	}
	d.Reason = cut(d.Reason, maxReason)
	known, ok := p.Reasons[d.Reason]
	if !ok {
		known = policy.Reason{Class: f.Class}
	}
	if d.stands(f) {
		return known
	}
	if ok && known.Class != event.Unclassified {
		d.Class = known.Class
	}
	return known
}

// stands tells whether f speaks of an effect, which no policy knows better.
func (d *Decision) stands(f *Failure) bool {
	return f.duplicate || f.Class == event.AmbiguousOutcome || f.Class == event.BusinessRejection
}

// act is what the failure asks for while there are retries left.
func (d *Decision) act(f *Failure, known policy.Reason, never policy.NeverRetry) Act {
	switch {
	case f.duplicate:
		return ActDrop
	case f.Class == event.AmbiguousOutcome:
		return ActQuarantine
	case f.Class == event.BusinessRejection:
		return ActReject
	case d.Code != "" && slices.Contains(never.Codes, d.Code):
		d.Class = event.Permanent
		return ActQuarantine
	case known.Action == "" && d.Class == event.BusinessRejection:
		return ActReject
	case known.Action == "" && d.Class == event.Systemic:
		return ActHold
	}
	known.Class = d.Class
	switch known.Does() {
	case policy.ActionDrop:
		return ActDrop
	case policy.ActionRetry:
		return ActRetry
	}
	return ActQuarantine
}

// cut bounds a name without asking what it holds.
func cut(s string, limit int) string { return quarantine.CleanText(s, limit) }
