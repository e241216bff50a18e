// Package metrics names what redrive measures, and writes the alerts that follow
// from a policy.
//
// # What is measured
//
// A quarantine is a queue at a broker and what was captured from it: capture
// empties the queue, so neither number alone says how much lies there. Both carry
// the label queue, the name of the quarantine queue, and are added up by it.
//
// # What is not known
//
// A number that is not known has no sample. It is never 0: a rule that adds up
// what is known can only be too small, and an alert of its own says that
// something is missing.
//
// # Labels from messages
//
// The values of reason, consumer_version and schema_version come out of
// messages. Who exports them bounds how many different ones there are, and calls
// the rest "other".
package metrics

// Metrics of a quarantine.
const (
	// BrokerReady is how many messages wait in the queue at the broker, a gauge
	// with the label queue. There is no sample while the broker does not tell.
	BrokerReady = "redrive_broker_ready"
	// Open is how many captured messages are open: neither resolved, released nor
	// purged. A gauge with the labels queue, reason and owner. The reason is the
	// one that decided class and owner: of a message's reason and its last reason
	// the first that the policy knows, else the first. Each reason of the policy
	// has a sample, also when it is 0.
	Open = "redrive_quarantine_open"
	// Arrivals counts captured messages, with the labels queue, reason, owner,
	// consumer_version and schema_version. It is counted from the ledger, so that
	// a restart does not begin at 0 again.
	Arrivals = "redrive_quarantine_arrivals_total"
	// Oldest is the time in seconds since the first death of the open message
	// that died first, a gauge with the labels queue, reason and owner. There is
	// no sample where nothing is open.
	Oldest = "redrive_quarantine_oldest_seconds"
)

// Metrics that the rules record.
const (
	// Depth is what is known to lie in a quarantine: BrokerReady and Open, by
	// queue.
	Depth = "redrive:quarantine_depth"
	// New is how many arrived within window, by queue, consumer version and
	// schema version. A version that was not there before counts in full.
	New = "redrive:quarantine_new"
)

// Labels.
const (
	LabelQueue    = "queue"
	LabelReason   = "reason"
	LabelOwner    = "owner"
	LabelConsumer = "consumer_version"
	LabelSchema   = "schema_version"
	LabelClass    = "class"
	LabelSeverity = "severity"
)
