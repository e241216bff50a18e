package verify

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/redrivehq/redrive/ledger/event"
)

// ErrNoObject is returned by a Source that does not hold an object. The report
// becomes incomplete and names the object; get it from a backup or another
// bundle.
var ErrNoObject = errors.New("no such object")

// Source is a ledger to verify: a bundle, a backup, or a snapshot of a store.
// It must not change while it is read. Methods may be called again, and start
// from the beginning each time.
type Source interface {
	// Extent says which part of which ledger the source holds.
	Extent() Extent
	// Key is the verifier key that signs checkpoints now, "" when the source
	// does not know it.
	Key() string
	// Records yields the lines in scope, without line feed, by ascending seq.
	// A line is valid until the next one is asked for.
	Records(ctx context.Context) iter.Seq2[[]byte, error]
	// Hashes yields the leaf hashes of all records from 1 on. A source that
	// holds every record may return nil.
	Hashes(ctx context.Context) iter.Seq2[event.Digest, error]
	// Checkpoints yields the signed notes by ascending size.
	Checkpoints(ctx context.Context) iter.Seq2[[]byte, error]
	// Object returns what is stored under a digest, unchecked, or ErrNoObject.
	Object(ctx context.Context, d event.Digest) ([]byte, error)
}

// Payloads is implemented by a Source that can open sealed content.
type Payloads interface {
	// Commitments yields what the capture list of r commits to, at least one
	// Commitment for each of its envelopes, with whatever opens it.
	Commitments(ctx context.Context, r *event.Record, list []byte) iter.Seq2[Commitment, error]
}

// Commitment holds when HMAC-SHA-256 of Content under Key equals Sum.
type Commitment struct {
	Env     event.EnvelopeNo
	Part    string // what is committed to, for messages
	Sum     event.Digest
	Key     []byte
	Content []byte
	// Erased says that the secret is gone. That is in order when a record says
	// that the envelope was purged or expired.
	Erased bool
}

// Scope is a choice of records. The zero value is all of them.
type Scope struct {
	// Gen, when not 0, chooses one generation: the records whose subject it is,
	// and all ledger records.
	Gen event.GenerationNo `json:"generation,omitempty"`
	// From and To, when To is not 0, choose a time: the records from the first
	// one not before From to the last one not after To, ms since 1970 UTC.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
}

// Extent is what a Source claims about itself. The Scope always counts; other
// fields are checked when they are not zero.
type Extent struct {
	Scope
	Origin  string `json:"origin,omitempty"`
	First   uint64 `json:"first,omitempty"` // the range of seq that the scope chooses from
	Last    uint64 `json:"last,omitempty"`
	Size    uint64 `json:"size,omitempty"`    // records of the whole ledger
	Epoch   uint64 `json:"epoch,omitempty"`   // of the last record of the whole ledger
	Records uint64 `json:"records,omitempty"` // lines in scope
}

// all reports whether every record is in scope.
func (e *Extent) all() bool { return e.Scope == Scope{} }

// inRange reports whether seq lies between First and Last, where zero means no
// bound.
func (e *Extent) inRange(seq uint64) bool {
	return seq >= e.First && (e.Last == 0 || seq <= e.Last)
}

// holds reports whether r is in scope. Records that name keys always are,
// because no signature can be judged without them.
func (e *Extent) holds(r *event.Record) bool {
	kind := r.Body.Kind()
	if kind == event.KindLedgerCreated || kind == event.KindLedgerRekeyed {
		return true
	}
	return e.inRange(r.Seq) && (e.Gen == 0 || r.Subj.Gen == e.Gen || strings.HasPrefix(string(kind), "ledger."))
}

// references returns the digests that a body names, as they stand in it.
func references(body event.Body) []string {
	switch b := body.(type) {
	case *event.EnvelopeCaptured:
		return []string{b.List}
	case *event.GenerationPlanned:
		if b.Keys != "" {
			return []string{b.Manifest, b.Keys}
		}
		return []string{b.Manifest}
	case *event.GenerationChecked:
		return []string{b.Checks}
	case *event.OutcomeReported:
		if b.Details != "" {
			return []string{b.Details}
		}
	}
	return nil
}
