package api

import "time"

// Moment is one step in the life of a generation.
type Moment struct {
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq"`  // position in the ledger
	Kind   string    `json:"kind"` // of the record
	By     string    `json:"by"`
	As     string    `json:"as,omitempty"` // asserted
	Why    string    `json:"why,omitempty"`
	Detail string    `json:"detail,omitempty"` // what else the record says, NAME VALUE, …
}

// ThresholdState is the last recorded evaluation of one signal. What the
// numbers mean is said by the rule.
type ThresholdState struct {
	Signal  string    `json:"signal"`
	Scope   string    `json:"scope,omitempty"` // which of several rules of the signal
	Rule    string    `json:"rule"`
	Bad     uint64    `json:"bad"`
	Of      uint64    `json:"of"`
	Limit   uint64    `json:"limit"`
	Floor   uint64    `json:"floor,omitempty"` // below which a ratio says nothing
	Value   uint64    `json:"value,omitempty"` // last measured, of a signal from outside
	Result  string    `json:"result"`
	Action  string    `json:"action"`
	At      time.Time `json:"at"`
	Changes uint64    `json:"changes"` // how often the result changed
}

// Series is what happened over time, in buckets of equal length. The first
// bucket begins at From.
type Series struct {
	From   time.Time `json:"from"`
	Bucket string    `json:"bucket"` // duration
	Points []Point   `json:"points"`
}

// Point counts what the records of one bucket say.
type Point struct {
	At            time.Time `json:"at"`
	Intents       uint64    `json:"intents"`
	Confirmed     uint64    `json:"confirmed"`
	Undelivered   uint64    `json:"undelivered"` // returned, nacked or refused
	Ambiguous     uint64    `json:"ambiguous"`   // publishes in doubt
	Succeeded     uint64    `json:"succeeded"`
	Rejected      uint64    `json:"rejected"`
	Deduplicated  uint64    `json:"deduplicated"`
	EffectInDoubt uint64    `json:"effect_in_doubt"`
	Requarantined uint64    `json:"requarantined"`
	Missed        uint64    `json:"missed"` // outcome deadlines that passed
}

// MembersRequest asks for a page of the members of a generation.
type MembersRequest struct {
	ID    string `json:"id"`
	From  uint64 `json:"from,omitempty"` // position
	Limit int    `json:"limit,omitempty"`
	// WithIdentity adds operations and message ids, which come from messages: it
	// needs a reason, which is in the ledger before they leave.
	WithIdentity bool   `json:"with_identity,omitempty"`
	Why          string `json:"why,omitempty"`
	As           string `json:"as,omitempty"`
}

// MembersPage is one page of members in release order.
type MembersPage struct {
	Members []MemberRow `json:"members"`
	Next    uint64      `json:"next,omitempty"` // position to go on from, 0 at the end
}

// MemberRow is one member, without anything that its message says.
type MemberRow struct {
	Position    uint64     `json:"position"`
	Envelope    string     `json:"envelope"`
	Disposition string     `json:"disposition"`
	Code        string     `json:"code,omitempty"` // why it was withheld or not delivered
	Custody     string     `json:"custody"`
	Reason      string     `json:"reason"` // why its message died
	Class       string     `json:"class"`
	Owner       string     `json:"owner"`
	Tries       uint64     `json:"tries"`
	Effect      string     `json:"effect,omitempty"` // effected, double, not_effected: what business data shows
	Captured    time.Time  `json:"captured"`
	FirstDied   *time.Time `json:"first_died,omitempty"`
	Confirmed   *time.Time `json:"confirmed,omitempty"`
	Operation   string     `json:"operation,omitempty"`
	MessageID   string     `json:"message_id,omitempty"`
}
