package control_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// probe answers what a test says.
type probe struct {
	name   string
	answer atomic.Pointer[func(ctx context.Context) redrive.Observation]
	asked  atomic.Int64
}

func newProbe(name string, answer func(context.Context) redrive.Observation) *probe {
	p := &probe{name: name}
	p.answer.Store(&answer)
	return p
}

func (p *probe) Name() string { return p.name }

func (p *probe) Observe(ctx context.Context, _ *redrive.Generation) redrive.Observation {
	p.asked.Add(1)
	return (*p.answer.Load())(ctx)
}

func says(result string) func(context.Context) redrive.Observation {
	return func(context.Context) redrive.Observation {
		return redrive.Observation{Result: result, Detail: "said so"}
	}
}

// probed is a world that asks a probe again and again.
func probed(tb testing.TB, ps ...redrive.Probe) *world {
	w := newWorld(tb)
	w.probes, w.times = ps, control.ProbeTimes{Every: 5 * time.Millisecond, Timeout: 50 * time.Millisecond, Stale: time.Minute}
	w.open()
	return w
}

// Whatever is wrong with a probe, the stage is held, and after three looks
// without an answer the generation stands still for a reason that names it.
func TestProbeWithoutAnAnswerHoldsTheStageAndPauses(t *testing.T) {
	for name, answer := range map[string]func(context.Context) redrive.Observation{
		"inconclusive": says(redrive.ResultInconclusive),
		"error":        says(redrive.ResultError),
		"garbage":      says("NaN"),
		"nothing":      says(""),
		"times out":    func(ctx context.Context) redrive.Observation { <-ctx.Done(); <-time.After(time.Hour); panic("late") },
		"panics":       func(context.Context) redrive.Observation { panic("NaN") },
		"old": func(context.Context) redrive.Observation {
			return redrive.Observation{Result: redrive.ResultOK, At: time.Now().Add(-time.Hour)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbe("warehouse", answer)
			w := probed(t, p)
			req := fast(w.orders(5)...)
			req.Stages = []uint64{1}
			g := w.end(w.start(w.planned(req)))
			if g.State != "paused" || !reasons(g)["warehouse"] || g.Stage != 1 || w.wire.count() > 1 {
				t.Errorf("%s for %v in stage %d, %d went out", g.State, g.Pauses, g.Stage, w.wire.count())
			}
		})
	}
}

// A stage waits for three ok after it came to rest.
func TestStageAdvancesOnAnExplicitOK(t *testing.T) {
	p := newProbe("warehouse", says(redrive.ResultOK))
	w := probed(t, p)
	req := fast(w.orders(5)...)
	req.Stages = []uint64{1}
	id := w.planned(req)
	w.end(w.start(id))
	if w.wire.count() != 5 || p.asked.Load() < 3 {
		t.Errorf("%d went out after %d looks", w.wire.count(), p.asked.Load())
	}
	found := false
	for _, r := range w.records(id) {
		if e, ok := r.Body.(*event.GenerationEvaluated); ok && e.Signal == "warehouse" && e.Result == "ok" && e.Action == "none" {
			found = true
		}
	}
	if !found {
		t.Error("the ok of the probe is not in the ledger")
	}
}

func TestProbeBreachPausesAfterThreeOfFive(t *testing.T) {
	var n atomic.Int64
	p := newProbe("warehouse", func(context.Context) redrive.Observation {
		if n.Add(1)%2 == 0 {
			return redrive.Observation{Result: redrive.ResultOK}
		}
		return redrive.Observation{Result: redrive.ResultBreach, Detail: "503"}
	})
	w := probed(t, p)
	req := fast(w.orders(5)...)
	req.Stages = []uint64{1}
	g := w.end(w.start(w.planned(req)))
	if g.State != "paused" || !reasons(g)["warehouse"] || n.Load() < 5 || !strings.Contains(g.Pauses[0].Why, "3 of the last 5") {
		t.Errorf("%s for %+v after %d looks", g.State, g.Pauses, n.Load())
	}
}

// The queue of the destination loses its consumer: the stage is held, and the
// generation stands still.
func TestNobodyConsumesThere(t *testing.T) {
	for name, c := range map[string]struct{ consumers int }{"none": {0}, "unknown": {-1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Brake = config.Brake{HoldDown: config.Duration(-1), Watch: []string{"consumers"}}
			w.times = control.ProbeTimes{Every: 5 * time.Millisecond}
			w.open()
			w.wire.consume(c.consumers)
			req := fast(w.orders(5)...)
			req.Stages = []uint64{1}
			g := w.end(w.start(w.planned(req)))
			if g.State != "paused" || !reasons(g)["consumers"] || w.wire.count() > 1 {
				t.Errorf("%s for %+v, %d went out", g.State, g.Pauses, w.wire.count())
			}
		})
	}
}

// A depth that grows slows the release down, and stops it when that does not
// help.
func TestDepthThrottlesAndThenPauses(t *testing.T) {
	w := newWorld(t)
	w.cfg.Brake = config.Brake{HoldDown: config.Duration(-1), Watch: []string{"depth"}}
	w.times = control.ProbeTimes{Every: 5 * time.Millisecond}
	w.open()
	w.wire.pile(10)
	req := fast(w.orders(5)...)
	req.Rate, req.Burst = 0.001, 1
	id := w.planned(req)
	s := w.start(id)
	w.until("the first look is in the ledger", func() bool { return len(w.evaluations(id, "depth")) > 0 })
	w.wire.pile(1010)
	g := w.end(s)
	if g.State != "paused" || !reasons(g)["depth"] {
		t.Errorf("%s for %+v", g.State, g.Pauses)
	}
	actions := map[string]bool{}
	for _, e := range w.evaluations(id, "depth") {
		actions[e.Action] = true
	}
	if !actions["throttle"] || !actions["pause"] || g.Effective.Window >= g.Limits.Window {
		t.Errorf("actions %v, window %d of %d", actions, g.Effective.Window, g.Limits.Window)
	}
}

// evaluations lists what the ledger has about a signal.
func (w *world) evaluations(id, signal string) (out []*event.GenerationEvaluated) {
	for _, r := range w.records(id) {
		if e, ok := r.Body.(*event.GenerationEvaluated); ok && e.Signal == signal {
			out = append(out, e)
		}
	}
	return out
}
