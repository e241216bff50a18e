package control

import (
	"sync"
	"sync/atomic"

	"github.com/redrivehq/redrive/ledger/event"
)

// gate stands between a durable intent and the wire. It counts stops and never
// opens again: an intent carries the count that T1 saw, inside the committer,
// and goes out only while that is still the count. So whatever stops first
// raises the count before its stop is committed, and every intent decided
// before it is held back, whichever of pause, abort, resume and T1 race.
type gate struct{ stops atomic.Uint64 }

// shut holds back every intent that was decided before.
func (g *gate) shut() { g.stops.Add(1) }

// gates holds one gate for each generation that was ever driven here.
type gates struct {
	mu sync.Mutex
	m  map[event.GenerationNo]*gate
}

func (gs *gates) of(no event.GenerationNo) *gate {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.m == nil {
		gs.m = map[event.GenerationNo]*gate{}
	}
	g := gs.m[no]
	if g == nil {
		g = &gate{}
		gs.m[no] = g
	}
	return g
}

// before is the ledger's hook right before a commit.
func (gs *gates) before(records []*event.Record) {
	for _, r := range records {
		switch r.Body.Kind() {
		case event.KindGenerationPaused, event.KindGenerationAborted:
			gs.of(r.Subj.Gen).shut()
		}
	}
}

// changes lets many wait for the next commit.
type changes struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed by the next commit. Ask for it before
// looking at the state that is waited for.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}

func (c *changes) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch != nil {
		close(c.ch)
		c.ch = nil
	}
}
