package control

import (
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger/event"
)

// A long course is shown with its beginning and its end.
func TestLongTimeline(t *testing.T) {
	h := &history{no: 1, thresholds: map[string]*api.ThresholdState{}, counts: map[uint64]*api.Point{}}
	for seq := uint64(1); seq <= 700; seq++ {
		r := event.Record{Seq: seq, TS: 1_790_000_000_000 + seq, Epoch: 1, Actor: event.System, Subj: event.Subject{Gen: 1},
			Body: &event.GenerationPaused{Reason: "operator", Why: "look"}}
		line, err := r.AppendLine(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.add(line); err != nil {
			t.Fatal(err)
		}
	}
	var r api.Report
	h.fill(&r)
	if len(r.Timeline) != 500 || r.Omitted != 200 || r.Timeline[249].Seq != 250 || r.Timeline[250].Seq != 451 || r.Timeline[499].Seq != 700 {
		t.Errorf("%d steps, %d left out, %d, %d, %d", len(r.Timeline), r.Omitted, r.Timeline[249].Seq, r.Timeline[250].Seq, r.Timeline[499].Seq)
	}
	if m := r.Timeline[0]; m.Why != "look" || m.Detail != "reason operator" {
		t.Errorf("%+v", m)
	}
}

// However long it took, a plot has at most 120 buckets, and none loses anything.
func TestSeries(t *testing.T) {
	for _, seconds := range []uint64{1, 119, 121, 4000, 86_400, 40_000_000} {
		h := &history{counts: map[uint64]*api.Point{}}
		for i := range uint64(100) {
			at := 1_790_000_000 + i*seconds/100
			if h.counts[at] == nil {
				h.counts[at] = &api.Point{}
			}
			h.counts[at].Intents++
		}
		s, sum := h.series(), uint64(0)
		for _, p := range s.Points {
			sum += p.Intents
		}
		if len(s.Points) > maxPoints+1 || sum != 100 {
			t.Errorf("%d s: %d buckets of %s with %d intents", seconds, len(s.Points), s.Bucket, sum)
		}
	}
	if (&history{}).series() != nil {
		t.Error("nothing has a series")
	}
}
