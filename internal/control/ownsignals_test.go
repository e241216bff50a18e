package control_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/redrive"
)

// watching is a world that looks at one own signal again and again.
func watching(t *testing.T, signal string, others ...redrive.Probe) *world {
	w := newWorld(t)
	w.probes = others
	w.cfg.Brake = config.Brake{HoldDown: config.Duration(-1), Watch: []string{signal}}
	w.times = control.ProbeTimes{Every: 5 * time.Millisecond}
	w.open()
	return w
}

// idle starts a generation of five that is in no hurry.
func (w *world) idle() (id string, s *shell) {
	w.Helper()
	req := fast(w.orders(5)...)
	req.Rate, req.Burst = 0.001, 1
	id = w.planned(req)
	return id, w.start(id)
}

// judged waits until the ledger has a judgement of a signal.
func (w *world) judged(id, signal, result, action string) {
	w.Helper()
	w.until(fmt.Sprintf("%s is judged %s, %s", signal, result, action), func() bool {
		for _, e := range w.evaluations(id, signal) {
			if e.Result == result && e.Action == action {
				return true
			}
		}
		return false
	})
}

// The broker answers much more slowly than at first: slower, and when it takes
// longer than the other limit, no further.
func TestSlowConfirms(t *testing.T) {
	for action, limit := range map[string]string{"throttle": "10m", "pause": "200ms"} {
		t.Run(action, func(t *testing.T) {
			w := watching(t, "confirm_latency")
			req := fast(w.orders(180)...)
			req.Window, req.Stages, req.Bake = 64, []uint64{170}, "1h"
			req.Thresholds = []string{"confirm_slow=1ms", "confirm_latency=" + limit}
			fastOnes := 0
			w.wire.set(nil, func(m redrive.Message) (redrive.Result, bool) {
				if fastOnes++; fastOnes > 100 {
					return silent(m)
				}
				return confirm(m)
			})
			id := w.planned(req)
			s := w.start(id)
			w.judged(id, "confirm_latency", "ok", "none")
			base := w.evaluations(id, "confirm_latency")[0].Value
			w.until("the broker is silent", func() bool { return w.wire.count() > 150 })
			// What is slow is a matter of time: five times as long as at first.
			slow := max(time.Duration(6*(base+1))*time.Millisecond, 250*time.Millisecond)
			<-time.After(slow)
			w.wire.confirmAll()
			w.judged(id, "confirm_latency", "breach", action)
			g := w.show(id)
			if paused := reasons(g)["confirm_latency"]; paused != (action == "pause") {
				t.Errorf("%s for %+v", g.State, g.Pauses)
			}
			s.cancel()
		})
	}
}

// Too little room in the data directory stands still at once, and only a person
// goes on.
func TestStoreWithoutRoom(t *testing.T) {
	w := watching(t, "store")
	w.cfg.Brake.ClearFor, w.cfg.Brake.BackOff = config.Duration(time.Millisecond), []config.Duration{config.Duration(time.Millisecond)}
	req := fast(w.orders(5)...)
	req.Rate, req.Burst = 0.001, 1
	id := w.planned(req)
	// A shell that waits for what the system may resume comes back all the same.
	s := w.shell(api.GenerationStart, api.RunRequest{ID: id})
	w.judged(id, "store", "ok", "none")
	w.kv.setRoom(ledger.ErrNoSpace)
	g := w.end(s)
	w.kv.setRoom(nil)
	if g.State != "paused" || !reasons(g)["store"] {
		t.Errorf("%s for %+v", g.State, g.Pauses)
	}
}

// A disk that commits slowly slows the release down.
func TestSlowCommits(t *testing.T) {
	w := watching(t, "store")
	w.kv.onCommit(func() error {
		<-time.After(2 * time.Millisecond)
		return nil
	})
	req := fast(w.orders(100)...)
	req.Window, req.Thresholds = 1, []string{"store_commit=1ms"}
	id := w.planned(req)
	s := w.start(id)
	w.judged(id, "store", "breach", "throttle")
	s.cancel()
	if g := w.show(id); g.State == "paused" {
		t.Errorf("it stands still for %+v", g.Pauses)
	}
}

// Many more messages die than before: it stands still. What it sent itself and
// came back does not count as that.
func TestMoreMessagesDie(t *testing.T) {
	for name, c := range map[string]struct {
		died   int
		paused bool
	}{"few": {19, false}, "many": {20, true}} {
		t.Run(name, func(t *testing.T) {
			looks := newProbe("looks", says(redrive.ResultOK))
			w := watching(t, "dlq_inflow", looks)
			id, s := w.idle()
			w.judged(id, "dlq_inflow", "ok", "none")
			w.orders(c.died)
			if !c.paused {
				from := looks.asked.Load()
				w.until("it is looked at", func() bool { return looks.asked.Load() > from+2 })
				if g := w.show(id); g.State != "running" {
					t.Errorf("%s for %+v", g.State, g.Pauses)
				}
				s.cancel()
				return
			}
			if g := w.end(s); g.State != "paused" || !reasons(g)["dlq_inflow"] {
				t.Errorf("%s for %+v", g.State, g.Pauses)
			}
		})
	}
}

// What a plan was approved with is watched, whatever the configuration says when
// it starts; a probe that is gone from it holds the stage and pauses.
func TestWatchedIsWhatWasApproved(t *testing.T) {
	w := watching(t, "consumers")
	w.cfg.Probes = []config.Probe{{Name: "warehouse", Target: config.Target{URL: "https://192.0.2.1/"}}}
	w.cfg.Destinations = append(w.cfg.Destinations, config.Destination{Queue: "orders", Probes: []string{"warehouse"}})
	req := fast(w.orders(5)...)
	req.Stages, req.ToQueue = []uint64{1}, "orders"
	p := do(w, api.GenerationPlan, req)
	if want := []string{"consumers", "probe.warehouse"}; !slices.Equal(p.Watched, want) || !slices.Equal(p.Generation.Watched, want) {
		t.Fatalf("the plan watches %v, the generation %v", p.Watched, p.Generation.Watched)
	}
	id := fmt.Sprint(p.Generation.Number)
	_, err := api.Call(as("bob"), w.c, api.GenerationApprove, api.ApproveRequest{ID: id, Digest: p.Generation.Manifest, Why: "looked at"}, nil)
	must(t, err)
	w.cfg.Brake.Watch, w.cfg.Probes, w.cfg.Destinations[1].Probes = []string{"none"}, nil, nil
	w.crash()
	w.wire.consume(0)
	g := w.end(w.start(id))
	if r := reasons(g); g.State != "paused" || !r["consumers"] && !r["probe.warehouse"] {
		t.Errorf("%s for %+v", g.State, g.Pauses)
	}
	w.until("both are judged", func() bool {
		return len(w.evaluations(id, "consumers")) > 0 && len(w.evaluations(id, "probe.warehouse")) > 0
	})
}
