package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/app"
	"github.com/redrivehq/redrive/ledger/event"
)

// turnOf is one message of an ordering key.
func turnOf(key string, seq int) amqp.Publishing {
	m := order(seq, "unknown_sku")
	m.MessageId = fmt.Sprintf("%s-%d", key, seq)
	m.Headers["x-operation-id"], m.Headers["x-ordering-key"], m.Headers["x-sequence"] = "op-"+m.MessageId, key, strconv.Itoa(seq)
	return m
}

// orderGaps: of some accounts messages are missing, and one message still fails.
// Nothing of an account may take effect on a state that it does not follow.
var orderGaps = scenario{
	name: "PerKeyOrderGaps",
	tell: func(t testing.TB) {
		// Given three accounts: one whole, one of which numbers 3 and 4 are
		// missing, and one of which number 2 will fail again,
		r := newRabbit(t)
		r.declareOrders()
		outcomes := r.declareOutcomes()
		s := newSite(t, r.config("destinations: [{queue: orders, evidence: outcomes, order: per-key, on_failure: park}]\n"))
		for _, m := range []struct {
			key  string
			seqs []int
		}{{"whole", []int{1, 2, 3, 4, 5, 6, 7, 8, 9}}, {"gap", []int{1, 2, 5}}, {"fails", []int{1, 2, 3, 4}}} {
			for _, seq := range m.seqs {
				r.publish("orders.dlq", turnOf(m.key, seq))
			}
		}
		s.ok("capture")

		// when the plan is made,
		plan := ask[api.Plan](s, "generation", "plan", "--all", "--to-queue", "orders", "--fix", "half of it", "--stages", "3", "--bake", "1ms",
			"--rate", "1000", "--outcome-deadline", "1h", "--threshold", "requarantined=90%")
		// then it shows the gap before anything moves,
		if o := plan.Order; o == nil || o.Keys != 3 || o.Keyed != 16 || o.Gaps != 1 || len(o.Examples) != 1 || o.Examples[0].Missing != 2 {
			t.Errorf("the plan says about order: %+v", plan.Order)
		}

		// and when it runs,
		var mu sync.Mutex
		got, stamps := map[string][]int{}, map[string]string{}
		r.work("orders", func(ch *amqp.Channel, d amqp.Delivery) verdict {
			key, _ := d.Headers["x-ordering-key"].(string)
			text, _ := d.Headers["x-sequence"].(string)
			seq, _ := strconv.Atoi(text)
			mu.Lock()
			got[key] = append(got[key], seq)
			stamps[d.MessageId], _ = d.Headers["x-redrive-gap"].(string)
			mu.Unlock()
			if d.MessageId == "fails-2" {
				return refuse
			}
			outcomes.report(ch, d, "succeeded")
			return take
		})
		id := plan.Generation.ID
		s.ok("generation", "approve", id, "--digest", plan.Generation.Manifest)
		s.want(5, "generation", "start", id)

		// nothing of the account that failed is delivered after its failure, the
		// others are whole and in order,
		mu.Lock()
		defer mu.Unlock()
		if text := fmt.Sprint(got["whole"], got["gap"], got["fails"]); text != "[1 2 3 4 5 6 7 8 9] [1 2 5] [1 2]" {
			t.Errorf("delivered were %s", text)
		}
		// what comes after the gap says how many are missing, so that a consumer
		// can refuse it,
		if stamps["gap-5"] != "2" || stamps["gap-2"] != "" || stamps["whole-3"] != "" {
			t.Errorf("the stamps about gaps: %v", stamps)
		}
		// and the parked ones are withheld under that name.
		g := s.show(id)
		checkTally(t, g, 16, map[string]uint64{"succeeded": 13, "requarantined": 1, "withheld": 2})
		if n := len(of(s.tail(), "member.withheld")); n == 0 {
			t.Error("no record says that members were parked")
		}
	},
	broken: change{what: "a failure lets its key go on", old: "on_failure: park", new: "on_failure: continue", says: "delivered were"},
}

// inboxExpired: the consumer knows a message again for an hour. This one is two
// hours old.
var inboxExpired = scenario{
	name: "DuplicateReplayAfterTheInboxExpired",
	tell: func(t testing.TB) {
		// Given an order that took effect two hours ago, before its consumer died,
		// and an inbox that remembers one,
		r := newRabbit(t)
		r.declareOrders()
		s := newSite(t, r.config("destinations: [{queue: orders, evidence: reconcile, inbox: {horizon: 1h}}]\n"))
		old := order(1, "unknown_sku")
		old.Timestamp = time.Now().Add(-2 * time.Hour)
		young := order(2, "unknown_sku")
		young.Timestamp = time.Now()
		r.die("orders", old, young)
		s.ok("capture")
		effects := map[string]int{"op-0001": 1}
		var mu sync.Mutex
		r.work("orders", func(_ *amqp.Channel, d amqp.Delivery) verdict {
			operation, _ := d.Headers["x-operation-id"].(string)
			mu.Lock()
			defer mu.Unlock()
			effects[operation]++ // its inbox has forgotten
			return take
		})

		// when it is planned, it is withheld, and a retry is out of the question;
		plan := ask[api.Plan](s, "generation", "plan", "--all", "--dry-run")
		if plan.Members != 1 || len(plan.Excluded) != 1 || plan.Excluded[0].Reason != "beyond_horizon" {
			t.Errorf("%d members, %+v stay", plan.Members, plan.Excluded)
		}
		s.want(2, "generation", "plan", "--all", "--ambiguity", "retry")

		// when somebody forces it, somebody else has to agree,
		forced := ask[api.Plan](s, "generation", "plan", "--all", "--bake", "1ms", "--rate", "1000", "--outcome-deadline", "1s", "--expect", "succeeded",
			"--force", "beyond_horizon", "--force-why", "the customer says it never came")
		id := utoa(uint64(forced.Generation.Number))
		s.want(3, "generation", "approve", id, "--digest", forced.Generation.Manifest)
		s.approvedBy("bob", id, forced.Generation.Manifest)
		s.want(5, "generation", "start", id)

		// and then the business data tells that the order took effect twice.
		mu.Lock()
		s.write("effects.csv", fmt.Sprintf("operation,count,status\nop-0001,%d,shipped\nop-0002,%d,shipped\n", effects["op-0001"], effects["op-0002"]))
		mu.Unlock()
		found := answer[api.Reconciliation](s.want(5, "generation", "reconcile", id, "--evidence", s.path("effects.csv"), "--close", "--why", "T-9: refund the second one", "--json"))
		if found.Checked != 2 || found.Double != 1 || found.Effected != 1 || found.NotEffected != 0 || found.Unexpected != 0 {
			t.Errorf("reconciled: %+v", found)
		}
		if len(found.Members) != 1 || found.Members[0].Effects != 2 || found.Members[0].Finding != "double" {
			t.Errorf("the double effect: %+v", found.Members)
		}
	},
	broken: change{what: "the inbox is said to remember for a year", old: "horizon: 1h", new: "horizon: 1y", says: "2 members"},
}

// approvedBy approves a plan as another user of the operating system.
func (s *site) approvedBy(who, id, digest string) {
	s.t.Helper()
	ctx := context.Background()
	caller, err := app.Connect(ctx, app.Settings{Data: s.data, Command: "test", Actor: event.Actor{Auth: "os", Role: "operator", Subject: "os:" + who}})
	must(s.t, err)
	_, err = api.Call(ctx, caller, api.GenerationApprove, api.ApproveRequest{ID: id, Digest: digest, Why: "looked at"}, nil)
	must(s.t, errors.Join(err, caller.Close(ctx)))
}
