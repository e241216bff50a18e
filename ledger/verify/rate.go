package verify

import (
	"math/bits"

	"github.com/redrivehq/redrive/ledger/event"
)

// bucket checks that no window of T milliseconds has more than rate·T + burst
// intents. It is a leaky bucket (GCRA): each intent adds to the level, time
// drains it, and the level exceeds the burst exactly when some window that ends
// now has too many.
//
// Stamps are whole milliseconds, cut off, so two of them can be up to one
// millisecond closer together than the moments they stand for. Each window is
// therefore forgiven what drains in one millisecond. The error does not add up
// along the window, because only its two ends count.
//
// One intent is 1,000,000 units; a rate of n intents per 1000 s drains n units
// in a millisecond.
type bucket struct {
	level uint64
	mono  uint64 // when level was right
}

const intentUnits = 1_000_000

// take adds n intents at a monotonic time and reports whether they keep the law.
func (b *bucket) take(l event.Limits, mono, n uint64) bool {
	mono = max(mono, b.mono)
	hi, drained := bits.Mul64(mono-b.mono, l.RateMilli)
	if hi > 0 || drained > b.level {
		drained = b.level
	}
	b.level += n*intentUnits - drained
	b.mono = mono
	return b.level <= uint64(l.Burst)*intentUnits+l.RateMilli
}

// reset forgets the past: monotonic times of different epochs cannot be
// compared, and windows across a change of limits have no one rate.
func (b *bucket) reset(mono uint64) { *b = bucket{mono: mono} }
