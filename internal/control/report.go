package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// report is the closing statement: what became of every selected envelope,
// what remains, and who owns its business resolution.
func (c *Controller) report(_ context.Context, req api.GenerationRef) (api.Report, error) {
	no, err := c.find(req.ID)
	if err != nil {
		return api.Report{}, err
	}
	r := api.Report{Expected: []string{}, Remaining: []api.EnvelopeGroup{}}
	var m *redrive.Manifest
	var last event.EnvelopeNo
	err = c.log.View(func(v ledger.View) error {
		g, err := redrive.Get(v, no)
		if err != nil {
			return err
		}
		if r.Generation, err = c.wire(v, g); err != nil {
			return err
		}
		if m, err = redrive.GetManifest(v, g.Manifest); err != nil {
			return err
		}
		r.Expected = append(r.Expected, m.Expected...)
		r.Expectation = expectation(g, m.Expected)
		r.Reconciled = wireReconciled(g.Reconciled)
		r.ThresholdLimits = g.Thresholds.List()
		r.Remaining, last, err = remaining(v, g, m)
		return err
	})
	if err == nil {
		r.Newer, err = c.newer(m, last)
	}
	if usageError := (usageError{}); errors.As(err, &usageError) {
		// The predicate cannot be told for something newer: that is no reason to
		// withhold the statement.
		r.Unsure, err = err.Error(), nil
	}
	r.Text = statement(r)
	if err != nil {
		return r, err
	}
	h, err := c.readHistory(no)
	h.fill(&r)
	return r, err
}

// remaining groups what is still open of a selection: the envelopes
// themselves, and for those that came back the latest of their children. Last
// is the one of the selection that was captured last.
func remaining(v ledger.View, g *redrive.Generation, m *redrive.Manifest) (out []api.EnvelopeGroup, last event.EnvelopeNo, err error) {
	type key struct {
		reason, owner quarantine.Word
		class         event.Class
	}
	groups := map[key]*api.EnvelopeGroup{}
	words := quarantine.Words(v)
	add := func(no event.EnvelopeNo) {
		last = max(last, no)
		cell, _ := quarantine.GetCell(v, no)
		for cell.Custody == event.ReturnedAsKid {
			kids := quarantine.Kids(v, no)
			if len(kids) == 0 {
				return
			}
			no = kids[len(kids)-1]
			cell, _ = quarantine.GetCell(v, no)
		}
		if cell.Custody != event.Quarantined && cell.Custody != event.Released {
			return
		}
		k := key{cell.Reason, cell.Owner, cell.Class}
		if groups[k] == nil {
			groups[k] = &api.EnvelopeGroup{Reason: words[cell.Reason], Class: cell.Class.String(), Owner: words[cell.Owner], Oldest: time.Unix(int64(cell.FirstDied), 0).UTC()}
		}
		groups[k].Count++
	}
	err = redrive.EachMember(v, g, func(_ event.Position, env event.EnvelopeNo) error { add(env); return nil })
	if err == nil {
		err = redrive.Exclusions(v, m, func(x redrive.Exclusion) error { add(x.Env); return nil })
	}
	out = []api.EnvelopeGroup{}
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b api.EnvelopeGroup) int {
		return compare(b.Count, a.Count, a.Reason+a.Owner, b.Reason+b.Owner)
	})
	return out, last, err
}

// newer counts what was captured after the cohort was frozen and would be in it
// if it were planned now. What came back is no news: it is a later attempt of
// something older.
func (c *Controller) newer(m *redrive.Manifest, last event.EnvelopeNo) (uint64, error) {
	s := &m.Selection
	if len(s.IDs) > 0 || s.Lineage != "" || s.Generation != "" {
		return 0, nil // these were named
	}
	var where quarantine.Predicate
	var nos []event.EnvelopeNo
	err := c.log.View(func(v ledger.View) error {
		cs, err := c.conditions(v, s, moment(m.At))
		if err != nil {
			return err
		}
		match, err := cs.filter.Resolve(v)
		if err != nil {
			return err
		}
		where = cs.where
		quarantine.ScanCells(v, last+1, func(no event.EnvelopeNo, cell *quarantine.Cell) bool {
			if cell.Custody == event.Quarantined && cell.Root == no && match.Match(no, cell) {
				nos = append(nos, no)
			}
			return true
		})
		return nil
	})
	if err == nil {
		nos, err = c.matching(where, nos)
	}
	return uint64(len(nos)), err
}

// oneLine keeps what people and messages say, such as a reason, from making up
// lines of the statement.
var oneLine = strings.NewReplacer("\n", `\n`, "\r", `\r`)

// statement puts the report into sentences.
func statement(r api.Report) string {
	g, f := &r.Generation, &r.Generation.Funnel
	var b strings.Builder
	say := func(format string, args ...any) {
		for i, a := range args {
			if s, ok := a.(string); ok {
				args[i] = oneLine.Replace(s)
			}
		}
		_, _ = fmt.Fprintf(&b, format+"\n", args...) // a Builder never fails
	}
	say("Generation %d is %s. Fix: %s.", g.Number, g.Status, g.Fix)
	moved, stayed := parts(g, true), parts(g, false)
	say("Of %d selected, %d moved to %s%s.", f.Selected, f.Moved, g.Destination, listed(moved))
	if f.Moved < f.Selected {
		say("%d did not move%s.", f.Selected-f.Moved, listed(stayed))
	}
	if g.Repaired > 0 {
		say("The plan had another content than was captured for %d members.", g.Repaired)
	}
	if len(g.Forced) > 0 {
		say("Overruled was %s: %s.", strings.Join(g.Forced, ", "), g.ForceWhy)
	}
	if x := r.Expectation; x != nil {
		say("Expected outcomes: %s; %d of %d members ended so%s.", strings.Join(r.Expected, ", "), x.Met, x.Met+x.Unmet, otherwise(x, g.State))
	}
	if g.Contradictions > 0 {
		say("%d members have evidence of delivery against a definite non-delivery.", g.Contradictions)
	}
	if x := r.Reconciled; x != nil {
		say("Business data (%s) was asked about %d members: %d have their effect, %d have it more than once, %d have none although they should; %d could not be checked, %d effects belong to nothing that was released.",
			x.Source, x.Checked, x.Effected, x.Double, x.NotEffected, x.NotCheckable, x.Unexpected)
	}
	if g.Disputes > 0 {
		say("About %d members business data says otherwise than was reported.", g.Disputes)
	}
	if r.Newer > 0 {
		say("It left alone %d that match the same selection and were captured after it was planned.", r.Newer)
	}
	if r.Unsure != "" {
		say("Whether newer ones match the same selection is not known: %s.", r.Unsure)
	}
	if len(r.Remaining) == 0 {
		say("Nothing of it remains open.")
		return b.String()
	}
	say("Still open, and who owns the business resolution:")
	for _, x := range r.Remaining {
		reason := x.Reason
		if reason == "" {
			reason = "no reason given"
		}
		say("  %d  %s (%s)  %s", x.Count, reason, x.Class, x.Owner)
	}
	return b.String()
}

// parts lists what the moved, or the other, members became, in the words of
// the partition: their numbers add up.
func parts(g *api.Generation, moved bool) []string {
	var out []string
	for d := range event.NumDispositions {
		x := event.Disposition(d)
		n := g.Tally[x.String()]
		if n == 0 || x.Moved() != moved {
			continue
		}
		name := spoken(x)
		if x == event.Waiting && ended(g.State) {
			name = "never sent and free again"
		}
		out = append(out, fmt.Sprintf("%d %s", n, name))
	}
	return out
}

// spoken is a disposition in the words of sentences.
func spoken(d event.Disposition) string {
	if name, ok := words[d]; ok {
		return name
	}
	return strings.ReplaceAll(d.String(), "_", " ")
}

// words are the dispositions whose names need the tables beside them.
var words = map[event.Disposition]string{
	event.Requarantined: "came back", event.RejectedByConsumer: "rejected by the consumer",
	event.DeduplicatedPlan: "deduplicated by the plan", event.DeduplicatedConsumer: "deduplicated by the consumer",
	event.AmbiguousPublish: "in doubt whether published", event.AmbiguousEffect: "ambiguous in effect",
}

// ended reports whether a generation holds nothing back any more.
func ended(state string) bool { return !event.State(state).Open() }

func listed(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
