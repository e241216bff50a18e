package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// Bounds of what a report shows of the ledger.
const (
	maxMoments = 500
	maxPoints  = 119 // and one more, because buckets begin at round times
)

// history is what the records of one generation say about its course.
type history struct {
	no         event.GenerationNo
	moments    []api.Moment
	omitted    uint64 // moments left out in the middle, beyond maxMoments
	thresholds map[string]*api.ThresholdState
	counts     map[uint64]*api.Point // by second since 1970
	first      uint64                // ms
	last       uint64
}

// readHistory reads the ledger from the plan on, in pages, so that no read
// transaction lasts long.
func (c *Controller) readHistory(no event.GenerationNo) (*history, error) {
	h := &history{no: no, thresholds: map[string]*api.ThresholdState{}, counts: map[uint64]*api.Point{}}
	// Names are sorted, so that this ends the subject of each record of the
	// generation, and what a person wrote cannot hold it unescaped.
	mine := fmt.Appendf(nil, `"gen":%d},"ts":`, no)
	for next := uint64(0); ; {
		more := false
		err := c.log.View(func(v ledger.View) error {
			if next == 0 {
				g, err := redrive.Get(v, no)
				if err != nil {
					return err
				}
				next = g.PlannedSeq
			}
			end := next + factsPage
			var err error
			ledger.Lines(v, next, func(seq uint64, line []byte) bool {
				if seq >= end {
					next, more = seq, true
					return false
				}
				if bytes.Contains(line, mine) {
					err = h.add(line)
				}
				return err == nil
			})
			return err
		})
		if err != nil || !more {
			return h, err
		}
	}
}

func (h *history) add(line []byte) error {
	r, err := event.ParseRecord(line)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ledger.ErrIntegrity)
	}
	if r.Subj.Gen != h.no {
		return nil
	}
	if h.first == 0 {
		h.first = r.TS
	}
	h.last = max(h.last, r.TS)
	switch b := r.Body.(type) {
	case *event.GenerationEvaluated:
		h.evaluated(r, b)
	case *event.MemberRuled, *event.MemberWithheld:
		h.moment(r, line)
	default:
		if strings.HasPrefix(string(r.Body.Kind()), "generation.") {
			h.moment(r, line)
			return nil
		}
		h.count(r)
	}
	return nil
}

func (h *history) evaluated(r *event.Record, b *event.GenerationEvaluated) {
	key := b.Signal + "/" + b.Scope
	t := h.thresholds[key]
	if t == nil {
		t = &api.ThresholdState{}
		h.thresholds[key] = t
	}
	*t = api.ThresholdState{Signal: b.Signal, Scope: b.Scope, Floor: b.Floor, Value: b.Value, Rule: b.Rule, Bad: b.Bad, Of: b.Of, Limit: b.Limit, Result: b.Result, Action: b.Action,
		At: moment(r.TS), Changes: t.Changes + 1}
}

// unspoken are fields of records that say nothing to people.
var unspoken = map[string]bool{"why": true, "manifest": true, "checks": true, "evidence": true, "keys": true}

// moment keeps a step, with what its record says beside the reason.
func (h *history) moment(r *event.Record, line []byte) {
	if len(h.moments) >= maxMoments {
		// How it began and how it ended matter most.
		h.moments = slices.Delete(h.moments, maxMoments/2, maxMoments/2+1)
		h.omitted++
	}
	m := api.Moment{At: moment(r.TS), Seq: r.Seq, Kind: string(r.Body.Kind()), By: r.Actor.Subject, As: r.Actor.As}
	var fields struct {
		Body map[string]json.RawMessage `json:"body"`
	}
	if json.Unmarshal(line, &fields) == nil { // it has just been parsed
		m.Why = spokenValue(fields.Body["why"])
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(fields.Body)) {
			if !unspoken[name] {
				parts = append(parts, strings.ReplaceAll(name, "_", " ")+" "+spokenField(name, fields.Body[name]))
			}
		}
		m.Detail = strings.Join(parts, ", ")
	}
	h.moments = append(h.moments, m)
}

// spokenField is a field of a record as text, in units that people use.
func spokenField(name string, raw json.RawMessage) string {
	var n uint64
	switch {
	case name == "expires" && json.Unmarshal(raw, &n) == nil:
		return moment(n).Format(time.RFC3339)
	case name == "rate" && json.Unmarshal(raw, &n) == nil:
		return fmt.Sprintf("%g/s", float64(n)/1000)
	}
	return spokenValue(raw)
}

// spokenValue is a value of a record as text, without the marks of JSON.
func spokenValue(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var nested map[string]json.RawMessage
	if json.Unmarshal(raw, &nested) == nil && nested != nil {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(nested)) {
			parts = append(parts, name+" "+spokenField(name, nested[name]))
		}
		return "(" + strings.Join(parts, ", ") + ")"
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		var parts []string
		for _, x := range list {
			parts = append(parts, spokenValue(x))
		}
		return strings.Join(parts, " ")
	}
	return string(raw)
}

// count books facts about members in the second of their record.
func (h *history) count(r *event.Record) {
	p := h.counts[r.TS/1000]
	if p == nil {
		p = &api.Point{}
		h.counts[r.TS/1000] = p
	}
	switch b := r.Body.(type) {
	case *event.MemberIntended:
		p.Intents += b.Pos.Count()
	case *event.MemberResolved:
		switch n := b.Pos.Count(); {
		case b.Resolution == event.Confirmed:
			p.Confirmed += n
		case b.Resolution == event.Ambiguous:
			p.Ambiguous += n
		case b.Again == 0:
			p.Undelivered += n
		}
	case *event.MemberMissed:
		p.Missed += b.Pos.Count()
	case *event.EnvelopeReturned:
		if b.Again == 0 {
			p.Requarantined++
		}
	case *event.OutcomeReported:
		n := b.Pos.Count()
		switch b.Outcome {
		case event.OutcomeSucceeded:
			p.Succeeded += n
		case event.OutcomeRejected:
			p.Rejected += n
		case event.OutcomeDeduplicated:
			p.Deduplicated += n
		case event.OutcomeAmbiguous:
			p.EffectInDoubt += n
		}
	}
}

// bucketSizes are the lengths of buckets that people read easily, in seconds.
var bucketSizes = []uint64{1, 2, 5, 10, 30, 60, 300, 900, 1800, 3600, 4 * 3600, 24 * 3600}

// series puts the seconds into as many buckets as a plot can show.
func (h *history) series() *api.Series {
	seconds := slices.Sorted(maps.Keys(h.counts))
	if len(seconds) == 0 {
		return nil
	}
	from, to := seconds[0], seconds[len(seconds)-1]
	size := bucketSizes[len(bucketSizes)-1]
	for _, s := range bucketSizes {
		if (to-from)/s < maxPoints {
			size = s
			break
		}
	}
	for (to-from)/size >= maxPoints {
		size *= 2
	}
	from -= from % size
	out := &api.Series{From: moment(from * 1000), Bucket: (time.Duration(size) * time.Second).String()}
	out.Points = make([]api.Point, (to-from)/size+1)
	for i := range out.Points {
		out.Points[i].At = moment((from + uint64(i)*size) * 1000)
	}
	for _, s := range seconds {
		addPoint(&out.Points[(s-from)/size], h.counts[s])
	}
	return out
}

func addPoint(to, p *api.Point) {
	to.Intents += p.Intents
	to.Confirmed += p.Confirmed
	to.Undelivered += p.Undelivered
	to.Ambiguous += p.Ambiguous
	to.Succeeded += p.Succeeded
	to.Rejected += p.Rejected
	to.Deduplicated += p.Deduplicated
	to.EffectInDoubt += p.EffectInDoubt
	to.Requarantined += p.Requarantined
	to.Missed += p.Missed
}

// fill puts the course of a generation into its report.
func (h *history) fill(r *api.Report) {
	r.Timeline = append([]api.Moment{}, h.moments...)
	r.Omitted = h.omitted
	r.Thresholds = []api.ThresholdState{}
	for _, name := range slices.Sorted(maps.Keys(h.thresholds)) {
		r.Thresholds = append(r.Thresholds, *h.thresholds[name])
	}
	r.Series = h.series()
}
