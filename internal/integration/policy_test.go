package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

const fulfillment = "../../testdata/policies/fulfillment.yaml"

// TestPolicyAtABroker makes the reference system at a broker that tells nothing
// but what AMQP does: everything is made, once, and what cannot be seen never
// passes for right.
func TestPolicyAtABroker(t *testing.T) {
	r := newRabbit(t)
	s := newSite(t, r.config(""))
	plan := ask[api.PolicyPlan](s, "policy", "apply", "--policy", fulfillment)
	want := []string{"redrive.outcomes", "redrive.outcomes", "redrive.outcomes → redrive.outcomes", "orders.fulfillment.dlq", "orders.fulfillment",
		"orders.fulfillment.retry.1s", "orders.fulfillment.retry.5s", "orders.fulfillment.retry.30s", "orders.fulfillment.retry.2m", "orders.fulfillment.retry.10m"}
	if got := named(plan, api.StepMissing); !slices.Equal(got, want) {
		t.Errorf("missing: %q, want %q", got, want)
	}
	p := answer[api.PolicyPlan](s.ok("policy", "apply", "--policy", fulfillment, "--yes", "--json"))
	if got := named(p, api.StepMade); !slices.Equal(got, want) {
		t.Errorf("made: %q, want %q", got, want)
	}

	// It works: a short delay does not wait behind a long one, and a dead letter
	// comes to the quarantine.
	r.publish("orders.fulfillment.retry.10m", amqp.Publishing{MessageId: "late", Expiration: "600000"})
	r.publish("orders.fulfillment.retry.1s", amqp.Publishing{MessageId: "soon", Expiration: "50"})
	ch := r.channel()
	ds, err := ch.Consume("orders.fulfillment", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := next(t, ds)
	if err := d.Reject(false); err != nil || d.MessageId != "soon" {
		t.Errorf("delivery of %q, %v", d.MessageId, err)
	}
	dead, err := ch.Consume("orders.fulfillment.dlq", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := next(t, dead); d.MessageId != "soon" || d.Ack(false) != nil {
		t.Errorf("dead letter %q", d.MessageId)
	}

	// The second time nothing is made; what is not known makes it end with 75.
	p = answer[api.PolicyPlan](s.want(75, "policy", "apply", "--policy", fulfillment, "--yes", "--json"))
	if got := append(named(p, api.StepMade), named(p, api.StepMissing)...); len(got) > 0 {
		t.Errorf("the second time %q was made", got)
	}
	check := answer[api.PolicyCheck](s.want(75, "policy", "check", "--policy", fulfillment, "--without-workers", "--json"))
	if check.Result != api.DriftUnknown || !slices.ContainsFunc(check.Findings, func(f api.PolicyFinding) bool {
		return f.Code == "not_inspected" && strings.Contains(f.Text, "broker.management is not set")
	}) {
		t.Errorf("the check is %+v", check)
	}
}

// next is the next delivery.
func next(t testing.TB, ds <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case d := <-ds:
		return d
	case <-time.After(hang):
		t.Fatal("no delivery comes")
		return amqp.Delivery{}
	}
}

// named are the steps in a state.
func named(p api.PolicyPlan, state string) []string {
	out := []string{}
	for _, s := range p.Steps {
		if s.State == state {
			out = append(out, s.Name)
		}
	}
	return out
}
