package api

// PolicyShow is a policy with everything filled in that its file leaves to
// defaults. Time spans are spelled as in the file: 14d, 12m36s.
type PolicyShow struct {
	File         string            `json:"file"`
	Version      string            `json:"version"`
	DefaultOwner string            `json:"default_owner"`
	Reasons      []PolicyReason    `json:"reasons"` // by name
	NeverRetry   *PolicyNeverRetry `json:"never_retry,omitempty"`
	Rules        []PolicyRule      `json:"rules"`
	Masks        []PolicyMask      `json:"masks"`
	Queues       []PolicyQueue     `json:"queues"`
	// Notes say what follows from the policy and is easily overlooked.
	Notes []PolicyFinding `json:"notes"`
}

// PolicyReason is what a failure reason means.
type PolicyReason struct {
	Name   string   `json:"name"`
	Class  string   `json:"class"`
	Action string   `json:"action"` // retry, quarantine, drop; wait when systemic, acknowledge for a business rejection
	Owner  string   `json:"owner"`
	Codes  []string `json:"codes,omitempty"`
}

// PolicyNeverRetry lists error codes that quarantine on sight.
type PolicyNeverRetry struct {
	Codes  []string `json:"codes"`
	Reason string   `json:"reason"` // with {code} for the code
	Owner  string   `json:"owner"`
}

// PolicyRule gives a reason to messages that other workers dead-lettered.
type PolicyRule struct {
	Queue  string `json:"queue,omitempty"`
	Header string `json:"header,omitempty"`
	Equals string `json:"equals,omitempty"`
	Error  string `json:"error,omitempty"`
	When   string `json:"when,omitempty"`
	Reason string `json:"reason"`
}

// PolicyMask hides what its pattern finds in texts for people.
type PolicyMask struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
}

// PolicyQueue is how a queue is worked.
type PolicyQueue struct {
	Queue         string             `json:"queue"`
	Kind          string             `json:"kind"`
	Replicas      int                `json:"replicas"`
	Prefetch      int                `json:"prefetch"` // of each replica
	Retries       int                `json:"retries"`
	Runs          int                `json:"runs"` // retries + 1
	DeliveryLimit int                `json:"delivery_limit"`
	MaxDeliveries int                `json:"max_deliveries"` // of one message, when both limits eat of it
	Jitter        float64            `json:"jitter"`         // share of a delay, both ways
	RetryMode     string             `json:"retry_mode"`
	Ladder        []PolicyRung       `json:"ladder"`
	LadderTime    string             `json:"ladder_time"`      // all delays together
	OutcomeTime   string             `json:"outcome_deadline"` // 1.2 times the ladder, and five minutes
	Quarantine    string             `json:"quarantine"`
	Retention     string             `json:"retention"`
	Timeout       string             `json:"timeout,omitempty"`
	Schemas       map[string]string  `json:"schemas,omitempty"` // files by event type
	Headers       map[string]string  `json:"headers"`
	Words         map[string]string  `json:"words"`
	Ordering      *PolicyOrdering    `json:"ordering,omitempty"`
	Operation     string             `json:"operation,omitempty"`
	Horizon       string             `json:"horizon,omitempty"`
	Alerts        PolicyAlertsLimits `json:"alerts"`
}

// PolicyRung is one step of a retry ladder.
type PolicyRung struct {
	Run      int    `json:"run"`     // that failed, from 1
	Arrives  int    `json:"arrives"` // retry count with which it came
	Queue    string `json:"queue"`   // where the message waits
	Delay    string `json:"delay"`
	Earliest string `json:"earliest"`
	Latest   string `json:"latest"`
	Sum      string `json:"sum"` // of the delays so far
}

// PolicyOrdering says what the messages of one key owe each other.
type PolicyOrdering struct {
	Key       string `json:"key"`
	Sequence  string `json:"sequence,omitempty"`
	OnFailure string `json:"on_failure"`
}

// PolicyAlertsLimits are the limits of the alerts of a queue.
type PolicyAlertsLimits struct {
	For   string `json:"for"`
	Depth int    `json:"depth"`
}
