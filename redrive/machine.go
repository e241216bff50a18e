package redrive

import (
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger/event"
)

// ErrState is returned when a generation's state does not allow an act. The
// message says who brought it there and what is possible.
var ErrState = errors.New("not possible in this state")

// ErrArgument is returned for requests that make no sense in any state.
var ErrArgument = errors.New("invalid argument")

// Transition is one row of the table: in a state From, a record of Kind leads
// to To. To is "" where it depends on more than the state.
type Transition struct {
	From event.State
	Kind event.Kind
	To   event.State
}

// Transitions is the whole state machine of a generation; the diagram in the
// documentation is made from it. What is not listed is refused.
func Transitions() []Transition {
	return []Transition{
		{"", event.KindGenerationPlanned, event.Planned},
		{event.Planned, event.KindGenerationApproved, event.Approved},
		{event.Planned, event.KindGenerationChecked, event.Planned},
		{event.Planned, event.KindGenerationRejected, event.Rejected},
		{event.Planned, event.KindGenerationExpired, event.Expired},
		{event.Approved, event.KindGenerationRejected, event.Rejected},
		{event.Approved, event.KindGenerationExpired, event.Expired},
		{event.Approved, event.KindGenerationChecked, event.Approved},
		{event.Approved, event.KindGenerationStarted, event.Running},
		{event.Approved, event.KindGenerationLimited, event.Approved},
		{event.Approved, event.KindGenerationRevised, event.Approved},
		{event.Running, event.KindMemberIntended, event.Running},
		{event.Running, event.KindMemberWithheld, event.Running},
		{event.Running, event.KindGenerationAdvanced, event.Running},
		{event.Running, event.KindGenerationLimited, event.Running},
		{event.Running, event.KindGenerationEvaluated, event.Running},
		{event.Running, event.KindGenerationChecked, event.Running}, // driven on by another process
		{event.Running, event.KindGenerationThrottled, event.Running},
		{event.Running, event.KindGenerationRevised, event.Running},
		{event.Running, event.KindGenerationPaused, event.Paused},
		{event.Running, event.KindGenerationAborted, event.Aborted},
		{event.Running, event.KindGenerationSettling, event.Settling},
		{event.Paused, event.KindGenerationEvaluated, event.Paused},
		{event.Paused, event.KindMemberWithheld, event.Paused}, // behind a failure in their key
		{event.Paused, event.KindGenerationThrottled, event.Paused},
		{event.Paused, event.KindGenerationRevised, event.Paused},
		{event.Paused, event.KindGenerationPaused, event.Paused},
		{event.Paused, event.KindGenerationChecked, event.Paused},
		{event.Paused, event.KindGenerationResumed, ""}, // running when no reason is left
		{event.Paused, event.KindGenerationLimited, event.Paused},
		{event.Paused, event.KindGenerationApproved, event.Paused}, // renewed, for a resume after more than 24 h
		{event.Paused, event.KindGenerationAborted, event.Aborted},
		{event.Aborted, event.KindGenerationSettling, event.Settling},
		{event.Settling, event.KindGenerationClosed, event.Closed},
	}
}

// next returns the state after a record of kind, or an error wrapping ErrState.
// Facts about members that were released before are taken in every state that
// comes after the start.
func next(from event.State, kind event.Kind) (event.State, error) {
	for _, t := range Transitions() {
		if t.From == from && t.Kind == kind {
			return t.To, nil
		}
	}
	switch kind {
	case event.KindMemberResolved, event.KindMemberConfirmedLate, event.KindMemberRuled, event.KindMemberMissed,
		event.KindEnvelopeReturned, event.KindOutcomeReported, event.KindMemberReconciled, event.KindGenerationReconciled:
		switch from {
		case event.Running, event.Paused, event.Aborted, event.Settling, event.Closed:
			return from, nil
		}
	}
	return from, fmt.Errorf("%s while %s: %w", kind, stateName(from), ErrState)
}

func stateName(s event.State) string {
	if s == "" {
		return "not planned"
	}
	return string(s)
}
