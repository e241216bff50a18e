package integration

import (
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// downstreamOverload: the consumer cannot keep up, so messages wait in front of
// it. The release slows down, stands still, and goes on by itself when there is
// room again.
var downstreamOverload = scenario{
	name: "DownstreamOverload",
	tell: func(t testing.TB) {
		// Given a release to a consumer that reports what it does,
		r := newRabbit(t)
		r.declareOrders()
		outcomes := r.declareOutcomes()
		const n = 120
		s := newSite(t, strings.Replace(r.config("destinations: [{queue: orders, evidence: outcomes}]\n"),
			"brake: {hold_down: 1ms, watch: [none]}", "brake: {hold_down: 100ms, probe_every: 50ms, clear_for: 500ms, back_off: [100ms], watch: [depth]}", 1))
		r.publish("orders.dlq", orders(0, n, "unknown_sku")...)
		s.ok("capture")
		var stands atomic.Bool
		back := make(chan struct{})
		w := r.work("orders", func(ch *amqp.Channel, d amqp.Delivery) verdict {
			if stands.Load() {
				select {
				case <-back:
				case <-t.Context().Done():
				}
			}
			if position(d) >= 0 {
				outcomes.report(ch, d, "succeeded")
			}
			return take
		})
		plan := ask[api.Plan](s, "generation", "plan", "--all", "--to-queue", "orders", "--fix", "catalog", "--stages", "1,10", "--bake", "1ms",
			"--rate", "40", "--outcome-deadline", "1h")
		id := utoa(uint64(plan.Generation.Number))
		s.ok("generation", "approve", id, "--digest", plan.Generation.Manifest)
		start := s.hold("generation", "start", id, "--json")
		s.underway(id, 15)

		// when the consumer stands still and other traffic piles up before it,
		stands.Store(true)
		more := make([]amqp.Publishing, 1500)
		for i := range more {
			more[i] = amqp.Publishing{Body: []byte("other traffic")}
		}
		r.publish("orders", more...)

		// then the release is throttled first, and paused when that does not help,
		// both for the depth;
		eventually(t, "the brake to act", func() bool {
			g := s.show(id)
			if g.Funnel.Moved == n {
				t.Fatalf("everything moved without a brake")
			}
			return g.State == "paused"
		})
		var kinds []string
		for _, rec := range of(s.tail(), "generation.throttled", "generation.paused") {
			if rec.Body.Reason == "depth" {
				kinds = append(kinds, rec.Kind)
			}
		}
		if len(kinds) < 2 || kinds[0] != "generation.throttled" || kinds[len(kinds)-1] != "generation.paused" {
			t.Errorf("the brake did %v for the depth", kinds)
		}
		// it goes on by itself when there is room, and says that nobody did it;
		stands.Store(false)
		close(back)
		start.wait()
		g := answer[api.Generation](start)
		checkTally(t, g, n, map[string]uint64{"succeeded": n})
		if resumed := of(s.tail(), "generation.resumed"); len(resumed) == 0 || len(resumed) > 3 {
			t.Errorf("it was resumed %d times", len(resumed))
		}
		// and every member was consumed once.
		for name, times := range w.ids() {
			if name != "" && times != 1 {
				t.Errorf("%s was consumed %d times", name, times)
			}
		}
	},
	broken: change{what: "nobody watches the depth", old: "watch: [depth]", new: "watch: [none]", says: "without a brake"},
}
