// Package policy is the one place for the numbers and words of a service's
// failure handling: which reason means what, who owns it, how often and how
// late a message is tried again, and where it goes then. The worker, the
// broker's topology, capture, alerts and the runbook's commands all read it.
package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
)

// FormatVersion is the version of the file format.
const FormatVersion = 1

// Action is what becomes of a message that failed for a reason.
type Action string

// Actions.
const (
	ActionRetry      Action = "retry"      // again after a delay, quarantined when the retries are used up
	ActionQuarantine Action = "quarantine" // moved aside at once
	ActionDrop       Action = "drop"       // acknowledged and logged: its effect is there already
)

// Reason is what a failure reason means.
type Reason struct {
	Class  event.Class
	Action Action   // "" follows from the class, see Reason.Does
	Owner  string   // who owns the business resolution, as people write it
	Codes  []string // error codes that mean this reason: an HTTP status, an SQLSTATE
}

// Does is the action: the one given, else retry for transient and unclassified
// reasons and quarantine for all others.
func (r Reason) Does() Action {
	switch {
	case r.Action != "":
		return r.Action
	case r.Class == event.Transient || r.Class == event.Unclassified:
		return ActionRetry
	}
	return ActionQuarantine
}

// NeverRetry lists error codes that quarantine on sight.
type NeverRetry struct {
	Codes []string
	// Reason is the name that a message gets, with {code} for the code.
	Reason string
	Owner  string
}

// Rule gives a reason to messages that other workers dead-lettered. All of its
// conditions must hold; the first rule that holds decides.
type Rule struct {
	Queue  string // the queue in which the message died, "" for any
	Header string // a header that must be there …
	Equals string // … with this text, "" for any
	Error  string // RE2, found in the error text
	When   string // expression of the predicate language
	Reason string
}

// Mask hides what its pattern (RE2) finds in texts for people, except for the
// groups that it captures.
type Mask struct{ Name, Pattern string }

// RetryMode is the shape of the retry topology.
type RetryMode string

// Modes.
const (
	// PerDelay has one queue for each delay: nothing waits behind a longer delay.
	PerDelay RetryMode = "per-delay"
	// Shared has one queue, where each message carries its own expiration. A
	// message waits there behind every longer delay before it, since a broker
	// expires messages at the head of a queue only.
	Shared RetryMode = "shared"
)

// Headers are the names of the headers that the worker writes and that capture
// reads.
type Headers struct {
	Reason, LastReason, Attempts, FirstFailed, LastError, ErrorCode, TraceID, Consumer string
}

// DefaultHeaders are the names that stand in the contract.
func DefaultHeaders() Headers {
	return Headers{Reason: "x-death-reason", LastReason: "x-last-reason", Attempts: "x-retry-count", FirstFailed: "x-first-failed-at",
		LastError: "x-last-error", ErrorCode: "x-error-code", TraceID: "x-trace-id", Consumer: "x-consumer-version"}
}

// Words are the reasons that the worker gives by itself.
type Words struct {
	Malformed string // the body does not fulfil its schema. Defaults to schema_invalid
	Exhausted string // the retries are used up. Defaults to retries_exhausted
	Unknown   string // an error that nothing maps. Defaults to unknown
	Duplicate string // its effect is there already. Defaults to duplicate
	Parked    string // follows a quarantined message of its key. Defaults to predecessor_quarantined
	Crash     string // the broker gave up on it. Defaults to worker_crash
}

// DefaultWords are the words of the contract.
func DefaultWords() Words {
	return Words{Malformed: "schema_invalid", Exhausted: "retries_exhausted", Unknown: "unknown", Duplicate: "duplicate",
		Parked: "predecessor_quarantined", Crash: "worker_crash"}
}

// Ordering says what the messages of one key owe each other.
type Ordering struct {
	Key      string // expression that finds the key, "" for none
	Sequence string // expression that finds the number in the key, "" for none
	// OnFailure is continue (the default) or park: later messages of a key with
	// a quarantined one follow it aside.
	OnFailure string
}

// Alerts are the limits of the alerts of a queue.
type Alerts struct {
	For   time.Duration // how long anything may lie there. Defaults to 10m
	Depth int           // how much may lie there at any time. Defaults to 50
}

// Queue is how one queue is worked.
type Queue struct {
	Name     string
	Kind     string // quorum (default) or classic
	Prefetch int    // per replica, 1 to 1000. Defaults to 10
	Replicas int    // of the worker; for the arithmetic of check and show
	// Retries is how often a message is tried again: it runs Retries + 1 times.
	Retries int
	// DeliveryLimit is the broker's own limit, which equals Retries.
	DeliveryLimit int
	Delays        []time.Duration // before each retry; the last one repeats
	Jitter        float64         // share of a delay, both ways: 0.2 for ±20 %
	Mode          RetryMode
	RetryQueue    string // base name. Defaults to NAME.retry
	Quarantine    string // the dead-letter queue. Defaults to NAME.dlq
	Retention     time.Duration
	Timeout       time.Duration // of one run of the handler; 0 for none
	// Schemas are JSON Schema files (draft 2020-12) by event type, "*" for all
	// others, relative to the policy file.
	Schemas  map[string]string
	Headers  Headers
	Words    Words
	Ordering Ordering
	// Operation is the expression that finds the idempotency key. Defaults to
	// that of capture.
	Operation string
	// Horizon is how long the deduplication store remembers, 0 for no store.
	Horizon time.Duration
	Alerts  Alerts
}

// Policy is one policy. The zero Policy knows no reason.
type Policy struct {
	// Version is recorded on every envelope that was classified with it.
	Version string
	Reasons map[string]Reason
	// DefaultOwner owns what no reason assigns. Defaults to "unassigned".
	DefaultOwner string
	NeverRetry   NeverRetry
	Rules        []Rule
	Masks        []Mask
	Queues       []Queue
}

// Unassigned is the owner of envelopes for which the policy names nobody.
const Unassigned = "unassigned"

// neverRetryReason is the reason for a code that is never retried.
func (p *Policy) neverRetryReason(code string) string {
	return strings.ReplaceAll(p.NeverRetry.Reason, codePlace, code)
}

// neverRetried reports whether a reason is one of the codes that are never
// retried.
func (p *Policy) neverRetried(reason string) bool {
	return slices.ContainsFunc(p.NeverRetry.Codes, func(code string) bool { return p.neverRetryReason(code) == reason })
}

// Reason says what a reason means: the entry of that name, else what is said of
// the codes that are never retried. ok is false for reasons of which the policy
// says nothing.
func (p *Policy) Reason(name string) (r Reason, ok bool) {
	if r, ok = p.Reasons[name]; ok {
		return r, true
	}
	if p.neverRetried(name) {
		return Reason{Class: event.Permanent, Owner: p.NeverRetry.Owner}, true
	}
	return Reason{}, false
}

// Knows reports whether the policy says something about a reason.
func (p *Policy) Knows(reason string) bool {
	_, ok := p.Reason(reason)
	return ok
}

// ReasonOf is the reason that an error code means. ok is false when the policy
// does not say.
func (p *Policy) ReasonOf(code string) (reason string, ok bool) {
	if code == "" {
		return "", false
	}
	if slices.Contains(p.NeverRetry.Codes, code) {
		return p.neverRetryReason(code), true
	}
	for name, r := range p.Reasons {
		if slices.Contains(r.Codes, code) { // one at most
			return name, true
		}
	}
	return "", false
}

// Classify says what the first known of the reasons means. Unknown ones are
// unclassified and belong to the default owner: they are never dropped.
func (p *Policy) Classify(reasons ...string) (event.Class, string) {
	owner := p.DefaultOwner
	if owner == "" {
		owner = Unassigned
	}
	for _, name := range reasons {
		if r, ok := p.Reason(name); ok {
			if r.Owner != "" {
				owner = r.Owner
			}
			return r.Class, owner
		}
	}
	return event.Unclassified, owner
}

// Queue returns how a queue is worked; ok is false when the policy does not say.
func (p *Policy) Queue(name string) (q Queue, ok bool) {
	for _, q := range p.Queues {
		if q.Name == name {
			return q, true
		}
	}
	return Queue{}, false
}

// Quarantines returns how the queue is worked whose dead messages lie in a
// queue; ok is false when the policy does not say. Several queues may share a
// quarantine: their headers and words are the same, and this is the first.
func (p *Policy) Quarantines(name string) (q Queue, ok bool) {
	for _, q := range p.Queues {
		if q.Quarantine == name {
			return q, true
		}
	}
	return Queue{}, false
}
