package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/probe"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// places looks at the destinations themselves, each of them the same way. When
// the broker does not answer, that is what was found, and away says why.
func (t *vetting) places(ctx context.Context, m *redrive.Manifest, places []redrive.Destination) (seen []seenPlace, caps redrive.ReleaserCaps) {
	rel, err := t.c.o.Brokers.Releaser(ctx)
	if err != nil {
		t.away = err
		t.found(redrive.CheckRoute, redrive.CheckUnknown, true, "the destination was not looked at: %v", err)
		return nil, caps
	}
	for _, d := range places {
		route, err := rel.Route(ctx, d)
		if err != nil {
			t.away = fmt.Errorf("look at %s: %w", placeText(d), err)
			t.found(redrive.CheckRoute, redrive.CheckUnknown, true, "%s was not looked at: %v", placeText(d), err)
			return seen, rel.Caps()
		}
		seen = append(seen, seenPlace{d, &route})
	}
	original := m.Destination().Original
	t.route(seen, original)
	t.permission(seen, original)
	t.consumers(seen)
	t.depth(seen)
	return seen, rel.Caps()
}

type seenPlace struct {
	d     redrive.Destination
	route *redrive.Route
}

func (t *vetting) route(seen []seenPlace, original bool) {
	for _, s := range seen {
		if why := blocked(s.d, original, s.route); why != "" {
			t.found(redrive.CheckRoute, redrive.CheckFailed, true, "%s", why)
			return
		}
	}
	t.found(redrive.CheckRoute, redrive.CheckOK, true, "%s", listPlaces(seen)+" can be reached")
}

func listPlaces(seen []seenPlace) string {
	var names []string
	for i, s := range seen {
		if i == 5 {
			names = append(names, fmt.Sprintf("%d more", len(seen)-i))
			break
		}
		names = append(names, placeText(s.d))
	}
	if len(names) == 0 {
		return "the default exchange"
	}
	return strings.Join(names, ", ")
}

// permission can depend on the routing key, so of an original destination, of
// which only the exchange is looked at, a denial is no more than a warning.
func (t *vetting) permission(seen []seenPlace, original bool) {
	for _, s := range seen {
		if s.route.Exists && s.route.Denied != "" {
			t.found(redrive.CheckPermission, redrive.CheckFailed, !original, "%s: %s; %s", placeText(s.d), deniedText(s.route), deniedAdvice)
			return
		}
	}
	t.found(redrive.CheckPermission, redrive.CheckOK, !original, "the broker refuses nothing there")
}

// consumers only warns: somebody may start a release to make a queue full. While
// it runs, a destination that nobody consumes pauses it.
func (t *vetting) consumers(seen []seenPlace) {
	total, unknown := 0, false
	for _, s := range seen {
		switch {
		case s.route.Consumers < 0:
			unknown = true
		case s.route.Consumers == 0:
			t.found(redrive.CheckConsumers, redrive.CheckFailed, false, "%s has no consumer at this moment", placeText(s.d))
			return
		}
		total += max(s.route.Consumers, 0)
	}
	if unknown || len(seen) == 0 {
		t.found(redrive.CheckConsumers, redrive.CheckUnknown, false, "the broker does not tell who consumes behind an exchange")
		return
	}
	t.found(redrive.CheckConsumers, redrive.CheckOK, false, "%d consume there", total)
}

func (t *vetting) depth(seen []seenPlace) {
	limit := t.set.MaxDepth
	if limit == 0 {
		limit = config.DefaultMaxDepth
	}
	ready, unknown := 0, len(seen) == 0
	for _, s := range seen {
		unknown = unknown || s.route.Ready < 0
		ready = max(ready, s.route.Ready)
	}
	switch {
	case unknown:
		t.found(redrive.CheckDepth, redrive.CheckUnknown, false, "the broker does not tell how many messages wait behind an exchange")
	case int64(ready) > limit:
		t.found(redrive.CheckDepth, redrive.CheckFailed, true, "%d messages wait there already, more than %d (max_depth)", ready, limit)
	default:
		t.found(redrive.CheckDepth, redrive.CheckOK, true, "%d messages wait there", ready)
	}
}

// version asks what runs at the destination. Where nobody can be asked the
// canary's outcome tells.
func (t *vetting) version(ctx context.Context, want string) error {
	switch {
	case want == "":
		t.found(redrive.CheckConsumerVersion, redrive.CheckUnknown, false, "the plan expects no certain version (--consumer)")
		return nil
	case t.set.VersionProbe == nil:
		t.found(redrive.CheckConsumerVersion, redrive.CheckUnknown, false, "nobody is asked: the first outcome will tell")
		return nil
	}
	p, err := t.c.askVersion(t.set.VersionProbe)
	if err == nil {
		t.looked(redrive.CheckConsumerVersion, p.Is(ctx, want))
	}
	return err
}

// probes asks what the configuration says is to be asked.
func (t *vetting) probes(ctx context.Context) error {
	for _, name := range t.set.Probes {
		p, err := t.c.probe(name)
		if err != nil {
			return err
		}
		t.looked(probePrefix+name, p.Look(ctx))
	}
	return nil
}

// looked takes the answer of a probe: no answer is never a good one.
func (t *vetting) looked(name string, l probe.Look) {
	result := redrive.CheckUnknown
	switch l.Verdict {
	case probe.OK:
		result = redrive.CheckOK
	case probe.Breach:
		result = redrive.CheckFailed
	case probe.Inconclusive, probe.Failed:
	}
	t.found(name, result, true, "%s", l.Detail)
}

// preflight makes all checks of a start or resume, records them, and refuses
// when one stands in the way. Nothing was changed then but the record. Decide is
// the act that they are made for: what it refuses needs no checks.
func (c *Controller) preflight(ctx context.Context, no event.GenerationNo, phase, as string, progress func(api.Progress), decide func(ledger.View) error) error {
	var g *redrive.Generation
	err := c.log.View(func(v ledger.View) error {
		var err error
		if g, err = redrive.Get(v, no); err == nil {
			err = decide(v)
		}
		return err
	})
	if err != nil {
		return err
	}
	m, err := c.manifest(g)
	if err != nil {
		return err
	}
	set, _ := c.o.Config.Destination(g.Destination)
	t := &vetting{c: c, now: c.o.Now(), set: set, each: c.eachWaiting(g), forced: m.Forced}
	if err := t.all(ctx, m); err != nil {
		return err
	}
	_, err = c.update(ctx, as, func(v ledger.View) ([]event.Event, error) {
		e, err := redrive.Preflight(no, phase, t.checks)
		return []event.Event{e}, err
	})
	if err != nil {
		return err
	}
	if t.away != nil {
		return t.away
	}
	var stand []string
	for _, x := range t.checks {
		switch {
		case x.Stands():
			stand = append(stand, x.Name+": "+x.Evidence)
		case x.Result == redrive.CheckFailed:
			progress(api.Progress{Stage: "note", Message: x.Evidence})
		}
	}
	if len(stand) > 0 {
		return &api.Error{Code: api.CodeRefused, Message: strings.Join(stand, "; ") + "; nothing was started"}
	}
	return nil
}

// all makes every check of a generation that is to run now. What the plan
// would have withheld makes it out of date.
func (t *vetting) all(ctx context.Context, m *redrive.Manifest) error {
	t.places(ctx, m, m.Places())
	if err := t.version(ctx, m.Consumer); err != nil {
		return err
	}
	if err := t.probes(ctx); err != nil {
		return err
	}
	from := len(t.checks)
	if err := t.run(ctx); err != nil {
		return err
	}
	for i := range t.checks[from:] {
		if x := &t.checks[from+i]; x.Result == redrive.CheckFailed {
			x.Required = true
			x.Evidence += "; the plan is out of date: reject or abort it, and plan again"
		}
	}
	return nil
}

// eachWaiting visits the members of a generation that have not been sent.
func (c *Controller) eachWaiting(g *redrive.Generation) func(fn func(ledger.View, event.EnvelopeNo) error) error {
	return func(fn func(ledger.View, event.EnvelopeNo) error) error {
		for from := uint64(0); from < g.Members; from += vetPage {
			err := c.log.View(func(v ledger.View) error {
				return redrive.EachWaiting(v, g, event.Position(from), event.Position(min(from+vetPage, g.Members)),
					func(_ event.Position, no event.EnvelopeNo) error { return fn(v, no) })
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func wireChecks(list []redrive.Check) []api.Check {
	out := []api.Check{}
	for _, x := range list {
		out = append(out, api.Check{Name: x.Name, Result: string(x.Result), Required: x.Required, Evidence: x.Evidence, At: moment(x.At)})
	}
	return out
}
