package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// ProbeTimes says how often and how patiently probes are asked. Zero fields take
// their defaults.
type ProbeTimes struct {
	Every   time.Duration // Defaults to 10 s
	Timeout time.Duration // of one look. Defaults to 3 s
	Stale   time.Duration // a look that takes longer is stale, not only late. Defaults to 30 s
}

func (t ProbeTimes) withDefaults() ProbeTimes {
	for _, f := range []struct{ field, value *time.Duration }{
		{&t.Every, ptr(10 * time.Second)}, {&t.Timeout, ptr(3 * time.Second)}, {&t.Stale, ptr(30 * time.Second)}} {
		if *f.field <= 0 {
			*f.field = *f.value
		}
	}
	return t
}

func ptr[T any](v T) *T { return &v }

// limited is a probe that has something to say about some generations only.
type limited interface {
	Applies(g *redrive.Generation) bool
}

// watch follows the signals from outside for one generation.
type watch struct {
	c       *Controller
	no      event.GenerationNo
	probes  []redrive.Probe
	confirm samples   // how long confirms took
	refused time.Time // when the checks of a resume by the system last said no

	mu      sync.Mutex
	series  map[string]*redrive.Series
	looking map[string]time.Time // looks that have not come back, by when they began
}

// watchOf returns the watch of a generation, the same one as long as the
// process lives.
func (c *Controller) watchOf(no event.GenerationNo) *watch {
	c.mu.Lock()
	w := c.watches[no]
	c.mu.Unlock()
	if w != nil {
		return w
	}
	approved := c.approved(no)
	c.mu.Lock()
	defer c.mu.Unlock()
	if w = c.watches[no]; w == nil {
		w = &watch{c: c, no: no, series: map[string]*redrive.Series{}, looking: map[string]time.Time{}}
		w.probes = slices.Concat(c.ownProbes(w, approved), c.configuredProbes(approved), c.o.Probes)
		c.watches[no] = w
	}
	return w
}

// reset forgets what probes saw before a person resumed.
func (w *watch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.series = map[string]*redrive.Series{}
}

// run looks at all probes at once, again and again, until ctx ends.
func (w *watch) run(ctx context.Context, progress func(api.Progress)) {
	for ctx.Err() == nil {
		began := time.Now()
		if err := w.round(ctx); err != nil && ctx.Err() == nil {
			progress(api.Progress{Stage: "note", Message: "signals are not watched: " + err.Error()})
		}
		if !pauseFor(ctx, max(w.c.o.ProbeTimes.Every-time.Since(began), time.Millisecond)) {
			return
		}
	}
}

func (w *watch) round(ctx context.Context) error {
	g, err := w.c.generation(w.no)
	if err != nil {
		return err
	}
	if g.State != event.Running && g.State != event.Paused {
		return nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, p := range w.applying(g) {
		wg.Go(func() {
			if err := w.take(ctx, p, w.look(ctx, p, g)); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	return w.autoResume(ctx)
}

// applying lists the probes that have something to say about a generation.
func (w *watch) applying(g *redrive.Generation) (out []redrive.Probe) {
	for _, p := range w.probes {
		if l, ok := p.(limited); !ok || l.Applies(g) {
			out = append(out, p)
		}
	}
	return out
}

// look asks one probe, and makes something of every way in which it can fail to
// answer.
func (w *watch) look(ctx context.Context, p redrive.Probe, g *redrive.Generation) redrive.Observation {
	name, t, now := p.Name(), w.c.o.ProbeTimes, time.Now()
	w.mu.Lock()
	began, busy := w.looking[name]
	if !busy {
		w.looking[name] = now
	}
	w.mu.Unlock()
	late := redrive.Observation{Result: redrive.ResultError, Detail: fmt.Sprintf("no answer within %s", t.Timeout), At: now}
	if busy {
		if now.Sub(began) > t.Stale {
			late.Result, late.Detail = redrive.ResultStale, fmt.Sprintf("no answer for %s", t.Stale)
		}
		return late
	}
	asked, cancel := context.WithTimeout(ctx, t.Timeout)
	answer := make(chan redrive.Observation, 1)
	go func() {
		defer cancel()
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.looking, name)
		}()
		defer func() {
			if r := recover(); r != nil {
				answer <- redrive.Observation{Result: redrive.ResultError, Detail: "the probe itself failed", At: time.Now()}
			}
		}()
		o := p.Observe(asked, g)
		if o.At.IsZero() {
			o.At = time.Now()
		}
		answer <- o
	}()
	select {
	case o := <-answer:
		if time.Since(o.At) > t.Stale {
			o.Result, o.Detail = redrive.ResultStale, fmt.Sprintf("the last value is older than %s", t.Stale)
		}
		return o
	case <-asked.Done():
		return late
	}
}

// take records what a look means, when that is news.
func (w *watch) take(ctx context.Context, p redrive.Probe, o redrive.Observation) error {
	select {
	case <-ctx.Done():
		return nil // it was not given the time to answer
	default:
	}
	terms, name := redrive.TermsOf(p), p.Name()
	w.mu.Lock()
	s := w.series[name]
	if s == nil {
		s = &redrive.Series{}
		w.series[name] = s
	}
	s.Add(o, terms)
	seen := s.Clone()
	w.mu.Unlock()
	decide := func(v ledger.View) ([]event.Event, error) { return redrive.Observe(v, w.no, name, seen, terms) }
	// Only news costs a commit.
	var news int
	if err := w.c.log.View(func(v ledger.View) error {
		events, err := decide(v)
		news = len(events)
		return err
	}); err != nil || news == 0 {
		return err
	}
	_, err := w.c.log.Update(ctx, ledger.Request{Actor: event.System, Urgent: true}, decide)
	return err
}

// resumable lists the probes whose pause the system may end.
func (w *watch) resumable() (names []string) {
	for _, p := range w.probes {
		if !redrive.TermsOf(p).StaysPaused {
			names = append(names, p.Name())
		}
	}
	return names
}

func (w *watch) autoResume(ctx context.Context) error {
	since := map[string]time.Time{}
	w.mu.Lock()
	for name, s := range w.series {
		since[name] = s.ClearAt
	}
	w.mu.Unlock()
	names, patience := w.resumable(), w.c.o.Config.Brake.Patience()
	due := 0
	ready := func(v ledger.View) error {
		events, err := redrive.MayAutoResumeNow(v, w.no, names, since, patience)
		due = len(events)
		return err
	}
	if err := w.c.log.View(ready); err != nil || due == 0 || w.c.o.Now().Before(w.refused.Add(patience.Clear())) {
		return err
	}
	// Whoever resumes has the same checks made, a person or the system.
	err := w.c.preflight(WithActor(ctx, event.System), w.no, redrive.PhaseResume, "", func(api.Progress) {}, ready)
	var no *api.Error
	if errors.As(err, &no) || errors.Is(err, quarantine.ErrUnreachable) {
		w.refused = w.c.o.Now()
		return nil
	}
	if err != nil {
		return err
	}
	_, err = w.c.log.Update(ctx, ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
		return redrive.AutoResume(v, w.no, names, since, patience)
	})
	return err
}

// required says of each probe that a stage needs how long it has said ok.
func (w *watch) required(g *redrive.Generation) redrive.Required {
	out := redrive.Required{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.applying(g) {
		if redrive.TermsOf(p).Optional {
			continue
		}
		var c redrive.Clear
		if s := w.series[p.Name()]; s != nil {
			c = s.ClearSince(time.UnixMilli(int64(g.Changed)))
		}
		out[p.Name()] = c
	}
	return out
}
