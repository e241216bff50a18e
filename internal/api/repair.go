package api

import "time"

// RepairRequest makes a candidate that can go out in the place of an original.
// One of Patch and Body, or one of the others, is given.
type RepairRequest struct {
	ID          string   `json:"id"`
	Patch       []byte   `json:"patch,omitempty"` // JSON Patch (RFC 6902) for a JSON body
	Body        []byte   `json:"body,omitempty"`
	WholeBody   bool     `json:"whole_body,omitempty"` // Body is meant, also when it is empty
	ContentType string   `json:"content_type,omitempty"`
	SetHeaders  []string `json:"set_headers,omitempty"` // NAME=VALUE, of kind S

	NewCommand bool   `json:"new_command,omitempty"`
	Operation  string `json:"operation,omitempty"` // of a new command

	DryRun bool   `json:"dry_run,omitempty"`
	Raw    bool   `json:"raw,omitempty"` // show values of the difference, which is recorded
	Why    string `json:"why,omitempty"`
	As     string `json:"as,omitempty"`
}

// Repair is a candidate and what it changes. In a dry run Candidate is 0.
type Repair struct {
	Envelope   string       `json:"envelope"`
	Candidate  uint64       `json:"candidate"`
	Live       bool         `json:"live"`
	NewCommand bool         `json:"new_command"`
	Changes    []Difference `json:"changes"`
	SizeBefore uint64       `json:"size_before"` // bytes of the body
	SizeAfter  uint64       `json:"size_after"`
	SHA256     string       `json:"body_sha256"` // of the repaired body
}

// Difference is one place in which two messages differ. From and To say what
// kind of value is there; the values themselves stand there when raw was asked
// for.
type Difference struct {
	What string `json:"what"` // "body", "header" or "property"
	Path string `json:"path"` // JSON pointer, or name
	How  string `json:"how"`  // "added", "removed", "changed"
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// RepairState is one candidate of an envelope.
type RepairState struct {
	Candidate  uint64    `json:"candidate"`
	Live       bool      `json:"live"`
	State      string    `json:"state"` // "usable", "waits for approval", "withdrawn"
	At         time.Time `json:"at"`
	By         string    `json:"by"`
	Why        string    `json:"why"`
	Commitment string    `json:"commitment"`
	Diff       string    `json:"diff"`
	NewCommand bool      `json:"new_command"`
	ApprovedBy string    `json:"approved_by,omitempty"`
}

// RepairChoice is a word about the candidates of an envelope; exactly one of
// the first three is given.
type RepairChoice struct {
	ID         string  `json:"id"`
	Use        *uint64 `json:"use,omitempty"` // 0 is the original
	Withdraw   uint64  `json:"withdraw,omitempty"`
	Approve    uint64  `json:"approve,omitempty"`
	Commitment string  `json:"commitment,omitempty"` // of what the approver looked at
	Why        string  `json:"why"`
	As         string  `json:"as,omitempty"`
}

// CompareRequest compares two envelopes.
type CompareRequest struct {
	A   string `json:"a"`
	B   string `json:"b"`
	Raw bool   `json:"raw,omitempty"` // show values, which is recorded
	Why string `json:"why,omitempty"`
	As  string `json:"as,omitempty"`
}

// Comparison is what two envelopes have in common and where they differ.
type Comparison struct {
	A             string       `json:"a"`
	B             string       `json:"b"`
	SameOperation bool         `json:"same_operation"`
	SameMeaning   bool         `json:"same_meaning"` // type, and body as JSON
	SameBody      bool         `json:"same_body"`
	Verdict       string       `json:"verdict"` // "duplicate", "identity_conflict" or "unrelated"
	Differences   []Difference `json:"differences"`
}
