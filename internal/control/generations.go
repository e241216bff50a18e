package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// find turns an id of a request into a number.
func (c *Controller) find(id string) (event.GenerationNo, error) {
	if id == "" {
		return 0, usage(errors.New("which generation? give its number or id; list them with: redrive generation list"))
	}
	var no event.GenerationNo
	err := c.log.View(func(v ledger.View) error {
		var err error
		no, err = redrive.Find(v, id)
		return err
	})
	return no, err
}

// act runs a decision on a generation and answers with its state after it.
func (c *Controller) act(ctx context.Context, id, as string, urgent bool, decide func(ledger.View, event.GenerationNo) ([]event.Event, error)) (api.Generation, error) {
	no, err := c.find(id)
	if err != nil {
		return api.Generation{}, err
	}
	req := request(ctx, as)
	req.Urgent = urgent
	if _, err := c.log.Update(ctx, req, func(v ledger.View) ([]event.Event, error) { return decide(v, no) }); err != nil {
		return api.Generation{}, err
	}
	return c.show(no)
}

func (c *Controller) generationList(context.Context, api.None) (api.GenerationPage, error) {
	page := api.GenerationPage{Generations: []api.Generation{}}
	err := c.log.View(func(v ledger.View) error {
		gens, err := redrive.All(v)
		if err != nil {
			return err
		}
		for _, g := range gens {
			w, err := c.wire(v, g)
			if err != nil {
				return err
			}
			page.Generations = append(page.Generations, w)
		}
		return nil
	})
	return page, err
}

func (c *Controller) generationShow(_ context.Context, req api.GenerationRef) (api.Generation, error) {
	no, err := c.find(req.ID)
	if err != nil {
		return api.Generation{}, err
	}
	return c.show(no)
}

func (c *Controller) approve(ctx context.Context, req api.ApproveRequest) (api.Generation, error) {
	if req.Digest == "" {
		return api.Generation{}, usage(errors.New("an approval names the digest of the manifest that was looked at: --digest"))
	}
	return c.act(ctx, req.ID, req.As, false, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
		return redrive.Approve(v, no, req.Digest, request(ctx, req.As).Actor, req.Why, redrive.ApprovalRules{TTL: time.Duration(c.o.Config.Approvals.TTL)})
	})
}

func (c *Controller) reject(ctx context.Context, req api.GenerationAct) (api.Generation, error) {
	return c.act(ctx, req.ID, req.As, false, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
		return redrive.Reject(v, no, req.Why)
	})
}

// start makes the checks again, consumes the approval and drives the
// release.
func (c *Controller) start(ctx context.Context, req api.RunRequest, progress func(api.Progress)) (api.Generation, error) {
	no, err := c.find(req.ID)
	if err != nil {
		return api.Generation{}, err
	}
	ready := func(v ledger.View) error { _, err := redrive.MayStart(v, no); return err }
	if err := c.preflight(ctx, no, redrive.PhaseStart, req.As, progress, ready); err != nil {
		return api.Generation{}, err
	}
	if _, err := c.act(ctx, req.ID, req.As, false, redrive.Start); err != nil {
		return api.Generation{}, err
	}
	return c.driveAndShow(ctx, no, req.NoWait, progress)
}

func (c *Controller) driveAndShow(ctx context.Context, no event.GenerationNo, noWait bool, progress func(api.Progress)) (api.Generation, error) {
	if err := c.drive(ctx, no, noWait, progress); err != nil {
		return api.Generation{}, err
	}
	return c.show(no)
}

// resume clears the reasons of a pause and drives on. A generation that is
// running, but that nobody drives since its process ended, is driven on
// without a record.
func (c *Controller) resume(ctx context.Context, req api.RunRequest, progress func(api.Progress)) (api.Generation, error) {
	no, err := c.find(req.ID)
	if err != nil {
		return api.Generation{}, err
	}
	g, err := c.generation(no)
	if err != nil {
		return api.Generation{}, err
	}
	if g.State == event.Running && c.o.Now().Sub(time.UnixMilli(int64(max(g.Approval.At, g.Started.At)))) > redrive.ApprovalAge {
		return api.Generation{}, fmt.Errorf("generation %d was started more than 24 h ago and nobody releases it; pause it, have it approved again, and resume: %w", no, redrive.ErrState)
	}
	said := redrive.Resumption{By: request(ctx, req.As).Actor, Why: req.Why, Clear: req.Clear, Digest: req.Digest,
		HoldDown: time.Duration(c.o.Config.Brake.HoldDown)}
	if g.State == event.Paused || g.State == event.Running {
		ready := func(v ledger.View) error {
			if g.State == event.Running {
				return nil
			}
			_, err := redrive.MayResume(v, no, said)
			return err
		}
		if err := c.preflight(ctx, no, redrive.PhaseResume, req.As, progress, ready); err != nil && !c.ended(g) {
			return api.Generation{}, err
		}
	}
	if g.State != event.Running && g.State != event.Settling && g.State != event.Aborted {
		if _, err := c.act(ctx, req.ID, req.As, false, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
			return redrive.Resume(v, no, said)
		}); err != nil {
			return api.Generation{}, err
		}
		c.watchOf(no).reset()
	}
	return c.driveAndShow(ctx, no, req.NoWait, progress)
}

// ended reports whether a generation that was running has decided everything
// since: it needs no checks any more, and takes no record of them.
func (c *Controller) ended(was *redrive.Generation) bool {
	g, err := c.generation(was.No)
	return err == nil && was.State == event.Running && g.State != event.Running && g.State != event.Paused
}

// pause stops one generation, or all that run. The gate closes first, then the
// stop is committed.
func (c *Controller) pause(ctx context.Context, req api.PauseRequest) (api.Paused, error) {
	var nos []event.GenerationNo
	if (req.ID == "") == !req.All {
		return api.Paused{}, usage(errors.New("give one generation, or --all"))
	}
	if req.All {
		err := c.log.View(func(v ledger.View) error {
			gens, err := redrive.Unfinished(v)
			for _, g := range gens {
				if g.State == event.Running || g.State == event.Paused {
					nos = append(nos, g.No)
				}
			}
			return err
		})
		if err != nil {
			return api.Paused{}, err
		}
	} else {
		no, err := c.find(req.ID)
		if err != nil {
			return api.Paused{}, err
		}
		nos = append(nos, no)
	}
	// All gates first: what a later commit refuses was held up for a moment.
	for _, no := range nos {
		c.gates.of(no).shut()
	}
	out := api.Paused{Generations: []api.Generation{}}
	var failed error
	for _, no := range nos {
		lr := request(ctx, req.As)
		lr.Urgent = true
		_, err := c.log.Update(ctx, lr, func(v ledger.View) ([]event.Event, error) {
			return redrive.PauseBy(v, no, redrive.PauseOperator, req.Why)
		})
		if err == nil {
			var g api.Generation
			if g, err = c.show(no); err == nil {
				out.Generations = append(out.Generations, g)
			}
		}
		if req.All && errors.Is(err, redrive.ErrState) {
			continue // it ended by itself meanwhile
		}
		failed = errors.Join(failed, err)
	}
	return out, failed
}

func (c *Controller) abort(ctx context.Context, req api.GenerationAct) (api.Generation, error) {
	return c.act(ctx, req.ID, req.As, true, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
		return redrive.Abort(v, no, req.Why)
	})
}

func (c *Controller) limit(ctx context.Context, req api.LimitRequest) (api.Generation, error) {
	if req.OnFailure != "" {
		return c.reviseOnFailure(ctx, req)
	}
	return c.act(ctx, req.ID, req.As, false, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
		g, err := redrive.Get(v, no)
		if err != nil {
			return nil, err
		}
		l := g.Limits
		if req.Rate != 0 {
			if l.RateMilli, err = redrive.RateMilli(req.Rate); err != nil {
				return nil, usage(err)
			}
			if req.Burst == 0 {
				l.Burst = min(l.Burst, uint32(min(max(req.Rate/50, 1), redrive.MaxWindow)))
			}
		}
		if req.Burst > 0 {
			l.Burst = req.Burst
		}
		if req.Window > 0 {
			l.Window = req.Window
		}
		if req.Exposure > 0 {
			l.Exposure = req.Exposure
		}
		approved := req.Approve && request(ctx, req.As).Actor.Subject != g.Planner.Subject
		revised, err := redrive.ReviseThresholds(v, no, req.Thresholds, req.Why, approved)
		if err != nil {
			return nil, err
		}
		if l == g.Limits && len(revised) > 0 {
			return revised, nil
		}
		if l == g.Limits {
			return nil, usage(errors.New("nothing to change: give --rate, --burst, --window, --exposure or --threshold, and not what holds already"))
		}
		if err := redrive.CheckLimits(l); err != nil {
			return nil, usage(err)
		}
		events, err := redrive.Limit(v, no, l, req.Why, approved)
		return append(events, revised...), err
	})
}

func (c *Controller) rule(ctx context.Context, req api.RuleRequest) (api.Generation, error) {
	ruling := event.RuledNotDelivered
	if req.Delivered {
		ruling = event.RuledDelivered
	}
	if (req.Intent == "") == (req.ID == "") {
		return api.Generation{}, usage(errors.New("give one --intent GENERATION/POSITION/TRY, or a generation for all its ambiguous intents"))
	}
	id := req.ID
	var only *event.IntentID
	if req.Intent != "" {
		parsed, err := event.ParseIntentID(req.Intent)
		if err != nil {
			return api.Generation{}, usage(err)
		}
		only, id = &parsed, fmt.Sprint(parsed.Gen)
	}
	return c.act(ctx, id, req.As, false, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
		if only != nil {
			return redrive.Rule(v, *only, ruling, req.Why)
		}
		return redrive.RuleAll(v, no, ruling, req.Why)
	})
}

func (c *Controller) closeGeneration(ctx context.Context, req api.CloseRequest) (api.Generation, error) {
	return c.act(ctx, req.ID, req.As, false, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
		return redrive.Close(v, no, redrive.Statement{Ambiguous: req.Ambiguous, Missing: req.Missing, Withheld: req.Withheld}, req.Why)
	})
}
