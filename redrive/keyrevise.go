package redrive

import (
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// fieldOnFailure is the field of a revision of what a failure does to its key.
const fieldOnFailure = "on_failure"

// ReviseOnFailure changes what a failure does to the rest of its key, between
// block, park and rebuild: whether gaps are stamped is settled by the plan. The
// later messages of keys that have failed already follow at once. Leaving block
// lets other keys go on, so it needs the word of an approver, which approved
// says.
func ReviseOnFailure(v ledger.View, no event.GenerationNo, to, why string, approved bool) ([]event.Event, error) {
	if err := needWhy(why); err != nil {
		return nil, err
	}
	g, err := act(v, no, event.KindGenerationRevised)
	if err != nil {
		return nil, err
	}
	switch to {
	case OnFailureBlock, OnFailurePark, OnFailureRebuild:
	default:
		return nil, fmt.Errorf("on failure %q: a running generation can be revised to block, park or rebuild: %w", clip(to), ErrArgument)
	}
	switch {
	case !g.ordered():
		return nil, fmt.Errorf("generation %d is not ordered by key, so there is nothing to revise; plan again with --order per-key: %w", no, ErrState)
	case g.OnFailure == OnFailureContinue:
		return nil, fmt.Errorf("generation %d goes on after failures, and has released messages behind them already; abort it and plan the rest again: %w", no, ErrState)
	case g.OnFailure == to:
		return nil, nil
	case g.OnFailure == OnFailureBlock && !approved:
		return nil, fmt.Errorf("generation %d was approved to stop at a failure; somebody who did not plan it has to add --approve: %w", no, ErrState)
	}
	return one(no, &event.GenerationRevised{Field: fieldOnFailure, New: to, Old: g.OnFailure, Why: cut(why, maxWhy)}), nil
}

// afterRevision does with the members behind failures what is said now.
func afterRevision(v ledger.View, r *event.Record, b *event.GenerationRevised) ([]event.Event, error) {
	if b.Field != fieldOnFailure {
		return nil, nil
	}
	g, err := Get(v, r.Subj.Gen)
	if err != nil || g.State != event.Running && g.State != event.Paused {
		return nil, err
	}
	stuck, err := g.blocked(v)
	if err != nil {
		return nil, err
	}
	return g.stop(v, stuck)
}
