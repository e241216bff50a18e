package redrive_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// done sends members and has the consumer say the same of each.
func (b *book) done(no event.GenerationNo, n int, o event.Outcome) ledger.Receipt {
	b.Helper()
	return b.outcome(no, b.sent(no, n), o)
}

func wide(m *redrive.Manifest) {
	m.Evidence = redrive.EvidenceOutcomes
	m.Limits = event.Limits{RateMilli: 1_000_000_000, Burst: 100, Window: 100, Exposure: 1000}
}

// In one stage the ratio decides: two bad ones are none, three of three are.
func TestRatioPausesWithoutStages(t *testing.T) {
	b := newBook(t)
	b.orders(60)
	no := b.running(stages(60), wide)
	b.done(no, 2, event.OutcomeRejected)
	b.state(no, event.Running)
	if got := pausedIn(b.done(no, 1, event.OutcomeRejected)); !slices.Equal(got, []string{redrive.SignalRejected}) {
		t.Errorf("paused for %v", got)
	}
	// A resume has looked at these: two more do not pause again, a third does.
	b.resume(no)
	b.done(no, 2, event.OutcomeRejected)
	b.state(no, event.Running)
	b.done(no, 1, event.OutcomeRejected)
	b.state(no, event.Paused)
}

func TestMostComeBackAborts(t *testing.T) {
	b := newBook(t)
	b.orders(40)
	no := b.running(stages(40), wide)
	p := b.sent(no, 14)
	for _, x := range p[:9] {
		b.captured(b.comeBack(no, x))
	}
	b.state(no, event.Paused)
	b.captured(b.comeBack(no, p[9]))
	g := b.gen(no)
	if g.State != event.Aborted && g.State != event.Settling || g.Ended == nil || g.Ended.By != event.System {
		t.Errorf("%s, ended by %+v", g.State, g.Ended)
	}
}

func TestMissingCountsFromTwentyOn(t *testing.T) {
	b := newBook(t)
	b.orders(60)
	no := b.running(stages(60), wide)
	b.done(no, 18, event.OutcomeSucceeded)
	b.sent(no, 1)
	b.now = b.now.Add(time.Hour)
	b.due()
	b.state(no, event.Running) // 1 of 19
	b.sent(no, 1)
	b.now = b.now.Add(time.Hour)
	if got := pausedIn(b.due()); !slices.Equal(got, []string{redrive.SignalMissing}) {
		t.Errorf("2 of 20 are missing, paused for %v", got)
	}
}

func TestNacksThrottleFirstAndThenPause(t *testing.T) {
	b := newBook(t)
	b.orders(60)
	no := b.running(stages(60), wide)
	nack := func() ledger.Receipt {
		b.tick(1000)
		return b.resolve(no, end(b.intended(no, 1), event.Nacked, "nacked")...)
	}
	nack()
	g := b.state(no, event.Running)
	if g.Permille() != 500 || g.EffectiveRate() != g.Limits.RateMilli/2 || g.EffectiveWindow() != 50 {
		t.Errorf("after the first nack: %d per mille, %d, window %d", g.Permille(), g.EffectiveRate(), g.EffectiveWindow())
	}
	b.tick(61_000)
	b.due()
	if g := b.gen(no); g.Permille() != 1000 {
		t.Errorf("a minute later still throttled: %+v", g.Throttles)
	}
	b.tick(1000)
	b.done(no, 1, event.OutcomeSucceeded)
	nack()
	if g := b.state(no, event.Running); g.Permille() != 500 {
		t.Errorf("the next nack does not throttle: %+v, %v", g.Throttles, g.Results)
	}
	nack()
	b.state(no, event.Running)
	if got := pausedIn(nack()); !slices.Equal(got, []string{redrive.SignalNacked}) {
		t.Errorf("the third within a minute: paused for %v", got)
	}
}

// Two generations to the same destination share the exposure.
func TestExposureIsSharedByDestination(t *testing.T) {
	b := newBook(t)
	b.orders(40)
	capped := func(m *redrive.Manifest) { wide(m); m.Limits.Exposure = 10; m.Stages = []uint64{20} }
	first, err := b.freeze(envelopes(1, 20), nil, capped)
	b.ok(err)
	second, err := b.freeze(envelopes(21, 20), nil, capped)
	b.ok(err)
	for _, no := range []event.GenerationNo{first, second} {
		b.approve(no)
		b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	}
	b.tick(2000)
	p := b.sent(first, 7)
	if in := b.intend(second, 100); len(in.Picks) != 3 {
		t.Fatalf("the second one may send %d, want 3: %+v", len(in.Picks), in)
	}
	if in := b.intend(second, 100); in.Hold != "exposure" {
		t.Errorf("%+v", in)
	}
	b.outcome(first, p[:2], event.OutcomeSucceeded)
	b.tick(1000)
	if in := b.intend(second, 100); len(in.Picks) != 2 {
		t.Errorf("after two outcomes %d more, want 2", len(in.Picks))
	}
}

// A cohort whose fix does not work: with stages the first message tells, without
// them the exposure bounds it.
func TestFixThatDoesNotWorkReleasesLittle(t *testing.T) {
	const members = 10_000
	for _, c := range []struct {
		name   string
		stages []uint64
		most   int
	}{{"default stages", redrive.DefaultStages(members), 1}, {"no stages", []uint64{members}, 200 + 64}} {
		b := newBook(t)
		b.orders(members)
		no := b.running(stages(c.stages...), func(m *redrive.Manifest) {
			m.Evidence, m.Limits = redrive.EvidenceOutcomes, redrive.DefaultLimits()
			m.Limits.RateMilli, m.Limits.Burst = 1_000_000_000, 4096
		})
		sent := 0
		for {
			b.tick(1000)
			in := b.intend(no, 4096)
			if len(in.Picks) == 0 {
				break
			}
			sent += len(in.Picks)
			b.resolve(no, end(in.Picks, event.Confirmed, "")...)
		}
		if sent > c.most {
			t.Errorf("%s: %d went out, at most %d may", c.name, sent, c.most)
		}
		b.captured(b.comeBack(no, redrive.Pick{Pos: 0, Try: 1, Env: 1}))
		if len(c.stages) > 1 {
			b.state(no, event.Paused)
		}
	}
}

func TestConsumerOfAnotherVersionPauses(t *testing.T) {
	b := newBook(t)
	b.orders(30)
	no := b.running(stages(30), func(m *redrive.Manifest) { wide(m); m.Consumer = "2.4.1" })
	p := b.sent(no, 2)
	said := func(p redrive.Pick, version string) ledger.Receipt {
		r := b.report(no, p, event.OutcomeSucceeded)
		r.ConsumerVersion = version
		return b.reported(r)
	}
	said(p[0], "2.4.1")
	b.state(no, event.Running)
	if got := pausedIn(said(p[1], "2.4.0")); !slices.Equal(got, []string{redrive.SignalVersion}) {
		t.Errorf("paused for %v", got)
	}
}

func TestLastStageFeelsItsWay(t *testing.T) {
	b := newBook(t)
	b.orders(60)
	no := b.running(stages(1, 60), wide, func(m *redrive.Manifest) { m.Bake = 1 })
	b.done(no, 1, event.OutcomeSucceeded)
	b.tick(10)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) })
	for want := uint32(1); want <= 5; want++ {
		b.tick(1000)
		if got := b.gen(no).EffectiveWindow(); got != want {
			t.Fatalf("the window is %d, want %d", got, want)
		}
		b.done(no, int(want), event.OutcomeSucceeded)
	}
	b.resolve(no, end(b.intended(no, 1), event.Nacked, "nacked")...)
	if got := b.gen(no).EffectiveWindow(); got > 3 {
		t.Errorf("after a nack the window is %d", got)
	}
}

func TestResumeIsHeldDownAndLookedAtAgain(t *testing.T) {
	b := newBook(t)
	b.orders(30)
	planner, other := b.actor, event.Actor{Auth: "os", Subject: "another"}
	no := b.plan(stages(5, 30), func(m *redrive.Manifest) { m.SelfApprove = 10 })
	b.actor = other
	b.approve(no)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	b.tick(1000)
	b.resolve(no, end(b.intended(no, 1), event.Refused, "body_too_large")...)
	g := b.state(no, event.Paused)
	try := func(r redrive.Resumption) error {
		_, err := b.update(func(v ledger.View) ([]event.Event, error) { return redrive.Resume(v, no, r) })
		return err
	}
	b.tick(59_000)
	for name, r := range map[string]redrive.Resumption{
		"too early":       {By: other, Why: "w", Digest: g.Manifest},
		"without a look":  {By: other, Why: "w", HoldDown: -1},
		"by the planner":  {By: planner, Why: "w", Digest: g.Manifest, HoldDown: -1},
		"another reason":  {By: other, Why: "w", Digest: g.Manifest, HoldDown: -1, Clear: []string{"nacked"}},
		"without a cause": {By: other, Digest: g.Manifest, HoldDown: -1},
	} {
		if err := try(r); err == nil {
			t.Errorf("%s: it resumed", name)
		}
	}
	b.tick(1000)
	b.ok(try(redrive.Resumption{By: other, Why: "w", Digest: g.Manifest, Clear: []string{redrive.SignalStageBad}}))
	b.state(no, event.Running)
}

// Where nobody reports, a few that come back among many that do not are no
// reason to stop, although nothing is known about the others yet.
func TestSilenceIsGoodWhereNobodyReports(t *testing.T) {
	for _, c := range []struct {
		back int
		want event.State
	}{{5, event.Running}, {30, event.Paused}} {
		b := newBook(t)
		b.orders(110)
		no := b.running(stages(110), wide, func(m *redrive.Manifest) { m.Evidence = redrive.EvidenceReturns })
		for _, p := range b.sent(no, 100)[:c.back] {
			b.captured(b.comeBack(no, p))
		}
		b.state(no, c.want)
	}
}

// The system resumes what paused for its surroundings, when that has been clear
// for five minutes, with a longer wait each time, and not more than three times
// an hour; and never what paused for its messages.
func TestSystemResumesWithinItsBounds(t *testing.T) {
	b := newBook(t)
	b.orders(30)
	no := b.running(stages(30), wide)
	probes := []string{"warehouse"}
	auto := func(since time.Time) bool {
		rc, err := b.log.Update(t.Context(), ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
			return redrive.AutoResume(v, no, probes, map[string]time.Time{"warehouse": since}, redrive.Patience{})
		})
		b.ok(err)
		return rc.First > 0
	}
	pause := func(reason string) {
		b.must(func(v ledger.View) ([]event.Event, error) { return redrive.PauseBy(v, no, reason, "w") })
	}
	for n, wait := range []time.Duration{5 * time.Minute, 5 * time.Minute, 15 * time.Minute} {
		pause("warehouse")
		since := b.now
		b.now = b.now.Add(wait - time.Second)
		if auto(since) {
			t.Fatalf("resumption %d came too early", n+1)
		}
		if b.now = b.now.Add(time.Second); auto(time.Time{}) {
			t.Fatalf("resumption %d came although the probe is not clear", n+1)
		}
		if !auto(since) {
			t.Fatalf("resumption %d did not come", n+1)
		}
		if g := b.state(no, event.Running); g.EffectiveWindow() != 1 {
			t.Errorf("it runs with a window of %d", g.EffectiveWindow())
		}
	}
	pause("warehouse")
	since := b.now
	b.now = b.now.Add(20 * time.Minute)
	if auto(since) {
		t.Error("a fourth resumption within an hour")
	}
	b.now = b.now.Add(time.Hour)
	pause(redrive.SignalRejected)
	if auto(since) {
		t.Error("the system resumed what its messages paused")
	}
	b.state(no, event.Paused)
	// Not even a probe of that name makes it so.
	for _, reason := range []string{redrive.PauseOperator, redrive.SignalRejected, redrive.SignalStageBad, redrive.SignalNacked, "kill_switch", "key_blocked"} {
		if redrive.MayAutoResume(reason, []string{reason}) {
			t.Errorf("the system may resume from %s", reason)
		}
	}
}
