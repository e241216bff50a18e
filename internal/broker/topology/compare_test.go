package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// steps are those that are not right, as "object name state", and one of each
// text and advice.
func steps(a *atlas, d Dialect) (brief []string, all []quarantine.Step) {
	all, _, _ = Compare(a, []policy.Queue{reference()}, d)
	for _, s := range all {
		if s.State != quarantine.StepRight {
			brief = append(brief, fmt.Sprintf("%s %s %s", s.Object, s.Name, s.State))
		}
	}
	return brief, all
}

func TestPlanFromNothing(t *testing.T) {
	got, all := steps(&atlas{}, Dialect{Major: 3, VHost: "/"})
	want := []string{
		"exchange redrive.outcomes missing", "queue redrive.outcomes missing", "binding redrive.outcomes → redrive.outcomes missing",
		"queue orders.fulfillment.dlq missing", "queue orders.fulfillment missing",
		"queue orders.fulfillment.retry.1s missing", "queue orders.fulfillment.retry.5s missing", "queue orders.fulfillment.retry.30s missing",
		"queue orders.fulfillment.retry.2m missing", "queue orders.fulfillment.retry.10m missing",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	settings := map[string]string{}
	for _, s := range all {
		settings[s.Name] = Definition(s.Settings)
	}
	for name, want := range map[string]string{
		"orders.fulfillment":           `{"x-queue-type":"quorum","x-delivery-limit":5,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"orders.fulfillment.dlq","x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish"}`,
		"orders.fulfillment.retry.10m": `{"x-queue-type":"quorum","x-dead-letter-exchange":"","x-dead-letter-routing-key":"orders.fulfillment","x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish"}`,
		"orders.fulfillment.dlq":       `{"x-queue-type":"quorum"}`,
	} {
		if settings[name] != want {
			t.Errorf("%s is made with %s, want %s", name, settings[name], want)
		}
	}
	_, all = steps(&atlas{}, Dialect{Major: 4, VHost: "/"})
	for _, s := range all {
		if s.Name == "orders.fulfillment.dlq" && Definition(s.Settings) != `{"x-queue-type":"quorum","x-delivery-limit":-1}` {
			t.Errorf("from 4.0 on the quarantine is made with %s", Definition(s.Settings))
		}
	}
}

// plans are what is proposed for a main queue that exists.
func TestPlanForWhatExists(t *testing.T) {
	full := Dialect{Major: 3, VHost: "shop", Policies: true}
	const ours = "broker_policy redrive-orders.fulfillment missing"
	const differs = "queue orders.fulfillment differs"
	for _, c := range []struct {
		name   string
		do     func(*Queue)
		d      Dialect
		want   []string
		advice string // a part of it
		set    string // definition of the broker policy
	}{
		{"nothing is limited", func(q *Queue) { *q = bare() }, full, []string{ours}, "rabbitmqctl set_policy -p shop --apply-to queues redrive-orders.fulfillment '^orders\\.fulfillment$' '{\"delivery-limit\":5,",
			`{"delivery-limit":5,"dead-letter-exchange":"","dead-letter-routing-key":"orders.fulfillment.dlq","dead-letter-strategy":"at-least-once","overflow":"reject-publish"}`},
		{"and policies cannot be set", func(q *Queue) { *q = bare() }, Dialect{Major: 3, VHost: "a b"}, []string{differs}, "rabbitmqctl set_policy -p 'a b' ", ""},
		{"another policy is in force", func(q *Queue) { *q = bare(); q.Policy = "all" }, full, []string{differs}, `definition of that policy: {"delivery-limit":5`, ""},
		{"our policy is out of date", func(q *Queue) { *q = bare(); q.Policy, q.DeliveryLimit = "redrive-orders.fulfillment", 3 }, full, []string{ours}, "set_policy", ""},
		{"its limit is too small by argument", func(q *Queue) { q.DeliveryLimit, q.ArgumentLimit = 2, 2 }, full, []string{differs}, "have its owner declare", ""},
		{"its limit is too great by argument", func(q *Queue) { q.DeliveryLimit, q.ArgumentLimit = 20, 20 }, full, []string{ours}, "set_policy", ""},
		{"its dead letters go elsewhere by argument", func(q *Queue) {
			q.DeadLetter.RoutingKey, q.Fixed = "absent", map[string]bool{"dead-letter-exchange": true, "dead-letter-routing-key": true}
		}, full, []string{differs}, "have its owner declare", ""},
		{"its dead letters go elsewhere by policy", func(q *Queue) { q.DeadLetter.RoutingKey, q.Policy = "absent", "all" }, full, []string{differs}, "definition of that policy", ""},
		{"it is classic", func(q *Queue) { q.Kind = Classic }, full, []string{differs}, "kind: classic", ""},
		{"its policies are not known", func(q *Queue) { *q = bare(); q.Incomplete = "statistics" }, full, []string{"queue orders.fulfillment unknown"}, "ask again", ""},
		{"its arguments are right, and its policies are not known", func(q *Queue) { q.Incomplete = "statistics" }, full, nil, "", ""},
		{"the embedded broker never changes a queue", func(q *Queue) { *q = bare(); q.Kind = quarantine.QueueLocal }, Dialect{}, []string{differs}, "have its owner declare", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := made(reference())
			c.do(a.must(mainQ))
			got, all := steps(a, c.d)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, s := range all {
				if s.State != quarantine.StepRight && !strings.Contains(s.Advice, c.advice) {
					t.Errorf("the advice for %s is %q, want %q", s.Name, s.Advice, c.advice)
				}
				if s.Object == quarantine.ObjectBrokerPolicy && c.set != "" && Definition(s.Settings) != c.set {
					t.Errorf("the policy would be %s, want %s", Definition(s.Settings), c.set)
				}
			}
		})
	}
}

// bare is a quorum queue as an application declares it.
func bare() Queue {
	q := NewQueue(mainQ)
	q.Kind, q.Consumers, q.Prefetches = Quorum, 3, []int{10, 10, 10}
	return q
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"": "''", "a.b-c": "a.b-c", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "^q$": "'^q$'"} {
		if got := Quote(in); got != want {
			t.Errorf("%q becomes %s, want %s", in, got, want)
		}
	}
	if got := Definition([]quarantine.Setting{{Name: "a<b", Value: `x"y`}, {Name: "n", Value: int64(3)}, {Name: "t", Value: true}}); got != `{"a<b":"x\"y","n":3,"t":true}` {
		t.Errorf("definition %s", got)
	}
}
