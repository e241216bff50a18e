package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// envelopeClassify changes what is said of envelopes. What changes is found
// before the decision, which must be short and checks that nobody was faster.
func (c *Controller) envelopeClassify(ctx context.Context, req api.ClassifyRequest) (api.Classified, error) {
	out := api.Classified{DryRun: req.DryRun, Policy: c.policy.Version, Changes: []api.ClassChange{}}
	say, err := c.classification(&req)
	if err != nil {
		return out, err
	}
	if req.ByPolicy && req.Query != nil && len(req.Query.Custody) == 0 {
		// What is settled stays as it was settled, unless somebody asks for it.
		q := *req.Query
		q.Custody, req.Query = []string{event.Quarantined.String()}, &q
	}
	envs, err := c.selected(req.IDs, req.Query)
	if err != nil {
		return out, err
	}
	if envs.Count() == 0 {
		return out, fmt.Errorf("no envelope given: %w", quarantine.ErrNoEnvelope)
	}
	changes, err := c.reclassifications(ctx, envs, say)
	if err != nil {
		return out, err
	}
	summarize(&out, changes)
	if req.DryRun {
		return out, nil
	}
	if req.ByPolicy && out.Envelopes == 0 {
		return out, nil // there is nothing to record
	}
	rc, err := c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
		if req.ByPolicy {
			return quarantine.Reclassify(v, changes, c.policy.Version, req.Why)
		}
		return quarantine.Classify(v, envs, req.Class, req.Reason, c.policy.Version, req.Why)
	})
	out.Seq = rc.Last
	return out, err
}

// classification returns how the new standing of an envelope is found.
func (c *Controller) classification(req *api.ClassifyRequest) (func(ledger.View, event.EnvelopeNo) (quarantine.Reclassification, error), error) {
	class, known := event.ParseClass(req.Class)
	switch {
	case req.ByPolicy && req.Class != "":
		return nil, usage(errors.New("the policy says the class: give either a class or by policy"))
	case req.ByPolicy && req.Reason == "":
		return c.rejudging()
	case req.ByPolicy && !c.policy.Knows(req.Reason):
		return nil, usage(fmt.Errorf("the policy does not know the reason %.80q: list it under reasons, or give a class instead", req.Reason))
	case req.Class == "" && req.Reason == "":
		return nil, usage(errors.New("nothing to change: give a class or a reason, or let the policy say it with --by-policy"))
	case req.Class != "" && !known:
		return nil, usage(fmt.Errorf("class %.80q is unknown", req.Class))
	}
	return func(v ledger.View, no event.EnvelopeNo) (quarantine.Reclassification, error) {
		was, err := quarantine.GetStanding(v, no)
		is := was
		is.Reason = cmp.Or(req.Reason, is.Reason)
		if req.Class != "" {
			is.Class = class.String()
		}
		if req.ByPolicy {
			class, owner := c.policy.Classify(req.Reason)
			is.Class, is.Owner = class.String(), owner
		}
		return quarantine.Reclassification{No: no, Was: was, Is: is}, err
	}, nil
}

// rejudging applies the policy to what messages say of themselves.
func (c *Controller) rejudging() (func(ledger.View, event.EnvelopeNo) (quarantine.Reclassification, error), error) {
	judge, err := c.judge()
	if err != nil {
		return nil, err
	}
	rules := map[string]*quarantine.Rules{}
	return func(v ledger.View, no event.EnvelopeNo) (out quarantine.Reclassification, err error) {
		f, err := quarantine.GetFacts(v, no)
		if err != nil {
			return out, err
		}
		if rules[f.Queue] == nil {
			source := c.o.Config.Source(f.Queue)
			ru, err := source.Rules()
			if err != nil {
				return out, usage(err)
			}
			rules[f.Queue] = &ru
		}
		return quarantine.Rejudge(v, c.o.Keys, c.o.Blobs, no, rules[f.Queue], judge)
	}, nil
}

// reclassifications finds the changes, a few hundred envelopes at a time, so
// that nobody waits for one long look.
func (c *Controller) reclassifications(ctx context.Context, envs event.Ranges, say func(ledger.View, event.EnvelopeNo) (quarantine.Reclassification, error)) ([]quarantine.Reclassification, error) {
	var nos []event.EnvelopeNo
	for n := range envs.All() {
		nos = append(nos, event.EnvelopeNo(n))
	}
	out := make([]quarantine.Reclassification, 0, len(nos))
	for part := range slices.Chunk(nos, maxPage) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err := c.log.View(func(v ledger.View) error {
			for _, no := range part {
				x, err := say(v, no)
				if err != nil {
					return err
				}
				out = append(out, x)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// summarize groups changes, the largest group first.
func summarize(out *api.Classified, changes []quarantine.Reclassification) {
	type change struct{ was, is quarantine.Standing }
	counts := map[change]uint64{}
	for _, c := range changes {
		if c.Was == c.Is {
			out.Same++
			continue
		}
		out.Envelopes++
		counts[change{c.Was, c.Is}]++
	}
	for x, n := range counts {
		out.Changes = append(out.Changes, api.ClassChange{Count: n, From: api.Standing(x.was), To: api.Standing(x.is)})
	}
	slices.SortFunc(out.Changes, func(a, b api.ClassChange) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.From.Reason, b.From.Reason), cmp.Compare(a.From.Class, b.From.Class),
			cmp.Compare(a.From.Owner, b.From.Owner), cmp.Compare(a.To.Reason, b.To.Reason), cmp.Compare(a.To.Class, b.To.Class), cmp.Compare(a.To.Owner, b.To.Owner))
	})
}
