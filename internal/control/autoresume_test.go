package control_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// moody is a probe that says what is set.
func moody(name string) (*probe, *atomic.Bool) {
	var bad atomic.Bool
	return newProbe(name, func(context.Context) redrive.Observation {
		if bad.Load() {
			return redrive.Observation{Result: redrive.ResultBreach, Detail: "503"}
		}
		return redrive.Observation{Result: redrive.ResultOK}
	}), &bad
}

// trickling is a release that goes on for long, with the shell that drives it and
// a probe that says stop while bad is set. The system resumes it soon.
func trickling(t *testing.T) (w *world, p *probe, bad *atomic.Bool, id string, s *shell) {
	t.Helper()
	p, bad = moody("warehouse")
	w = probed(t, p)
	w.cfg.Brake.ClearFor, w.cfg.Brake.BackOff = config.Duration(10*time.Millisecond), []config.Duration{config.Duration(time.Millisecond)}
	req := fast(w.orders(5)...)
	req.Rate, req.Burst = 0.001, 1
	id = w.planned(req)
	s = w.shell(api.GenerationStart, api.RunRequest{ID: id})
	w.until("it runs", func() bool { return w.state(id) == "running" })
	return w, p, bad, id, s
}

// A shell stays with a generation that its surroundings stopped. When they are
// clear again the system resumes it, three times an hour; the fourth pause is
// left to a person, and the shell goes.
func TestSystemResumesWhatIsClearAgain(t *testing.T) {
	w, p, bad, id, s := trickling(t)
	for range 3 {
		bad.Store(true)
		w.until("it stands still", func() bool { return w.state(id) == "paused" })
		bad.Store(false)
		w.until("it runs again", func() bool { return w.state(id) == "running" })
	}
	bad.Store(true)
	g := w.end(s)
	if g.State != "paused" || !reasons(g)["warehouse"] {
		t.Fatalf("%s for %+v", g.State, g.Pauses)
	}
	bySystem := 0
	for _, r := range w.records(id) {
		if r.Body.Kind() == event.KindGenerationResumed && r.Actor == event.System {
			bySystem++
		}
	}
	if bySystem != 3 {
		t.Errorf("the system resumed it %d times", bySystem)
	}
	bad.Store(false)
	asked := p.asked.Load()
	again := w.resume(id)
	w.until("the probe is asked again", func() bool { return p.asked.Load() > asked+3 })
	if state := w.state(id); state != "running" {
		t.Errorf("after a person resumed it, it is %s", state)
	}
	again.cancel()
}

// The system waits as long as it is configured to, even when all is clear.
func TestSystemWaitsForTheBackOff(t *testing.T) {
	for name, change := range map[string]func(*config.Brake){
		"clear for too short a time": func(b *config.Brake) { b.ClearFor = config.Duration(time.Hour) },
		"not backed off":             func(b *config.Brake) { b.BackOff = []config.Duration{config.Duration(time.Hour)} },
		"held down":                  func(b *config.Brake) { b.HoldDown = config.Duration(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			p, bad := moody("warehouse")
			w := probed(t, p)
			w.cfg.Brake.ClearFor, w.cfg.Brake.BackOff = config.Duration(time.Millisecond), []config.Duration{config.Duration(time.Millisecond)}
			change(&w.cfg.Brake)
			req := fast(w.orders(5)...)
			req.Rate, req.Burst = 0.001, 1
			id := w.planned(req)
			w.shell(api.GenerationStart, api.RunRequest{ID: id})
			w.until("it runs", func() bool { return w.state(id) == "running" })
			bad.Store(true)
			w.until("it stands still", func() bool { return w.state(id) == "paused" })
			bad.Store(false)
			from := p.asked.Load()
			w.until("it is clear many times", func() bool { return p.asked.Load() > from+20 })
			if state := w.state(id); state != "paused" {
				t.Errorf("it is %s", state)
			}
		})
	}
}

// The system has the same checks made as a person who resumes: against their word
// it goes on as little, and what they said once does not count for ever.
func TestSystemResumesAsTheChecksSay(t *testing.T) {
	w, _, bad, id, _ := trickling(t)
	bad.Store(true)
	w.until("it stands still", func() bool { return w.state(id) == "paused" })
	w.wire.deny("no write permission")
	bad.Store(false)
	w.until("the checks said no", func() bool {
		for _, r := range w.records(id) {
			if b, ok := r.Body.(*event.GenerationChecked); ok && b.Phase == redrive.PhaseResume && len(b.Names) > 0 && r.Actor == event.System {
				return true
			}
		}
		return false
	})
	if state := w.state(id); state != "paused" {
		t.Errorf("it is %s", state)
	}
	w.wire.deny("")
	w.until("it runs again", func() bool { return w.state(id) == "running" })
}
