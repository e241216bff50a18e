package redrive_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

func msec(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (b *book) pause(no event.GenerationNo) {
	b.Helper()
	b.must(func(v ledger.View) ([]event.Event, error) {
		return redrive.PauseBy(v, no, redrive.PauseOperator, "lunch")
	})
}

func (b *book) resume(no event.GenerationNo) {
	b.Helper()
	b.must(func(v ledger.View) ([]event.Event, error) { return b.resumption(v, no, "looked at it") })
	b.tick(1000)
}

func (b *book) abort(no event.GenerationNo) ledger.Receipt {
	b.Helper()
	return b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Abort(v, no, "wrong fix") })
}

func (b *book) rule(no event.GenerationNo, p redrive.Pick, r event.Ruling) {
	b.Helper()
	b.must(func(v ledger.View) ([]event.Event, error) {
		return redrive.Rule(v, event.IntentID{Gen: no, Pos: p.Pos, Try: p.Try}, r, "asked the consumer")
	})
}

// A decision may carry several records about one generation, and what follows
// from the first one is recorded behind the last.
func TestLastReturnComesBackTwiceInOneBatch(t *testing.T) {
	b := newBook(t)
	b.orders(11)
	no := b.running()
	picks := b.sent(no, 11)
	b.outcome(no, picks[1:], event.OutcomeSucceeded)
	nos, _ := b.captured(b.comeBack(no, picks[0]), b.comeBack(no, picks[0]))
	g := b.state(no, event.Closed)
	if g.Counts[event.Requarantined] != 1 || b.cell(nos[0]).Parent != picks[0].Env || b.cell(nos[1]).Parent != picks[0].Env {
		t.Errorf("counts %v, children %+v %+v", g.Counts, b.cell(nos[0]), b.cell(nos[1]))
	}
}

func TestPauseThatExpiresWhileOutcomesAreMissed(t *testing.T) {
	b := newBook(t)
	b.orders(12)
	no := b.running()
	b.sent(no, 3)
	b.pause(no)
	b.now = b.now.Add(73 * time.Hour) // over a weekend in which nothing ran
	b.due()
	b.state(no, event.Settling)
	b.due()
	if g := b.gen(no); g.Counts[event.Missing] != 3 || g.Counts[event.Waiting] != 9 {
		t.Errorf("counts %v", g.Counts)
	}
}

func TestLateConfirmBesideTheLastResolution(t *testing.T) {
	b := newBook(t)
	b.orders(20)
	no := b.running()
	picks := b.intended(no, 20)
	b.resolve(no, end(picks[:1], event.Ambiguous, "confirm_deadline")...)
	b.abort(no)
	late := redrive.Verdict{Pos: picks[0].Pos, Try: 1, Resolution: event.Confirmed, Late: true}
	b.resolve(no, append(end(picks[1:], event.Confirmed, ""), late)...)
	if g := b.state(no, event.Settling); g.Counts[event.Pending] != 20 {
		t.Errorf("counts %v", g.Counts)
	}
}

func TestAmbiguousAndItsLateConfirmInOneBatch(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running()
	p := b.intended(no, 1)[0]
	v := redrive.Verdict{Pos: p.Pos, Try: p.Try, Resolution: event.Ambiguous, Reason: "confirm_deadline"}
	late := redrive.Verdict{Pos: p.Pos, Try: p.Try, Resolution: event.Confirmed, Late: true}
	b.resolve(no, v, late)
	if g := b.gen(no); g.Counts[event.Pending] != 1 {
		t.Errorf("the confirm is lost: %v", g.Counts)
	}
}

func TestContradictingAnswersInOneBatchResolveOnce(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running()
	p := b.intended(no, 1)
	rc := b.resolve(no, append(end(p, event.Confirmed, ""), end(p, event.Returned, "no_route")...)...)
	if got := kinds(rc); len(got) != 1 || got[0] != event.KindMemberResolved {
		t.Errorf("recorded %v", got)
	}
}

func TestOutcomeBeforeItsConfirm(t *testing.T) {
	b := newBook(t)
	b.orders(1)
	no := b.running()
	picks := b.intended(no, 1)
	b.outcome(no, picks, event.OutcomeSucceeded)
	if g := b.state(no, event.Running); g.Unresolved != 1 {
		t.Errorf("%d unresolved intents, want 1", g.Unresolved)
	}
	b.resolve(no, end(picks, event.Confirmed, "")...)
	b.state(no, event.Closed)
}

func TestWindowCountsIntentsWhoseOutcomeCameFirst(t *testing.T) {
	b := newBook(t)
	b.orders(3)
	no := b.running(func(m *redrive.Manifest) { m.Limits.Window = 1 })
	picks := b.intended(no, 1)
	b.outcome(no, picks, event.OutcomeSucceeded)
	if in := b.intend(no, 1); in.Hold != "window" {
		t.Errorf("a second intent in a window of 1: %+v", in)
	}
}

func TestCrashAfterOutcomeAndBeforeConfirm(t *testing.T) {
	b := newBook(t)
	b.orders(3)
	no := b.running()
	b.outcome(no, b.intended(no, 1), event.OutcomeSucceeded)
	b.restart(false)
	b.tick(1000)
	b.sent(no, 1) // the verifier looks for orphans of the epoch before
}

func TestLateConfirmAfterARuling(t *testing.T) {
	b := newBook(t)
	envs := b.orders(2)
	no := b.running()
	p := b.intended(no, 1)
	b.resolve(no, end(p, event.Ambiguous, "confirm_deadline")...)
	b.rule(no, p[0], event.RuledNotDelivered)
	b.custody(envs[0], event.Quarantined)
	late := redrive.Verdict{Pos: p[0].Pos, Try: 1, Resolution: event.Confirmed, Late: true}
	b.resolve(no, late)
	b.resolve(no, late) // once is enough
	g := b.gen(no)
	if g.Counts[event.Pending] != 1 || g.Contradictions != 1 {
		t.Errorf("counts %v, %d contradictions", g.Counts, g.Contradictions)
	}
	b.custody(envs[0], event.Released)
}

func TestPauseIsNotRefusedForItsWording(t *testing.T) {
	b := newBook(t)
	b.orders(1)
	no := b.running()
	b.must(func(v ledger.View) ([]event.Event, error) {
		return redrive.PauseBy(v, no, redrive.PauseOperator, "\xff"+strings.Repeat("\x01é", 3000))
	})
	b.state(no, event.Paused)
}

func TestConsumerVersionOfAnyLengthFitsIntoARecord(t *testing.T) {
	b := newBook(t)
	b.orders(1)
	no := b.running()
	r := b.report(no, b.sent(no, 1)[0], event.OutcomeAdmitted)
	r.ConsumerVersion = strings.Repeat("\x01", 1024)
	b.reported(r)
	if g := b.gen(no); g.Counts[event.Admitted] != 1 {
		t.Errorf("counts %v", g.Counts)
	}
}

func TestSameReportTwiceInOneBatchIsRecordedOnce(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running()
	p := b.sent(no, 1)[0]
	other := b.report(no, p, event.OutcomeSucceeded)
	other.ConsumerVersion = "2.4.2"
	rc := b.reported(b.report(no, p, event.OutcomeSucceeded), other)
	if got := kinds(rc); len(got) != 1 {
		t.Errorf("recorded %v", got)
	}
}

func TestTwoOutcomesOfTheLastMemberInOneBatch(t *testing.T) {
	for _, second := range []event.Outcome{event.OutcomeDeduplicated, event.OutcomeRejected} {
		b := newBook(t)
		b.orders(1)
		no := b.running()
		picks := b.sent(no, 1)
		b.reported(b.report(no, picks[0], event.OutcomeSucceeded), b.report(no, picks[0], second))
		g := b.state(no, event.Closed) // by the first; what the second says comes after the close
		if conflict := second == event.OutcomeRejected; (g.Regressions == 1) != conflict || (g.Counts[event.AmbiguousEffect] == 1) != conflict {
			t.Errorf("%s: %d regressions, counts %v", second, g.Regressions, g.Counts)
		}
	}
}
