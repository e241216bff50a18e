package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// enoughSamples is how many durations make a percentile.
const enoughSamples = 50

// depthProbe sees whether messages pile up at the destination. It first asks to
// go slower, and to stop when that did not help.
type depthProbe struct {
	d        *destinationLook
	mu       sync.Mutex
	known    bool
	base     int       // depth at the first look
	last     int       // at the latest look
	growing  time.Time // since when it only grew
	breaches int       // in a row
}

const (
	growsFor = 5 * time.Minute
	// patientBreaches is how many bad looks in a row ask to go slower only.
	patientBreaches = 6
)

// Name implements redrive.Probe.
func (*depthProbe) Name() string { return signalDepth }

// Terms implements redrive.Termed. Not every broker tells a depth, and numbers
// of management lag, so a stage does not wait for it.
func (*depthProbe) Terms() redrive.Terms { return redrive.Terms{Optional: true, SilenceSpares: true} }

// Applies limits the probe to destinations of which the one queue is known.
func (*depthProbe) Applies(g *redrive.Generation) bool { return g.Destination.SingleQueue() }

// Observe implements redrive.Probe.
func (p *depthProbe) Observe(ctx context.Context, g *redrive.Generation) redrive.Observation {
	route, err := p.d.look(ctx, g)
	if err != nil || route.Ready < 0 {
		return redrive.Observation{Result: redrive.ResultInconclusive, Detail: "the depth of the destination is unknown"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, limit := time.Now(), int(g.Thresholds.Of(redrive.LimitDepth))
	if !p.known {
		p.known, p.base, p.last, p.growing = true, route.Ready, route.Ready, now
	}
	if route.Ready <= p.last {
		p.growing = now
	}
	p.last = route.Ready
	// Clear again is what is well below the limit, not what is just below it.
	over := route.Ready - p.base
	bad := over >= limit || p.breaches > 0 && over*10 >= limit*8 || now.Sub(p.growing) >= growsFor
	o := redrive.Observation{Result: redrive.ResultOK, Value: int64(route.Ready), Detail: fmt.Sprintf("%d messages wait there, %d at first", route.Ready, p.base)}
	if !bad {
		p.breaches = 0
		return o
	}
	o.Result = redrive.ResultBreach
	if p.breaches++; p.breaches <= patientBreaches {
		o.Action = redrive.ActionThrottle
	}
	return o
}

// confirmProbe sees whether the broker answers slowly.
type confirmProbe struct {
	w    *watch
	mu   sync.Mutex
	base time.Duration // p99 of the first minute with enough answers
	bad  bool
}

// Name implements redrive.Probe.
func (*confirmProbe) Name() string { return signalConfirm }

// Terms implements redrive.Termed: with few answers there is nothing to say.
func (*confirmProbe) Terms() redrive.Terms { return redrive.Terms{Optional: true, SilenceSpares: true} }

// Observe implements redrive.Probe.
func (p *confirmProbe) Observe(_ context.Context, g *redrive.Generation) redrive.Observation {
	now := time.Now()
	p99, n := p.w.confirm.p99(now)
	if n < enoughSamples {
		// While it stands still nothing is published, so nothing can be slow.
		if g.State == event.Paused && n == 0 {
			return redrive.Observation{Result: redrive.ResultOK, Detail: "nothing is published"}
		}
		return redrive.Observation{Result: redrive.ResultInconclusive, Detail: fmt.Sprintf("%d confirms in a minute, too few", n)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.base == 0 {
		p.base = p99
	}
	t := g.Thresholds
	stop := time.Duration(t.Of(redrive.LimitConfirmPause)) * time.Millisecond
	slow := min(max(time.Duration(t.Of(redrive.LimitConfirmSlow))*time.Millisecond, 5*p.base), stop)
	if p.bad {
		slow = slow * 8 / 10
	}
	o := redrive.Observation{Result: redrive.ResultOK, Value: p99.Milliseconds(), Detail: fmt.Sprintf("99 of 100 confirms within %s", p99.Round(time.Millisecond))}
	if p.bad = p99 >= slow; p.bad {
		o.Result = redrive.ResultBreach
		if p99 < stop {
			o.Action = redrive.ActionThrottle
		}
	}
	return o
}

// storeProbe sees whether the own store has room and commits in time.
type storeProbe struct{ c *Controller }

// Name implements redrive.Probe.
func (storeProbe) Name() string { return signalStore }

// Terms implements redrive.Termed: a full disk is certain at once.
func (storeProbe) Terms() redrive.Terms {
	return redrive.Terms{Breaches: 1, Of: 1, StaysPaused: true}
}

// Observe implements redrive.Probe.
func (p storeProbe) Observe(_ context.Context, g *redrive.Generation) redrive.Observation {
	if err := p.c.o.KV.Room(false); err != nil {
		if errors.Is(err, ledger.ErrNoSpace) {
			return redrive.Observation{Result: redrive.ResultBreach, Detail: "the data directory has too little room"}
		}
		return redrive.Observation{Result: redrive.ResultError, Detail: "the room in the data directory is unknown"}
	}
	p99, n := p.c.commits.p99(time.Now())
	o := redrive.Observation{Result: redrive.ResultOK, Value: p99.Milliseconds(), Detail: fmt.Sprintf("99 of 100 commits within %s", p99.Round(time.Millisecond))}
	if limit := time.Duration(g.Thresholds.Of(redrive.LimitCommit)) * time.Millisecond; n >= enoughSamples && p99 >= limit {
		o.Result, o.Action = redrive.ResultBreach, redrive.ActionThrottle
	}
	return o
}

// inflowProbe sees whether more messages die than before, and not those that
// this generation sent.
type inflowProbe struct {
	c    *Controller
	mu   sync.Mutex
	base float64 // per minute, in the hour before the first look
	seen []inflow
}

type inflow struct {
	at       time.Time
	captured uint64 // without what came back from releases
}

// Name implements redrive.Probe.
func (*inflowProbe) Name() string { return signalInflow }

// Terms implements redrive.Termed.
func (*inflowProbe) Terms() redrive.Terms {
	return redrive.Terms{Breaches: 1, Of: 1, Optional: true, SilenceSpares: true, StaysPaused: true}
}

// Observe implements redrive.Probe.
func (p *inflowProbe) Observe(_ context.Context, g *redrive.Generation) redrive.Observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	captured, err := p.captured()
	if err == nil && len(p.seen) == 0 {
		p.base, err = p.before(now)
	}
	if err != nil {
		return redrive.Observation{Result: redrive.ResultInconclusive, Detail: "how many messages die is unknown"}
	}
	p.seen = append(p.seen, inflow{now, captured})
	for len(p.seen) > 1 && now.Sub(p.seen[1].at) >= time.Minute {
		p.seen = p.seen[1:]
	}
	more, limit := captured-min(p.seen[0].captured, captured), g.Thresholds.Of(redrive.LimitInflow)
	o := redrive.Observation{Result: redrive.ResultOK, Value: int64(more), Detail: fmt.Sprintf("%d new dead messages in the last minute, %.1f before", more, p.base)}
	if more >= limit && float64(more) > 3*p.base {
		o.Result = redrive.ResultBreach
	}
	return o
}

// captured counts all envelopes but those that came back.
func (p *inflowProbe) captured() (n uint64, err error) {
	err = p.c.log.View(func(v ledger.View) error {
		n = uint64(quarantine.Count(v))
		gens, err := redrive.All(v)
		for _, g := range gens {
			n -= min(n, g.Counts[event.Requarantined])
		}
		return err
	})
	return n, err
}

// before is how many messages died in a minute of the last hour.
func (p *inflowProbe) before(now time.Time) (perMinute float64, err error) {
	from, n := uint32(max(now.Add(-time.Hour).Unix(), 0)), 0
	err = p.c.eachCell(scanPage, func(_ ledger.View, _ event.EnvelopeNo, cell *quarantine.Cell) error {
		if cell.FirstDied >= from {
			n++
		}
		return nil
	})
	return float64(n) / 60, err
}
