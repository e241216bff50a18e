package redrive

import (
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// WilsonAbove gives tests the ratio rule alone.
var WilsonAbove = wilsonAbove

// RatioBreach is the default rule for what came back.
func RatioBreach(bad, of uint64) bool {
	ru := wilson(SignalRequarantined, "", ActionPause, bad, of, Thresholds(nil).Of(LimitRequarantined), ratioFloor, z95)
	return ru.breach()
}

// EnvelopeAt returns the envelope at a position.
func (g *Generation) EnvelopeAt(r ledger.Reader, pos event.Position) (event.EnvelopeNo, error) {
	return g.envelope(r, &chunks{}, pos)
}
