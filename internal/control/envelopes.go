package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

const (
	defaultPage = 100
	maxPage     = 500
	// maxChange bounds how many envelopes one act of a person changes.
	maxChange = 100_000
)

// conditionsOf resolves a query. The state of an envelope is no part of a selection
// that is kept: a plan takes what is quarantined.
func (c *Controller) conditionsOf(q api.EnvelopeQuery) (conditions, error) {
	var out conditions
	err := c.log.View(func(v ledger.View) error {
		now := c.o.Now()
		s, err := c.freezeSelection(v, q, now)
		if err != nil {
			return err
		}
		if out, err = c.conditions(v, &s, now); err != nil {
			return err
		}
		out.filter.Held, out.filter.Overdue, out.filter.AfterNo = q.Held, q.Overdue, event.EnvelopeNo(q.Cursor)
		for _, name := range q.Custody {
			x, ok := event.ParseCustody(name)
			if !ok {
				return usage(fmt.Errorf("custody %q is unknown; it is quarantined, released, returned, resolved or purged", name))
			}
			out.filter.Custody = append(out.filter.Custody, x)
		}
		return nil
	})
	return out, err
}

func (c *Controller) envelopeList(_ context.Context, q api.EnvelopeQuery) (api.EnvelopePage, error) {
	page := api.EnvelopePage{Envelopes: []api.Envelope{}}
	limit := q.Limit
	if limit == 0 {
		limit = defaultPage
	}
	if limit < 1 || limit > maxPage {
		return page, usage(fmt.Errorf("limit %d: want 1 to %d", limit, maxPage))
	}
	cs, err := c.conditionsOf(q)
	if err != nil {
		return page, err
	}
	nos, err := c.list(cs, limit+1)
	if err != nil {
		return page, err
	}
	if len(nos) > limit {
		nos = nos[:limit]
		page.Next = uint64(nos[limit-1])
	}
	err = c.log.View(func(v ledger.View) error {
		reserved, err := redrive.LoadReservations(v)
		if err != nil {
			return err
		}
		for _, no := range nos {
			e, err := c.envelope(v, no, reserved)
			if err != nil {
				return err
			}
			page.Envelopes = append(page.Envelopes, e)
		}
		return nil
	})
	return page, err
}

func (c *Controller) envelopeGroups(_ context.Context, q api.EnvelopeQuery) (api.EnvelopeGrouping, error) {
	out := api.EnvelopeGrouping{Groups: []api.EnvelopeGroup{}}
	cs, err := c.conditionsOf(q)
	if err != nil {
		return out, err
	}
	if cs.where != nil {
		nos, err := c.list(cs, maxGrouped+1)
		if err != nil {
			return out, err
		}
		if len(nos) > maxGrouped {
			return out, usage(fmt.Errorf("more than %d envelopes match; narrow the filter down", maxGrouped))
		}
		set := &quarantine.Numbers{}
		for _, no := range nos {
			set.Add(no)
		}
		cs.filter.Among = append(cs.filter.Among, set)
	}
	err = c.log.View(func(v ledger.View) error {
		groups, err := quarantine.Groups(v, cs.filter)
		for _, g := range groups {
			out.Groups = append(out.Groups, wireGroup(g))
			out.Total += g.Count
		}
		return err
	})
	return out, err
}

// maxGrouped bounds what a predicate may select for a grouping.
const maxGrouped = 10_000_000

// envelopeShow shows one envelope. A payload is recorded as viewed before a
// byte of it leaves.
func (c *Controller) envelopeShow(ctx context.Context, req api.EnvelopeShowRequest) (api.Envelope, error) {
	var no event.EnvelopeNo
	err := c.log.View(func(v ledger.View) error {
		var err error
		no, err = quarantine.Lookup(v, req.ID)
		return err
	})
	if err != nil {
		return api.Envelope{}, err
	}
	if req.Payload {
		what := "masked"
		if req.Raw {
			what = "raw"
		}
		_, err := c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
			return quarantine.View(v, event.RangesOf(no), what, req.Why)
		})
		if err != nil {
			return api.Envelope{}, err
		}
	} else if req.Raw {
		return api.Envelope{}, usage(errors.New("--raw belongs to --payload"))
	}
	var out api.Envelope
	err = c.log.View(func(v ledger.View) error {
		reserved, err := redrive.LoadReservations(v)
		if err != nil {
			return err
		}
		if out, err = c.envelope(v, no, reserved); err != nil {
			return err
		}
		return c.detail(v, no, &out, req)
	})
	return out, err
}

// registerChanges registers what people may change about envelopes.
func (c *Controller) registerChanges() {
	handle(c, api.EnvelopeClassify, quick(c.envelopeClassify))
	type decide = func(ledger.View, event.Ranges, api.EnvelopeChange) ([]event.Event, error)
	for _, x := range []struct {
		op api.Op[api.EnvelopeChange, api.Changed]
		fn decide
	}{
		{api.EnvelopeAnnotate, func(v ledger.View, e event.Ranges, r api.EnvelopeChange) ([]event.Event, error) {
			return quarantine.Annotate(v, e, r.Note, r.Ticket)
		}},
		{api.EnvelopeAssign, func(v ledger.View, e event.Ranges, r api.EnvelopeChange) ([]event.Event, error) {
			return quarantine.Assign(v, e, r.Owner, r.Why)
		}},
		{api.EnvelopeHold, func(v ledger.View, e event.Ranges, r api.EnvelopeChange) ([]event.Event, error) {
			return quarantine.Hold(v, e, r.Why, r.Ticket)
		}},
		{api.EnvelopeUnhold, func(v ledger.View, e event.Ranges, r api.EnvelopeChange) ([]event.Event, error) {
			return quarantine.Unhold(v, e, r.Why)
		}},
		{api.EnvelopeResolve, func(v ledger.View, e event.Ranges, r api.EnvelopeChange) ([]event.Event, error) {
			rs, err := redrive.LoadReservations(v)
			if err != nil {
				return nil, err
			}
			return quarantine.Resolve(v, e, r.Why, r.Ticket, rs.Of)
		}},
		{api.EnvelopePurge, func(v ledger.View, e event.Ranges, r api.EnvelopeChange) ([]event.Event, error) {
			rs, err := redrive.LoadReservations(v)
			if err != nil {
				return nil, err
			}
			return quarantine.Purge(v, e, r.Ticket, r.Why, rs.Of)
		}},
	} {
		handle(c, x.op, quick(func(ctx context.Context, req api.EnvelopeChange) (api.Changed, error) {
			return c.change(ctx, req, x.fn)
		}))
	}
}

func (c *Controller) change(ctx context.Context, req api.EnvelopeChange, decide func(ledger.View, event.Ranges, api.EnvelopeChange) ([]event.Event, error)) (api.Changed, error) {
	// Names are looked up before the decision, which must be short; it checks
	// each envelope's state again.
	envs, err := c.selected(req.IDs, req.Query)
	if err != nil {
		return api.Changed{}, err
	}
	rc, err := c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) { return decide(v, envs, req) })
	return api.Changed{Envelopes: envs.Count(), Seq: rc.Last}, err
}

// selected resolves the envelopes of a change: by id or by a filter.
func (c *Controller) selected(ids []string, query *api.EnvelopeQuery) (event.Ranges, error) {
	if (len(ids) == 0) == (query == nil) {
		return nil, usage(errors.New("say which envelopes: by id, or by a filter such as --where-reason, but not both"))
	}
	q := api.EnvelopeQuery{IDs: ids}
	if query != nil {
		q = *query
	}
	cs, err := c.conditionsOf(q)
	if err != nil {
		return nil, err
	}
	if query == nil {
		return event.RangesOf(cs.filter.Nos...), nil
	}
	nos, err := c.list(cs, maxChange+1)
	if err != nil {
		return nil, err
	}
	if len(nos) > maxChange {
		return nil, usage(fmt.Errorf("more than %d envelopes match; narrow the filter down", maxChange))
	}
	return event.RangesOf(nos...), nil
}
