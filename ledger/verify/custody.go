package verify

import (
	"github.com/redrivehq/redrive/ledger/event"
)

type envFlags uint8

const (
	envSettled envFlags = 1 << iota
	envHeld
	envPurged
	envChild
)

// envelopes follows what records alone say about envelopes.
type envelopes struct {
	last   uint64     // numbers 1 to last exist
	flags  []envFlags // by number, up to the highest that has one
	unheld bool       // too many to hold: no longer followed
	// repairs are the candidates of each envelope that has some.
	repairs map[event.EnvelopeNo][]repair
}

func (e *envelopes) apply(r *event.Record) error {
	if e.unheld {
		return nil
	}
	switch b := r.Body.(type) {
	case *event.EnvelopeCaptured:
		return e.capture(r, b)
	case *event.EnvelopeSettled:
		return e.mark(b.Envs, envSettled, envSettled, "settled before")
	case *event.EnvelopeMerged:
		return e.mark(b.Envs, 0, envSettled, "settled before, and yet merged with")
	case *event.EnvelopeReturned:
		return e.back(r, b)
	case *event.EnvelopeHeld:
		return e.mark(b.Envs, envHeld, envPurged, "purged before")
	case *event.EnvelopeUnheld:
		return e.unhold(b.Envs)
	case *event.EnvelopeResolved:
		return e.mark(b.Envs, 0, envPurged, "purged before")
	case *event.EnvelopePurged:
		return e.mark(b.Envs, envPurged, envPurged|envHeld, "held, or purged before")
	case *event.EnvelopeExpired:
		return e.mark(b.Envs, 0, envHeld, "held")
	case *event.EnvelopeAnnotated:
		return e.mark(b.Envs, 0, 0, "")
	case *event.EnvelopeClassified:
		return e.mark(b.Envs, 0, 0, "")
	case *event.EnvelopeAssigned:
		return e.mark(b.Envs, 0, 0, "")
	case *event.EnvelopeOverdue:
		return e.mark(b.Envs, 0, envPurged, "purged before")
	case *event.EnvelopeViewed:
		return e.mark(b.Envs, 0, envPurged, "purged before")
	}
	return e.repair(r)
}

func (e *envelopes) capture(r *event.Record, b *event.EnvelopeCaptured) error {
	if b.Count > maxReplayed-e.last {
		e.unheld = true
		return nil
	}
	first := uint64(r.Subj.Env)
	if first != e.last+1 || b.Count == 0 {
		return broken(LawEnvelope, "captured are %d envelopes from number %d, the last one was %d", b.Count, first, e.last)
	}
	e.last += b.Count
	return nil
}

// mark sets flags of envelopes that exist and have none of the forbidden ones.
func (e *envelopes) mark(envs event.Ranges, set, forbidden envFlags, why string) error {
	if len(envs) == 0 {
		return broken(LawEnvelope, "it names no envelope")
	}
	if envs[0].First == 0 || envs[len(envs)-1].Last > e.last {
		return broken(LawEnvelope, "envelopes %s: captured are 1 to %d", envs, e.last)
	}
	if grow := int(envs[len(envs)-1].Last) + 1 - len(e.flags); grow > 0 {
		e.flags = append(e.flags, make([]envFlags, grow)...)
	}
	for no := range envs.All() {
		if e.flags[no]&forbidden != 0 {
			return broken(LawEnvelope, "envelope %d was %s", no, why)
		}
		e.flags[no] |= set
	}
	return nil
}

func (e *envelopes) unhold(envs event.Ranges) error {
	if err := e.mark(envs, 0, 0, ""); err != nil {
		return err
	}
	for no := range envs.All() {
		if e.flags[no]&envHeld == 0 {
			return broken(LawEnvelope, "envelope %d was not held", no)
		}
		e.flags[no] &^= envHeld
	}
	return nil
}

// back links a child to its parent. A child has one parent, which is older.
func (e *envelopes) back(r *event.Record, b *event.EnvelopeReturned) error {
	if b.Parent >= r.Subj.Env {
		return broken(LawEnvelope, "envelope %d cannot be the parent of envelope %d", b.Parent, r.Subj.Env)
	}
	if err := e.mark(event.RangesOf(b.Parent), 0, 0, ""); err != nil {
		return err
	}
	return e.mark(event.RangesOf(r.Subj.Env), envChild, envChild, "the child of another envelope before")
}
