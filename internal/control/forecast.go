package control

import (
	"slices"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

const (
	// sampled is how many members, and of each reason to stay how many envelopes,
	// a plan shows.
	sampled = 5
	// forecastGenerations bounds the earlier generations, and forecastRecords the
	// records of each, that are read to learn how long outcomes take.
	forecastGenerations = 5
	forecastRecords     = 20_000
)

// forecast says how long a release takes and how much of it is out at once, as
// far as that can be told before it begins.
func (p *planning) forecast() api.Forecast {
	var mean time.Duration
	known := false
	if p.m.Evidence == redrive.EvidenceOutcomes {
		mean, known = p.c.outcomeTime(p.m.Destination())
	}
	return forecastOf(&p.m, p.c.looks(), mean, known)
}

// looks is how long a stage waits at least for its signals from outside: 0 when
// none has to say ok.
func (c *Controller) looks() time.Duration {
	for _, p := range slices.Concat(c.ownProbes(&watch{c: c}, nil), c.configuredProbes(nil), c.o.Probes) {
		if t, ok := p.(redrive.Termed); !ok || !t.Terms().Optional {
			return redrive.MinLooks * c.o.ProbeTimes.Every
		}
	}
	return 0
}

// forecastOf computes with how long the looks of a stage take at least, and with
// how long an outcome takes, when that is known.
func forecastOf(m *redrive.Manifest, looks, mean time.Duration, known bool) api.Forecast {
	l := m.Limits
	if m.Members == 0 || l.RateMilli == 0 || l.Exposure == 0 {
		return api.Forecast{}
	}
	moving := time.Duration(float64(m.Members) * 1000 / float64(l.RateMilli) * float64(time.Second))
	bakes := time.Duration(max(len(m.Stages)-1, 0)) * max(time.Duration(m.Bake)*time.Millisecond, looks)
	out := api.Forecast{AtRate: round(moving), Bakes: round(bakes), Exposed: min(m.Members, uint64(l.Exposure))}
	if known {
		// Little's law: what is out at once is the throughput times how long each is
		// out, so the cap bounds the throughput.
		capped := time.Duration(float64(m.Members) * float64(mean) / float64(l.Exposure))
		moving = max(moving, capped) + time.Duration(len(m.Stages))*mean
		out.MeanOutcome, out.AtExposure = round(mean), round(capped)
	}
	out.Total = round(moving + bakes)
	return out
}

func round(d time.Duration) string { return d.Round(time.Second).String() }

// outcomeTime is how long the consumer of a destination took from the confirm
// to its outcome, in the last generation that went there and has some. Times of
// confirms are known to the second. Each generation is read in a transaction of
// its own, so that none lasts long.
func (c *Controller) outcomeTime(d redrive.Destination) (mean time.Duration, known bool) {
	var gens []*redrive.Generation
	err := c.log.View(func(v ledger.View) (err error) {
		gens, err = redrive.All(v)
		return err
	})
	for looked := 0; err == nil && !known && len(gens) > 0 && looked < forecastGenerations; gens = gens[1:] {
		g := gens[0]
		if g.Destination != d || g.Started == nil {
			continue
		}
		looked++
		err = c.log.View(func(v ledger.View) error {
			mean, known = outcomeTimeOf(v, g)
			return nil
		})
	}
	return mean, known // after an error the forecast says less
}

func outcomeTimeOf(v ledger.View, g *redrive.Generation) (time.Duration, bool) {
	var sum, n uint64
	read := 0
	_ = ledger.Records(v, g.PlannedSeq, func(r *event.Record) bool { // likewise
		if b, ok := r.Body.(*event.OutcomeReported); ok && r.Subj.Gen == g.No && b.Outcome != event.OutcomeAdmitted {
			for pos := range b.Pos.All() {
				at := uint64(redrive.GetMember(v, g.No, event.Position(pos)).ConfirmedAt) * 1000
				if at > 0 && r.TS >= at {
					sum, n = sum+r.TS-at, n+1
				}
			}
		}
		read++
		return read < forecastRecords
	})
	if n == 0 {
		return 0, false
	}
	return time.Duration(sum/n) * time.Millisecond, true
}

// examples fills in which envelopes a plan means: a few that would move, and a
// few of each reason to stay.
func (p *planning) examples(out *api.Plan) {
	stay := map[string][]event.EnvelopeNo{}
	for _, x := range p.out {
		if list := stay[x.Reason]; len(list) < sampled {
			stay[x.Reason] = append(list, x.Env)
		}
	}
	_ = p.c.log.View(func(v ledger.View) error { // examples are a courtesy
		for _, no := range p.members[:min(len(p.members), sampled)] {
			f, err := quarantine.GetFacts(v, no)
			if err != nil {
				return err
			}
			cell, _ := quarantine.GetCell(v, no)
			out.Samples = append(out.Samples, f.ID.String())
			out.Sampled = append(out.Sampled, api.Sample{ID: f.ID.String(), Reason: quarantine.WordText(v, cell.Reason), Type: f.Type,
				Died: moment(f.FirstDied), Repaired: cell.Flags.Has(quarantine.FlagRepaired)})
		}
		for _, reason := range sorted(stay) {
			x := api.Stay{Reason: reason, Examples: []string{}, Advice: stayAdvice[reason]}
			for _, no := range stay[reason] {
				id, err := ulidOf(v, no)
				if err != nil {
					return err
				}
				x.Examples = append(x.Examples, id)
			}
			out.Stays = append(out.Stays, x)
		}
		return nil
	})
	for k, n := range p.types {
		out.Types = append(out.Types, api.TypeCount{Type: p.words[k.typ], Reason: p.words[k.reason], Count: n})
	}
	slices.SortFunc(out.Types, func(a, b api.TypeCount) int {
		return compare(b.Count, a.Count, a.Type+"\x00"+a.Reason, b.Type+"\x00"+b.Reason)
	})
}

// typeOf is what a dry run counts by.
type typeOf struct{ reason, typ quarantine.Word }
