package api

import "time"

// None is an empty request.
type None struct{}

// StatusInfo says who holds the store and how it stands.
type StatusInfo struct {
	PID       int       `json:"pid"`
	Command   string    `json:"command"`
	Since     time.Time `json:"since"`
	Version   string    `json:"version"`
	Records   uint64    `json:"records"`
	Envelopes uint64    `json:"envelopes"`
	Open      uint64    `json:"open"`
	Running   []uint32  `json:"running"` // generations that this process drives

	Captures []CaptureState `json:"captures,omitempty"` // queues that this process captures
	Parked   []ParkedQueue  `json:"parked"`             // queues that nobody captures until a person says so
	Late     []LateOwner    `json:"late"`               // who has open envelopes at or near their retention deadline
}

// LateOwner counts the open envelopes of one owner by their retention deadline.
type LateOwner struct {
	Owner   string `json:"owner"`
	Overdue uint64 `json:"overdue"`
	Soon    uint64 `json:"due_within_a_day"`
}

// CaptureState says how the capture of one queue stands.
type CaptureState struct {
	Queue  string    `json:"queue"`
	State  string    `json:"state"`            // connecting, capturing, waiting
	Detail string    `json:"detail,omitempty"` // what it waits for
	Since  time.Time `json:"since"`
}

// ParkedQueue is a queue whose capture is stopped.
type ParkedQueue struct {
	Queue  string    `json:"queue"`
	Reason string    `json:"reason"` // stable code
	Since  time.Time `json:"since"`
	Why    string    `json:"why"`    // what happened, and what it has cost
	Advice string    `json:"advice"` // what to do
}

// CaptureRequest asks for a one-shot capture.
type CaptureRequest struct {
	Queues   []string `json:"queues,omitempty"` // empty: all configured sources
	Max      uint64   `json:"max,omitempty"`    // 0: until the queues are empty
	Prefetch int      `json:"prefetch,omitempty"`
	Follow   bool     `json:"follow,omitempty"` // go on until cancelled
	Unpark   bool     `json:"unpark,omitempty"` // also queues that are parked
}

// CaptureSummary says what a capture did.
type CaptureSummary struct {
	Captured uint64         `json:"captured"`
	Merged   uint64         `json:"merged"`
	Returned uint64         `json:"returned"`
	Queues   []QueueSummary `json:"queues"`
}

// QueueSummary is the part of one queue.
type QueueSummary struct {
	Queue    string `json:"queue"`
	Captured uint64 `json:"captured"`
	Merged   uint64 `json:"merged"`
	Ready    int    `json:"ready"`            // left at the broker, -1 when unknown
	Parked   string `json:"parked,omitempty"` // reason code
	Error    *Error `json:"error,omitempty"`  // why the capture of this queue ended before its work was done
	// Warnings say what loses messages before they are captured, as far as it is
	// known.
	Warnings []Finding `json:"warnings,omitempty"`
}

// Err is what went wrong with the queues, nil when nothing did. Of several
// codes the one counts for which a person is needed.
func (s *CaptureSummary) Err() error {
	var all *Error
	for _, q := range s.Queues {
		switch {
		case q.Error == nil:
		case all == nil:
			all = &Error{Code: q.Error.Code, Message: q.Error.Message}
		default:
			all.Message += "\n" + q.Error.Message
			if q.Error.Code == CodeRefused {
				all.Code = CodeRefused
			}
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// Finding is one thing about a queue or an exchange that loses messages, stops
// work, or could not be looked at.
type Finding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`          // blocks, loses, risks, unknown
	Subject  string `json:"subject,omitempty"` // queue or exchange
	Text     string `json:"text"`
	Advice   string `json:"advice,omitempty"`
}

// DepthRequest asks for the depth of a source queue.
type DepthRequest struct {
	Queue string `json:"queue"`
}

// DepthInfo shows broker and store apart. Unknown is never 0.
type DepthInfo struct {
	Queue       string `json:"queue"`
	BrokerReady *int   `json:"broker_ready"` // null when unknown: it is a number that programs compute with
	Unknown     string `json:"unknown,omitempty"`
	StoreOpen   uint64 `json:"store_open"`
	Sum         *int   `json:"sum"` // of both, null when one of them is unknown
}

// PinRequest ties the data directory to the broker that is configured now.
type PinRequest struct {
	Why string `json:"why"`
	As  string `json:"as,omitempty"`
}

// PinResult says which broker the data directory belonged to, and to which it
// does now. Changed is false when that is the same one.
type PinResult struct {
	Before  *Broker `json:"before,omitempty"`
	Now     Broker  `json:"now"`
	Changed bool    `json:"changed"`
}

// Broker names a broker.
type Broker struct {
	Product string `json:"product"`
	Cluster string `json:"cluster"`
	VHost   string `json:"vhost"`
}

// DoctorReport lists checks of the set-up.
type DoctorReport struct {
	Checks []DoctorCheck `json:"checks"`
}

// DoctorCheck is one check.
type DoctorCheck struct {
	Name   string `json:"name"`
	Result string `json:"result"` // ok, warning, failed, unknown
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
	// Code, Severity and Subject are those of a Finding, when it is one.
	Code     string `json:"code,omitempty"`
	Severity string `json:"severity,omitempty"`
	Subject  string `json:"subject,omitempty"`
}

// EnvelopeQuery selects envelopes. All given fields must hold.
type EnvelopeQuery struct {
	IDs     []string `json:"ids,omitempty"`
	Custody []string `json:"custody,omitempty"`
	Queue   string   `json:"queue,omitempty"`
	Died    string   `json:"died,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Class   string   `json:"class,omitempty"`
	Owner   string   `json:"owner,omitempty"`
	Type    string   `json:"type,omitempty"`
	Lineage string   `json:"lineage,omitempty"`
	Held    bool     `json:"held,omitempty"`
	Overdue bool     `json:"overdue,omitempty"`
	Narrowing
	Cursor uint64 `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"` // 1 to 500, default 100
}

// Narrowing holds the conditions that plans and lists share beyond the first
// ones.
type Narrowing struct {
	Schema      string   `json:"schema,omitempty"`     // version
	OlderThan   string   `json:"older_than,omitempty"` // duration since the first death, or the capture where that is unknown
	NewerThan   string   `json:"newer_than,omitempty"`
	MinAttempts uint16   `json:"min_attempts,omitempty"` // attempt of the lineage, from 1
	MaxAttempts uint16   `json:"max_attempts,omitempty"`
	Generation  string   `json:"generation,omitempty"` // was released by this one, or came back from it; by number or id
	Outcomes    []string `json:"outcomes,omitempty"`   // dispositions that it has in that generation
	Note        string   `json:"note,omitempty"`       // occurs in an annotation
	Where       string   `json:"where,omitempty"`      // expression, see docs/operating.md
}

// EnvelopePage is one page of envelopes, in order of capture.
type EnvelopePage struct {
	Envelopes []Envelope `json:"envelopes"`
	Next      uint64     `json:"next,omitempty"` // cursor of the next page, 0 at the end
}

// EnvelopeGrouping counts envelopes by reason, class and owner.
type EnvelopeGrouping struct {
	Groups []EnvelopeGroup `json:"groups"`
	Total  uint64          `json:"total"`
}

// EnvelopeGroup is one group.
type EnvelopeGroup struct {
	Reason string    `json:"reason"`
	Class  string    `json:"class"`
	Owner  string    `json:"owner"`
	Count  uint64    `json:"count"`
	Oldest time.Time `json:"oldest"`
}

// Envelope is one envelope. In lists the last block is empty.
type Envelope struct {
	ID      string   `json:"id"`
	Number  uint64   `json:"number"`
	Custody string   `json:"custody"`
	Reason  string   `json:"reason"`
	Last    string   `json:"last_reason,omitempty"`
	Code    string   `json:"error_code,omitempty"`
	Class   string   `json:"class"`
	Owner   string   `json:"owner"`
	Flags   []string `json:"flags"` // held, overdue, payload_gone, settled, stamp_invalid, stamp_unknown, derived, possible_duplicate, repaired, duplicate_risk

	Broker   BrokerReference `json:"broker"`
	Identity Identity        `json:"identity"`
	Lineage  Lineage         `json:"lineage"`
	Times    Times           `json:"times"`

	DeliveryCount int64  `json:"delivery_count"` // -1 when unknown
	Redelivered   bool   `json:"redelivered"`
	Attempts      int64  `json:"attempts"` // processing attempts, -1 when unknown
	Policy        string `json:"policy_version,omitempty"`
	Size          uint64 `json:"size"` // bytes of the body
	PropertySize  uint64 `json:"property_size"`
	Commitment    string `json:"commitment,omitempty"`
	Generation    uint32 `json:"generation,omitempty"` // that moved it last
	Reserved      uint32 `json:"reserved_by,omitempty"`

	// Expiration is the time to live, in ms, that the message was published
	// with. The broker takes it off when it dead-letters.
	Expiration string        `json:"expiration,omitempty"`
	Diagnostic string        `json:"diagnostic,omitempty"`
	Notes      []Note        `json:"notes,omitempty"`
	Repairs    []RepairState `json:"repairs,omitempty"`
	Payload    *Payload      `json:"payload,omitempty"`
}

// BrokerReference says where a message was.
type BrokerReference struct {
	Cluster    string `json:"cluster"`
	VHost      string `json:"vhost"`
	Queue      string `json:"queue"`
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
	DiedIn     string `json:"died_in,omitempty"`
}

// Identity is who the message is.
type Identity struct {
	Operation   string `json:"operation,omitempty"`
	From        string `json:"operation_from,omitempty"`
	MessageID   string `json:"message_id,omitempty"`
	Fingerprint string `json:"fingerprint"`
	WireDigest  string `json:"wire_digest"`
	BodySHA256  string `json:"body_sha256"`
	Type        string `json:"type,omitempty"`
	Schema      string `json:"schema_version,omitempty"`
	OrderingKey string `json:"ordering_key,omitempty"`
	Sequence    string `json:"sequence,omitempty"`
	Producer    string `json:"producer,omitempty"`
	Consumer    string `json:"consumer_version,omitempty"`
	TraceID     string `json:"trace_id,omitempty"`
}

// Lineage connects attempts of one message.
type Lineage struct {
	Root        string   `json:"root"`
	Parent      string   `json:"parent,omitempty"`
	Children    []string `json:"children,omitempty"`
	Attempt     uint64   `json:"attempt"`
	Stamp       string   `json:"stamp,omitempty"`
	DuplicateOf string   `json:"possible_duplicate_of,omitempty"`
}

// Times are RFC 3339; a zero time is left out.
type Times struct {
	Captured  time.Time  `json:"captured"`
	FirstSeen *time.Time `json:"first_seen,omitempty"`
	FirstDied *time.Time `json:"first_died,omitempty"`
	Died      *time.Time `json:"died,omitempty"`
	Deadline  time.Time  `json:"retention_deadline"`
}

// Note is an annotation.
type Note struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Text   string    `json:"text"`
	Ticket string    `json:"ticket,omitempty"`
}

// Payload is the content of a message. Text is set when it can be shown as
// text, Base64 always when raw was asked for.
type Payload struct {
	Masked      bool     `json:"masked"`
	ContentType string   `json:"content_type,omitempty"`
	Encoding    string   `json:"content_encoding,omitempty"`
	Text        string   `json:"text,omitempty"`
	Base64      string   `json:"base64,omitempty"`
	Headers     []Header `json:"headers"`
	Problem     string   `json:"problem,omitempty"`
}

// Header is one header with its type letter.
type Header struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
	// Base64 holds the bytes of a value that is no text, when raw was asked for.
	Base64 string `json:"base64,omitempty"`
}

// EnvelopeShowRequest asks for one envelope. Payload needs a reason, which is
// in the ledger before a byte leaves.
type EnvelopeShowRequest struct {
	ID      string `json:"id"`
	Payload bool   `json:"payload,omitempty"`
	Raw     bool   `json:"raw,omitempty"`
	Why     string `json:"why,omitempty"`
	As      string `json:"as,omitempty"`
}

// EnvelopeChange changes what people say about envelopes: those named, or all
// that the query selects.
type EnvelopeChange struct {
	IDs    []string       `json:"ids,omitempty"`
	Query  *EnvelopeQuery `json:"query,omitempty"`
	Note   string         `json:"note,omitempty"`
	Class  string         `json:"class,omitempty"`
	Reason string         `json:"reason,omitempty"`
	Owner  string         `json:"owner,omitempty"`
	Why    string         `json:"why,omitempty"`
	Ticket string         `json:"ticket,omitempty"`
	As     string         `json:"as,omitempty"`
}

// Changed says how many envelopes were changed and where that is recorded.
type Changed struct {
	Envelopes uint64 `json:"envelopes"`
	Seq       uint64 `json:"seq"`
}

// ClassifyRequest changes reason, class and owner of envelopes. Class and reason
// that are "" stay.
type ClassifyRequest struct {
	IDs    []string       `json:"ids,omitempty"`
	Query  *EnvelopeQuery `json:"query,omitempty"`
	Class  string         `json:"class,omitempty"`
	Reason string         `json:"reason,omitempty"`
	// ByPolicy takes class and owner from the policy that is in force: for Reason,
	// which the policy has to know, or else for what each message says of itself.
	ByPolicy bool   `json:"by_policy,omitempty"`
	DryRun   bool   `json:"dry_run,omitempty"` // say what would change, and change nothing
	Why      string `json:"why,omitempty"`
	As       string `json:"as,omitempty"`
}

// Classified says what a ClassifyRequest changed, or would change.
type Classified struct {
	Envelopes uint64 `json:"envelopes"` // whose reason, class or owner becomes another
	Same      uint64 `json:"same"`      // for which it says nothing new
	DryRun    bool   `json:"dry_run"`
	Policy    string `json:"policy,omitempty"` // version, recorded with the change
	Seq       uint64 `json:"seq,omitempty"`    // last record of it, 0 for none
	// Changes are grouped by what was said before and after.
	Changes []ClassChange `json:"changes"`
}

// ClassChange is one change of several envelopes.
type ClassChange struct {
	Count uint64   `json:"count"`
	From  Standing `json:"from"`
	To    Standing `json:"to"`
}

// Standing is what is said of an envelope.
type Standing struct {
	Reason string `json:"reason"`
	Class  string `json:"class"`
	Owner  string `json:"owner"`
}

// OutcomeRequest hands over outcome reports, each a JSON object of the outcome
// contract.
type OutcomeRequest struct {
	Reports []string `json:"reports"`
	Via     string   `json:"via"` // "command" or "import"
	As      string   `json:"as,omitempty"`
}

// OutcomeResult counts what became of reports.
type OutcomeResult struct {
	Taken     uint64            `json:"taken"`
	Known     uint64            `json:"known"` // said nothing new
	Unmatched map[string]uint64 `json:"unmatched"`
}
