package integration

import (
	"os"
	"regexp"
	"syscall"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
)

// released is a site with n captured messages of one reason, whose program
// reaches the broker through a proxy.
func released(t *testing.T, n int) (*rabbit, *site, *proxy) {
	t.Helper()
	r := newRabbit(t)
	r.declareOrders()
	p := newProxy(t, r.node.Addr())
	s := newSite(t, r.configAt(p.addr(), ""))
	r.die("orders", orders(0, n, "unknown_sku")...)
	if sum := ask[api.CaptureSummary](s, "capture"); sum.Captured != uint64(n) {
		t.Fatalf("captured %+v, want %d", sum, n)
	}
	return r, s, p
}

// planned plans and approves what a reason selects, slow enough to be stopped
// on the way, and returns the number of the generation.
func (s *site) planned(more ...string) (id string, members uint64) {
	s.t.Helper()
	plan := ask[api.Plan](s, append([]string{"generation", "plan", "--reason", "unknown_sku", "--fix", "catalog",
		"--bake", "1ms", "--outcome-deadline", "1s", "--stages", "1000"}, more...)...)
	id = utoa(uint64(plan.Generation.Number))
	s.ok("generation", "approve", id, "--digest", plan.Generation.Manifest, "--why", "no-stages")
	return id, plan.Members
}

func (s *site) show(id string) api.Generation {
	s.t.Helper()
	return ask[api.Generation](s, "generation", "show", id)
}

// underway waits until a release has moved n messages.
func (s *site) underway(id string, n uint64) {
	s.t.Helper()
	eventually(s.t, "the release to get under way", func() bool { return s.show(id).Funnel.Moved >= n })
}

func TestPauseAndResumeFromASecondShell(t *testing.T) {
	r, s, wire := released(t, 300)
	id, _ := s.planned("--rate", "60", "--burst", "4")
	first := s.hold("generation", "start", id, "--json")
	wire.sent(40)

	paused := ask[api.Paused](s, "generation", "pause", id, "--why", "the warehouse called")
	sent := wire.published.Load()
	if len(paused.Generations) != 1 || paused.Generations[0].State != "paused" {
		t.Fatalf("pause: %+v", paused)
	}
	eventually(t, "what was in flight", func() bool { return s.show(id).Tally["in_flight"] == 0 })
	if now := wire.published.Load(); now > sent+1 {
		t.Errorf("%d messages were written after the pause was confirmed, at most one is possible", now-sent)
	}
	g := s.show(id)
	if moved := int(g.Funnel.Moved); moved != r.ready("orders") || moved != int(wire.published.Load()) || g.Tally["waiting"] != 300-g.Funnel.Moved {
		t.Errorf("moved %d, at the broker %d, on the wire %d, waiting %d", moved, r.ready("orders"), wire.published.Load(), g.Tally["waiting"])
	}
	noIntentWhilePaused(t, s, id)
	checkSums(t, g, 300)

	// A second shell resumes, and both stay to the end.
	second := s.start("generation", "resume", id, "--why", "the warehouse is back", "--json")
	wire.sent(wire.published.Load() + 40)
	s.ok("generation", "pause", "--all", "--why", "once more")

	// The first shell goes away; what it had decided stays decided.
	first.signal(syscall.SIGINT)
	first.exits(1)
	second.wait()
	if g = s.show(id); g.State != "paused" || g.Driven {
		t.Fatalf("after the first shell left, the generation is %s, driven %v", g.State, g.Driven)
	}
	noIntentWhilePaused(t, s, id)
	g = answer[api.Generation](s.want(5, "generation", "resume", id, "--why", "from the first shell again", "--json"))
	checkTally(t, g, 300, map[string]uint64{"missing": 300})
	if n := r.ready("orders"); n != 300 || wire.published.Load() != 300 {
		t.Errorf("%d at the broker, %d on the wire, want 300", n, wire.published.Load())
	}
	noIntentWhilePaused(t, s, id)
}

// noIntentWhilePaused reads the ledger: between a pause and its resume, and
// after an abort, there is no intent.
func noIntentWhilePaused(t testing.TB, s *site, id string) {
	t.Helper()
	stopped := uint64(0)
	for _, r := range s.tail("--generation", id) {
		switch r.Kind {
		case "generation.paused", "generation.aborted":
			stopped = r.Seq
		case "generation.resumed":
			stopped = 0
		case "member.intended":
			if stopped > 0 {
				t.Errorf("intent %d follows the stop %d", r.Seq, stopped)
			}
		}
	}
}

func TestAbortHalfWay(t *testing.T) {
	r, s, wire := released(t, 200)
	id, _ := s.planned("--rate", "60", "--burst", "4")
	first := s.hold("generation", "start", id, "--json")
	wire.sent(50)
	s.ok("generation", "abort", id, "--why", "the wrong fix")
	sent := wire.published.Load()
	first.exits(5)
	g := answer[api.Generation](first)
	moved, rest := g.Funnel.Moved, g.Tally["waiting"]
	if moved+rest != 200 || moved < 50 || rest == 0 || wire.published.Load() > sent+1 || r.ready("orders") != int(moved) {
		t.Errorf("moved %d, not moved %d, at the broker %d, written after the abort %d", moved, rest, r.ready("orders"), wire.published.Load()-sent)
	}
	checkSums(t, g, 200)
	noIntentWhilePaused(t, s, id)

	again, members := s.planned("--rate", "1000")
	if members != rest {
		t.Errorf("%d can be planned again, want the %d that did not move", members, rest)
	}
	g = answer[api.Generation](s.want(5, "generation", "start", again, "--json"))
	checkTally(t, g, rest, map[string]uint64{"missing": rest})
	if n := r.ready("orders"); n != 200 {
		t.Errorf("%d at the broker, want 200", n)
	}
}

func TestOneCohortOneStart(t *testing.T) {
	r, s, wire := released(t, 120)
	id, members := s.planned("--rate", "30", "--burst", "1")
	if members != 120 {
		t.Fatalf("%d members, want 120", members)
	}
	// What is in an open generation cannot be in another one.
	none := s.want(3, "generation", "plan", "--reason", "unknown_sku", "--fix", "again")
	if !regexp.MustCompile(`120 .*`).MatchString(none.err.String()) {
		t.Errorf("the refusal does not say why nothing can move: %s", none.err.String())
	}
	first := s.hold("generation", "start", id, "--json")
	wire.sent(1)
	twice := s.want(3, "generation", "start", id)
	if !regexp.MustCompile(`started, by os:\S+ at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).MatchString(twice.err.String()) {
		t.Errorf("the refusal does not say who started it, and when: %s", twice.err.String())
	}
	s.ok("generation", "abort", id, "--why", "enough seen")
	first.exits(5)

	// Several shells plan the same at once: every envelope is in one of them.
	var plans []*process
	for range 4 {
		plans = append(plans, s.start("generation", "plan", "--reason", "unknown_sku", "--fix", "race", "--json"))
	}
	won := uint64(0)
	for _, p := range plans {
		switch code := p.wait(); code {
		case 0:
			won += answer[api.Plan](p).Members
		case 3:
		default:
			t.Errorf("a plan ended with %d: %s", code, p.err.String())
		}
	}
	if rest := 120 - uint64(wire.published.Load()); won != rest || r.ready("orders") != int(wire.published.Load()) {
		t.Errorf("the plans hold %d envelopes, want %d", won, rest)
	}
}

func TestKillSwitch(t *testing.T) {
	r, s, wire := released(t, 150)
	id, _ := s.planned("--rate", "60", "--burst", "2")
	first := s.hold("generation", "start", id, "--json")
	wire.sent(20)
	s.write("STOP", "")
	first.exits(4)
	g := answer[api.Generation](first)
	if g.State != "paused" || len(g.Pauses) != 1 || g.Pauses[0].Reason != "kill_switch" {
		t.Fatalf("after STOP: %s, %+v", g.State, g.Pauses)
	}
	noIntentWhilePaused(t, s, id)
	before := r.ready("orders")
	s.want(4, "generation", "resume", id, "--why", "STOP is still there")
	if n := r.ready("orders"); n != before {
		t.Errorf("%d messages moved although STOP is there", n-before)
	}
	if err := os.Remove(s.path("STOP")); err != nil {
		t.Fatal(err)
	}
	g = answer[api.Generation](s.want(5, "generation", "resume", id, "--why", "the switch is off again", "--json"))
	checkTally(t, g, 150, map[string]uint64{"missing": 150})
}
