package redrive_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// reconciled holds members against counts of effects, by position, and returns
// what was found.
func (b *book) reconciled(no event.GenerationNo, counts ...uint64) redrive.Findings {
	b.Helper()
	var f redrive.Findings
	var seen []redrive.Observed
	for pos, n := range counts {
		seen = append(seen, redrive.Observed{Pos: event.Position(pos), Count: n})
	}
	evidence := b.stamps.CommitEvidence(fmt.Append(nil, counts)).String()
	b.must(func(v ledger.View) ([]event.Event, error) {
		f = redrive.Findings{}
		return redrive.ReconcileMembers(v, no, evidence, seen, &f)
	})
	b.must(func(v ledger.View) ([]event.Event, error) {
		return redrive.ReconcileDone(v, no, "csv", evidence, f)
	})
	return f
}

// late lets all outcome deadlines pass.
func (b *book) late() {
	b.Helper()
	b.now = b.now.Add(2 * time.Hour)
	b.due()
}

func TestReconcileFindsMissingDoubleAndEffected(t *testing.T) {
	b := newBook(t)
	b.orders(6)
	no := b.running()
	p := b.sent(no, 5)
	b.outcome(no, p[3:4], event.OutcomeSucceeded)
	b.outcome(no, p[4:5], event.OutcomeRejected)
	if f := b.reconciled(no, 1, 0, 0, 0, 0); f != (redrive.Findings{Checked: 5, Effected: 1, NotEffected: 1, Early: 2, None: 1}) {
		t.Errorf("before the deadline: %+v", f)
	}
	b.late()
	want := redrive.Findings{Checked: 5, Effected: 1, Double: 1, NotEffected: 2, None: 1}
	if d := cmp.Diff(want, b.reconciled(no, 1, 0, 2, 0, 0)); d != "" {
		t.Error(d)
	}
	g := b.gen(no)
	if g.Counts[event.Succeeded] != 3 || g.Counts[event.Missing] != 1 || g.Doubles != 1 || g.Disputes != 1 || g.Reconciled.Findings != want {
		t.Errorf("%v, %d doubles, %d disputes, %+v", g.Counts, g.Doubles, g.Disputes, g.Reconciled)
	}
	// What has no effect is free again, with its risk; what has one is resolved.
	b.custody(p[0].Env, event.ResolvedForNow)
	b.custody(p[1].Env, event.Quarantined)
	if !b.cell(p[1].Env).Flags.Has(quarantine.FlagDuplicateRisk) {
		t.Error("the envelope does not tell the risk of a duplicate")
	}
	// The same evidence again adds no fact.
	before := b.gen(no)
	b.reconciled(no, 1, 0, 2, 0, 0)
	after := b.gen(no)
	if before.Counts != after.Counts || after.Doubles != 1 {
		t.Errorf("%v became %v", before.Counts, after.Counts)
	}
	// An effect that comes late after all takes the envelope out of quarantine.
	b.reconciled(no, 1, 1, 2, 1, 0)
	b.custody(p[1].Env, event.ResolvedForNow)
	if g := b.gen(no); g.Disputes != 0 || g.Counts[event.Missing] != 0 {
		t.Errorf("%d disputes, %v", g.Disputes, g.Counts)
	}
}

// What another generation has released since is that one's: its effect says
// nothing about the first release.
func TestEffectsBelongToWhoReleasedLast(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	first := b.running()
	b.sent(first, 2)
	b.late()
	b.reconciled(first, 0, 0)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.CloseAsIs(v, first, "no effects") })
	second := b.running()
	b.sent(second, 1)
	var seen []redrive.Checkable
	b.view(func(v ledger.View) {
		g, err := redrive.Get(v, first)
		b.ok(err)
		b.ok(redrive.EachCheckable(v, g, 0, func(x redrive.Checkable) bool {
			seen = append(seen, x)
			return true
		}))
	})
	if len(seen) != 2 || !seen[0].Elsewhere || seen[1].Elsewhere || !seen[1].Released || seen[1].Operation == "" {
		t.Errorf("%+v", seen)
	}
	// Facts about the first one come too late to take it back from the second.
	b.reconciled(first, 1)
	b.custody(1, event.Released)
}

func TestReconcileNothing(t *testing.T) {
	for _, s := range []event.State{event.Planned, event.Approved, event.Rejected} {
		b, no := inState(t, s)
		_, err := b.update(func(v ledger.View) ([]event.Event, error) {
			return redrive.ReconcileMembers(v, no, "e", nil, &redrive.Findings{})
		})
		if !errors.Is(err, redrive.ErrState) {
			t.Errorf("%s: %v", s, err)
		}
		if err := redrive.CanReconcile(b.gen(no)); !errors.Is(err, redrive.ErrState) || !strings.Contains(err.Error(), "released nothing") {
			t.Errorf("%s: %v", s, err)
		}
	}
	b, no := inState(t, event.Closed)
	b.reconciled(no, 1, 1, 1, 1, 1)
	if g := b.gen(no); g.Counts[event.Succeeded] != 5 || g.State != event.Closed || g.Regressions != 0 {
		t.Errorf("%s %v", g.Status(), g.Counts)
	}
	rc := b.must(func(v ledger.View) ([]event.Event, error) { return redrive.CloseAsIs(v, no, "again") })
	if rc.First != 0 {
		t.Error("a closed generation was closed again")
	}
}

// The commitment differs with the evidence and with the store.
func TestEvidenceIsCommittedTo(t *testing.T) {
	here, there := redrive.Stamps{Key: stamp.Key{1}}, redrive.Stamps{Key: stamp.Key{2}}
	x, y := []byte("op-1 1\n"), []byte("op-1 2\n")
	if a := here.CommitEvidence(x); a != here.CommitEvidence(x) || a == here.CommitEvidence(y) || a == there.CommitEvidence(x) {
		t.Error("not a commitment")
	}
}

// An effect of what the broker gave back is a contradiction: the effect wins,
// so that nobody sends it again, and the contradiction is counted.
func TestEffectOfWhatWasNotDelivered(t *testing.T) {
	b := newBook(t)
	b.orders(3)
	no := b.running()
	picks := b.intended(no, 1)
	b.resolve(no, end(picks, event.Returned, "no_route")...)
	b.custody(picks[0].Env, event.Quarantined)
	b.reconciled(no, 1)
	b.custody(picks[0].Env, event.ResolvedForNow)
	if g := b.gen(no); g.Contradictions != 1 || g.Counts[event.Succeeded] != 1 || g.Disputes != 0 {
		t.Errorf("%d contradictions, %d disputes, %v", g.Contradictions, g.Disputes, g.Counts)
	}
}
