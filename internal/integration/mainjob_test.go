package integration

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// TestMainJob is the product in one scenario: a thousand messages die in a
// real queue, are captured, and those of one reason are released to a consumer
// that still fails some of them.
func TestMainJob(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	s := newSite(t, r.config(""))
	kinds := []struct {
		reason string
		n      int
	}{{"unknown_sku", 400}, {"schema_invalid", 300}, {"downstream_timeout", 200}, {"db_conflict", 100}}
	var all []amqp.Publishing
	for _, k := range kinds {
		all = append(all, orders(len(all), k.n, k.reason)...)
	}
	r.die("orders", all...)
	eventually(t, "all dead letters", func() bool { return r.ready("orders.dlq") == len(all) })

	sum := ask[api.CaptureSummary](s, "capture")
	if sum.Captured != 1000 || sum.Merged != 0 || sum.Returned != 0 || r.ready("orders.dlq") != 0 {
		t.Fatalf("capture: %+v, left at the broker: %d", sum, r.ready("orders.dlq"))
	}
	groups := map[string]uint64{}
	for _, g := range ask[api.EnvelopeGrouping](s, "envelope", "list", "--groups").Groups {
		groups[g.Reason] = g.Count
	}
	for _, k := range kinds {
		if groups[k.reason] != uint64(k.n) {
			t.Errorf("%d of reason %s, want %d", groups[k.reason], k.reason, k.n)
		}
	}

	plan := ask[api.Plan](s, "generation", "plan", "--reason", "unknown_sku", "--fix", "catalog 2.4.1 adds SKU 88",
		"--bake", "300ms", "--rate", "1000", "--outcome-deadline", "3s")
	if plan.Members != 400 || plan.Destination != "queue orders" || plan.Generation == nil {
		t.Fatalf("plan: %+v", plan)
	}
	s.ok("generation", "approve", "1", "--digest", plan.Generation.Manifest, "--why", "no-stages")
	worker := r.work("orders", func(_ *amqp.Channel, d amqp.Delivery) verdict {
		if p := position(d); p < 0 || p >= 12 && (p-12)%10 == 0 {
			return refuse
		}
		return take
	})
	g := answer[api.Generation](s.want(5, "generation", "start", "1", "--json"))

	taken, refused := worker.counts()
	if refused != 39 || taken != 361 {
		t.Errorf("the consumer took %d and refused %d, want 361 and 39", taken, refused)
	}
	checkTally(t, g, 400, map[string]uint64{"missing": 361, "requarantined": 39})
	if g.Funnel.Requarantined != uint64(refused) || g.Funnel.Selected != 400 || g.Funnel.Moved != 400 {
		t.Errorf("funnel: %+v", g.Funnel)
	}
	s.ok("generation", "close", "1", "--accept", "missing=361", "--why", "returns only; the shop has confirmed the orders")
	eachExactlyOnce(t, s, r, worker, all)

	// A replay starts without the reason of the last attempt: the consumer gave
	// none this time, so the broker's own word stands.
	children := s.envelopes("--custody", "quarantined", "--reason", "rejected")
	if len(children) != 39 {
		t.Fatalf("%d children are quarantined, want 39", len(children))
	}
	for _, e := range children {
		if e.Lineage.Attempt != 2 || e.Lineage.Parent == "" || e.Lineage.Root != e.Lineage.Parent || e.Lineage.Stamp != "valid" {
			t.Errorf("child %s: %+v", e.ID, e.Lineage)
		}
	}
	child := ask[api.Envelope](s, "envelope", "show", children[0].ID)
	parent := ask[api.Envelope](s, "envelope", "show", child.Lineage.Parent)
	if len(parent.Lineage.Children) != 1 || parent.Lineage.Children[0] != child.ID || parent.Custody != "returned" || parent.Reason != "unknown_sku" {
		t.Errorf("parent: custody %s, reason %s, %+v", parent.Custody, parent.Reason, parent.Lineage)
	}
	if child.Identity.BodySHA256 != parent.Identity.BodySHA256 || child.Identity.Operation != parent.Identity.Operation {
		t.Errorf("the child is not its parent: %+v, %+v", child.Identity, parent.Identity)
	}
	if r := ask[api.Report](s, "generation", "report", "1"); len(r.Remaining) == 0 || !strings.Contains(r.Text, "Fulfillment on-call") {
		t.Errorf("the statement names no owner of what remains:\n%s", r.Text)
	}
	replayAgain(t, s, r, worker)
}

// replayAgain releases the 39 children, each the second attempt of its message,
// to a consumer that reports what it does.
func replayAgain(t *testing.T, s *site, r *rabbit, w *worker) {
	t.Helper()
	w.stop()
	outcomes := r.declareOutcomes()
	again := r.work("orders", func(ch *amqp.Channel, d amqp.Delivery) verdict {
		what := "succeeded"
		if position(d) == 38 {
			what = "rejected"
		}
		outcomes.report(ch, d, what)
		return take
	})
	plan := ask[api.Plan](s, "generation", "plan", "--reason", "rejected", "--fix", "the worker reports", "--evidence", "outcomes",
		"--bake", "50ms", "--rate", "1000")
	if plan.Members != 39 {
		t.Fatalf("plan: %+v", plan)
	}
	s.ok("generation", "approve", "2", "--why", "no-stages")
	g := answer[api.Generation](s.ok("generation", "start", "2", "--json"))
	checkTally(t, g, 39, map[string]uint64{"succeeded": 38, "rejected": 1})
	if g.State != "closed" {
		t.Errorf("generation 2 is %s although every outcome is known", g.State)
	}
	if taken, _ := again.counts(); taken != 39 {
		t.Errorf("the second consumer took %d, want 39", taken)
	}
	if n := len(s.envelopes("--custody", "resolved")); n != 39 {
		t.Errorf("%d envelopes are resolved, want 39", n)
	}
}

// checkTally holds a generation's counters against both laws and against what
// is wanted; dispositions that are not named are wanted to be 0.
func checkTally(t testing.TB, g api.Generation, selected uint64, want map[string]uint64) {
	t.Helper()
	var sum uint64
	for d, n := range g.Tally {
		sum += n
		if n != want[d] {
			t.Errorf("generation %d: %d %s, want %d", g.Number, n, d, want[d])
		}
	}
	for d, n := range want {
		if g.Tally[d] != n {
			t.Errorf("generation %d: %d %s, want %d", g.Number, g.Tally[d], d, n)
		}
	}
	checkSums(t, g, selected)
}

// checkSums checks both laws.
func checkSums(t testing.TB, g api.Generation, selected uint64) {
	t.Helper()
	var sum uint64
	for _, n := range g.Tally {
		sum += n
	}
	moved := uint64(0)
	for _, d := range []string{"pending", "admitted", "succeeded", "rejected", "requarantined", "missing", "deduplicated_consumer", "ambiguous_effect"} {
		moved += g.Tally[d]
	}
	if sum != selected || g.Funnel.Selected != selected || g.Funnel.Moved != moved || !g.LawsHold || len(g.Tally) != 14 {
		t.Errorf("generation %d: selected %d, sum %d, want %d; moved %d, sum %d; laws hold: %v; tally %v",
			g.Number, g.Funnel.Selected, sum, selected, g.Funnel.Moved, moved, g.LawsHold, g.Tally)
	}
}

// eachExactlyOnce checks that every message is in exactly one place: taken by
// the consumer, waiting at the broker, or open in the store.
func eachExactlyOnce(t testing.TB, s *site, r *rabbit, w *worker, all []amqp.Publishing) {
	t.Helper()
	if n := r.ready("orders") + r.ready("orders.dlq"); n != 0 {
		t.Errorf("%d messages wait at the broker", n)
	}
	places := w.ids()
	for _, e := range s.envelopes("--custody", "quarantined") {
		places[e.Identity.MessageID]++
	}
	for _, m := range all {
		if places[m.MessageId] != 1 {
			t.Errorf("message %s is in %d places", m.MessageId, places[m.MessageId])
		}
		delete(places, m.MessageId)
	}
	if len(places) > 0 {
		t.Errorf("messages that nobody published: %v", places)
	}
}

// envelopes lists all envelopes that the filters select.
func (s *site) envelopes(filters ...string) []api.Envelope {
	s.t.Helper()
	var out []api.Envelope
	cursor := uint64(0)
	for {
		page := ask[api.EnvelopePage](s, append([]string{"envelope", "list", "--limit", "500", "--cursor", utoa(cursor)}, filters...)...)
		out = append(out, page.Envelopes...)
		if cursor = page.Next; cursor == 0 {
			return out
		}
	}
}
