package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// conditions are a selection that was resolved against the store: what a plan,
// a list and a report mean by the same words.
type conditions struct {
	filter quarantine.Filter
	where  quarantine.Predicate // nil when there is none
}

// maxCondition bounds the texts of conditions, which a manifest keeps.
const maxCondition = 1024

// freezeSelection turns what was asked for into what a manifest keeps: ids
// instead of names, moments instead of ages.
func (c *Controller) freezeSelection(v ledger.View, q api.EnvelopeQuery, now time.Time) (redrive.Selection, error) {
	s := redrive.Selection{Queue: q.Queue, Died: q.Died, Reason: q.Reason, Class: q.Class, Owner: q.Owner, Type: q.Type,
		Schema: q.Schema, MinAttempts: uint64(q.MinAttempts), MaxAttempts: uint64(q.MaxAttempts), Note: q.Note, Where: q.Where}
	for _, text := range []string{q.Queue, q.Died, q.Reason, q.Owner, q.Type, q.Schema, q.Note} {
		if len(text) > maxCondition {
			return s, usage(fmt.Errorf("a condition has %d bytes, at most %d are taken", len(text), maxCondition))
		}
	}
	if q.MaxAttempts > 0 && q.MinAttempts > q.MaxAttempts {
		return s, usage(fmt.Errorf("attempts from %d to %d: nothing lies there", q.MinAttempts, q.MaxAttempts))
	}
	for _, id := range q.IDs {
		// What was typed may be a text of the message, which a purge could not take
		// out of a manifest again: it names the envelope instead.
		ulid, _, err := named(v, id, q.Queue)
		if err != nil {
			return s, err
		}
		s.IDs = append(s.IDs, ulid)
	}
	var err error
	if q.Lineage != "" {
		if s.Lineage, _, err = named(v, q.Lineage, ""); err != nil {
			return s, err
		}
	}
	if s.DiedBefore, err = ago(q.OlderThan, now); err != nil {
		return s, err
	}
	if s.DiedFrom, err = ago(q.NewerThan, now); err != nil {
		return s, err
	}
	if q.Generation != "" {
		no, err := redrive.Find(v, q.Generation)
		if err != nil {
			return s, err
		}
		g, err := redrive.Get(v, no)
		if err != nil {
			return s, err
		}
		s.Generation = g.ID
	}
	for _, name := range q.Outcomes {
		if s.Outcomes = append(s.Outcomes, name); s.Generation == "" {
			return s, usage(errors.New("--outcome is what an envelope became in a generation: say in which, with --generation"))
		}
		if !slices.Contains(dispositions(), name) {
			return s, usage(fmt.Errorf("outcome %q is unknown; it is one of %s", name, strings.Join(dispositions(), ", ")))
		}
	}
	if s.Where != "" {
		s.WhereIn = c.o.Predicates.Language()
	}
	return s, nil
}

func dispositions() []string {
	out := make([]string, event.NumDispositions)
	for d := range out {
		out[d] = event.Disposition(d).String()
	}
	return out
}

// named finds an envelope and its ULID, among those that were captured from the
// queue unless that is "".
func named(v ledger.View, id, queue string) (ulid string, no event.EnvelopeNo, err error) {
	if no, err = quarantine.LookupIn(v, id, queue); err != nil {
		return "", 0, err
	}
	ulid, err = ulidOf(v, no)
	return ulid, no, err
}

// ago is the moment that lies a duration back, in ms and in whole seconds, 0
// for no duration.
func ago(text string, now time.Time) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(text)
	if err != nil {
		return 0, usage(err)
	}
	at := now.Add(-d).Unix()
	if at <= 0 {
		return 0, usage(fmt.Errorf("%s ago there were no messages", text))
	}
	return uint64(at) * 1000, nil
}

// conditions resolves a frozen selection. Now is when it was frozen.
func (c *Controller) conditions(v ledger.View, s *redrive.Selection, now time.Time) (conditions, error) {
	f := quarantine.Filter{Queue: s.Queue, Died: s.Died, Reason: s.Reason, Class: s.Class, Owner: s.Owner, Type: s.Type, Schema: s.Schema,
		DiedFrom: uint32(s.DiedFrom / 1000), DiedBefore: uint32(s.DiedBefore / 1000),
		MinAttempt: uint16(s.MinAttempts), MaxAttempt: uint16(s.MaxAttempts)}
	out := conditions{}
	for _, id := range s.IDs {
		_, no, err := named(v, id, "")
		if err != nil {
			return out, err
		}
		f.Nos = append(f.Nos, no)
	}
	if s.Lineage != "" {
		_, no, err := named(v, s.Lineage, "")
		if err != nil {
			return out, err
		}
		cell, _ := quarantine.GetCell(v, no)
		f.Lineage = cell.Root
	}
	if s.Generation != "" {
		set, err := of(v, s.Generation, s.Outcomes)
		if err != nil {
			return out, err
		}
		f.Among = append(f.Among, set)
	}
	if s.Note != "" {
		set, err := quarantine.Noted(v, s.Note)
		if err != nil {
			return out, err
		}
		f.Among = append(f.Among, set)
	}
	if s.Where != "" {
		var err error
		if out.where, err = c.o.Predicates.Compile(s.Where, now); err != nil {
			return out, usage(fmt.Errorf("--where: %w", err))
		}
	}
	out.filter = f
	_, err := f.Resolve(v)
	return out, usage(err)
}

// of is the set of what a generation has selected and what came back of it, all
// or those with one of the outcomes.
func of(v ledger.View, generation string, outcomes []string) (*quarantine.Numbers, error) {
	no, err := redrive.Find(v, generation)
	if err != nil {
		return nil, err
	}
	g, err := redrive.Get(v, no)
	if err != nil {
		return nil, err
	}
	m, err := redrive.GetManifest(v, g.Manifest)
	if err != nil {
		return nil, err
	}
	set := &quarantine.Numbers{}
	add := func(env event.EnvelopeNo, became event.Disposition) {
		if len(outcomes) > 0 && !slices.Contains(outcomes, became.String()) {
			return
		}
		set.Add(env)
		for _, kid := range quarantine.Kids(v, env) {
			set.Add(kid)
		}
	}
	err = redrive.EachMember(v, g, func(pos event.Position, env event.EnvelopeNo) error {
		member := redrive.GetMember(v, g.No, pos)
		add(env, member.Disposition())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return set, redrive.Exclusions(v, m, func(x redrive.Exclusion) error {
		became := event.Withheld
		if x.Reason == redrive.ReasonDuplicate {
			became = event.DeduplicatedPlan
		}
		add(x.Env, became)
		return nil
	})
}

// wherePage is how many envelopes a predicate looks at in one read transaction,
// and wherePageBytes how much of their content.
const (
	wherePage      = 256
	wherePageBytes = 8 << 20
)

// matching returns those of the envelopes for which the predicate holds, in
// order. When it cannot be told for one of them the error names it, and nothing
// is selected.
func (c *Controller) matching(where quarantine.Predicate, nos []event.EnvelopeNo) ([]event.EnvelopeNo, error) {
	if where == nil {
		return nos, nil
	}
	var out []event.EnvelopeNo
	for len(nos) > 0 {
		n := 0
		err := c.log.View(func(v ledger.View) error {
			for size := uint64(0); n < min(len(nos), wherePage) && size < wherePageBytes; n++ {
				s, err := quarantine.GetSubject(v, c.o.Keys, c.o.Blobs, nos[n], where.Content())
				if err != nil {
					return err
				}
				if s.Original != nil {
					size += s.Facts.BodySize + s.Facts.PropertiesSize
				}
				ok, err := where.Match(s)
				if err != nil {
					return usage(fmt.Errorf("--where selects nothing, because it cannot be told for envelope %s: %w", s.Facts.ID, err))
				}
				if ok {
					out = append(out, nos[n])
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		nos = nos[n:]
	}
	return out, nil
}

// list returns up to limit envelopes that the conditions select, in pages when
// there is a predicate.
func (c *Controller) list(cs conditions, limit int) ([]event.EnvelopeNo, error) {
	if cs.where == nil {
		var out []event.EnvelopeNo
		err := c.log.View(func(v ledger.View) (err error) {
			out, err = quarantine.List(v, cs.filter, limit)
			return err
		})
		return out, err
	}
	var out []event.EnvelopeNo
	f := cs.filter
	for len(out) < limit {
		var page []event.EnvelopeNo
		err := c.log.View(func(v ledger.View) (err error) {
			page, err = quarantine.List(v, f, scanPage)
			return err
		})
		if err != nil || len(page) == 0 {
			return out, err
		}
		for part := range slices.Chunk(page, wherePage) {
			hits, err := c.matching(cs.where, part)
			if err != nil {
				return nil, err
			}
			if out = append(out, hits...); len(out) >= limit {
				return out[:limit], nil
			}
		}
		f.AfterNo = page[len(page)-1]
	}
	return out, nil
}
