package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// walk is a random way through the acts of people, what probes see, and the fates
// of messages, over several generations of one store.
type walk struct {
	*book
	rnd    *rand.Rand
	gens   []event.GenerationNo
	picked map[event.GenerationNo][]redrive.Pick
	doubt  map[event.GenerationNo][]redrive.Pick // of picked, those that a late confirm can be about
	series map[string]*redrive.Series
}

// Whatever people do and whatever is seen in whatever order, both readers of the
// ledger agree: at the end of each walk the state is rebuilt, and the verifier
// judges every record by its own laws.
func TestBothReadersAgreeAfterAnyWalk(t *testing.T) {
	// A message that was sent again went beyond the exposure, and out of turn.
	seeds := []uint64{201, 259}
	for seed := range uint64(runs(16)) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &walk{book: newBook(t), rnd: rand.New(rand.NewPCG(seed, 1)), picked: map[event.GenerationNo][]redrive.Pick{}, doubt: map[event.GenerationNo][]redrive.Pick{},
				series: map[string]*redrive.Series{"probe.shop": {}, "consumers": {}}}
			w.orders(24)
			for range 150 {
				w.step()
			}
			for _, no := range w.gens {
				w.try(func(v ledger.View) ([]event.Event, error) { return redrive.Abort(v, no, "enough") })
			}
			w.now = w.now.Add(3 * time.Hour)
			w.due()
		})
	}
}

// try decides something that may be refused.
func (w *walk) try(decide ledger.Decide) {
	w.Helper()
	if _, err := w.update(decide); err != nil && !errors.Is(err, redrive.ErrState) && !errors.Is(err, redrive.ErrArgument) {
		w.Fatalf("%v", err)
	}
}

func (w *walk) step() {
	w.Helper()
	w.tick(1 + w.rnd.IntN(2000))
	var open []event.GenerationNo
	for _, no := range w.gens {
		if w.gen(no).State.Open() {
			open = append(open, no)
		}
	}
	if len(open) == 0 || len(open) < 2 && w.rnd.IntN(30) == 0 {
		w.begin()
		return
	}
	no := open[w.rnd.IntN(len(open))]
	switch w.rnd.IntN(10) {
	case 0, 1:
		w.people(no)
	case 2, 3:
		w.probe(no)
	case 4:
		w.told(no)
	case 5:
		w.restart(w.rnd.IntN(3) > 0)
		w.tick(300_000) // no crash loop
	default:
		w.release(no)
	}
}

// begin plans what is left, each time in another way.
func (w *walk) begin() {
	w.Helper()
	change := func(m *redrive.Manifest) {
		m.Bake, m.RetryNacked = 1, uint64(w.rnd.IntN(3))
		m.Limits = event.Limits{RateMilli: 1_000_000, Burst: 4, Window: 6, Exposure: 1 + w.rnd.Uint32N(30)}
		if m.Evidence = redrive.EvidenceOutcomes; w.rnd.IntN(3) == 0 {
			m.Evidence = redrive.EvidenceReturns
		}
		if w.rnd.IntN(2) == 0 {
			m.Ambiguity, m.Inbox = redrive.AmbiguityRetry, 30*24*3_600_000
		}
	}
	var left int
	w.view(func(v ledger.View) {
		members, _ := w.cohort(v)
		left = len(members)
	})
	if left == 0 {
		w.orders(10)
		return
	}
	var no event.GenerationNo
	if hows := []string{redrive.OnFailurePark, redrive.OnFailureContinue, redrive.OnFailureRebuild, redrive.OnFailureBlock}; w.rnd.IntN(2) == 0 {
		no = w.keyed(hows[w.rnd.IntN(4)], rows(3), change)
	} else {
		no = w.running(change)
	}
	w.gens = append(w.gens, no)
	w.tick(1000)
}

// people do what they may.
func (w *walk) people(no event.GenerationNo) {
	w.Helper()
	g, yes := w.gen(no), w.rnd.IntN(2) == 0
	w.try([]ledger.Decide{
		func(v ledger.View) ([]event.Event, error) { return redrive.PauseBy(v, no, redrive.PauseOperator, "w") },
		func(v ledger.View) ([]event.Event, error) { return w.resumption(v, no, "go on") },
		func(v ledger.View) ([]event.Event, error) { return w.resumption(v, no, "go on") },
		func(v ledger.View) ([]event.Event, error) {
			r := redrive.Resumption{By: event.Actor{Auth: "os", Subject: "another"}, Why: "one of them", Digest: g.Manifest, HoldDown: -1}
			if len(g.Pauses) > 0 {
				r.Clear = []string{g.Pauses[w.rnd.IntN(len(g.Pauses))].Reason}
			}
			return redrive.Resume(v, no, r)
		},
		func(v ledger.View) ([]event.Event, error) {
			l := g.Limits
			l.RateMilli, l.Window = l.RateMilli/2+uint64(w.rnd.IntN(1_000_000)), 1+w.rnd.Uint32N(8)
			return redrive.Limit(v, no, l, "w", yes)
		},
		func(v ledger.View) ([]event.Event, error) {
			set := []string{"rejected=1%", "rejected=50%", "nacked=9", "stage_bad=3", "requarantined=99%", "abort=100%", "missing=100%"}
			return redrive.ReviseThresholds(v, no, []string{set[w.rnd.IntN(len(set))]}, "w", yes)
		},
		func(v ledger.View) ([]event.Event, error) {
			return redrive.ReviseOnFailure(v, no, []string{redrive.OnFailurePark, redrive.OnFailureBlock, redrive.OnFailureRebuild}[w.rnd.IntN(3)], "w", yes)
		},
		func(v ledger.View) ([]event.Event, error) {
			e, err := redrive.Preflight(no, redrive.PhaseResume, []redrive.Check{{Name: redrive.CheckRoute, Result: redrive.CheckFailed, Required: yes, Evidence: "e"}})
			return []event.Event{e}, err
		},
		func(v ledger.View) ([]event.Event, error) {
			return redrive.RuleAll(v, no, []event.Ruling{event.RuledDelivered, event.RuledNotDelivered}[w.rnd.IntN(2)], "asked")
		},
		func(v ledger.View) ([]event.Event, error) {
			if w.rnd.IntN(6) > 0 {
				return nil, nil
			}
			return redrive.Abort(v, no, "w")
		},
	}[w.rnd.IntN(10)])
}

// probe lets a signal from outside say something, and the system resume.
func (w *walk) probe(no event.GenerationNo) {
	w.Helper()
	name := []string{"probe.shop", "consumers"}[w.rnd.IntN(2)]
	s, terms := w.series[name], redrive.Terms{Breaches: 2, Of: 3, Silence: 2}
	results := []string{redrive.ResultOK, redrive.ResultOK, redrive.ResultOK, redrive.ResultBreach, redrive.ResultError, redrive.ResultStale, redrive.ResultInconclusive}
	s.Add(redrive.Observation{Result: results[w.rnd.IntN(len(results))], Action: []string{"", redrive.ActionThrottle}[w.rnd.IntN(2)], At: w.now}, terms)
	w.try(func(v ledger.View) ([]event.Event, error) { return redrive.Observe(v, no, name, s.Clone(), terms) })
	if w.rnd.IntN(3) == 0 {
		since := map[string]time.Time{}
		for n, x := range w.series {
			since[n] = x.ClearAt
		}
		_, err := w.log.Update(context.Background(), ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
			return redrive.AutoResume(v, no, []string{"probe.shop", "consumers"}, since, redrive.Patience{ClearFor: 1, BackOff: []time.Duration{1}, HoldDown: -1})
		})
		w.ok(err)
	}
}

// release sends some members, and lets the broker answer or not.
func (w *walk) release(no event.GenerationNo) {
	w.Helper()
	w.try(func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) })
	for _, p := range w.intend(no, 1+w.rnd.IntN(5)).Picks {
		w.picked[no] = append(w.picked[no], p)
		vs := end([]redrive.Pick{p}, []event.Resolution{event.Confirmed, event.Confirmed, event.Confirmed, event.Confirmed,
			event.Nacked, event.Ambiguous, event.Refused, event.Returned}[w.rnd.IntN(8)], "w")
		vs[0].Again = vs[0].Resolution == event.Refused && w.rnd.IntN(2) == 0
		if vs[0].Resolution == event.Ambiguous {
			w.doubt[no] = append(w.doubt[no], p)
		}
		if w.rnd.IntN(8) > 0 {
			w.resolve(no, vs...)
		}
	}
}

// told is what becomes known about a member later: its outcome, its return, a late
// confirm, evidence, or that nothing came in time.
func (w *walk) told(no event.GenerationNo) {
	w.Helper()
	all := w.picked[no]
	if len(all) == 0 {
		return
	}
	p := all[w.rnd.IntN(len(all))]
	switch w.rnd.IntN(7) {
	case 0:
		w.captured(w.comeBack(no, p))
	case 1:
		w.now = w.now.Add(2 * time.Hour)
		w.due()
	case 2:
		if n := len(w.doubt[no]); n > 0 {
			p = w.doubt[no][w.rnd.IntN(n)]
			w.resolve(no, redrive.Verdict{Pos: p.Pos, Try: p.Try, Resolution: event.Confirmed, Late: true})
		}
	case 3:
		if redrive.CanReconcile(w.gen(no)) == nil {
			w.reconciled(no, uint64(w.rnd.IntN(3)))
		}
	default:
		outcomes := append([]event.Outcome{event.OutcomeSucceeded, event.OutcomeSucceeded, event.OutcomeSucceeded}, event.Outcomes...)
		w.outcome(no, []redrive.Pick{p}, outcomes[w.rnd.IntN(len(outcomes))])
	}
}
