package quarantine

import (
	"encoding/binary"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

var (
	bucketUnsettled = ledger.Bucket{Name: "envelope.unsettled", Append: true}
	bucketNotes     = ledger.Bucket{Name: "envelope.notes", Append: true} // (envelope, seq) of records that annotate it
	bucketBodyRefs  = ledger.Bucket{Name: "body.refs", Append: true}
	bucketKids      = ledger.Bucket{Name: "envelope.kids", Append: true} // (parent, child)
	bucketParked    = ledger.Bucket{Name: "source.parked"}               // by queue: seq of the record
	bucketSpent     = ledger.Bucket{Name: "source.spent"}                // by queue: deliveries without a settlement
)

// Projector keeps cells, words and lineage. It implements ledger.Projector.
type Projector struct{ Keys Keys }

// Name implements ledger.Projector.
func (Projector) Name() string { return "quarantine" }

// Buckets implements ledger.Projector.
func (Projector) Buckets() []ledger.Bucket {
	return []ledger.Bucket{bucketCell, bucketWord, bucketWordOf, bucketUnsettled, bucketNotes, bucketBodyRefs, bucketKids, bucketParked, bucketSpent, bucketPin, bucketRepairs}
}

// Apply implements ledger.Projector.
func (p Projector) Apply(w ledger.Writer, r *event.Record) error {
	switch b := r.Body.(type) {
	case *event.EnvelopeCaptured:
		return p.captured(w, r.Subj.Env, b.Count)
	case *event.EnvelopeSettled:
		if err := settle(w, b.Envs); err != nil {
			return err
		}
		return unspent(w, b.Envs)
	case *event.EnvelopeReturned:
		return w.Put(bucketKids, ledger.Key2(uint64(b.Parent), uint64(r.Subj.Env)), nil)
	case *event.EnvelopeAnnotated:
		return note(w, r.Seq, b.Envs)
	case *event.EnvelopeClassified:
		return p.classify(w, b)
	case *event.EnvelopeAssigned:
		owner, err := word(w, b.Owner)
		if err != nil {
			return err
		}
		return updateCells(w, b.Envs, func(_ event.EnvelopeNo, c *Cell) error { c.Owner = owner; return nil })
	case *event.EnvelopeHeld:
		return setFlag(w, b.Envs, Held, true)
	case *event.EnvelopeUnheld:
		return setFlag(w, b.Envs, Held, false)
	case *event.EnvelopeResolved:
		return updateCells(w, b.Envs, func(_ event.EnvelopeNo, c *Cell) error {
			c.Custody = event.ResolvedForNow
			c.Flags |= FlagSettledByPerson
			return nil
		})
	case *event.EnvelopePurged:
		return p.gone(w, b.Envs, event.Purged)
	case *event.EnvelopeExpired:
		return p.gone(w, b.Envs, 0)
	case *event.EnvelopeOverdue:
		return setFlag(w, b.Envs, Overdue, true)
	case *event.EnvelopeRepaired, *event.EnvelopeRepairChosen, *event.EnvelopeRepairWithdrawn, *event.EnvelopeRepairApproved:
		return repaired(w, r)
	case *event.SourcePinned:
		return applyPin(w, b)
	case *event.SourceParked:
		return w.Put(bucketParked, []byte(b.Queue), ledger.Key(r.Seq))
	case *event.SourceUnparked:
		return unpark(w, b.Queue)
	case *event.SourceSpent:
		return spend(w, b.Queue, b.Deliveries)
	}
	return nil
}

func (p Projector) captured(w ledger.Writer, first event.EnvelopeNo, count uint64) error {
	e := cellEditor{w: w}
	for i := range count {
		no := first + event.EnvelopeNo(i)
		f, err := GetFacts(w, no)
		if err != nil {
			return err
		}
		c, err := p.cell(w, f)
		if err != nil {
			return err
		}
		if err := e.add(no, &c); err != nil {
			return err
		}
		if err := w.Put(bucketUnsettled, ledger.Key(uint64(no)), nil); err != nil {
			return err
		}
		if err := addRef(w, f.BodyOf, 1); err != nil {
			return err
		}
	}
	return e.flush()
}

// operationKey is what makes two messages the same operation. A message id is
// the broker's property and not the business's: publishers reuse one for a whole
// batch, so it counts only together with the meaning.
func (f *Facts) operationKey() string {
	if f.OperationFrom == fromMessageID {
		return f.Operation + "\n" + string(f.Fingerprint[:])
	}
	return f.Operation
}

// cell makes the first state of an envelope out of its facts.
func (p Projector) cell(w ledger.Writer, f *Facts) (Cell, error) {
	c := Cell{Custody: event.Quarantined, Class: f.Class, Attempt: uint16(min(f.Attempt, 0xffff)), Parent: f.Parent, Root: f.Root,
		FirstDied: uint32(f.FirstDied / 1000), Captured: uint32(f.Captured / 1000), Meaning: binary.BigEndian.Uint64(f.Fingerprint[:])}
	switch f.Stamp {
	case StampInvalid:
		c.Flags |= FlagStampInvalid
	case StampUnknown:
		c.Flags |= FlagStampUnknown
	case StampDerived:
		c.Flags |= FlagDerived
	}
	if f.DuplicateOf != 0 {
		c.Flags |= FlagPossibleDuplicate
	}
	if f.Operation != "" {
		c.Operation = p.Keys.Index(f.operationKey())
	}
	for _, t := range []struct {
		to   *Word
		text string
	}{{&c.Reason, f.Reason}, {&c.LastReason, f.LastReason}, {&c.Owner, f.Owner}, {&c.Queue, f.Queue}, {&c.Died, f.DiedQueue}, {&c.Type, f.Type}, {&c.Schema, f.Schema}} {
		n, err := word(w, t.text)
		if err != nil {
			return c, err
		}
		*t.to = n
	}
	return c, nil
}

func settle(w ledger.Writer, envs event.Ranges) error {
	for n := range envs.All() {
		if err := w.Delete(bucketUnsettled, ledger.Key(n)); err != nil {
			return err
		}
	}
	return setFlag(w, envs, Settled, true)
}

func setFlag(w ledger.Writer, envs event.Ranges, f Flags, on bool) error {
	return updateCells(w, envs, func(_ event.EnvelopeNo, c *Cell) error {
		if on {
			c.Flags |= f
		} else {
			c.Flags &^= f
		}
		return nil
	})
}

func note(w ledger.Writer, seq uint64, envs event.Ranges) error {
	for n := range envs.All() {
		if err := w.Put(bucketNotes, ledger.Key2(n, seq), nil); err != nil {
			return err
		}
	}
	return nil
}

func (p Projector) classify(w ledger.Writer, b *event.EnvelopeClassified) error {
	class, ok := event.ParseClass(b.Class)
	if b.Class != "" && !ok {
		return fmt.Errorf("class %q is unknown", b.Class)
	}
	reason, err := word(w, b.Reason)
	if err != nil {
		return err
	}
	return updateCells(w, b.Envs, func(_ event.EnvelopeNo, c *Cell) error {
		if b.Class != "" {
			c.Class = class
		}
		if b.Reason != "" {
			c.Reason = reason
		}
		return nil
	})
}

// gone marks payloads as removed and lets go of their bodies. A purge also
// forgets what the cell knows about the identity.
func (p Projector) gone(w ledger.Writer, envs event.Ranges, custody event.Custody) error {
	return updateCells(w, envs, func(no event.EnvelopeNo, c *Cell) error {
		first := !c.Flags.Has(PayloadGone)
		c.Flags |= PayloadGone
		if c.Flags.Has(FlagRepaired) {
			c.Flags &^= FlagRepaired
			if err := unrepair(w, no); err != nil {
				return err
			}
		}
		if custody != 0 {
			c.Custody, c.Operation, c.Meaning = custody, 0, 0
		}
		if !first {
			return nil
		}
		f, err := GetFacts(w, no)
		if err != nil {
			return err
		}
		return addRef(w, f.BodyOf, -1)
	})
}

func addRef(w ledger.Writer, body event.EnvelopeNo, d int64) error {
	n := bodyRefs(w, body) + d
	if n <= 0 {
		return w.Delete(bucketBodyRefs, ledger.Key(uint64(body)))
	}
	return w.Put(bucketBodyRefs, ledger.Key(uint64(body)), binary.AppendUvarint(nil, uint64(n)))
}

func bodyRefs(r ledger.Reader, body event.EnvelopeNo) int64 {
	n, _ := binary.Uvarint(r.Get(bucketBodyRefs, ledger.Key(uint64(body))))
	return int64(n)
}

// MarkDuplicateRisk marks envelopes that may be released again although their
// earlier release may have had its effect after all.
func MarkDuplicateRisk(w ledger.Writer, nos []event.EnvelopeNo) error {
	return updateCells(w, event.RangesOf(nos...), func(_ event.EnvelopeNo, c *Cell) error {
		c.Flags |= FlagDuplicateRisk
		return nil
	})
}

// SetCustody changes the custody of envelopes on behalf of a generation, in
// the transaction of the record that says so. With took the generation becomes
// the one that moved them last. Without, an envelope that another generation
// has moved since is left to that one, unless it waits there: then evidence
// that the earlier release was delivered after all keeps it from going again.
func SetCustody(w ledger.Writer, gen event.GenerationNo, took bool, to map[event.EnvelopeNo]event.Custody) error {
	e := cellEditor{w: w}
	nos := make([]event.EnvelopeNo, 0, len(to))
	for no := range to {
		nos = append(nos, no)
	}
	for n := range event.RangesOf(nos...).All() {
		err := e.edit(event.EnvelopeNo(n), func(no event.EnvelopeNo, c *Cell) error {
			waits := c.Custody == event.Quarantined && to[no] != event.Quarantined
			back := to[no] == event.Quarantined || to[no] == event.Released
			if c.Custody == event.Purged || (back && c.Flags.Has(FlagSettledByPerson)) || (!took && c.Gen != gen && !waits) {
				return nil
			}
			c.Gen, c.Custody = gen, to[no]
			return nil
		})
		if err != nil {
			return err
		}
	}
	return e.flush()
}
