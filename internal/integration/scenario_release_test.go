package integration

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// newTraffic: producers do not wait for a redrive. What they send meanwhile is
// in no cohort and in no tally, and consumers get both.
var newTraffic = scenario{
	name: "ConcurrentNewTraffic",
	tell: func(t testing.TB) {
		// Given forty dead orders, and a consumer that passes on the headers of
		// what it gets, stamp and all, to an event of its own, which dies too.
		r := newRabbit(t)
		r.declareOrders()
		outcomes := r.declareOutcomes()
		s := newSite(t, r.config(""))
		r.die("orders", orders(0, 40, "unknown_sku")...)
		s.ok("capture")
		var fresh, old atomic.Int64
		r.work("orders", func(ch *amqp.Channel, d amqp.Delivery) verdict {
			if position(d) < 0 {
				fresh.Add(1)
				return refuse // new orders fail as the old ones did
			}
			if old.Add(1)%4 == 0 {
				event := amqp.Publishing{MessageId: d.MessageId + "-event", Headers: d.Headers, Body: []byte(`{"event":"order.shipped"}`), DeliveryMode: amqp.Persistent}
				if err := ch.PublishWithContext(t.Context(), "", "orders.dlq", false, false, event); err != nil {
					t.Error(err)
				}
			}
			outcomes.report(ch, d, "succeeded")
			return take
		})

		// When producers publish while the generation runs,
		id, members := s.planned("--evidence", "outcomes", "--rate", "100", "--burst", "2", "--outcome-deadline", "1h")
		start := s.hold("generation", "start", id, "--json")
		for n := range 30 {
			r.publish("orders", order(1000+n, "unknown_sku"))
		}
		start.wait()

		// then the tally is that of the forty,
		g := answer[api.Generation](start)
		if members != 40 {
			t.Errorf("%d members", members)
		}
		checkTally(t, g, 40, map[string]uint64{"succeeded": 40})
		if g.State != "closed" || g.Contradictions != 0 || g.Regressions != 0 {
			t.Errorf("it is %s with %d contradictions and %d regressions", g.State, g.Contradictions, g.Regressions)
		}
		// the consumer has seen both,
		eventually(t, "the consumer to see all new orders", func() bool { return fresh.Load() == 30 })
		if old.Load() != 40 {
			t.Errorf("the consumer got %d of the cohort", old.Load())
		}
		// and what died meanwhile is captured as what it is: new, and nobody's child.
		eventually(t, "everything new to die", func() bool {
			s.ok("capture")
			return len(s.envelopes("--custody", "quarantined")) == 40
		})
		for _, e := range s.envelopes("--custody", "quarantined") {
			if e.Lineage.Parent != "" || e.Lineage.Attempt != 1 {
				t.Errorf("%s (%s) is taken for a child: %+v", e.ID, e.Identity.MessageID, e.Lineage)
			}
		}
		r40 := ask[api.Report](s, "generation", "report", id)
		if !strings.Contains(r40.Text, "Of 40 selected, 40 moved to queue orders: 40 succeeded.") ||
			!strings.Contains(r40.Text, "It left alone 30 that match the same selection and were captured after it was planned.") {
			t.Errorf("the statement:\n%s", r40.Text)
		}
	},
	broken: change{what: "a copied stamp makes a child of any message", file: "quarantine/capture.go",
		old: "case rel.BodyDigest != f.BodyDigest:", new: "case false:",
		says: "generation 1: "},
}

// poisonRecurrence: the same message fails in one generation after the other.
var poisonRecurrence = scenario{
	name: "PoisonRecurrence",
	tell: func(t testing.TB) {
		// Given a message that no fix mends, with a body worth counting,
		r := newRabbit(t)
		r.declareOrders()
		s := newSite(t, r.config("limits: {attempts: 5}\n"))
		m := order(1, "unknown_sku")
		m.Body = []byte(`{"pad":"` + strings.Repeat("x", 300<<10) + `"}`)
		r.die("orders", m)
		s.ok("capture")
		r.work("orders", func(*amqp.Channel, amqp.Delivery) verdict { return refuse })

		// when it fails in five generations,
		for n := 1; n <= 5; n++ {
			id := s.plannedAll("--fix", fmt.Sprint("guess ", n), "--outcome-deadline", "1h")
			g := answer[api.Generation](s.want(5, "generation", "start", id, "--json"))
			checkTally(t, g, 1, map[string]uint64{"requarantined": 1})
		}

		// then the sixth is refused for that reason,
		p := s.want(3, "generation", "plan", "--all", "--fix", "guess 6")
		if !strings.Contains(p.err.String(), "attempt_limit_reached") {
			t.Errorf("the refusal: %s", p.err.String())
		}
		// the lineage has six envelopes, each naming the one before,
		all := s.envelopes("--lineage", "#1")
		parent := ""
		for i, e := range all {
			if e.Lineage.Attempt != uint64(i+1) || e.Lineage.Parent != parent {
				t.Errorf("attempt %d: %+v", i+1, e.Lineage)
			}
			parent = e.ID
		}
		if len(all) != 6 {
			t.Errorf("the lineage has %d envelopes, want 6", len(all))
		}
		// its body is stored once,
		if files, err := os.ReadDir(s.path("blobs")); err != nil || len(files) != 1 {
			t.Errorf("%d bodies are stored (%v)", len(files), err)
		}
		// and the statement says whose it is.
		if text := ask[api.Report](s, "generation", "report", "5").Text; !strings.Contains(text, "Catalog team") && !strings.Contains(text, "Fulfillment on-call") {
			t.Errorf("the statement names no owner:\n%s", text)
		}
	},
	broken: change{what: "the cap on attempts is higher than the story", old: "attempts: 5", new: "attempts: 50", says: "exit 0, want 3"},
}

// partialCancellation: an abort takes nothing back. Some have moved, some are on
// their way, of some nobody knows, and the rest is free again.
var partialCancellation = scenario{
	name: "PartialCancellation",
	tell: func(t testing.TB) {
		// Given a release under way, whose broker does not answer any more,
		r := newRabbit(t)
		r.declareOrders()
		wire := newProxy(t, r.node.Addr())
		s := newSite(t, r.configAt(wire.addr(), ""))
		r.die("orders", orders(0, 120, "unknown_sku")...)
		s.ok("capture")
		id, _ := s.planned("--rate", "100", "--burst", "2", "--window", "10")
		start := s.hold("generation", "start", id, "--json")
		s.underway(id, 20)
		wire.silence.Lock()
		eventually(t, "the window to be full", func() bool { return s.show(id).Tally["in_flight"] == 10 })

		// when it is aborted, and the connection is lost then,
		s.ok("generation", "abort", id, "--why", "the warehouse called")
		sent := wire.published.Load()
		wire.cut()
		wire.silence.Unlock()
		eventually(t, "nothing to be in flight", func() bool { return s.show(id).Tally["in_flight"] == 0 })
		eventually(t, "the outcome deadlines of what moved", func() bool { return s.show(id).Tally["pending"] == 0 })
		start.signal(syscall.SIGINT)
		start.wait()

		// then nothing more went out,
		if n := wire.published.Load(); n != sent {
			t.Errorf("%d messages went out after the abort", n-sent)
		}
		g := s.show(id)
		moved := uint64(sent) - 10
		checkTally(t, g, 120, map[string]uint64{"missing": moved, "ambiguous_publish": 10, "waiting": 120 - moved - 10})
		// what was never sent is free again, and nothing else is,
		plan := ask[api.Plan](s, "generation", "plan", "--all", "--dry-run")
		if plan.Members != 120-moved-10 {
			t.Errorf("a new plan takes %d, want %d", plan.Members, 120-moved-10)
		}
		// and it ends when a person has looked at the ten that are in doubt.
		s.ok("generation", "rule", id, "--delivered", "--why", "all ten are in the warehouse's list")
		eventually(t, "the deadline of the ten", func() bool { return s.show(id).Tally["missing"] == moved+10 })
		end := ask[api.Generation](s, "generation", "close", id, "--accept", fmt.Sprintf("missing=%d", moved+10), "--why", "T-7")
		checkTally(t, end, 120, map[string]uint64{"missing": moved + 10, "waiting": 120 - moved - 10})
		text := ask[api.Report](s, "generation", "report", id).Text
		if want := fmt.Sprintf("%d did not move: %d never sent and free again.", 120-moved-10, 120-moved-10); !strings.Contains(text, want) {
			t.Errorf("the statement does not say %q:\n%s", want, text)
		}
	},
	broken: change{what: "what is in doubt is free again after an abort", file: "redrive/facts.go",
		old: "case event.Waiting, event.Withheld, event.Undelivered:", new: "case event.Waiting, event.Withheld, event.Undelivered, event.AmbiguousPublish:",
		says: "a new plan takes"},
}
