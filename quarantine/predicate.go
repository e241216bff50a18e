package quarantine

import (
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Predicates compiles conditions over the content of envelopes. Implementations
// are safe for concurrent use.
type Predicates interface {
	// Language names the language and its version, to be kept with a condition.
	Language() string
	// Compile checks a condition and makes it ready. What it calls "now" is the
	// moment that is given, so that it means the same again later. The error says
	// what is wrong with the text; nothing was run.
	Compile(text string, now time.Time) (Predicate, error)
}

// Predicate is a compiled condition. It is safe for concurrent use.
type Predicate interface {
	// Content reports whether Match looks at the original. Without, it needs not
	// be opened.
	Content() bool
	// Match decides about one envelope. Its error says why it cannot, without
	// content of the message; then nobody knows whether the envelope is meant.
	Match(s Subject) (bool, error)
}

// Subject is an envelope as a predicate sees it.
type Subject struct {
	No    event.EnvelopeNo
	Facts *Facts
	// What may have changed since the capture.
	Class, Reason, LastReason, Owner string
	// Original is nil when the payload is gone, or when nobody asked for it.
	Original *Original
}

// GetSubject reads an envelope for a predicate, with its original when content
// is asked for and still there.
func GetSubject(r ledger.Reader, keys Keys, blobs Blobs, no event.EnvelopeNo, content bool) (Subject, error) {
	f, err := GetFacts(r, no)
	if err != nil {
		return Subject{}, err
	}
	c, _ := GetCell(r, no)
	s := Subject{No: no, Facts: f, Class: c.Class.String(), Reason: WordText(r, c.Reason), LastReason: f.LastReason, Owner: WordText(r, c.Owner)}
	if content && !c.Flags.Has(PayloadGone) {
		s.Original, err = GetOriginal(r, keys, blobs, no)
	}
	return s, err
}
