package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// A data directory belongs to one broker. The first capture, plan or start
// records which one, and from then on no other is let in here: a restored
// backup or a changed name in the network must not move messages between
// clusters whose queues have the same names.

// guarded lets nobody get at a broker that the store does not belong to. Fresh
// connections are for those who only look.
type guarded struct {
	Brokers
	c *Controller
}

// Source implements Brokers.
func (g guarded) Source(ctx context.Context) (quarantine.Source, error) {
	s, err := g.Brokers.Source(ctx)
	if err == nil {
		err = g.c.mayUse(pinOfSource(s))
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Releaser implements Brokers.
func (g guarded) Releaser(ctx context.Context) (redrive.Releaser, error) {
	r, err := g.Brokers.Releaser(ctx)
	if err == nil {
		err = g.c.mayUse(pinOfReleaser(r))
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func pinOfSource(s quarantine.Source) quarantine.Pin {
	caps := s.Caps()
	return quarantine.Pin{Broker: caps.Broker, Cluster: caps.Cluster, VHost: caps.VHost}
}

func pinOfReleaser(r redrive.Releaser) quarantine.Pin {
	caps := r.Caps()
	return quarantine.Pin{Broker: caps.Broker, Cluster: caps.Cluster, VHost: caps.VHost}
}

func (c *Controller) mayUse(now quarantine.Pin) error {
	return c.log.View(func(v ledger.View) error { return quarantine.CheckPin(v, now) })
}

// pin ties the store to a broker at the first contact.
func (c *Controller) pin(ctx context.Context, as string, now quarantine.Pin) error {
	return c.decideOnce(ctx, as, func(v ledger.View) ([]event.Event, error) { return quarantine.FirstContact(v, now) })
}

// decideOnce makes a decision that mostly has nothing to record, and then costs
// no transaction.
func (c *Controller) decideOnce(ctx context.Context, as string, decide ledger.Decide) error {
	n := 0
	err := c.log.View(func(v ledger.View) error {
		events, err := decide(v)
		n = len(events)
		return err
	})
	if err == nil && n > 0 {
		_, err = c.update(ctx, as, decide)
	}
	return err
}

// contact checks which broker is at hand, and pins it at the first contact when
// that is to be recorded. A broker that does not answer is the business of
// whoever needs it.
func (c *Controller) contact(ctx context.Context, as string, record bool) error {
	r, err := c.o.Brokers.Releaser(ctx)
	switch {
	case errors.Is(err, quarantine.ErrOtherBroker):
		return err
	case err != nil || !record:
		return nil //nolint:nilerr // see above
	}
	return c.pin(ctx, as, pinOfReleaser(r))
}

// atBroker is an operation that moves messages, behind the contact.
func (c *Controller) atBroker(fn func(context.Context, api.RunRequest, func(api.Progress)) (api.Generation, error)) func(context.Context, api.RunRequest, func(api.Progress)) (api.Generation, error) {
	return func(ctx context.Context, req api.RunRequest, progress func(api.Progress)) (api.Generation, error) {
		if err := c.contact(ctx, req.As, true); err != nil {
			return api.Generation{}, err
		}
		return fn(ctx, req, progress)
	}
}

// sourcePin ties the store to the broker that is configured now, by a person's
// decision. Nothing may be under way that was meant for the other one.
func (c *Controller) sourcePin(ctx context.Context, req api.PinRequest) (api.PinResult, error) {
	if req.Why == "" {
		return api.PinResult{}, usage(errors.New("give a reason: --why TEXT"))
	}
	if err := c.idleFor("source pin"); err != nil {
		return api.PinResult{}, err
	}
	src, _, end, err := c.o.Brokers.Fresh(ctx)
	if err != nil {
		return api.PinResult{}, err
	}
	now := pinOfSource(src)
	if err := end(); err != nil {
		return api.PinResult{}, err
	}
	out := api.PinResult{Now: wirePin(now)}
	err = c.decideOnce(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
		before, known, err := quarantine.Pinned(v)
		if err != nil {
			return nil, err
		}
		out.Before = nil
		if known {
			b := wirePin(before)
			out.Before = &b
		}
		if known && !before.Same(now) {
			if err := noneOpen(v, before); err != nil {
				return nil, err
			}
		}
		events, err := quarantine.Repin(v, now, req.Why)
		out.Changed = len(events) > 0
		return events, err
	})
	if err != nil {
		return api.PinResult{}, err
	}
	// Connections that were opened to the one before say that they are it.
	return out, c.o.Brokers.Forget()
}

func wirePin(p quarantine.Pin) api.Broker {
	return api.Broker{Product: p.Broker, Cluster: p.Cluster, VHost: p.VHost}
}

// idleFor refuses what may not happen while this process moves messages.
func (c *Controller) idleFor(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.capturing) > 0 || len(c.driven) > 0 {
		return &api.Error{Code: api.CodeRefused, Message: what + ": this process is capturing or releasing; let it end, or interrupt it, and try again"}
	}
	return nil
}

// noneOpen refuses while generations wait that were planned for another broker:
// their approval does not hold for this one.
func noneOpen(v ledger.View, before quarantine.Pin) error {
	gens, err := redrive.Unfinished(v)
	if err != nil {
		return err
	}
	var open []string
	for _, g := range gens {
		if g.State.Open() {
			open = append(open, fmt.Sprint(g.No))
		}
	}
	if len(open) == 0 {
		return nil
	}
	slices.Sort(open)
	return &api.Error{Code: api.CodeRefused, Message: fmt.Sprintf("generation %s: planned for %s; finish, reject or abort it first, and plan anew for the other broker", strings.Join(open, ", "), before)}
}
