package api

// The documents of the short forms, which are made of the operations of this
// package.

// Peek is what the store holds of a dead-letter queue, and what the broker still
// has of it.
type Peek struct {
	Queue       string          `json:"queue"`
	BrokerReady *int            `json:"broker_ready"` // not captured yet, null when unknown
	Unknown     string          `json:"unknown,omitempty"`
	Capture     string          `json:"capture,omitempty"` // the command that captures what the broker has
	Groups      []EnvelopeGroup `json:"groups"`            // of all that match, largest first
	Total       uint64          `json:"total"`
	// Envelopes are the first that match, in the order of the groups. The first of
	// each group has its diagnostic.
	Envelopes []Envelope `json:"envelopes"`
	Unlisted  uint64     `json:"unlisted"` // match and are not listed
}

// Replay is what a replay by one command did.
type Replay struct {
	Queue      string          `json:"queue"`
	Captured   uint64          `json:"captured"`
	Plan       Plan            `json:"plan"`
	Generation Generation      `json:"generation"`
	Attempts   []ReplayAttempt `json:"attempts"` // at most the first 100 members, in release order
	// Waits is the command that goes on, when something has to happen first.
	Waits     string          `json:"waits,omitempty"`
	Remaining []EnvelopeGroup `json:"remaining"` // still open, with owners
	Statement string          `json:"statement"`
}

// ReplayAttempt is what became of one message.
type ReplayAttempt struct {
	Envelope    string `json:"envelope"`
	MessageID   string `json:"message_id,omitempty"`
	Attempt     uint64 `json:"attempt"` // of its lineage; 2 is the first replay
	Tries       uint64 `json:"tries"`   // publishes
	Disposition string `json:"disposition"`
	Code        string `json:"code,omitempty"`
	Returned    string `json:"returned_as,omitempty"` // the envelope as which it came back
	Reason      string `json:"returned_for,omitempty"`
}
