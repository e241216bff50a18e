package redrive

import (
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Reactor answers every record that changes a tally with what follows from it:
// evaluations, a pause when one says stop, and the end of the release.
type Reactor struct{}

// React implements ledger.Reactor.
func (Reactor) React(v ledger.View, r *event.Record) ([]event.Event, error) {
	switch r.Body.Kind() {
	case event.KindLedgerOpened:
		return afterStart(v, r)
	case event.KindGenerationRevised:
		b, _ := r.Body.(*event.GenerationRevised)
		return afterRevision(v, r, b)
	case event.KindMemberResolved, event.KindMemberConfirmedLate, event.KindMemberRuled, event.KindMemberWithheld,
		event.KindMemberMissed, event.KindEnvelopeReturned, event.KindOutcomeReported, event.KindMemberReconciled,
		event.KindGenerationResumed, event.KindGenerationAborted, event.KindGenerationSettling:
	default:
		return nil, nil
	}
	if b, ok := r.Body.(*event.EnvelopeReturned); ok && b.Again != 0 {
		return nil, nil // it changes no tally
	}
	g, err := Get(v, r.Subj.Gen)
	if err != nil {
		return nil, err
	}
	events, stopped := evaluate(v, g)
	if n := len(events); n > 0 && events[n-1].Body.Kind() == event.KindGenerationAborted {
		return events, nil // nothing about the order of what is left matters any more
	}
	stop, err := g.afterFailure(v, r.Body)
	if err != nil {
		return nil, err
	}
	// What is withheld answers for the end itself.
	events = append(events, stop...)
	if end := g.ending(stopped || len(stop) > 0); end != nil {
		events = append(events, event.Event{Subj: event.Subject{Gen: g.No}, Body: end})
	}
	return events, nil
}

// ending is the step that follows when nothing is left to decide.
func (g *Generation) ending(stopped bool) event.Body {
	c := &g.Counts
	switch {
	case g.State == event.Running && !stopped && c[event.Waiting]+g.Unresolved+g.Retries == 0,
		g.State == event.Aborted && g.Unresolved == 0:
		return &event.GenerationSettling{}
	case g.State == event.Settling && c[event.Pending]+c[event.Admitted]+g.Unresolved == 0 && g.statement() == Statement{}:
		return &event.GenerationClosed{Why: "every outcome is known"}
	}
	return nil
}

// ReasonRestart marks what was in flight when the process before this one
// ended. It votes for no pause: nothing is wrong with the messages.
const ReasonRestart = "restart"

const (
	crashLoopStarts = 3
	crashLoopWindow = 600_000 // ms
)

// afterStart answers the beginning of an epoch: what the last process left in
// flight is ambiguous now, and the third unclean start in ten minutes pauses
// everything.
func afterStart(v ledger.View, r *event.Record) ([]event.Event, error) {
	gens, err := Unfinished(v)
	if err != nil {
		return nil, err
	}
	loop := crashLoop(v, r)
	var out []event.Event
	for _, g := range gens {
		if loop && g.State == event.Running {
			out = append(out, one(g.No, &event.GenerationPaused{Reason: "crash_loop",
				Why: fmt.Sprintf("%d unclean starts within ten minutes", crashLoopStarts)})...)
		}
		if g.Unresolved == 0 {
			continue
		}
		byTry := map[event.Try][]event.Position{}
		for pos := event.Position(0); pos < g.Touched(); pos++ {
			if m := GetMember(v, g.No, pos); m.Facts.Has(FactUnresolved) {
				byTry[m.Tries] = append(byTry[m.Tries], pos)
			}
		}
		for _, try := range sortedKeys(byTry) {
			out = append(out, positions(g.No, byTry[try], func(part event.Ranges) event.Body {
				return &event.MemberResolved{Pos: part, Try: try, Resolution: event.Ambiguous, Reason: ReasonRestart}
			})...)
		}
	}
	return out, nil
}

var bucketStarts = ledger.Bucket{Name: "generation.uncleanstarts", Append: true}

func crashLoop(r ledger.Reader, rec *event.Record) bool {
	if b, ok := rec.Body.(*event.LedgerOpened); !ok || b.Unclean == 0 {
		return false
	}
	n := 0
	r.Scan(bucketStarts, nil, func(_, ts []byte) bool {
		if at := ledger.Unkey(ts); at+crashLoopWindow > rec.TS {
			n++
		}
		return true
	})
	return n >= crashLoopStarts
}
