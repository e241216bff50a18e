package redrive

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"

	"github.com/redrivehq/redrive/ledger/event"
)

// Effect is what business data says about one operation.
type Effect struct {
	Operation string // business identity, never empty
	Count     uint64 // how many effects it had; 0 is a statement too
	Status    string // in the words of the business data, "" when it has none
}

// Effects is business data that tells which operations had an effect. A value
// is used for one reconciliation by one goroutine. Drivers stand in
// internal/evidence and pass the suite there.
type Effects interface {
	// Source is "csv", "ndjson" or "sql".
	Source() string

	// Each calls fn for each row. Operations is what the generation released,
	// ascending, without repetitions and empty texts. A driver that asks a
	// database asks for these only; one that reads a file yields every row of
	// it, so that effects nobody expects are found. An operation may come in
	// several rows, whose counts add up; one without a row had no effect. Rows
	// come in no order. An error of fn ends the reading and is returned.
	//
	// Errors name the place (a line, the host and database) and never an
	// operation, a value of a row, or a password.
	Each(ctx context.Context, operations []string, fn func(Effect) error) error

	// Close frees what the reading holds. It is idempotent.
	Close() error
}

// evidenceDomain separates these commitments from stamps, and is their version.
const evidenceDomain = "redrive evidence v1\n"

// CommitEvidence is the commitment to evidence in its canonical form: an
// HMAC-SHA-256 under the key of stamps, which never leaves the store. It shows
// that two reconciliations had the same evidence, and tells nobody which
// operations were in it.
func (s Stamps) CommitEvidence(canonical []byte) event.Digest {
	h := hmac.New(sha256.New, s.Key[:])
	h.Write([]byte(evidenceDomain))
	h.Write(canonical)
	return event.Digest(h.Sum(nil))
}
