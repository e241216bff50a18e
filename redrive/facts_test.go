package redrive_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// The table of dispositions, row by row, as the design has it: what is known,
// and what must follow whatever else of the rows below is known too.
func TestDispositionTable(t *testing.T) {
	type row struct {
		facts redrive.Facts
		ambig uint32
		want  event.Disposition
	}
	rows := []row{
		{facts: redrive.FactReturned, want: event.Requarantined},
		{facts: redrive.FactSucceeded | redrive.FactRejected, want: event.AmbiguousEffect},
		{facts: redrive.FactSucceeded, want: event.Succeeded},
		{facts: redrive.FactRejected, want: event.RejectedByConsumer},
		{facts: redrive.FactEffectAmbiguous, want: event.AmbiguousEffect},
		{facts: redrive.FactDeduplicated, want: event.DeduplicatedConsumer},
		{facts: redrive.FactEffected, want: event.Succeeded},
		{facts: redrive.FactAdmitted, want: event.Admitted},
		{facts: redrive.FactConfirmed | redrive.FactDeadline, want: event.Missing},
		{facts: redrive.FactConfirmedLate | redrive.FactDeadline, want: event.Missing},
		{facts: redrive.FactRuledDelivered | redrive.FactDeadline, want: event.Missing},
		{facts: redrive.FactConfirmed, want: event.Pending},
		{facts: redrive.FactConfirmedLate, want: event.Pending},
		{facts: redrive.FactRuledDelivered, want: event.Pending},
		{facts: redrive.FactUnresolved, want: event.InFlight},
		{ambig: 1, want: event.AmbiguousPublish},
		{ambig: 1 << 31, want: event.AmbiguousPublish},
		{facts: redrive.FactUnroutable, want: event.Undelivered},
		{facts: redrive.FactNacked, want: event.Undelivered},
		{facts: redrive.FactRefused, want: event.Undelivered},
		{facts: redrive.FactRuledNot, want: event.Undelivered},
		{facts: redrive.FactWithheld, want: event.Withheld},
		{want: event.Waiting},
	}
	for i, r := range rows {
		if got := redrive.DispositionOf(r.facts, r.ambig); got != r.want {
			t.Errorf("row %d: %s, want %s", i, got, r.want)
		}
		for j := i + 1; j < len(rows); j++ {
			below := rows[j]
			if r.facts == redrive.FactEffectAmbiguous && below.facts == redrive.FactEffected {
				continue // it answers the question that the consumer left open
			}
			if i == 2 && below.facts.Has(redrive.FactRejected) || below.facts.Has(redrive.FactDeadline) {
				continue // a row above is about both; a deadline is no evidence
			}
			if got := redrive.DispositionOf(r.facts|below.facts, r.ambig|below.ambig); got != r.want {
				t.Errorf("row %d with row %d: %s, want %s", i, j, got, r.want)
			}
		}
	}
}

// fact is an event about one member after its first intent.
type fact struct {
	name string
	body event.Body
}

func pool(pos event.Position) []fact {
	at := event.RangesOf(pos)
	out := []fact{
		{"returned", &event.EnvelopeReturned{Parent: event.EnvelopeNo(pos) + 1, Pos: pos, Try: 1}},
		{"missed", &event.MemberMissed{Pos: at}},
		{"late", &event.MemberConfirmedLate{Pos: at, Try: 1}},
		{"ruled yes", &event.MemberRuled{Pos: at, Try: 1, Ruling: event.RuledDelivered, Why: "w"}},
		{"ruled no", &event.MemberRuled{Pos: at, Try: 1, Ruling: event.RuledNotDelivered, Why: "w"}},
	}
	for _, o := range event.Outcomes {
		out = append(out, fact{string(o), &event.OutcomeReported{Outcome: o, Pos: at, Try: 1, Via: "import"}})
	}
	for _, e := range event.Effects {
		out = append(out, fact{"shows " + string(e), &event.MemberReconciled{Effect: e, Evidence: "e", Pos: at}})
	}
	for _, r := range event.Resolutions {
		out = append(out, fact{"is " + string(r), &event.MemberResolved{Pos: at, Try: 1, Resolution: r, Reason: "no_route"}})
	}
	return out
}

// possible reports whether facts can occur together: one resolution, one
// ruling, and rulings and late confirms only about what is ambiguous, and
// after it.
func possible(fs []fact) bool {
	resolved, ruled := "", 0
	for _, f := range fs {
		switch {
		case strings.HasPrefix(f.name, "is "):
			if resolved != "" {
				return false
			}
			resolved = f.name
		case f.name == "late", strings.HasPrefix(f.name, "ruled"):
			if resolved != "is ambiguous" {
				return false
			}
			if f.name != "late" {
				ruled++
			}
		}
	}
	return ruled < 2
}

// arrangements calls fn with every ordered choice of up to n of the facts.
func arrangements(fs []fact, n int, fn func([]fact)) {
	var grow func(have []fact)
	grow = func(have []fact) {
		if len(have) > 0 {
			fn(have)
		}
		if len(have) == n {
			return
		}
		for _, f := range fs {
			if !slices.ContainsFunc(have, func(h fact) bool { return h.name == f.name }) {
				grow(append(slices.Clone(have), f))
			}
		}
	}
	grow(nil)
}

// expect is the table of the design as a function of the names of facts.
func expect(fs []fact) event.Disposition {
	has := func(names ...string) bool {
		return slices.ContainsFunc(fs, func(f fact) bool { return slices.Contains(names, f.name) })
	}
	resolved := slices.ContainsFunc(fs, func(f fact) bool { return strings.HasPrefix(f.name, "is ") })
	switch {
	case has("returned"):
		return event.Requarantined
	case has("succeeded") && has("rejected"), has("ambiguous") && !has("succeeded", "rejected", "shows effected", "shows double"):
		return event.AmbiguousEffect
	case has("succeeded"):
		return event.Succeeded
	case has("rejected"):
		return event.RejectedByConsumer
	case has("deduplicated"):
		return event.DeduplicatedConsumer
	case has("shows effected", "shows double"):
		return event.Succeeded
	case has("admitted"):
		return event.Admitted
	case has("is confirmed", "late", "ruled yes"):
		if has("missed") {
			return event.Missing
		}
		return event.Pending
	case !resolved:
		return event.InFlight
	case has("is ambiguous") && !has("ruled no"):
		return event.AmbiguousPublish
	}
	return event.Undelivered
}

// Facts as events, in any order in which they can come, lead to the one
// disposition and custody that the table gives to their set.
func TestOrderOfFactsNeverMatters(t *testing.T) {
	b := newBook(t)
	b.orders(20)
	no := b.running()
	picks := b.intended(no, 1)
	fs, n := pool(picks[0].Pos), 0
	wanted := map[string]event.Disposition{}
	arrangements(fs, 3, func(order []fact) {
		if !possible(order) {
			return
		}
		n++
		d, c := b.after(no, picks[0], order)
		want := expect(order)
		holder := custody[want]
		if frees(order) && (want == event.Missing || want == event.AmbiguousEffect) {
			holder = event.Quarantined
		}
		names := fmt.Sprint(order)
		if d != want || c != holder {
			t.Errorf("%s: %s and %s, want %s and %s", names, d, c, want, holder)
		}
		wanted[want.String()] = want
	})
	if n < 500 || len(wanted) != 11 {
		t.Errorf("only %d orders were tried, and they lead to %v", n, wanted)
	}
}

// frees says whether business data shows no effect, and nothing else shows one.
func frees(fs []fact) bool {
	has := func(names ...string) bool {
		return slices.ContainsFunc(fs, func(f fact) bool { return slices.Contains(names, f.name) })
	}
	return has("shows not_effected") && !has("shows effected", "shows double", "succeeded", "rejected")
}

// custody is who answers for an envelope whose member has a disposition.
var custody = map[event.Disposition]event.Custody{
	event.Waiting: event.Quarantined, event.Withheld: event.Quarantined, event.Undelivered: event.Quarantined,
	event.InFlight: event.Released, event.AmbiguousPublish: event.Released, event.Pending: event.Released, event.Admitted: event.Released,
	event.Missing: event.Released, event.AmbiguousEffect: event.Released,
	event.Succeeded: event.ResolvedForNow, event.RejectedByConsumer: event.ResolvedForNow, event.DeduplicatedConsumer: event.ResolvedForNow,
	event.Requarantined: event.ReturnedAsKid,
}

// after applies facts in order and tells what became of the member; nothing of
// it is kept.
func (b *book) after(no event.GenerationNo, p redrive.Pick, order []fact) (d event.Disposition, c event.Custody) {
	b.Helper()
	err := b.store.Update(func(w ledger.Writer) error {
		for i, f := range order {
			r := &event.Record{Seq: uint64(1000 + i), TS: uint64(b.now.UnixMilli()), Epoch: 1, Subj: event.Subject{Gen: no, Env: 9}, Body: f.body}
			if err := (redrive.Projector{}).Apply(w, r); err != nil {
				return fmt.Errorf("%v: %w", order, err)
			}
		}
		m := redrive.GetMember(w, no, p.Pos)
		d, c = m.Disposition(), cellIn(b, w, p.Env)
		g, err := redrive.Get(w, no)
		if err != nil {
			return err
		}
		if redrive.Recount(w, g) != g.Counts {
			return fmt.Errorf("%v: counters %v, recounted %v", order, g.Counts, redrive.Recount(w, g))
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		b.Fatalf("%v", err)
	}
	return d, c
}
