package api

import "time"

// ReconcileRequest holds a generation against business data: a file, or the
// answer of a database to a query.
type ReconcileRequest struct {
	ID   string `json:"id"`
	File string `json:"file,omitempty"` // absolute path, .csv, .ndjson or .jsonl

	Address      string `json:"address,omitempty"`       // postgres:// URL without a password
	Query        string `json:"query,omitempty"`         // with $1, the array of operations
	PasswordFile string `json:"password_file,omitempty"` // absolute path

	DryRun bool   `json:"dry_run,omitempty"`
	Close  bool   `json:"close,omitempty"` // close the generation with the numbers found
	Why    string `json:"why,omitempty"`   // required to close with open questions
	As     string `json:"as,omitempty"`
}

// Reconciliation is what holding a generation against business data found.
// Checked is the sum of the five below it.
type Reconciliation struct {
	Generation Generation `json:"generation"`
	DryRun     bool       `json:"dry_run"`
	Source     string     `json:"source"`     // csv, ndjson or sql
	Commitment string     `json:"commitment"` // to the evidence: equal for equal evidence

	Checked     uint64 `json:"checked"`
	Effected    uint64 `json:"effected"`
	Double      uint64 `json:"double"`
	NotEffected uint64 `json:"not_effected"` // it should be there
	None        uint64 `json:"none"`         // and none was to be expected
	Early       uint64 `json:"early"`        // none yet; the outcome is not due, or the publish is in doubt

	NotCheckable uint64 `json:"not_checkable"`
	Unexpected   uint64 `json:"unexpected"` // operations with an effect that no released member has

	Members              []EffectOf        `json:"members"`               // double, not effected and disputed ones, at most 1,000
	NotCheckableMembers  []EffectOf        `json:"not_checkable_members"` // at most 20
	UnexpectedOperations []string          `json:"unexpected_operations"` // at most 20
	Statuses             map[string]uint64 `json:"statuses"`              // rows with an effect, by the status that they name; at most 20
	Text                 string            `json:"text,omitempty"`        // the statement, when it closed
	Freed                uint64            `json:"freed"`                 // members that can be planned again
}

// EffectOf is one member with what was found about it.
type EffectOf struct {
	Position    uint64 `json:"position"`
	Envelope    string `json:"envelope"`
	Disposition string `json:"disposition"` // after the reconciliation
	Effects     uint64 `json:"effects"`
	Finding     string `json:"finding"` // double, not_effected, disputed, no_operation, elsewhere
}

// Reconciled is the last reconciliation of a generation.
type Reconciled struct {
	By           string    `json:"by"`
	At           time.Time `json:"at"`
	Source       string    `json:"source"`
	Commitment   string    `json:"commitment"`
	Checked      uint64    `json:"checked"`
	Effected     uint64    `json:"effected"`
	Double       uint64    `json:"double"`
	NotEffected  uint64    `json:"not_effected"`
	None         uint64    `json:"none"`
	Early        uint64    `json:"early"`
	NotCheckable uint64    `json:"not_checkable"`
	Unexpected   uint64    `json:"unexpected"`
}

// Expectation compares the outcomes that a plan expected with those that came.
type Expectation struct {
	Met       uint64            `json:"met"`
	Unmet     uint64            `json:"unmet"`
	Otherwise map[string]uint64 `json:"otherwise"` // dispositions of the unmet ones
}
