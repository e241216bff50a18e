package control_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// A probe of the configuration that says stop, or says nothing that can be read,
// first holds the stage and then pauses, under its own name.
func TestConfiguredProbePauses(t *testing.T) {
	vector := func(v string) func([]string) string {
		return func([]string) string {
			return `{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"` + v + `"]}]}}`
		}
	}
	empty := func([]string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[]}}`
	}
	limit := 5.0
	for name, spoil := range map[string]func(*oracle){
		"breach": func(o *oracle) { o.say(200, vector("6")) }, "NaN": func(o *oracle) { o.say(200, vector("NaN")) },
		"missing metric": func(o *oracle) { o.say(200, empty) }, "garbage": func(o *oracle) { o.say(200, func([]string) string { return "garbage" }) },
		"error": func(o *oracle) { o.say(500, empty) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o, at := ask(t, vector("1"))
			w.cfg.Probes = []config.Probe{{Name: "errors", Target: *at, Query: "errors", Above: &limit}}
			w.cfg.Destinations = []config.Destination{{Queue: "orders", Probes: []string{"errors"}}}
			w.times = control.ProbeTimes{Every: time.Millisecond}
			w.crash()
			w.orders(3)
			id := w.planned(api.PlanRequest{All: true, Rate: 1_000_000, Stages: []uint64{1, 3}, Bake: "1h", Evidence: "outcomes"})
			call := w.start(id)
			w.until("the first stage to go out", func() bool { return w.wire.count() == 1 })
			spoil(o)
			g := w.end(call)
			if g.State != string(event.Paused) || !reasons(g)["probe.errors"] || g.Stage != 1 || w.wire.count() != 1 {
				t.Errorf("it is %s for %v in stage %d after %d messages", g.State, g.Pauses, g.Stage, w.wire.count())
			}
			held := false
			for _, r := range w.records(id) {
				if e, ok := r.Body.(*event.GenerationEvaluated); ok && e.Signal == "probe.errors" {
					held = held || e.Action == "hold"
					if strings.Contains(e.Rule, "garbage") {
						t.Errorf("a record repeats the answer: %+v", e)
					}
				}
			}
			if held != (name != "breach") {
				t.Errorf("the stage was held by silence: %v", held)
			}
		})
	}
}

// A plan of before the manifest said what is watched is watched by everything of
// our own, not by nothing.
func TestOldPlansAreWatched(t *testing.T) {
	for _, m := range []*redrive.Manifest{nil, {Version: 1}, {Version: 2}} {
		if got := control.WatchedBy(m); !slices.Equal(got, config.OwnSignals) {
			t.Errorf("%+v is watched by %v", m, got)
		}
	}
	if got := control.WatchedBy(&redrive.Manifest{Version: 3}); len(got) != 0 {
		t.Errorf("a plan that wants nothing watched is watched by %v", got)
	}
}
