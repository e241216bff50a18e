package control

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redrivehq/redrive/redrive"
)

// Own signals from outside of the ledger, which are the reasons of their pauses.
const (
	signalBroker    = "broker"
	signalConsumers = "consumers"
	signalDepth     = "depth"
	signalConfirm   = "confirm_latency"
	signalStore     = "store"
	signalInflow    = "dlq_inflow"
)

// ownProbes makes the probes that every generation has, as far as it was approved
// with them, or they are configured now.
func (c *Controller) ownProbes(w *watch, approved []string) (out []redrive.Probe) {
	d := &destinationLook{c: c}
	for _, p := range []redrive.Probe{brokerProbe{d}, consumersProbe{d}, &depthProbe{d: d}, &confirmProbe{w: w}, storeProbe{c}, &inflowProbe{c: c}} {
		if c.o.Config.Brake.Watches(p.Name()) || slices.Contains(approved, p.Name()) {
			out = append(out, p)
		}
	}
	return out
}

// destinationLook asks the broker about a destination, once for all who ask at
// about the same time.
type destinationLook struct {
	c     *Controller
	mu    sync.Mutex
	at    time.Time
	route redrive.Route
}

func (d *destinationLook) look(ctx context.Context, g *redrive.Generation) (redrive.Route, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if age := time.Since(d.at); age < d.c.o.ProbeTimes.Every/2 {
		return d.route, nil
	}
	rel, err := d.c.o.Brokers.Releaser(ctx)
	if err != nil {
		return redrive.Route{}, err
	}
	at := g.Destination
	if at.Original {
		at = redrive.Destination{Exchange: "amq.direct", RoutingKey: "redrive"} // there are many places; whether it answers is all that is asked
	}
	route, err := rel.Route(ctx, at)
	if err == nil {
		d.route, d.at = route, time.Now()
	}
	return route, err
}

// brokerProbe sees whether the broker answers and still has the destination. A
// generation whose stage bakes publishes nothing, and would not notice.
type brokerProbe struct{ d *destinationLook }

// Name implements redrive.Probe.
func (brokerProbe) Name() string { return signalBroker }

// Observe implements redrive.Probe.
func (p brokerProbe) Observe(ctx context.Context, g *redrive.Generation) redrive.Observation {
	route, err := p.d.look(ctx, g)
	switch {
	case err != nil:
		return redrive.Observation{Result: redrive.ResultError, Detail: "the broker does not answer"}
	case !route.Exists && !g.Destination.Original:
		return redrive.Observation{Result: redrive.ResultBreach, Detail: "the destination does not exist"}
	}
	return redrive.Observation{Result: redrive.ResultOK, Detail: "it answers"}
}

// consumersProbe sees whether anybody takes from the queue of the destination.
type consumersProbe struct{ d *destinationLook }

// Name implements redrive.Probe.
func (consumersProbe) Name() string { return signalConsumers }

// Terms implements redrive.Termed: two looks without a consumer are enough.
func (consumersProbe) Terms() redrive.Terms { return redrive.Terms{Breaches: 2, Of: 2, Silence: 3} }

// Applies limits the probe to destinations of which the one queue is known.
func (consumersProbe) Applies(g *redrive.Generation) bool { return g.Destination.SingleQueue() }

// Observe implements redrive.Probe.
func (p consumersProbe) Observe(ctx context.Context, g *redrive.Generation) redrive.Observation {
	route, err := p.d.look(ctx, g)
	switch {
	case err != nil:
		return redrive.Observation{Result: redrive.ResultError, Detail: "the broker does not say who consumes there"}
	case !route.Exists:
		return redrive.Observation{Result: redrive.ResultBreach, Detail: "the queue does not exist"}
	case route.Consumers < 0:
		return redrive.Observation{Result: redrive.ResultInconclusive, Detail: "how many consume there is unknown"}
	case route.Consumers == 0:
		return redrive.Observation{Result: redrive.ResultBreach, Detail: "nobody consumes there"}
	}
	return redrive.Observation{Result: redrive.ResultOK, Value: int64(route.Consumers), Detail: fmt.Sprintf("%d consumers", route.Consumers)}
}

// samples are durations of the last while, for their percentiles.
type samples struct {
	mu   sync.Mutex
	list []sample
}

type sample struct {
	at   time.Time
	took time.Duration
}

const (
	// samplesKept bounds the memory; more in a minute are thinned by age.
	samplesKept = 8192
	sampleSpan  = time.Minute
)

func (s *samples) add(at time.Time, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) >= samplesKept {
		s.list = append(s.list[:0], s.list[samplesKept/2:]...)
	}
	s.list = append(s.list, sample{at, took})
}

// p99 is the time within which 99 of 100 of the last minute came, and of how
// many.
func (s *samples) p99(now time.Time) (p time.Duration, n int) {
	s.mu.Lock()
	var all []time.Duration
	for _, x := range s.list {
		if now.Sub(x.at) < sampleSpan {
			all = append(all, x.took)
		}
	}
	s.mu.Unlock()
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[(len(all)*99+99)/100-1], len(all)
}

// sentTimes notes when messages went out until their answer comes.
type sentTimes struct {
	into *samples
	mu   sync.Mutex
	at   map[uint64]time.Time
}

func (s *sentTimes) began(token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[uint64]time.Time{}
	}
	s.at[token] = time.Now()
}

func (s *sentTimes) ended(token uint64) {
	s.mu.Lock()
	began, ok := s.at[token]
	delete(s.at, token)
	s.mu.Unlock()
	if now := time.Now(); ok && s.into != nil {
		s.into.add(now, now.Sub(began))
	}
}

// dropped forgets a message that was not sent after all.
func (s *sentTimes) dropped(token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, token)
}
