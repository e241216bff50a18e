package quarantine

import (
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// ErrNotNow is returned when an envelope's state does not allow an act. The
// message says what has to happen first.
var ErrNotNow = errors.New("not possible now")

// ErrArgument is returned for requests that make no sense in any state.
var ErrArgument = errors.New("invalid argument")

// Reserved returns which open generation has a claim on an envelope, 0 for
// none. Package redrive provides it, for one decision.
type Reserved func(no event.EnvelopeNo) event.GenerationNo

// each checks every envelope before anything is recorded.
func each(r ledger.Reader, envs event.Ranges, check func(event.EnvelopeNo, Cell) error) error {
	if len(envs) == 0 {
		return fmt.Errorf("no envelope given: %w", ErrNoEnvelope)
	}
	for n := range envs.All() {
		no := event.EnvelopeNo(n)
		c, ok := GetCell(r, no)
		if !ok {
			return fmt.Errorf("envelope #%d: %w", no, ErrNoEnvelope)
		}
		if err := check(no, c); err != nil {
			return err
		}
	}
	return nil
}

func needText(what, s string) error {
	if s == "" {
		return fmt.Errorf("%s is required: %w", what, ErrArgument)
	}
	if len(s) > 1024 {
		return fmt.Errorf("%s has %d bytes, at most 1024 are kept in the ledger: %w", what, len(s), ErrArgument)
	}
	return nil
}

// parts makes one event for each part of a set that fits into a record.
func parts(envs event.Ranges, body func(event.Ranges) event.Body) []event.Event {
	var out []event.Event
	for _, part := range envs.Split(setLimit) {
		out = append(out, event.Event{Subj: event.Subject{Env: event.EnvelopeNo(part[0].First)}, Body: body(part)})
	}
	return out
}

// ViewIdentities records that identities of messages are about to leave. Nothing
// may leave when this is refused; ErrErased is returned when one of them is
// gone.
func ViewIdentities(v ledger.View, envs event.Ranges, why string) ([]event.Event, error) {
	if err := needText("a reason", why); err != nil {
		return nil, err
	}
	err := each(v, envs, func(no event.EnvelopeNo, c Cell) error {
		if c.Custody == event.Purged {
			return fmt.Errorf("envelope #%d: %w", no, ErrErased)
		}
		return nil
	})
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeViewed{Envs: p, What: "identity", Why: why}
	}), err
}

// Annotate adds a note.
func Annotate(v ledger.View, envs event.Ranges, text, ticket string) ([]event.Event, error) {
	if err := needText("a note", text); err != nil {
		return nil, err
	}
	err := each(v, envs, func(event.EnvelopeNo, Cell) error { return nil })
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeAnnotated{Envs: p, Note: text, Ticket: ticket}
	}), err
}

// Classify changes class and reason; empty ones stay. It records the version
// of the policy that it was done with.
func Classify(v ledger.View, envs event.Ranges, class, reason, policyVersion, why string) ([]event.Event, error) {
	if class == "" && reason == "" {
		return nil, fmt.Errorf("nothing to change, give a class or a reason: %w", ErrArgument)
	}
	if _, ok := event.ParseClass(class); class != "" && !ok {
		return nil, fmt.Errorf("class %q is unknown: %w", class, ErrArgument)
	}
	err := each(v, envs, func(event.EnvelopeNo, Cell) error { return nil })
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeClassified{Envs: p, Class: class, Reason: reason, Policy: policyVersion, Why: why}
	}), err
}

// Assign names the owner.
func Assign(v ledger.View, envs event.Ranges, owner, why string) ([]event.Event, error) {
	if err := needText("an owner", owner); err != nil {
		return nil, err
	}
	err := each(v, envs, func(event.EnvelopeNo, Cell) error { return nil })
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeAssigned{Envs: p, Owner: owner, Why: why}
	}), err
}

// Hold forbids release and purge.
func Hold(v ledger.View, envs event.Ranges, why, ticket string) ([]event.Event, error) {
	if err := needText("a reason", why); err != nil {
		return nil, err
	}
	err := each(v, envs, func(no event.EnvelopeNo, c Cell) error {
		switch {
		case c.Flags.Has(Held):
			return fmt.Errorf("envelope #%d is held already: %w", no, ErrNotNow)
		case c.Custody == event.Purged:
			return fmt.Errorf("envelope #%d is purged, there is nothing left to hold: %w", no, ErrNotNow)
		}
		return nil
	})
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeHeld{Envs: p, Why: why, Ticket: ticket}
	}), err
}

// Unhold lifts a hold.
func Unhold(v ledger.View, envs event.Ranges, why string) ([]event.Event, error) {
	if err := needText("a reason", why); err != nil {
		return nil, err
	}
	err := each(v, envs, func(no event.EnvelopeNo, c Cell) error {
		if !c.Flags.Has(Held) {
			return fmt.Errorf("envelope #%d is not held: %w", no, ErrNotNow)
		}
		return nil
	})
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeUnheld{Envs: p, Why: why}
	}), err
}

// Resolve settles envelopes by a person's word: quarantined ones that need no
// release any more, and returned or released ones that stay without evidence.
func Resolve(v ledger.View, envs event.Ranges, why, ticket string, reserved Reserved) ([]event.Event, error) {
	if err := needText("a reason", why); err != nil {
		return nil, err
	}
	err := each(v, envs, func(no event.EnvelopeNo, c Cell) error {
		if c.Custody == event.Purged || c.Custody == event.ResolvedForNow {
			return fmt.Errorf("envelope #%d is %s: %w", no, c.Custody, ErrNotNow)
		}
		return free(no, reserved)
	})
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeResolved{Envs: p, Why: why, Ticket: ticket}
	}), err
}

func free(no event.EnvelopeNo, reserved Reserved) error {
	if gen := reserved(no); gen != 0 {
		return fmt.Errorf("envelope #%d is a member of generation %d, which is open; abort it or wait until it is closed: %w", no, gen, ErrNotNow)
	}
	return nil
}

// Purge erases envelopes: originals, secrets and identities go in the
// transaction of the record, tombstones stay. What deleted bytes are left in
// the store's file goes with the next compaction.
func Purge(v ledger.View, envs event.Ranges, ticket, why string, reserved Reserved) ([]event.Event, error) {
	if err := needText("a ticket", ticket); err != nil {
		return nil, err
	}
	err := each(v, envs, func(no event.EnvelopeNo, c Cell) error {
		switch {
		case c.Flags.Has(Held):
			return fmt.Errorf("envelope #%d is held: %w", no, ErrNotNow)
		case c.Custody == event.Purged:
			return fmt.Errorf("envelope #%d is purged already: %w", no, ErrNotNow)
		case c.Custody == event.Released:
			return fmt.Errorf("envelope #%d is released and in doubt; rule on it or wait for its outcome: %w", no, ErrNotNow)
		}
		return free(no, reserved)
	})
	if err != nil {
		return nil, err
	}
	events := parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopePurged{Envs: p, Ticket: ticket, Why: why}
	})
	gone := erasure{v: v, refs: map[event.EnvelopeNo]int64{}}
	for n := range envs.All() {
		if err := gone.payload(event.EnvelopeNo(n)); err != nil {
			return nil, err
		}
		if err := gone.identity(event.EnvelopeNo(n)); err != nil {
			return nil, err
		}
	}
	events[0].Objects = gone.objects
	return events, nil
}

// erasure collects what has to be deleted.
type erasure struct {
	v       ledger.View
	refs    map[event.EnvelopeNo]int64 // body objects, with the references that are left
	objects []event.Object
}

// payload drops the secret and the original of an envelope, and its body when
// nobody else in the lineage needs it.
func (e *erasure) payload(no event.EnvelopeNo) error {
	c, _ := GetCell(e.v, no)
	if c.Flags.Has(PayloadGone) {
		return nil
	}
	f, err := GetFacts(e.v, no)
	if err != nil {
		return err
	}
	e.drop(no, bucketSecret, bucketProperties)
	if err := e.repairs(no, bucketRepair); err != nil {
		return err
	}
	left, ok := e.refs[f.BodyOf]
	if !ok {
		left = bodyRefs(e.v, f.BodyOf)
	}
	e.refs[f.BodyOf] = left - 1
	if left <= 1 {
		e.drop(f.BodyOf, bucketBodySecret, bucketBody)
	}
	return nil
}

func (e *erasure) drop(no event.EnvelopeNo, buckets ...ledger.Bucket) {
	for _, b := range buckets {
		e.objects = append(e.objects, event.Object{Bucket: b, Key: ledger.Key(uint64(no))})
	}
}

// repairs drops what a bucket holds of the candidates of an envelope.
func (e *erasure) repairs(no event.EnvelopeNo, b ledger.Bucket) error {
	rs, err := GetRepairs(e.v, no)
	for _, c := range rs.Candidates {
		e.objects = append(e.objects, event.Object{Bucket: b, Key: ledger.Key2(uint64(no), c.No)})
	}
	return err
}

func (e *erasure) identity(no event.EnvelopeNo) error {
	f, err := GetFacts(e.v, no)
	if err != nil {
		return err
	}
	if err := e.repairs(no, bucketRepairFacts); err != nil {
		return err
	}
	f.erase()
	e.objects = append(e.objects, event.Object{Bucket: bucketFacts, Key: ledger.Key(uint64(no)), Value: f.encode()})
	return nil
}

// View records that payloads are about to be shown. Nothing may be shown when
// this is refused. ErrErased is returned when one of them is gone: what nobody
// can see is not recorded as seen.
func View(v ledger.View, envs event.Ranges, what, why string) ([]event.Event, error) {
	if err := needText("a reason", why); err != nil {
		return nil, err
	}
	err := each(v, envs, func(no event.EnvelopeNo, c Cell) error {
		if c.Flags.Has(PayloadGone) {
			return fmt.Errorf("envelope #%d: %w", no, ErrErased)
		}
		return nil
	})
	return parts(envs, func(p event.Ranges) event.Body {
		return &event.EnvelopeViewed{Envs: p, What: what, Why: why}
	}), err
}
