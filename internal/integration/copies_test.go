package integration

import (
	"fmt"
	"os"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// TestCopiesWhenTheLinkIsCut cuts the link of a release, in turn before a
// confirm is read and in the middle of a publish. Under hold nothing is at the
// broker twice; under retry there are at most as many copies as tries, and
// nothing is missing. The retry rests for half a minute, so it is tried only
// where REDRIVE_TEST_CUTS asks for the full size.
func TestCopiesWhenTheLinkIsCut(t *testing.T) {
	policies, cuts := []string{"hold"}, int64(2)
	if os.Getenv(cutsEnv) != "" {
		policies, cuts = append(policies, "retry"), 6
	}
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) { copiesUnder(t, policy, cuts) })
	}
}

func copiesUnder(t *testing.T, policy string, want int64) {
	const messages, first = 200, 12
	r := newRabbit(t)
	r.declareOrders()
	o := r.declareOutcomes()
	var all []amqp.Publishing
	for i := range messages {
		all = append(all, amqp.Publishing{MessageId: fmt.Sprint("m", i), Body: []byte("b"), Headers: amqp.Table{"x-death-reason": "unknown_sku"}})
	}
	r.publish("orders.dlq", all...)
	var wire *proxy
	wire = newWatchingProxy(t, r.node.Addr(), func(l *link, f frame) verb {
		publishes := f.up && f.is(basic, publish) && f.payload[len(f.payload)-1]&1 != 0
		if publishes {
			l.left++
		}
		switch n := wire.cuts.Load(); {
		case n >= want || l.left < 8 || wire.published.Load() < 20:
		case n%2 == 0 && !f.up && f.is(basic, ack):
			return stop
		case n%2 == 1 && publishes:
			return tear
		}
		return pass
	})
	s := newSite(t, r.configAt(wire.addr(), "destinations: [{queue: orders, evidence: outcomes, inbox: {horizon: 24h}}]\n"))
	s.ok("capture")
	q := &queueing{got: map[string][]int{}, gaps: map[string]string{}, copies: map[string]int{}}
	r.work("orders", func(ch *amqp.Channel, d amqp.Delivery) verdict {
		q.mu.Lock()
		q.copies[d.MessageId]++
		q.mu.Unlock()
		if position(d) < first {
			o.report(ch, d, "succeeded")
		} // of the rest it says nothing, so that nothing but the confirm tells
		return take
	})
	p := ask[api.Plan](s, "generation", "plan", "--all", "--fix", "mended", "--to-queue", "orders", "--ambiguity", policy, "--rate", "2000", "--burst", "4",
		"--window", "4", "--exposure", "300", "--stages", fmt.Sprint(first), "--bake", "1ms", "--outcome-deadline", "10m",
		"--threshold", "ambiguous=1000", "--threshold", "ambiguous_retry=1000")
	id := p.Generation.ID
	s.ok("generation", "approve", id)
	s.want(5, "generation", "start", id, "--no-wait")
	if wire.cuts.Load() != want {
		t.Fatalf("%d cuts, want %d", wire.cuts.Load(), want)
	}
	eventually(t, "the consumer to be done", func() bool { return r.ready("orders") == 0 })
	g := ask[api.Generation](s, "generation", "show", id)
	q.mu.Lock()
	defer q.mu.Unlock()
	twice, missing := 0, 0
	for _, m := range all {
		switch n := q.copies[m.MessageId]; {
		case n == 0:
			missing++
		case n > 2 || n == 2 && policy == "hold":
			t.Errorf("%s was delivered %d times under %s", m.MessageId, n, policy)
		case n == 2:
			twice++
		}
	}
	t.Logf("%s: %d cuts, %d delivered twice, %d not at all, tally %v", policy, want, twice, missing, g.Tally)
	if policy == "retry" && (missing > 0 || twice == 0) {
		t.Errorf("%d were never delivered, %d twice", missing, twice)
	}
	if policy == "hold" && (missing == 0 || g.Tally["ambiguous_publish"] <= uint64(missing)) {
		t.Errorf("%d were not delivered, and %d are in doubt", missing, g.Tally["ambiguous_publish"])
	}
}
