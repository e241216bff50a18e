package redrive

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// ErrEmpty is returned when a selection has nothing that could move. Nothing
// was written; the message says what was found and why it stays.
var ErrEmpty = errors.New("nothing to release")

// Limits of what a plan may ask for. Defaults are in DefaultLimits.
const (
	MaxWindow = 4096
	MaxRate   = 1_000_000
	MaxCohort = 10_000_000
)

// DefaultLimits are the limits of a plan that states none.
func DefaultLimits() event.Limits {
	return event.Limits{Burst: 1, Exposure: 200, RateMilli: 50_000, Window: 64}
}

// RateMilli converts a rate in messages per second into the whole number that
// records hold. Range: above 0, at most MaxRate.
func RateMilli(rate float64) (uint64, error) {
	if math.IsNaN(rate) || rate <= 0 || rate > MaxRate {
		return 0, fmt.Errorf("rate %v: want more than 0 and at most %d messages per second: %w", rate, MaxRate, ErrArgument)
	}
	milli := uint64(math.Round(rate * 1000))
	if milli == 0 {
		return 0, fmt.Errorf("rate %v: the lowest is 0.001 messages per second: %w", rate, ErrArgument)
	}
	return milli, nil
}

// CheckLimits refuses limits that are out of range.
func CheckLimits(l event.Limits) error {
	switch {
	case l.Window < 1 || l.Window > MaxWindow:
		return fmt.Errorf("window %d: want 1 to %d: %w", l.Window, MaxWindow, ErrArgument)
	case l.RateMilli < 1 || l.RateMilli > MaxRate*1000:
		return fmt.Errorf("rate %g: want more than 0 and at most %d messages per second: %w", float64(l.RateMilli)/1000, MaxRate, ErrArgument)
	case l.Burst < 1 || l.Burst > MaxWindow:
		return fmt.Errorf("burst %d: want 1 to %d: %w", l.Burst, MaxWindow, ErrArgument)
	case l.Exposure < 1 || l.Exposure > MaxCohort:
		return fmt.Errorf("exposure cap %d: want 1 to %d: %w", l.Exposure, MaxCohort, ErrArgument)
	}
	return nil
}

// DefaultStages are 1, then 10, then a tenth but at most 1,000, then the rest:
// a fix that does not work is found by its first message.
func DefaultStages(members uint64) []uint64 {
	sizes := []uint64{1, 10, min(members/10, 1000)}
	var out []uint64
	sum := uint64(0)
	for _, n := range sizes {
		if n == 0 || sum+n >= members {
			break
		}
		sum += n
		out = append(out, sum)
	}
	return append(out, members)
}

// Candidate is an envelope that the selection named, with what the choice of
// the cohort needs.
type Candidate struct {
	No   event.EnvelopeNo
	Cell quarantine.Cell
	// Unfit is why the plan withholds it, "" when nothing that was looked at
	// outside the ledger speaks against it.
	Unfit string
}

// Operations is what is known about business operations in the whole store. It
// is filled by looking at every envelope once.
type Operations struct {
	resolved map[uint64]bool   // succeeded or otherwise finished by a generation
	inDoubt  map[uint64]bool   // released, outcome unknown
	reserved map[uint64]bool   // of a member of an open generation
	meaning  map[uint64]uint64 // the first one seen
	conflict map[uint64]bool   // the same operation with different meanings
	forced   map[string]bool   // reasons that do not count, see Force
}

// NewOperations returns one that knows nothing.
func NewOperations() *Operations {
	return &Operations{map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}, map[uint64]uint64{}, map[uint64]bool{}, map[string]bool{}}
}

// Note adds what one envelope says about its operation, and whether an open
// generation has it.
func (o *Operations) Note(c *quarantine.Cell, reserved bool) {
	if c.Operation == 0 {
		return
	}
	switch {
	case reserved:
		o.reserved[c.Operation] = true
	case c.Custody == event.Released:
		o.inDoubt[c.Operation] = true
	case c.Custody == event.ResolvedForNow && c.Gen != 0:
		o.resolved[c.Operation] = true
	}
	if c.Flags.Has(quarantine.FlagSettledByPerson) || c.Custody == event.ReturnedAsKid {
		// A person has looked at it, or its child carries on, which may have been
		// repaired on its way: it contradicts nobody.
		return
	}
	if m, ok := o.meaning[c.Operation]; !ok {
		o.meaning[c.Operation] = c.Meaning
	} else if m != c.Meaning {
		o.conflict[c.Operation] = true
	}
}

// Reserve notes operations that a member of an open generation has, or had when
// the generation was planned: what is live now can be another repair of it.
func (o *Operations) Reserve(operations []uint64) {
	for _, op := range operations {
		if op != 0 {
			o.reserved[op] = true
		}
	}
}

// unfit is why an operation must not go out now, "" when it may.
func (o *Operations) unfit(op uint64) string {
	if op == 0 {
		return ""
	}
	for _, x := range []struct {
		is     bool
		reason string
	}{
		{o.conflict[op], ReasonConflict}, {o.reserved[op], ReasonOperationReserved},
		{o.inDoubt[op], ReasonOperationInDoubt}, {o.resolved[op], ReasonOperationResolved},
	} {
		if x.is && !o.forced[x.reason] {
			return x.reason
		}
	}
	return ""
}

// Cohort splits candidates, which come in capture order, into the members in
// release order and what does not move. Taken tells which envelopes an open
// generation has.
//
// The order is capture order, except that the first envelope of each kind,
// that is of each reason and type, goes before: so the first stages try every
// kind and not only the easy ones.
func Cohort(cs []Candidate, ops *Operations, taken func(event.EnvelopeNo) bool) (members []event.EnvelopeNo, out []Exclusion) {
	type kind struct{ reason, typ quarantine.Word }
	kinds := map[kind]bool{}
	chosen := map[uint64]event.EnvelopeNo{} // by operation
	var heads, rest []event.EnvelopeNo
	siblings := map[int]event.EnvelopeNo{} // index in out: the member that goes instead
	for _, c := range cs {
		reason := unfit(&c, ops, taken)
		if first, ok := chosen[c.Cell.Operation]; ok && reason == "" && c.Cell.Operation != 0 && !ops.forced[ReasonDuplicate] {
			siblings[len(out)] = first
			reason = ReasonDuplicate
		}
		if reason != "" {
			out = append(out, Exclusion{Env: c.No, Reason: reason})
			continue
		}
		if c.Cell.Operation != 0 {
			chosen[c.Cell.Operation] = c.No
		}
		if k := (kind{c.Cell.Reason, c.Cell.Type}); !kinds[k] {
			kinds[k] = true
			heads = append(heads, c.No)
		} else {
			rest = append(rest, c.No)
		}
	}
	members = slices.Concat(heads, rest)
	if len(siblings) > 0 {
		at := make(map[event.EnvelopeNo]event.Position, len(members))
		for i, no := range members {
			at[no] = event.Position(i)
		}
		for i, no := range siblings {
			out[i].Sibling = at[no]
		}
	}
	return members, out
}

func unfit(c *Candidate, ops *Operations, taken func(event.EnvelopeNo) bool) string {
	cell := &c.Cell
	switch {
	case cell.Custody != event.Quarantined:
		return ReasonNotQuarantined
	case cell.Flags.Has(quarantine.Held):
		return ReasonHeld
	case cell.Flags.Has(quarantine.PayloadGone):
		return ReasonPayloadGone
	case taken(c.No):
		return ReasonReserved
	case c.Unfit != "":
		return c.Unfit
	case cell.Class == event.AmbiguousOutcome:
		return ReasonAmbiguousEffect
	case cell.Flags.Has(quarantine.FlagPossibleDuplicate) && !ops.forced[ReasonPossibleDuplicate]:
		return ReasonPossibleDuplicate
	}
	return ops.unfit(cell.Operation)
}

// ErrStale is returned by Freeze when another generation was planned since the
// selection was made. Select again.
var ErrStale = errors.New("another generation was planned meanwhile")

// Freeze records a plan: the last, small step, after the member lists and the
// reservation have been stored. It refuses with ErrStale when another one was
// frozen since the selection, whose operations the selection cannot know, and
// with ErrReserved when an open generation has one of the members.
func Freeze(v ledger.View, m *Manifest) ([]event.Event, event.GenerationNo, error) {
	gens, err := Unfinished(v)
	if err != nil {
		return nil, 0, err
	}
	for _, g := range gens {
		if g.State.Open() && g.PlannedSeq > m.Ledger {
			return nil, 0, fmt.Errorf("generation %d: %w", g.No, ErrStale)
		}
	}
	if err := overlap(v, m); err != nil {
		return nil, 0, err
	}
	no := event.GenerationNo(1)
	if k, _ := v.Last(bucketGeneration); k != nil {
		no = event.GenerationNo(ledger.Unkey(k)) + 1
	}
	b, err := m.Encode()
	if err != nil {
		return nil, 0, fmt.Errorf("manifest: %w", err)
	}
	o, digest := ledger.ObjectOf(b)
	return []event.Event{{Subj: event.Subject{Gen: no}, Objects: []event.Object{o}, Body: &event.GenerationPlanned{
		Members: m.Members, Withheld: m.Withheld, Deduplicated: m.Deduplicated, Manifest: digest.String(),
		Limits: m.Limits, Stages: m.Stages, Keys: m.Keys, OnFailure: m.OnFailure, Destination: m.shared()}}}, no, nil
}
