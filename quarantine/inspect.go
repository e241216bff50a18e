package quarantine

import (
	"cmp"
	"slices"
	"time"
)

// Inspection is what a broker says about a queue that may lose messages, at one
// moment.
type Inspection struct {
	Queue string
	Kind  string // as in Depth
	// Consumers counts those of the queue now, the caller's own included. -1
	// when unknown.
	Consumers int
	// Findings are in the order of SortFindings. What could not be looked at is
	// among them, with the severity Unknown: silence never stands for health.
	Findings []Finding
	At       time.Time // when the broker answered
}

// Finding is one thing about a queue or an exchange that somebody should know
// before messages are taken from it or given to it.
type Finding struct {
	Code     string // stable, one of the constants below
	Severity Severity
	// Subject is the queue or exchange that the finding is about, "" for all of
	// them. It is not always the one that was asked about: a queue also loses
	// what its feeders do not hand on.
	Subject string
	Text    string // what is so, and what follows from it
	Advice  string // what to do about it, "" when nothing can be done
}

// Severity says what a finding means for messages.
type Severity string

// Severities, the worst first.
const (
	Blocks  Severity = "blocks"  // it cannot work, or the attempt itself would lose messages
	Loses   Severity = "loses"   // messages are lost, or will be when a limit is reached
	Risks   Severity = "risks"   // messages wait, go elsewhere as well, or are not seen
	Unknown Severity = "unknown" // it could not be looked at
)

// severities is the order of SortFindings.
var severities = []Severity{Blocks, Loses, Risks, Unknown}

// Codes of findings. They are only ever added; docs/operating.md explains each.
const (
	// About a queue, whoever uses it.
	FoundStream         = "stream"
	FoundNotDurable     = "not_durable"
	FoundAutoDelete     = "auto_delete"
	FoundQueueExpires   = "queue_expires"
	FoundMessageTTL     = "message_ttl"
	FoundDropHead       = "length_drop_head"
	FoundRejectPublish  = "length_reject_publish"
	FoundDeliveryLimit  = "delivery_limit"
	FoundQueueState     = "queue_state"
	FoundDeduplication  = "deduplication"
	FoundExclusive      = "exclusive"
	FoundSingleActive   = "single_active_consumer"
	FoundOtherConsumers = "other_consumers" // added by the caller, who knows which are its own

	// About the way of dead letters.
	FoundDLXMissing     = "dlx_missing"
	FoundDLXUnroutable  = "dlx_unroutable"
	FoundAtMostOnce     = "at_most_once"
	FoundFallsBack      = "strategy_falls_back"
	FoundStuck          = "dead_letters_stuck"
	FoundNoDLX          = "no_dlx"
	FoundLimitNoDLX     = "limit_without_dlx"
	FoundAlternate      = "alternate_exchange"
	FoundFeedersUnknown = "feeders_unknown"

	// About an exchange that messages are released to.
	FoundInternal         = "internal_exchange"
	FoundDelayed          = "delayed_exchange"
	FoundNoRoute          = "no_receiver"
	FoundReceiversUnknown = "receivers_unknown"

	// About the look itself.
	FoundNotInspected = "not_inspected"
)

// SortFindings puts the worst first, then orders by code and subject, and drops
// what is there twice.
func SortFindings(fs []Finding) []Finding {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(fs)
}
