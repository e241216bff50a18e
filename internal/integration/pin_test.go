package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/rabbittest"
)

// TestAnotherBroker puts another RabbitMQ behind the address of the first one,
// with queues of the same names: nothing is taken from it and nothing sent to
// it, until a person says that the move is meant.
func TestAnotherBroker(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	r.publish("orders.dlq", orders(0, 20, "unknown_sku")...)
	s := newSite(t, r.config("destinations:\n  - {queue: orders, bake: 1ms, outcome_deadline: 1s}\n"))
	if sum := ask[api.CaptureSummary](s, "capture", "--max", "10"); sum.Captured != 10 {
		t.Fatalf("captured %+v", sum)
	}
	s.ok("generation", "plan", "--all", "--to-queue", "orders", "--stages", "10")
	s.ok("generation", "approve", "1", "--why", "no-stages")

	node := rabbittest.Start(t)
	node.Ctl(t, "eval", fmt.Sprintf(`rabbit_vhost:add(<<"%[3]s">>, <<"test">>),
		rabbit_auth_backend_internal:add_user(<<"%[1]s">>, <<"%[2]s">>, <<"test">>),
		[rabbit_auth_backend_internal:set_permissions(U, <<"%[3]s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>) || U <- [<<"%[1]s">>, <<"guest">>]].`,
		brokerUser, canary, r.vhost))
	other := managed(t, node, r.vhost)
	other.declareOrders()
	other.publish("orders.dlq", orders(100, 20, "unknown_sku")...)
	untouched := func(r *rabbit, dead int) {
		t.Helper()
		if n, m := r.ready("orders.dlq"), r.ready("orders"); n != dead || m != 0 {
			t.Errorf("orders.dlq has %d messages and orders %d, want %d and 0", n, m, dead)
		}
	}

	// The same name leads to another cluster, or to another vhost of the same one.
	elsewhere := newRabbit(t)
	elsewhere.declareOrders()
	elsewhere.publish("orders.dlq", orders(200, 20, "unknown_sku")...)
	p := newProxy(t, node.Addr())
	for name, c := range map[string]struct {
		broker *rabbit
		config string
		says   []string
	}{
		"another cluster": {other, other.configAt(p.addr(), "destinations:\n  - {queue: orders}\n"),
			[]string{clusterOf(r), clusterOf(other)}},
		"another vhost": {elsewhere, elsewhere.config("destinations:\n  - {queue: orders}\n"), []string{`vhost "` + r.vhost + `"`, `vhost "` + elsewhere.vhost + `"`}},
	} {
		s.write("redrive.yaml", c.config)
		for _, args := range [][]string{
			{"capture"}, {"generation", "start", "1"}, {"generation", "resume", "1"}, {"generation", "plan", "--all", "--to-queue", "orders"},
			{"generation", "plan", "--all", "--to-queue", "orders", "--dry-run"},
		} {
			p := s.want(3, args...)
			for _, text := range append(c.says, "another broker") {
				if !strings.Contains(p.err.String(), text) {
					t.Errorf("%s: redrive %s does not name %s: %s", name, strings.Join(args, " "), text, p.err.String())
				}
			}
		}
		rep := answer[api.DoctorReport](s.want(3, "doctor", "--json"))
		if l := line(rep, "pin", ""); l == nil || l.Result != "failed" {
			t.Errorf("%s: doctor says %+v", name, l)
		}
		untouched(c.broker, 20)
	}
	if p.published.Load() != 0 || p.settled.Load() != 0 {
		t.Errorf("at another broker %d messages were published and %d settled", p.published.Load(), p.settled.Load())
	}

	// At home everything goes on.
	s.write("redrive.yaml", r.config("destinations:\n  - {queue: orders, bake: 1ms, outcome_deadline: 1s}\n"))
	s.want(5, "generation", "start", "1")
	if n := r.ready("orders"); n != 10 {
		t.Errorf("%d messages were released, want 10", n)
	}
	s.ok("capture") // what the release did not take while it looked for returns
	if st := ask[api.StatusInfo](s, "status"); st.Envelopes != 20 {
		t.Errorf("%d envelopes, want 20", st.Envelopes)
	}

	// A move that is meant.
	s.write("redrive.yaml", other.config(""))
	s.want(3, "capture")
	pinned := ask[api.PinResult](s, "source", "pin", "--why", "the shop moved to another cluster")
	if !pinned.Changed || pinned.Before == nil || pinned.Before.Cluster != clusterOf(r) || pinned.Now.Cluster != clusterOf(other) || pinned.Now.VHost != r.vhost {
		t.Errorf("pinned %+v", pinned)
	}
	if sum := ask[api.CaptureSummary](s, "capture"); sum.Captured != 20 {
		t.Errorf("captured %+v, want 20", sum)
	}
	tail := s.ok("ledger", "tail", "--limit", "500").out.String()
	if strings.Count(tail, `"kind":"source.pinned"`) != 2 || !strings.Contains(tail, `"why":"the shop moved to another cluster"`) {
		t.Errorf("the ledger does not hold both pins:\n%s", tail)
	}
	// And back it is refused again.
	s.write("redrive.yaml", r.config(""))
	s.want(3, "capture")
}

// clusterOf is what a broker calls itself.
func clusterOf(r *rabbit) string {
	name, ok := r.conn.Properties["cluster_name"].(string)
	if !ok {
		r.t.Fatal("the broker has no cluster name")
	}
	return name
}
