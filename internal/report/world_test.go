package report_test

import (
	"time"

	"github.com/redrivehq/redrive/internal/api"
)

// hostile are texts that try to be more than text.
var hostile = []string{
	`<script>document.title="owned"</script>`, `"><img src=x onerror=alert(1)>`, `</style><svg onload=alert(1)>`,
	"right\u202eto left", "bell\x07 and \x1b[31mred", `=cmd|' /C calc'!A0`, `javascript:alert(1)`, `{{.G.Fix}}`, `</title>`,
}

var began = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// sample is the report of a release of some minutes that paused once, with a
// text of the caller's wherever people or messages have a say.
func sample(text string) api.Report {
	step := func(minutes int) api.Step {
		return api.Step{By: "os:" + text, As: text, At: began.Add(time.Duration(minutes) * time.Minute), Why: text}
	}
	planned, approved, started := step(0), step(1), step(2)
	r := api.Report{
		Generation: api.Generation{ID: "01M8PVD4A984B8X394ADQGS6J0", Number: 7, State: "settling", Status: "settling", Seq: 4711,
			Manifest: "28e7734e87e6ece534e1bd9c81851bb835fcb36dc462d3bc3c5784cdabd686f3", Fix: text, Selection: "reason=" + text,
			Destination: "queue " + text, Evidence: "outcomes", Stage: 3, Stages: []uint64{1, 11, 111, 1000},
			Limits: api.Limits{Rate: 50, Burst: 1, Window: 64, Exposure: 200}, Bake: "1m0s", Deadline: "20m0s",
			Order: "per-key", OnFailure: "park", Ambiguity: "hold", Repaired: 12, Forced: []string{"duplicate", "beyond_horizon"}, ForceWhy: text,
			Planned: &planned, Approved: &approved, Started: &started,
			Checks: []api.Check{{Name: "route", Result: "ok", Required: true, Evidence: text, At: began}},
			Funnel: api.Funnel{Selected: 1003, Moved: 990, Succeeded: 900, Deduplicated: 20, Rejected: 15, Requarantined: 40, Ambiguous: 5, Missing: 13},
			Tally: map[string]uint64{"succeeded": 900, "requarantined": 40, "rejected": 15, "missing": 13, "deduplicated_consumer": 17,
				"deduplicated_plan": 3, "ambiguous_effect": 5, "undelivered": 10}, LawsHold: true, Contradictions: 1, Disputes: 2},
		Expected:    []string{"succeeded"},
		Expectation: &api.Expectation{Met: 900, Unmet: 100, Otherwise: map[string]uint64{"requarantined": 40}},
		Reconciled: &api.Reconciled{By: "os:" + text, At: began.Add(30 * time.Minute), Source: "sql", Commitment: "7998a0b22d18b7ef", Checked: 990,
			Effected: 905, Double: 2, NotEffected: 13, None: 55, Early: 15, Unexpected: 4},
		Remaining: []api.EnvelopeGroup{{Reason: "unknown_sku", Class: "permanent", Owner: "Catalog team", Count: 40, Oldest: began.Add(-48 * time.Hour)},
			{Reason: text, Class: "unclassified", Owner: text, Count: 13, Oldest: began}, {Reason: "", Class: "transient", Owner: "", Count: 2, Oldest: began}},
		Newer: 3, Text: "Generation 7 is settling. Fix: " + text + ".\n  40  unknown_sku  Catalog team\n",
		Thresholds:      []api.ThresholdState{{Signal: "unroutable", Rule: text, Bad: 1, Of: 1000, Limit: 1, Result: "breach", Action: "pause", At: began.Add(5 * time.Minute), Changes: 1}},
		ThresholdLimits: []string{"ambiguous=1", "missing=5%", "confirm_latency=10000ms"},
		Series:          &api.Series{From: began, Bucket: "10s"},
	}
	for _, x := range []struct {
		minute int
		kind   string
	}{{0, "planned"}, {1, "approved"}, {2, "started"}, {5, "paused"}, {8, "resumed"}, {14, "settling"}} {
		s := step(x.minute)
		r.Timeline = append(r.Timeline, api.Moment{At: s.At, Kind: "generation." + x.kind, By: s.By, As: s.As, Why: s.Why, Detail: "reason " + text})
	}
	for i := range 84 {
		p := api.Point{At: began.Add(time.Duration(i) * 10 * time.Second)}
		if i >= 12 && i < 30 || i >= 48 {
			p.Intents = uint64(40 + i%7*10)
			p.Confirmed = p.Intents - uint64(i%3)
			p.Succeeded, p.Requarantined, p.Rejected = p.Intents*8/10, uint64(i%5), uint64(i%3)
		}
		r.Series.Points = append(r.Series.Points, p)
	}
	return r
}
