package integration

import (
	"strings"
	"syscall"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
)

// TestLostLink loses the connection while a whole window waits for its
// confirms: exactly that is in doubt, the release pauses, and a person's word
// settles it.
func TestLostLink(t *testing.T) {
	const n, window = 300, 16
	r, s, wire := released(t, n)
	id, _ := s.planned("--rate", "200", "--burst", "4", "--window", "16")
	p := s.hold("generation", "start", id, "--json")
	wire.sent(20)
	wire.silence.Lock()
	eventually(t, "the window to fill up", func() bool { return s.show(id).Tally["in_flight"] == window })
	eventually(t, "the broker to have it all", func() bool { return r.ready("orders") == int(wire.published.Load()) })
	wire.cut()
	wire.silence.Unlock()
	p.exits(4)
	g := answer[api.Generation](p)
	if g.State != "paused" || len(g.Pauses) != 1 || g.Pauses[0].Reason != "ambiguous" || g.Tally["ambiguous_publish"] != window || len(g.Ambiguous) != window {
		t.Fatalf("after the link was lost: %s %+v %v", g.State, g.Pauses, g.Tally)
	}
	checkSums(t, g, n)
	// Nobody has looked yet: the envelopes are neither free nor moved.
	if len(s.envelopes("--custody", "released")) != int(g.Funnel.Moved)+window {
		t.Errorf("what is in doubt is not kept apart")
	}
	s.fails(3, `not ambiguous`, "generation", "rule", "--intent", id+"/0/1", "--delivered", "--why", "a guess")
	s.ok("generation", "rule", "--intent", g.Ambiguous[0], "--delivered", "--why", "seen in the queue")
	s.ok("generation", "rule", id, "--delivered", "--why", "the queue has "+utoa(uint64(r.ready("orders"))))
	g = answer[api.Generation](s.want(5, "generation", "resume", id, "--why", "the link is back", "--digest", g.Manifest, "--json"))
	checkTally(t, g, n, map[string]uint64{"missing": n})
	if have := r.ready("orders"); have != n || g.Contradictions != 0 {
		t.Errorf("%d at the broker, want %d; contradictions %d", have, n, g.Contradictions)
	}
}

// TestInterruptedRelease ends the program in order in the middle: what is in
// flight is waited for, so nothing is in doubt.
func TestInterruptedRelease(t *testing.T) {
	const n = 200
	r, s, wire := released(t, n)
	id, _ := s.planned("--rate", "100", "--burst", "4")
	p := s.hold("generation", "start", id)
	wire.sent(30)
	p.signal(syscall.SIGTERM)
	p.exits(1)
	if !strings.Contains(p.err.String(), "interrupted") {
		t.Errorf("it does not say that it was interrupted: %s", p.err.String())
	}
	g := s.show(id)
	if g.State != "running" || g.Tally["in_flight"]+g.Tally["ambiguous_publish"] != 0 || int(wire.published.Load()) != r.ready("orders") {
		t.Errorf("after the interruption: %s %v, %d at the broker", g.State, g.Tally, r.ready("orders"))
	}
	checkSums(t, g, n)
	g = answer[api.Generation](s.want(5, "generation", "resume", id, "--why", "once more", "--json"))
	checkTally(t, g, n, map[string]uint64{"missing": n})
	if have := r.ready("orders"); have != n || wire.published.Load() != n {
		t.Errorf("%d at the broker and %d on the wire, want %d", have, wire.published.Load(), n)
	}
}
