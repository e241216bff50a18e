package control_test

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// A dry run tells by which reasons and types its members go, gives examples of
// what goes and what stays, and how long it takes.
func TestDryRunShowsEverything(t *testing.T) {
	w := newWorld(t)
	ids := w.capture("orders.dlq", order("a", "1", time.Hour, `{"a":1}`), order("b", "1", time.Hour, `{"a":2}`), order("c", "1", time.Hour, `{"a":3}`))
	do(w, api.EnvelopeHold, api.EnvelopeChange{IDs: ids[2:], Why: "asked"})
	before := do(w, api.Status, api.None{}).Records
	p := do(w, api.GenerationPlan, api.PlanRequest{IDs: ids, DryRun: true, Rate: 0.1, Stages: []uint64{1, 1}, Bake: "30s", Exposure: 1})
	if len(p.Types) != 1 || p.Types[0].Reason != "unknown_sku" || p.Types[0].Count != 2 {
		t.Errorf("types %+v", p.Types)
	}
	if len(p.Sampled) != 2 || p.Sampled[0].ID != p.Samples[0] || p.Sampled[0].Reason != "unknown_sku" || time.Since(p.Sampled[0].Died) < time.Minute {
		t.Errorf("samples %+v", p.Sampled)
	}
	third := do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: ids[2]}).ID
	if len(p.Stays) != 1 || p.Stays[0].Reason != "held" || p.Stays[0].Examples[0] != third || p.Stays[0].Advice == "" {
		t.Errorf("stays %+v", p.Stays)
	}
	if f := p.Forecast; f.AtRate != "20s" || f.Bakes != "30s" || f.Total != "50s" || f.Exposed != 1 || f.MeanOutcome != "" {
		t.Errorf("forecast %+v", f)
	}
	if after := do(w, api.Status, api.None{}).Records; after != before {
		t.Errorf("%d records were written", after-before)
	}
}

// When outcomes are known to take long, it is the exposure cap that bounds the
// release.
func TestForecastByTheExposureCap(t *testing.T) {
	w := newWorld(t)
	ids := w.capture("orders.dlq", order("a", "1", time.Hour, `{"a":1}`), order("b", "1", time.Hour, `{"a":2}`), order("c", "1", time.Hour, `{"a":3}`))
	first := fast(ids[0])
	first.Evidence = "outcomes"
	w.end(w.start(w.planned(first)))
	do(w, api.OutcomeReport, api.OutcomeRequest{Via: "command", Reports: []string{w.reportOf(w.wire.messages()[0], event.OutcomeSucceeded)}})
	p := do(w, api.GenerationPlan, api.PlanRequest{IDs: ids[1:], DryRun: true, Evidence: "outcomes", Rate: 1000, Stages: []uint64{2}, Exposure: 1, Bake: "1ms"})
	if p.Forecast.MeanOutcome == "" || p.Forecast.AtExposure == "" {
		t.Errorf("forecast %+v", p.Forecast)
	}
}

func TestForecastComputes(t *testing.T) {
	m := &redrive.Manifest{Members: 1000, Stages: []uint64{1, 11, 111, 1000}, Bake: 60_000, Limits: event.Limits{RateMilli: 50_000, Exposure: 200}}
	for _, c := range []struct {
		looks time.Duration
		mean  time.Duration
		known bool
		want  api.Forecast
	}{
		{0, 0, false, api.Forecast{AtRate: "20s", Bakes: "3m0s", Total: "3m20s", Exposed: 200}},
		{30 * time.Second, 0, false, api.Forecast{AtRate: "20s", Bakes: "3m0s", Total: "3m20s", Exposed: 200}},
		{2 * time.Minute, 0, false, api.Forecast{AtRate: "20s", Bakes: "6m0s", Total: "6m20s", Exposed: 200}},
		{0, time.Second, true, api.Forecast{AtRate: "20s", Bakes: "3m0s", Total: "3m24s", Exposed: 200, MeanOutcome: "1s", AtExposure: "5s"}},
		{0, time.Minute, true, api.Forecast{AtRate: "20s", Bakes: "3m0s", Total: "12m0s", Exposed: 200, MeanOutcome: "1m0s", AtExposure: "5m0s"}},
	} {
		if got := control.ForecastOf(m, c.looks, c.mean, c.known); got != c.want {
			t.Errorf("looks %s, mean %s: %+v, want %+v", c.looks, c.mean, got, c.want)
		}
	}
	if got := control.ForecastOf(&redrive.Manifest{}, 0, 0, false); got != (api.Forecast{}) {
		t.Errorf("nothing to release: %+v", got)
	}
}

// The latest generation of a destination tells how long its consumer takes now.
func TestForecastByTheLatestGeneration(t *testing.T) {
	w := newWorld(t)
	ids := w.capture("orders.dlq", order("a", "1", time.Hour, `{"a":1}`), order("b", "1", time.Hour, `{"a":2}`), order("c", "1", time.Hour, `{"a":3}`))
	for i, took := range []time.Duration{2 * time.Minute, 10 * time.Minute} {
		req := fast(ids[i])
		req.Evidence = "outcomes"
		w.end(w.start(w.planned(req)))
		w.later.Add(int64(took))
		do(w, api.OutcomeReport, api.OutcomeRequest{Via: "command", Reports: []string{w.reportOf(w.wire.messages()[i], event.OutcomeSucceeded)}})
	}
	p := do(w, api.GenerationPlan, api.PlanRequest{IDs: ids[2:], DryRun: true, Evidence: "outcomes"})
	mean, err := time.ParseDuration(p.Forecast.MeanOutcome)
	must(t, err)
	if mean < 9*time.Minute {
		t.Errorf("the mean is %s, that of the first generation", mean)
	}
}
