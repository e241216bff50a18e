package redrive_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// bad are the ways in which a member can go wrong; each returns the receipt of
// the transaction in which it became known.
var bad = []struct {
	name   string
	signal string
	happen func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt
}{
	{"requarantined", redrive.SignalStageBad, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		b.resolve(no, end(p, event.Confirmed, "")...)
		_, rc := b.captured(b.comeBack(no, p[0]))
		return rc
	}},
	{"rejected", redrive.SignalStageBad, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		b.resolve(no, end(p, event.Confirmed, "")...)
		return b.outcome(no, p, event.OutcomeRejected)
	}},
	{"ambiguous effect", redrive.SignalStageBad, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		b.resolve(no, end(p, event.Confirmed, "")...)
		return b.outcome(no, p, event.OutcomeAmbiguous)
	}},
	{"missing", redrive.SignalStageBad, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		b.resolve(no, end(p, event.Confirmed, "")...)
		b.now = b.now.Add(time.Hour)
		return b.due()
	}},
	{"refused", redrive.SignalStageBad, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		return b.resolve(no, end(p, event.Refused, "body_too_large")...)
	}},
	{"nacked", redrive.SignalStageBad, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		return b.resolve(no, end(p, event.Nacked, "nacked")...)
	}},
	{"unroutable", redrive.SignalUnroutable, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		return b.resolve(no, end(p, event.Returned, "no_route")...)
	}},
	{"ambiguous", redrive.SignalAmbiguous, func(b *book, no event.GenerationNo, p []redrive.Pick) ledger.Receipt {
		return b.resolve(no, end(p, event.Ambiguous, "connection_lost")...)
	}},
}

// pausedIn lists for what a transaction paused.
func pausedIn(rc ledger.Receipt) (reasons []string) {
	for _, r := range rc.Records {
		if p, ok := r.Body.(*event.GenerationPaused); ok {
			reasons = append(reasons, p.Reason)
		}
	}
	return reasons
}

func TestOneBadMemberPausesASmallStage(t *testing.T) {
	for _, c := range bad {
		for _, size := range []uint64{1, 10, 11} {
			b := newBook(t)
			b.orders(30)
			no := b.running(stages(size, 30))
			reasons := pausedIn(c.happen(b, no, b.intended(no, 1)))
			// Stages of more than ten are left to the ratios; a broker that returns
			// or loses is a reason in any stage.
			var want []string
			if size <= 10 {
				want = append(want, redrive.SignalStageBad)
			}
			if c.signal != redrive.SignalStageBad {
				want = append(want, c.signal)
			}
			if !slices.Equal(reasons, want) {
				t.Errorf("%s in a stage of %d: paused for %v, want %v", c.name, size, reasons, want)
			}
			b.state(no, map[bool]event.State{true: event.Paused, false: event.Running}[len(reasons) > 0])
		}
	}
}

func TestGoodMembersPauseNothing(t *testing.T) {
	b := newBook(t)
	b.orders(12)
	no := b.running(stages(10, 12))
	p := b.sent(no, 10)
	b.outcome(no, p[:3], event.OutcomeAdmitted)
	b.outcome(no, p[:9], event.OutcomeSucceeded)
	b.outcome(no, p[9:], event.OutcomeDeduplicated)
	if g := b.state(no, event.Running); len(g.Results) != 0 {
		t.Errorf("evaluations changed: %v", g.Results)
	}
}

func TestEvaluationIsStoredBesideThePause(t *testing.T) {
	b := newBook(t)
	b.orders(3)
	no := b.running(stages(2, 3))
	rc := bad[4].happen(b, no, b.intended(no, 1))
	want := []event.Kind{event.KindMemberResolved, event.KindGenerationEvaluated, event.KindGenerationPaused}
	if got := kinds(rc); !slices.Equal(got, want) {
		t.Fatalf("recorded %v", got)
	}
	e, ok := rc.Records[1].Body.(*event.GenerationEvaluated)
	if !ok || e.Bad != 1 || e.Limit != 1 || e.Of != 2 || e.Result != "breach" || e.Action != "pause" || e.Rule != "count "+redrive.RuleVersion {
		t.Errorf("evaluation %+v", e)
	}
	if rc.Records[2].Actor != event.System {
		t.Errorf("paused by %+v", rc.Records[2].Actor)
	}
}

// A resume has looked at what was bad: the same does not pause again, one more
// does.
func TestResumeAcknowledges(t *testing.T) {
	for _, c := range bad {
		b := newBook(t)
		b.orders(12)
		no := b.running(stages(8, 12))
		c.happen(b, no, b.intended(no, 1))
		b.resume(no)
		b.state(no, event.Running)
		p := b.sent(no, 1)
		b.outcome(no, p, event.OutcomeSucceeded)
		b.state(no, event.Running)
		c.happen(b, no, b.intended(no, 1))
		b.state(no, event.Paused)
	}
}

// A member that was looked at and became good must not hide the next bad one.
func TestAcknowledgedMemberThatBecomesGoodHidesNobody(t *testing.T) {
	b := newBook(t)
	b.orders(12)
	no := b.running(stages(8, 12))
	first := b.sent(no, 1)
	b.now = b.now.Add(time.Hour)
	b.due()
	b.state(no, event.Paused)
	b.resume(no)
	b.outcome(no, first, event.OutcomeSucceeded)
	b.outcome(no, b.sent(no, 1), event.OutcomeRejected)
	b.state(no, event.Paused)
}

func TestNothingIsWrittenWhileStopped(t *testing.T) {
	b := newBook(t)
	b.orders(5)
	no := b.running()
	b.intended(no, 1)
	b.pause(no)
	for range 2 {
		var before, after uint64
		b.view(func(v ledger.View) { before = v.Seq })
		if in := b.intend(no, 5); in.Hold != "state" || len(in.Picks) > 0 {
			t.Errorf("%+v", in)
		}
		if b.view(func(v ledger.View) { after = v.Seq }); before != after {
			t.Errorf("a T1 wrote %d records", after-before)
		}
		b.abort2(no)
	}
}

// abort2 aborts unless that has been done.
func (b *book) abort2(no event.GenerationNo) {
	b.Helper()
	if b.gen(no).State == event.Paused {
		b.abort(no)
	}
}

func TestPauseHasASetOfReasons(t *testing.T) {
	b := newBook(t)
	b.orders(5)
	no := b.running()
	p := b.intended(no, 1)
	b.pause(no)
	if rc := b.must(func(v ledger.View) ([]event.Event, error) {
		return redrive.PauseBy(v, no, redrive.PauseOperator, "again")
	}); rc.First != 0 {
		t.Error("a pause for a reason that is there already is recorded")
	}
	bad[4].happen(b, no, p)
	g := b.state(no, event.Paused)
	if len(g.Pauses) != 2 || g.Pauses[0].Reason != redrive.PauseOperator || g.Pauses[1].Reason != redrive.SignalStageBad {
		t.Errorf("paused for %+v", g.Pauses)
	}
	b.must(func(ledger.View) ([]event.Event, error) {
		return []event.Event{{Subj: event.Subject{Gen: no}, Body: &event.GenerationResumed{Cleared: []string{redrive.PauseOperator}, Why: "w"}}}, nil
	})
	b.state(no, event.Paused) // the other reason is left
	b.resume(no)
	b.state(no, event.Running)
}

func TestRestartVotesForNothing(t *testing.T) {
	b := newBook(t)
	b.orders(12)
	no := b.running(stages(8, 12))
	b.intended(no, 3)
	b.restart(false)
	g := b.state(no, event.Running)
	if g.Counts[event.AmbiguousPublish] != 3 || g.Unresolved != 0 {
		t.Errorf("counts %v, %d unresolved", g.Counts, g.Unresolved)
	}
	if m := b.member(no, 0); m.Restart != 1 || m.Ambiguous != 1 {
		t.Errorf("%+v", m)
	}
}

func TestThirdUncleanStartPausesEverything(t *testing.T) {
	for _, c := range []struct {
		name  string
		gap   time.Duration
		clean bool
		want  event.State
	}{
		{"within ten minutes", 299 * time.Second, false, event.Paused},
		{"spread out", 301 * time.Second, false, event.Running},
		{"in order", time.Second, true, event.Running},
	} {
		b := newBook(t)
		b.orders(40)
		var nos []event.GenerationNo
		for i := range 2 {
			no, err := b.freeze(envelopes(i*20+1, 20), nil)
			b.ok(err)
			b.approve(no)
			b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
			nos = append(nos, no)
		}
		for range 2 {
			b.restart(c.clean)
			b.state(nos[0], event.Running)
			b.now = b.now.Add(c.gap)
		}
		b.restart(c.clean)
		for _, no := range nos {
			g := b.gen(no)
			if g.State != c.want || c.want == event.Paused && g.Pauses[0].Reason != "crash_loop" {
				t.Errorf("%s: generation %d is %s (%v)", c.name, no, g.State, g.Pauses)
			}
		}
	}
}

func envelopes(from, n int) (out []event.EnvelopeNo) {
	for i := range n {
		out = append(out, event.EnvelopeNo(from+i))
	}
	return out
}

func TestAdvance(t *testing.T) {
	advance := func(b *book, no event.GenerationNo) bool {
		return b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) }).First > 0
	}
	for _, mode := range []redrive.Evidence{redrive.EvidenceOutcomes, redrive.EvidenceReturns} {
		b := newBook(t)
		b.orders(20)
		no := b.running(stages(1, 3, 20), func(m *redrive.Manifest) { m.Bake, m.Evidence = 60_000, mode })
		b.tick(60_000)
		if advance(b, no) {
			t.Errorf("%s: the next stage opened before anything was sent", mode)
		}
		p := b.intended(no, 1)
		b.tick(60_000)
		if advance(b, no) {
			t.Errorf("%s: the next stage opened with an intent unresolved", mode)
		}
		b.resolve(no, end(p, event.Confirmed, "")...)
		b.tick(60_000)
		if mode == redrive.EvidenceOutcomes {
			if advance(b, no) {
				t.Error("the next stage opened before the outcome is known")
			}
			b.outcome(no, p, event.OutcomeSucceeded)
			// The outcome took a minute, which is in the class up to 90 s: twice that.
			b.tick(179_999)
			if advance(b, no) {
				t.Error("the next stage opened before the bake time has passed")
			}
			b.tick(1)
		}
		if !advance(b, no) || b.gen(no).Stage != 1 {
			t.Errorf("%s: the next stage did not open", mode)
		}
	}
}
