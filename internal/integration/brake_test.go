package integration

import (
	"os"
	"strconv"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// cohort is how many messages the tests of the brake take, at least 300.
func cohort(t *testing.T) int {
	n := 300
	if text := os.Getenv(messagesEnv); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(t, err)
	}
	return max(n, 300)
}

// The fix does not work: each message comes back. With stages one is released,
// without them no more than the exposure and a window.
func TestFixThatDoesNotWork(t *testing.T) {
	n := cohort(t)
	r := newRabbit(t)
	r.declareOrders()
	s := newSite(t, r.config(""))
	r.die("orders", orders(0, n, "unknown_sku")...)
	eventually(t, "all dead letters", func() bool { return r.ready("orders.dlq") == n })
	s.ok("capture")
	worker := r.work("orders", func(*amqp.Channel, amqp.Delivery) verdict { return refuse })
	for _, c := range []struct {
		flags []string
		most  int
	}{{nil, 1}, {[]string{"--no-stages"}, 200 + 64}} {
		_, before := worker.counts()
		p := ask[api.Plan](s, append([]string{"generation", "plan", "--all", "--fix", "none", "--evidence", "outcomes",
			"--rate", "10000", "--bake", "1ms", "--outcome-deadline", "1h"}, c.flags...)...)
		id := p.Generation.ID
		if c.flags != nil {
			s.want(3, "generation", "approve", id, "--why", "looked at it")
		}
		s.ok("generation", "approve", id, "--why", "no-stages, as agreed")
		g := answer[api.Generation](s.run("generation", "start", id, "--no-wait", "--json"))
		_, after := worker.counts()
		if sent := after - before; sent < 1 || sent > c.most || g.State != "paused" && g.State != "aborted" && g.State != "settling" {
			t.Errorf("%v: %d of %d went out, at most %d may; it is %s for %+v", c.flags, sent, p.Members, c.most, g.State, g.Pauses)
		}
		if g.State == "paused" {
			s.ok("generation", "abort", id, "--why", "the fix does not work")
		}
		eventually(t, "what came back to be captured", func() bool {
			s.ok("capture")
			return r.ready("orders.dlq") == 0 && r.ready("orders") == 0
		})
	}
}

// The queue loses its consumer while a stage bakes: the stage is held, and the
// generation stands still for that reason.
func TestConsumerThatWentAway(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	s := newSite(t, strings.Replace(r.config(""), "watch: [none]", "watch: [consumers], probe_every: 50ms", 1))
	r.die("orders", orders(0, 20, "unknown_sku")...)
	s.ok("capture")
	p := ask[api.Plan](s, "generation", "plan", "--all", "--fix", "mended", "--rate", "1000", "--bake", "1ms")
	s.ok("generation", "approve", p.Generation.ID)
	g := answer[api.Generation](s.run("generation", "start", p.Generation.ID, "--no-wait", "--json"))
	if g.State != "paused" || len(g.Pauses) != 1 || g.Pauses[0].Reason != "consumers" || g.Stage != 1 || g.Funnel.Moved > 1 {
		t.Errorf("it is %s for %+v in stage %d, %d moved", g.State, g.Pauses, g.Stage, g.Funnel.Moved)
	}
}
