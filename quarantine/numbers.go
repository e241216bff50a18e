package quarantine

import (
	"strings"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Numbers is a set of envelopes, one bit for each envelope of the store. The
// zero value is empty.
type Numbers struct{ bits []uint64 }

// Add puts an envelope into the set.
func (s *Numbers) Add(no event.EnvelopeNo) {
	at := int(no / 64)
	if grow := at + 1 - len(s.bits); grow > 0 {
		s.bits = append(s.bits, make([]uint64, grow)...)
	}
	s.bits[at] |= 1 << (no % 64)
}

// Has reports whether an envelope is in the set. A nil set has everything: it
// is a condition that nobody made.
func (s *Numbers) Has(no event.EnvelopeNo) bool {
	if s == nil {
		return true
	}
	at := int(no / 64)
	return at < len(s.bits) && s.bits[at]&(1<<(no%64)) != 0
}

// Noted returns the envelopes that have an annotation in which text occurs,
// without regard to case. Only what people and rules wrote is looked at.
func Noted(r ledger.Reader, text string) (*Numbers, error) {
	text = strings.ToLower(text)
	out := &Numbers{}
	hits := map[uint64]bool{} // by record: one may annotate many envelopes
	var err error
	r.Scan(bucketNotes, nil, func(k, _ []byte) bool {
		no, seq := event.EnvelopeNo(ledger.Unkey(k)), ledger.Unkey(k[8:])
		hit, known := hits[seq]
		if !known {
			err = ledger.Records(r, seq, func(rec *event.Record) bool {
				if b, ok := rec.Body.(*event.EnvelopeAnnotated); ok {
					hit = strings.Contains(strings.ToLower(b.Note), text)
				}
				return false
			})
			hits[seq] = hit
		}
		if hit {
			out.Add(no)
		}
		return err == nil
	})
	return out, err
}
