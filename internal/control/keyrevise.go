package control

import (
	"context"
	"errors"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// reviseOnFailure changes what a failure does to the rest of its key.
func (c *Controller) reviseOnFailure(ctx context.Context, req api.LimitRequest) (api.Generation, error) {
	if req.Rate != 0 || req.Burst+req.Window+req.Exposure > 0 {
		return api.Generation{}, usage(errors.New("--on-failure is revised alone: change limits by a call of their own"))
	}
	return c.act(ctx, req.ID, req.As, false, func(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
		g, err := redrive.Get(v, no)
		if err != nil {
			return nil, err
		}
		approved := req.Approve && request(ctx, req.As).Actor.Subject != g.Planner.Subject
		return redrive.ReviseOnFailure(v, no, req.OnFailure, req.Why, approved)
	})
}
