package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// destination says where the messages go, and refuses to guess.
func (p *planning) destination() (redrive.Destination, error) {
	r := &p.req
	if countTrue(r.ToQueue != "", r.ToFirst, r.ToExchange != "", r.ToOriginal) > 1 {
		return redrive.Destination{}, usage(errors.New("give one of --to-queue, --to-first, --to-exchange and --to-original"))
	}
	switch {
	case r.ToOriginal:
		return redrive.Destination{Original: true}, p.original()
	case r.ToQueue != "":
		return p.allowed(redrive.Destination{RoutingKey: r.ToQueue})
	case r.ToExchange != "":
		if r.ToRoutingKey == "" {
			return redrive.Destination{}, usage(errors.New("--to-exchange needs --to-routing-key"))
		}
		return p.allowed(redrive.Destination{Exchange: r.ToExchange, RoutingKey: r.ToRoutingKey})
	}
	died, err := p.hops()
	if err != nil {
		return redrive.Destination{}, err
	}
	if len(died) > 1 {
		return redrive.Destination{}, usage(fmt.Errorf("the messages died in %d different queues: %s; plan one with --died QUEUE, or name the destination with --to-queue", len(died), counted(died)))
	}
	for queue := range died {
		switch {
		case queue == "":
			return redrive.Destination{}, usage(errors.New("the messages do not say in which queue they died (no x-death header); name the destination with --to-queue"))
		case len(queue) > maxName || queue == quarantine.OtherText || strings.ContainsRune(queue, utf8.RuneError):
			return redrive.Destination{}, usage(fmt.Errorf("the name of the queue in which the messages died is not known byte for byte, only as %q; name the destination with --to-queue", queue))
		case p.c.isSource(queue):
			return redrive.Destination{}, usage(fmt.Errorf("the messages died in %s, which is captured from itself; name the destination with --to-queue", queue))
		}
		return redrive.Destination{RoutingKey: queue}, nil
	}
	return redrive.Destination{}, nil
}

// maxName is how many bytes AMQP has for a name.
const maxName = 255

// hops counts the members by the queue in which they died last, or first when
// that was asked for.
func (p *planning) hops() (map[string]uint64, error) {
	if !p.req.ToFirst {
		return p.died, nil
	}
	first := map[string]uint64{}
	err := p.eachMember(func(v ledger.View, no event.EnvelopeNo) error {
		f, err := quarantine.GetFacts(v, no)
		if err == nil {
			first[f.OriginQueue]++
		}
		return err
	})
	return first, err
}

// counted lists up to ten names with their counts.
func counted(m map[string]uint64) string {
	var parts []string
	for _, name := range sorted(m) {
		if len(parts) == 10 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%d in %q", m[name], name))
	}
	return strings.Join(parts, ", ")
}

// original finds the exchanges with which the members were first published,
// each of which has to be allowed: what goes there reaches every queue bound to
// it.
func (p *planning) original() error {
	unseen := 0
	err := p.eachMember(func(v ledger.View, no event.EnvelopeNo) error {
		f, err := quarantine.GetFacts(v, no)
		if err != nil {
			return err
		}
		p.origins[f.OriginExchange]++
		if d := (redrive.Destination{Exchange: f.OriginExchange, RoutingKey: f.OriginRoutingKey}); !slices.Contains(p.places, d) {
			if len(p.places) < maxPlaces {
				p.places = append(p.places, d)
			} else {
				unseen++
			}
		}
		if f.OriginExchange != "" {
			return nil
		}
		d := redrive.Destination{RoutingKey: f.OriginRoutingKey}
		// Anybody who can publish can write such a history into a message, and one
		// among many is seen by nobody. So where it died counts only when all died
		// there, which is the default destination.
		here := d.RoutingKey != "" && d.RoutingKey == f.DiedQueue && p.died[d.RoutingKey] == uint64(len(p.members))
		if _, listed := p.c.o.Config.Destination(d); !listed && !here {
			return &api.Error{Code: api.CodeRefused, Message: fmt.Sprintf("%s says that it was first published to %s, which is not listed under destinations in the configuration, and not all of the messages died there; list it, or narrow the selection down, for example with --died QUEUE", f.ID, destinationText(d))}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(p.origins) > maxOrigins {
		return usage(fmt.Errorf("the messages came through %d exchanges, one plan takes %d; narrow the selection down", len(p.origins), maxOrigins))
	}
	for _, x := range sorted(p.origins) {
		if _, listed := p.c.o.Config.Exchange(x); !listed {
			return &api.Error{Code: api.CodeRefused, Message: fmt.Sprintf("%d of the messages came through %s, which is not listed under destinations in the configuration (exchange, without a routing key)", p.origins[x], exchangeText(x))}
		}
		p.m.Original = append(p.m.Original, x)
	}
	if unseen > 0 {
		p.warn = append(p.warn, fmt.Sprintf("the messages go to more than %d different keys: the destinations of %d of them are neither listed here nor looked at; narrow the selection down to see them", maxPlaces, unseen))
	}
	return nil
}

// maxOrigins bounds the exchanges of one generation: each is looked at before
// a start.
const maxOrigins = 64

func countTrue(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

func (c *Controller) isSource(queue string) bool {
	for _, s := range c.o.Config.Sources {
		if s.Queue == queue {
			return true
		}
	}
	return false
}

// allowed holds explicit destinations against the allow-list.
func (p *planning) allowed(d redrive.Destination) (redrive.Destination, error) {
	if n := max(len(d.Exchange), len(d.RoutingKey)); n > maxName {
		return d, usage(fmt.Errorf("a queue, an exchange and a routing key have at most %d bytes, not %d", maxName, n))
	}
	_, listed := p.c.o.Config.Destination(d)
	if !listed && !(d.Exchange == "" && p.died[d.RoutingKey] > 0) {
		return d, &api.Error{Code: api.CodeRefused, Message: fmt.Sprintf("%s is neither the queue in which the messages died nor listed under destinations in the configuration", destinationText(d))}
	}
	return d, nil
}

// patience is how long an outcome of a destination may take by default: what the
// policy says about the queue, else what it is in the reference system.
func (c *Controller) patience(d redrive.Destination) time.Duration {
	if q, ok := c.policy.Queue(d.RoutingKey); ok && d.Exchange == "" && !d.Original {
		return q.OutcomeDeadline()
	}
	return 20 * time.Minute
}

func destinationText(d redrive.Destination) string {
	switch {
	case d.Original:
		return "the original exchange and key of each"
	case d.Exchange == "":
		return "queue " + d.RoutingKey
	}
	return "exchange " + d.Exchange + " with key " + d.RoutingKey
}

func exchangeText(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return "exchange " + name
}

// preflight looks at the destination. In a plan nothing of it refuses: it
// warns. The start looks again and refuses.
func (p *planning) preflight(ctx context.Context, d redrive.Destination) (redrive.ReleaserCaps, error) {
	if p.c.isSource(d.RoutingKey) && d.Exchange == "" {
		p.warn = append(p.warn, "the destination is itself captured: what is released there comes straight back")
	}
	if p.m.Evidence == redrive.EvidenceReturns {
		p.warn = append(p.warn, "returns_only: no consumer reports outcomes here, so a silent message ends as missing, never as succeeded")
	}
	if !d.Original {
		p.places = []redrive.Destination{d}
	}
	set, _ := p.c.o.Config.Destination(d)
	t := &vetting{c: p.c, now: p.now, set: set}
	seen, caps := t.places(ctx, &p.m, p.places)
	if t.away != nil {
		p.warn = append(p.warn, t.checks[0].Evidence)
	}
	for _, s := range seen {
		p.routes = append(p.routes, api.Route{To: destinationText(s.d), Queues: s.route.Receivers})
		p.warn = append(p.warn, routeWarnings(s.d, s.route)...)
	}
	if err := errors.Join(t.version(ctx, p.m.Consumer), t.probes(ctx)); err != nil {
		return caps, err
	}
	p.checks = append(t.checks, p.checks...)
	return caps, nil
}

// maxPlaces is how many different destinations a plan looks at.
const maxPlaces = 20

// deniedAdvice is what to do about a destination that takes nothing from us.
const deniedAdvice = "give redrive's user write permission there, on the exchange amq.default for queues"

func deniedText(route *redrive.Route) string {
	return "the broker would refuse every message: " + route.Denied
}

// routeWarnings says what somebody should know about a destination before
// anything goes there.
func routeWarnings(d redrive.Destination, route *redrive.Route) (warn []string) {
	name := destinationText(d)
	switch {
	case !route.Exists:
		return []string{name + " does not exist; the start will refuse"}
	case route.Consumers == 0:
		warn = append(warn, name+" has no consumer at this moment")
	}
	if route.Denied != "" {
		warn = append(warn, name+": "+deniedText(route)+"; "+deniedAdvice)
	}
	if d.Exchange != "" && len(route.Receivers) > 1 {
		warn = append(warn, fmt.Sprintf("%s reaches %d queues, each gets a copy, also if it had the message before: %s", name, len(route.Receivers), strings.Join(route.Receivers, ", ")))
	}
	for _, f := range route.Findings {
		text := findingText(f)
		if f.Advice != "" {
			text += " (" + f.Advice + ")"
		}
		if f.Severity == quarantine.Blocks {
			text += "; the start will refuse"
		}
		warn = append(warn, text)
	}
	if d.Exchange != "" && route.Receivers == nil {
		warn = append(warn, name+": every queue that is bound there gets a copy, also those that had the message before")
	}
	return warn
}

// blocked is why nothing can be released to a destination, "" when it can. Of
// the original destination only the exchange is looked at: its keys are many.
func blocked(d redrive.Destination, original bool, route *redrive.Route) string {
	if !route.Exists {
		return placeText(d) + " does not exist at the broker; nothing was started"
	}
	// A permission can depend on the routing key.
	if route.Denied != "" && !original {
		return fmt.Sprintf("%s: %s; %s; nothing was started", placeText(d), deniedText(route), deniedAdvice)
	}
	for _, f := range route.Findings {
		if f.Severity == quarantine.Blocks && !(original && f.Code == quarantine.FoundNoRoute) {
			return fmt.Sprintf("%s: %s: %s; %s; nothing was started", placeText(d), f.Code, f.Text, f.Advice)
		}
	}
	return ""
}

// placeText names a destination of which only the exchange may be known.
func placeText(d redrive.Destination) string {
	if d.RoutingKey == "" {
		return exchangeText(d.Exchange)
	}
	return destinationText(d)
}
