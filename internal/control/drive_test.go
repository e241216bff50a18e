package control_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// long is a plan whose release waits at the first stage, with its outcomes
// still to come.
func long(ids ...string) api.PlanRequest {
	p := fast(ids...)
	p.Stages, p.Evidence = []uint64{1}, "outcomes"
	return p
}

// A second shell that looks on releases when the first one goes.
func TestAnotherShellTakesOver(t *testing.T) {
	const n = 5
	for _, during := range []string{"running", "paused", "settling"} {
		t.Run(during, func(t *testing.T) {
			w := newWorld(t)
			ids := w.orders(n)
			plan := long(ids...)
			if during == "settling" {
				plan.Stages = []uint64{n}
			}
			id := w.planned(plan)
			first := w.shell(api.GenerationStart, api.RunRequest{ID: id})
			w.until("the canary is out", func() bool { return w.wire.count() > 0 })
			second := w.shell(api.GenerationResume, api.RunRequest{ID: id, Why: "go on"})
			switch during {
			case "paused":
				w.pause(id)
			case "settling":
				w.until("all is out", func() bool { return w.state(id) == "settling" })
			}
			w.until("returns are watched", func() bool { return w.pond.live("orders.dlq") == 1 })
			first.cancel()
			<-first.done
			w.until("the second shell drives", func() bool { return w.show(id).Driven })
			w.until("returns are watched again", func() bool { return w.pond.live("orders.dlq") == 1 && len(w.pond.sessions("orders.dlq")) == 2 })
			if during == "paused" {
				w.resume(id)
			}
			for range n {
				w.until("everything is reported", func() bool { w.reportAll(); return w.state(id) == "closed" })
			}
			if g := w.end(second); g.Funnel.Succeeded != n {
				t.Errorf("%d of %d succeeded", g.Funnel.Succeeded, n)
			}
		})
	}
}

// reportAll says that everything that went out succeeded.
func (w *world) reportAll() {
	w.Helper()
	var reports []string
	for _, m := range w.wire.messages() {
		reports = append(reports, w.reportOf(m, event.OutcomeSucceeded))
	}
	do(w, api.OutcomeReport, api.OutcomeRequest{Via: "command", Reports: reports})
}

// A queue is watched by one generation at a time; the next one takes its turn
// when the first one's driver ends.
func TestWatchersTakeTurns(t *testing.T) {
	w := newWorld(t)
	w.pond.script["redrive.outcomes"] = func(int, quarantine.SessionOptions) (*visit, error) { return &visit{}, nil }
	var shells []*shell
	for range 2 {
		id := w.planned(long(w.orders(3)...))
		shells = append(shells, w.shell(api.GenerationStart, api.RunRequest{ID: id}))
		w.until("the queues are watched", func() bool { return w.pond.live("orders.dlq") == 1 && w.pond.live("redrive.outcomes") == 1 })
	}
	// By the time that both canaries are confirmed the second one has asked for
	// the queues, and been told to wait.
	w.until("both wait for outcomes", func() bool { return w.show("1").Tally["pending"]+w.show("2").Tally["pending"] == 2 })
	shells[0].cancel()
	<-shells[0].done
	for _, q := range []string{"orders.dlq", "redrive.outcomes"} {
		w.until(q+" is watched again", func() bool { return w.pond.live(q) == 1 && len(w.pond.sessions(q)) == 2 })
	}
}

// A broker that does not answer when a release begins is asked again: what
// comes back later is not missed.
func TestWatchersWaitForTheBroker(t *testing.T) {
	w := newWorld(t)
	w.pond.script["redrive.outcomes"] = func(int, quarantine.SessionOptions) (*visit, error) { return &visit{}, nil }
	w.away.Store(3)
	w.shell(api.GenerationStart, api.RunRequest{ID: w.planned(long(w.orders(3)...))})
	w.until("the queues are watched", func() bool { return w.pond.live("orders.dlq") == 1 && w.pond.live("redrive.outcomes") == 1 })
}

// Pausing everything is not stopped by a generation that ends meanwhile.
func TestPauseAllWhileOneEnds(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.start(w.planned(long(w.orders(3)...)))
	}
	for _, id := range []string{"1", "2", "3"} {
		w.until(id+" runs", func() bool { return w.state(id) == "running" })
	}
	w.until("the canaries are out", func() bool { return w.wire.count() == 3 })
	w.until("the canaries are confirmed", func() bool {
		return w.show("1").Tally["pending"]+w.show("2").Tally["pending"]+w.show("3").Tally["pending"] == 3
	})
	// The runners look at the store too: only the pause is between its list and
	// its first stop.
	w.kv.afterView("(*Controller).pause", func() { do(w, api.GenerationAbort, api.GenerationAct{ID: "2", Why: "wrong"}) })
	got := do(w, api.GenerationPause, api.PauseRequest{All: true, Why: "look"})
	if len(got.Generations) != 2 {
		t.Errorf("%d generations paused, want 2", len(got.Generations))
	}
	for id, want := range map[string]string{"1": "paused", "2": "settling", "3": "paused"} {
		if st := w.state(id); st != want {
			t.Errorf("generation %s is %s, want %s", id, st, want)
		}
	}
}

// A stored original that does not open stops the release and no member hangs:
// the culprit is undelivered, the others wait.
func TestUnreadableOriginal(t *testing.T) {
	const n, large = 20, 300 << 10
	for name, harm := range map[string]func(path string) error{
		"missing": os.Remove,
		"damaged": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), large), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ids := w.orders(n / 2)
			ids = append(ids, w.capture("orders.dlq", dead("large", bytes.Repeat([]byte("l"), large)))...)
			ids = append(ids, w.orders(n-len(ids))...)
			blobs, err := w.store.Blobs()
			must(t, err)
			if len(blobs) != 1 {
				t.Fatalf("%d blobs", len(blobs))
			}
			must(t, harm(filepath.Join(w.dir, "blobs", blobs[0])))
			id := w.planned(fast(ids...))
			g := w.end(w.start(id))
			if g.State != "paused" || !reasons(g)["unreadable"] {
				t.Fatalf("it is %s for %v, want paused for unreadable", g.State, reasons(g))
			}
			sent := uint64(w.wire.count())
			if g.Tally["in_flight"] != 0 || g.Tally["undelivered"] != 1 || g.Tally["waiting"] != n-1-sent {
				t.Errorf("%v after %d sends", g.Tally, sent)
			}
			if why := w.members(id)[n/2].ReasonText(); why != "unreadable" {
				t.Errorf("the culprit is undelivered for %q", why)
			}
			if g = w.end(w.resume(id)); g.Funnel.Moved != n-1 || w.wire.count() != n-1 {
				t.Errorf("%d moved and %d sent after the resume, want %d", g.Funnel.Moved, w.wire.count(), n-1)
			}
		})
	}
}

// A nack says for certain that a message was not taken only where one queue is
// the destination.
func TestNack(t *testing.T) {
	nack := func(m redrive.Message) (redrive.Result, bool) {
		return redrive.Result{Token: m.Token, Resolution: event.Nacked, Reason: "nacked"}, true
	}
	for _, tc := range []struct {
		name, tally, reason string
		resolution          event.Resolution
		to                  func(p *api.PlanRequest)
	}{
		{"queue", "undelivered", "nacked", event.Nacked, func(p *api.PlanRequest) { p.ToQueue = "orders" }},
		{"exchange", "ambiguous_publish", "nack_multi", event.Ambiguous, func(p *api.PlanRequest) { p.ToExchange, p.ToRoutingKey = "events", "order.placed" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.wire.set(nil, nack)
			plan := fast(w.orders(3)...)
			plan.Stages = []uint64{1}
			tc.to(&plan)
			id := w.planned(plan)
			g := w.end(w.start(id))
			if g.State != "paused" || g.Tally[tc.tally] != 1 {
				t.Errorf("it is %s with %v, want paused with one %s", g.State, g.Tally, tc.tally)
			}
			for _, r := range w.records(id) {
				if b, ok := r.Body.(*event.MemberResolved); ok && (b.Resolution != tc.resolution || b.Reason != tc.reason) {
					t.Errorf("resolved as %s (%s), want %s (%s)", b.Resolution, b.Reason, tc.resolution, tc.reason)
				}
			}
		})
	}
}

// The file STOP stops a release before anything more goes out, however slow
// the release is.
func TestKillSwitch(t *testing.T) {
	const n = 6
	for name, tc := range map[string]struct {
		plan func(p *api.PlanRequest)
		sent int
	}{
		"in a burst":   {func(*api.PlanRequest) {}, 2},
		"at a rate":    {func(p *api.PlanRequest) { p.Rate, p.Burst = 0.001, 1 }, 0},
		"at a stage":   {func(p *api.PlanRequest) { p.Stages, p.Evidence = []uint64{1}, "outcomes" }, 1},
		"at the start": {func(*api.PlanRequest) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			plan := fast(w.orders(n)...)
			tc.plan(&plan)
			b := newBarrier(tc.sent - 1)
			if name == "in a burst" {
				w.wire.set(b.before, confirm)
			}
			w.stop.Store(name == "at the start")
			id := w.planned(plan)
			s := w.start(id)
			switch name {
			case "in a burst":
				<-b.reached
				w.stop.Store(true)
				close(b.open)
			case "at a rate", "at a stage":
				w.until("it waits", func() bool { return w.state(id) == "running" && w.wire.count() == tc.sent && w.show(id).Driven })
				w.stop.Store(true)
			}
			g := w.end(s)
			if g.State != "paused" || !reasons(g)["kill_switch"] {
				t.Errorf("it is %s for %v", g.State, reasons(g))
			}
			if w.wire.count() != tc.sent || g.Tally["waiting"] != uint64(n-tc.sent) {
				t.Errorf("%d went out and %d wait, want %d and %d", w.wire.count(), g.Tally["waiting"], tc.sent, n-tc.sent)
			}
		})
	}
}

// When what became of publishes cannot be recorded, nothing more goes out, and
// the call says why.
func TestResolutionCannotBeRecorded(t *testing.T) {
	const last = 10 // write that is recorded no more
	w := newWorld(t)
	id := w.planned(fast(w.orders(60)...))
	w.wire.set(func(redrive.Message) error {
		if w.wire.count() == last {
			<-w.c.Dead()
		}
		return nil
	}, func(m redrive.Message) (redrive.Result, bool) {
		if len(w.wire.sent) == last {
			w.kv.onCommit(func() error { return errors.New("the disk is gone") })
		}
		return confirm(m)
	})
	s := w.start(id)
	<-s.done
	if !refusedWith(s.err, api.CodeCommit) {
		t.Errorf("the release ended with %v, want the failed commit", s.err)
	}
	if !errors.Is(w.c.Err(), ledger.ErrCommit) {
		t.Errorf("the ledger says %v", w.c.Err())
	}
	if n := w.wire.count(); n < last || n > last+1 {
		t.Errorf("%d messages went out, want %d and at most the one that was in progress", n, last)
	}
}

// What a canary tells after its stage has ended stops the release all the same.
func TestLateNewsOfACanary(t *testing.T) {
	for name, tc := range map[string]struct {
		evidence, deadline string
		report             event.Outcome
		pauses             bool
	}{
		"rejected late":                  {"returns_only", "1h", event.OutcomeRejected, true},
		"missing where nobody reports":   {"returns_only", "1ms", "", false},
		"missing where consumers report": {"outcomes", "1ms", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			plan := fast(w.orders(40)...)
			plan.Stages, plan.Evidence, plan.OutcomeDeadline = []uint64{1, 20}, tc.evidence, tc.deadline
			plan.Window = 1
			plan.Exposure = 4096
			stages := newBarrier(3) // in the second stage
			w.wire.set(stages.before, confirm)
			id := w.planned(plan)
			s := w.start(id)
			if tc.evidence == "returns_only" {
				<-stages.reached
			} else {
				close(stages.reached) // missing ends the only stage that there is
			}
			if tc.report != "" {
				do(w, api.OutcomeReport, api.OutcomeRequest{Via: "command", Reports: []string{w.reportOf(w.wire.messages()[0], tc.report)}})
			} else {
				w.until("the canary is missing", func() bool { return w.show(id).Tally["missing"] > 0 })
			}
			close(stages.open)
			g := w.end(s)
			if paused := g.State == "paused" && reasons(g)["stage_bad"]; paused != tc.pauses {
				t.Errorf("it is %s for %v", g.State, reasons(g))
			}
			if !tc.pauses && g.Funnel.Moved != 40 {
				t.Errorf("%d moved, want all", g.Funnel.Moved)
			}
		})
	}
}

// A broker that takes nothing now stops the release, and its members wait.
func TestBrokerTakesNothing(t *testing.T) {
	for _, reason := range []string{"blocked", "no_exchange", "no_permission"} {
		t.Run(reason, func(t *testing.T) {
			const n = 10
			w := newWorld(t)
			w.wire.set(func(redrive.Message) error {
				if w.wire.count() == 3 {
					return refuse(reason)
				}
				return nil
			}, confirm)
			id := w.planned(fast(w.orders(n)...))
			g := w.end(w.start(id))
			if g.State != "paused" || !reasons(g)[reason] || len(g.Pauses) != 1 {
				t.Errorf("it is %s for %v", g.State, reasons(g))
			}
			if w.wire.count() != 3 || g.Tally["waiting"] != n-3 || g.Tally["in_flight"] != 0 {
				t.Errorf("%d went out, %v", w.wire.count(), g.Tally)
			}
			w.wire.set(nil, confirm)
			if g = w.end(w.resume(id)); g.Funnel.Moved != n {
				t.Errorf("%d moved after the resume, want %d", g.Funnel.Moved, n)
			}
		})
	}
}

// A generation that has decided everything while somebody who wants to go on
// makes his checks is looked at like one that had before.
func TestResumeOfWhatSettlesMeanwhile(t *testing.T) {
	w := newWorld(t)
	ids := w.orders(3)
	plan := long(ids...)
	plan.Stages = []uint64{3}
	id := w.planned(plan)
	w.wire.set(nil, silent)
	first := w.shell(api.GenerationStart, api.RunRequest{ID: id})
	w.until("all are in flight", func() bool { return w.show(id).Tally["in_flight"] == 3 })
	w.kv.afterView("(*Controller).preflight", func() {
		w.wire.confirmAll()
		w.until("nothing is left to decide", func() bool { return w.state(id) == "settling" })
	})
	second := w.shell(api.GenerationResume, api.RunRequest{ID: id, Why: "go on", NoWait: true})
	if g := w.end(second); g.State != "settling" {
		t.Errorf("the second shell sees it %s", g.State)
	}
	first.cancel()
	<-first.done
}
