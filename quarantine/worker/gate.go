package worker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// gate stands before the handler. It is open until a systemic failure closes
// it. Then it lets one message through when the back-off is over, which probes
// whether the dependency is back, and opens or waits longer by what became of
// that.
type gate struct {
	clock Clock
	least time.Duration // first back-off
	most  time.Duration // longest back-off that nobody asked for

	mu      sync.Mutex
	closed  bool
	probing bool          // somebody is on the way through
	until   time.Time     // when the next probe may go
	backoff time.Duration // the latest one
	changed chan struct{} // closed with the next change
	opened  int           // how often it was opened
}

// errHeldTooLong tells that a message has waited for the gate for as long as
// the broker lets it be unacknowledged.
var errHeldTooLong = errors.New("held for too long")

func newGate(c Clock, least, most time.Duration) *gate {
	return &gate{clock: c, least: least, most: most, changed: make(chan struct{})}
}

// pass waits until a message may run, at most until the deadline. The caller
// that passed must call one of ok, fail and leave.
func (g *gate) pass(ctx context.Context, deadline time.Time) (probe bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		now := g.clock.Now()
		g.mu.Lock()
		if !g.closed {
			g.mu.Unlock()
			return false, nil
		}
		if !now.Before(deadline) {
			g.mu.Unlock()
			return false, errHeldTooLong
		}
		if !g.probing && !now.Before(g.until) {
			g.probing = true
			g.mu.Unlock()
			return true, nil
		}
		wait, changed := deadline.Sub(now), g.changed
		if !g.probing {
			wait = min(wait, g.until.Sub(now))
		}
		g.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-g.clock.After(wait):
		}
	}
}

// ok says that the run showed no systemic failure. Only a probe opens the gate:
// a run that began before it was closed knows less.
func (g *gate) ok(probe bool) (opened bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !probe {
		return false
	}
	g.closed, g.probing, g.backoff = false, false, 0
	g.opened++
	g.change()
	return true
}

// fail says that the run failed for a systemic reason, and that the dependency
// asks to be left alone for after. It returns how long nothing will run.
func (g *gate) fail(probe bool, after time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if g.closed && !probe { // closed by another one meanwhile
		if until := now.Add(after); until.After(g.until) {
			g.until = until
		}
		return g.until.Sub(now)
	}
	g.backoff = min(max(2*g.backoff, g.least), g.most)
	wait := max(g.backoff, after)
	g.closed, g.probing, g.until = true, false, now.Add(wait)
	g.change()
	return wait
}

// shut tells whether messages wait for a dependency.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// openings is how often the gate was opened again so far.
func (g *gate) openings() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

// leave gives a pass back that was not used.
func (g *gate) leave(probe bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if probe {
		g.probing = false
		g.change()
	}
}

// change wakes those who wait. The caller holds the lock.
func (g *gate) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}
