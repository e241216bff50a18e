package redrive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redrivehq/redrive/ledger/event"
)

// Forcible lists the reasons to stay that a plan may overrule with a reason of
// its own, and an approver who did not make it. The others protect somebody
// else's word, or there is nothing to send.
func Forcible() []string {
	return []string{ReasonBeyondHorizon, ReasonDuplicate, ReasonConflict, ReasonOperationInDoubt, ReasonOperationResolved, ReasonPossibleDuplicate}
}

// CheckForce refuses reasons that cannot be overruled, and force without a word
// why. Its errors wrap ErrArgument.
func CheckForce(reasons []string, why string) error {
	for _, r := range reasons {
		if !slices.Contains(Forcible(), r) {
			return fmt.Errorf("%q cannot be forced; what can is %s: %w", clip(r), strings.Join(Forcible(), ", "), ErrArgument)
		}
	}
	switch {
	case len(reasons) > 0 && (why == "" || len(why) > maxWhy):
		return fmt.Errorf("force needs a reason of 1 to %d bytes, which the approver sees and the manifest keeps; say it with --force-why: %w", maxWhy, ErrArgument)
	case len(reasons) == 0 && why != "":
		return fmt.Errorf("a reason to force, and nothing that is forced: %w", ErrArgument)
	}
	return nil
}

// Force makes unfit and duplicate operations pass for these reasons.
func (o *Operations) Force(reasons ...string) {
	for _, r := range reasons {
		o.forced[r] = true
	}
}

// needsTwo is why the planner may not approve a plan whatever its size, "" when
// the planner may.
func (m *Manifest) needsTwo() string {
	switch {
	case len(m.Forced) > 0:
		return "it forces " + strings.Join(m.Forced, ", ")
	case m.Repaired > 0:
		return fmt.Sprintf("%d of its members go out with another content than was captured", m.Repaired)
	}
	return ""
}

// selfApproval refuses an approval by who made the plan.
func selfApproval(g *Generation, m *Manifest, by event.Actor) error {
	if by.Subject != g.Planner.Subject {
		return nil
	}
	if why := m.needsTwo(); why != "" {
		return fmt.Errorf("%s planned generation %d, and %s; another operating-system user has to approve it (--as does not count): %w", by.Subject, g.No, why, ErrState)
	}
	if g.Members > m.SelfApprove {
		return fmt.Errorf("%s planned generation %d and it has %d members, more than the %d that a planner may approve; another operating-system user has to (--as does not count), or raise approvals.planner_up_to and plan again: %w",
			by.Subject, g.No, g.Members, m.SelfApprove, ErrState)
	}
	return nil
}
