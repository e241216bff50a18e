package integration

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/rabbittest"
)

// watching looks often, and lets the system resume soon.
func (r *rabbit) watching(signals string) string {
	return strings.Replace(r.config(""), "hold_down: 1ms, watch: [none]",
		"hold_down: 1ms, clear_for: 300ms, back_off: [1ms], probe_every: 500ms, watch: ["+signals+"]", 1)
}

// staged plans 20 dead messages in the stages 1, 10 and 9.
func (s *site) staged(r *rabbit, bake string) (id string) {
	s.t.Helper()
	r.die("orders", orders(0, 20, "unknown_sku")...)
	s.ok("capture")
	id = ask[api.Plan](s, "generation", "plan", "--all", "--fix", "mended", "--rate", "1000", "--bake", bake).Generation.ID
	s.ok("generation", "approve", id)
	return id
}

// stands waits until a generation stands still in its first stage for a reason.
func (s *site) stands(id, reason string) {
	s.t.Helper()
	var g api.Generation
	eventually(s.t, "a pause for "+reason, func() bool {
		g = ask[api.Generation](s, "generation", "show", id)
		for _, p := range g.Pauses {
			if p.Reason == reason {
				return true
			}
		}
		return false
	})
	if g.State != "paused" || g.Stage != 1 || g.Funnel.Moved > 1 {
		s.t.Errorf("it is %s for %+v in stage %d, %d moved", g.State, g.Pauses, g.Stage, g.Funnel.Moved)
	}
}

// A consumer that runs is killed by the first message: the stage is held, and
// the generation stands still for a reason that names it. When there is one
// again the system goes on, and the rest moves.
func TestConsumerThatIsKilled(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	s := newSite(t, r.watching("consumers"))
	id := s.staged(r, "1ms")
	got := make(chan struct{}, 20)
	w := r.work("orders", func(*amqp.Channel, amqp.Delivery) verdict {
		got <- struct{}{}
		return take
	})
	shell := s.hold("generation", "start", id)
	<-got
	w.stop()
	s.stands(id, "consumers")
	r.work("orders", func(*amqp.Channel, amqp.Delivery) verdict { return take })
	eventually(t, "the rest to move", func() bool {
		return ask[api.Generation](s, "generation", "show", id).Funnel.Moved == 20
	})
	shell.kill() // it would wait for what comes back
}

// The broker stops while a stage bakes, when nothing is published that could
// fail: the stage is held, and the generation stands still for a reason that
// names it. When it is back the system goes on.
func TestBrokerThatStops(t *testing.T) {
	node := rabbittest.Start(t)
	r := rabbitOn(t, node)
	r.declareOrders()
	s := newSite(t, r.watching("broker"))
	id := s.staged(r, "20s")
	shell := s.hold("generation", "start", id)
	eventually(t, "the first message to move", func() bool {
		return ask[api.Generation](s, "generation", "show", id).Funnel.Moved == 1
	})
	node.SyncDeclarations(t)
	node.Kill(t)
	s.stands(id, "broker")
	if shell.ended() {
		t.Fatal("the shell left what the system can resume")
	}
	node.Restart(t)
	eventually(t, "the system to go on", func() bool {
		return ask[api.Generation](s, "generation", "show", id).State == "running"
	})
	s.ok("generation", "abort", id, "--why", "seen enough")
	shell.kill() // it would wait for what comes back
}
