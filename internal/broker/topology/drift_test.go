package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// reference is the queue of the reference system.
func reference() policy.Queue {
	return policy.Queue{Name: "orders.fulfillment", Prefetch: 10, Replicas: 3, Retries: 5, DeliveryLimit: 5, Jitter: 0.2,
		Delays:     []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute},
		Quarantine: "orders.fulfillment.dlq", Retention: 14 * 24 * time.Hour, Timeout: 5 * time.Second}.WithDefaults()
}

// made is a broker on which everything is as the policy says.
func made(q policy.Queue) *atlas {
	a := &atlas{exchanges: []Exchange{{Name: "redrive.outcomes", Type: "fanout", Bindings: []Binding{{Queue: "redrive.outcomes"}}}}}
	for _, w := range append(Want(q), WantOutcomes()) {
		f := NewQueue(w.Name)
		f.Kind, f.Consumers = w.Kind, 0
		if w.DeliveryLimit >= 0 {
			f.DeliveryLimit, f.ArgumentLimit = w.DeliveryLimit, w.DeliveryLimit
		}
		if w.DeadLetterTo != "" {
			f.Overflow = RejectPublish
			f.DeadLetter = &DeadLetter{RoutingKey: w.DeadLetterTo, HasKey: true, AtLeastOnce: true, Wanted: true}
		}
		if w.Role == RoleMain {
			f.Consumers, f.Prefetches = q.Replicas, slices.Repeat([]int{q.Prefetch}, q.Replicas)
		}
		a.queues = append(a.queues, f)
	}
	return a
}

func (a *atlas) must(name string) *Queue {
	q, err := a.Queue(name)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return q
}

func (a *atlas) drop(name string) {
	a.queues = slices.DeleteFunc(a.queues, func(q Queue) bool { return q.Name == name })
}

const (
	mainQ  = "orders.fulfillment"
	dlq    = "orders.fulfillment.dlq"
	retry1 = "orders.fulfillment.retry.1s"
	retry2 = "orders.fulfillment.retry.10m"
)

// planted are the ways in which a broker and its workers part from a policy.
var planted = []struct {
	name string
	do   func(*atlas)
	want string // severity code subject, each on a line
}{
	{"the limit of deliveries is greater than that of retries", func(a *atlas) {
		q := a.must(mainQ)
		q.DeliveryLimit, q.ArgumentLimit = 20, 20
	}, "risks delivery_limit_differs orders.fulfillment"},
	{"there is no limit of deliveries", func(a *atlas) {
		q := a.must(mainQ)
		q.DeliveryLimit, q.ArgumentLimit = None, None
	}, "risks delivery_limit_differs orders.fulfillment"},
	{"an operator policy overrides the limit of deliveries", func(a *atlas) {
		q := a.must(mainQ)
		q.DeliveryLimit, q.OperatorPolicy = 2, "cap"
	}, "risks delivery_limit_overridden orders.fulfillment"},
	{"there is no dead-letter exchange", func(a *atlas) { a.must(mainQ).DeadLetter = nil }, "loses no_dlx orders.fulfillment"},
	{"the dead-letter exchange does not exist", func(a *atlas) { a.must(mainQ).DeadLetter.Exchange = "absent" }, "loses dlx_missing orders.fulfillment"},
	{"the dead-letter exchange leads nowhere", func(a *atlas) {
		a.exchanges = append(a.exchanges, Exchange{Name: "dlx", Type: "direct", Bindings: []Binding{{Queue: dlq, Key: "another"}}})
		a.must(mainQ).DeadLetter.Exchange = "dlx"
	}, "loses dlx_unroutable orders.fulfillment"},
	{"dead letters go to another queue", func(a *atlas) {
		a.queues = append(a.queues, NewQueue("archive"))
		a.must(mainQ).DeadLetter.RoutingKey = "archive"
	}, "risks dead_letters_elsewhere orders.fulfillment"},
	{"dead letters come back by their own key", func(a *atlas) { a.must(mainQ).DeadLetter.HasKey = false }, "risks dead_letters_elsewhere orders.fulfillment"},
	{"dead letters are given on at most once", func(a *atlas) { *a.must(mainQ).DeadLetter = DeadLetter{RoutingKey: dlq, HasKey: true} }, "loses at_most_once orders.fulfillment"},
	{"at-least-once falls back, because the overflow is drop-head", func(a *atlas) {
		q := a.must(mainQ)
		q.Overflow, q.DeadLetter.AtLeastOnce = DropHead, false
	}, "loses strategy_falls_back orders.fulfillment"},
	{"a full main queue drops its head", func(a *atlas) {
		q := a.must(mainQ)
		q.MaxLength, q.Overflow, q.DeadLetter.AtLeastOnce, q.DeadLetter.Wanted = 1000, DropHead, false, false
	}, "loses at_most_once orders.fulfillment\nrisks length_drop_head orders.fulfillment"},
	{"the main queue is classic", func(a *atlas) {
		q := a.must(mainQ)
		q.Kind, q.DeliveryLimit, q.ArgumentLimit = Classic, None, None
	}, "loses wrong_kind orders.fulfillment"},
	{"messages expire before they are worked", func(a *atlas) { a.must(mainQ).MessageTTL = time.Hour }, "risks message_ttl orders.fulfillment"},
	{"only one consumer works at a time", func(a *atlas) { a.must(mainQ).SingleActive = true }, "risks single_active_consumer orders.fulfillment"},
	{"there is no consumer", func(a *atlas) { q := a.must(mainQ); q.Consumers, q.Prefetches = 0, nil }, "risks no_consumer orders.fulfillment"},
	{"a replica is missing", func(a *atlas) { q := a.must(mainQ); q.Consumers, q.Prefetches = 2, []int{10, 10} }, "risks replicas_missing orders.fulfillment"},
	{"a consumer has a larger prefetch", func(a *atlas) { a.must(mainQ).Prefetches = []int{10, 250, 10} }, "risks prefetch_above orders.fulfillment"},
	{"a consumer has no prefetch", func(a *atlas) { a.must(mainQ).Prefetches = []int{10, 0, 250} }, "risks prefetch_above orders.fulfillment"},
	{"the broker takes messages back before the handler ends", func(a *atlas) { a.must(mainQ).ConsumerTimeout = 5 * time.Second }, "risks consumer_timeout_short orders.fulfillment"},
	{"the main queue is missing", func(a *atlas) { a.drop(mainQ) },
		"blocks queue_missing orders.fulfillment\nloses dlx_unroutable orders.fulfillment.retry.10m\nloses dlx_unroutable orders.fulfillment.retry.1s\n" +
			"loses dlx_unroutable orders.fulfillment.retry.2m\nloses dlx_unroutable orders.fulfillment.retry.30s\nloses dlx_unroutable orders.fulfillment.retry.5s"},

	{"the quarantine is missing", func(a *atlas) { a.drop(dlq) }, "blocks queue_missing orders.fulfillment.dlq\nloses dlx_unroutable orders.fulfillment"},
	{"the quarantine lets messages expire", func(a *atlas) { a.must(dlq).MessageTTL = 20 * 24 * time.Hour }, "loses message_ttl orders.fulfillment.dlq"},
	{"the quarantine lets them expire before the retention ends", func(a *atlas) { a.must(dlq).MessageTTL = 24 * time.Hour },
		"loses message_ttl orders.fulfillment.dlq\nloses retention_cut orders.fulfillment.dlq"},
	{"the quarantine is bounded", func(a *atlas) { a.must(dlq).MaxLength = 100 }, "loses length_drop_head orders.fulfillment.dlq"},
	{"the quarantine deletes itself", func(a *atlas) { a.must(dlq).Expires = time.Hour }, "loses queue_expires orders.fulfillment.dlq"},
	{"the quarantine has a limit of deliveries", func(a *atlas) { a.must(dlq).DeliveryLimit = 20 }, "loses delivery_limit orders.fulfillment.dlq"},
	{"the quarantine is classic", func(a *atlas) { a.must(dlq).Kind = Classic }, "loses wrong_kind orders.fulfillment.dlq"},

	{"a retry queue is missing", func(a *atlas) { a.drop(retry1) }, "blocks queue_missing orders.fulfillment.retry.1s"},
	{"a retry queue gives nothing back", func(a *atlas) { a.must(retry1).DeadLetter = nil }, "loses retry_no_way_back orders.fulfillment.retry.1s"},
	{"a retry queue is unbound", func(a *atlas) {
		a.exchanges = append(a.exchanges, Exchange{Name: "back", Type: "direct"})
		a.must(retry1).DeadLetter.Exchange = "back"
	}, "loses dlx_unroutable orders.fulfillment.retry.1s"},
	{"a retry queue gives back elsewhere", func(a *atlas) { a.must(retry1).DeadLetter.RoutingKey = dlq }, "loses retry_elsewhere orders.fulfillment.retry.1s"},
	{"a retry queue gives back by each message's own key", func(a *atlas) { a.must(retry1).DeadLetter.HasKey = false }, "loses retry_elsewhere orders.fulfillment.retry.1s"},
	{"a retry queue gives back at most once", func(a *atlas) { *a.must(retry1).DeadLetter = DeadLetter{RoutingKey: mainQ, HasKey: true} }, "loses at_most_once orders.fulfillment.retry.1s"},
	{"a retry queue is classic", func(a *atlas) {
		q := a.must(retry1)
		q.Kind, q.DeadLetter.AtLeastOnce = Classic, false
	}, "loses wrong_kind orders.fulfillment.retry.1s"},
	{"a retry queue has a consumer", func(a *atlas) { a.must(retry1).Consumers = 1 }, "risks retry_consumed orders.fulfillment.retry.1s"},
	{"a retry queue has a shorter time-to-live", func(a *atlas) { a.must(retry2).MessageTTL = 11 * time.Minute }, "risks retry_ttl_short orders.fulfillment.retry.10m"},
	{"a retry queue is bounded", func(a *atlas) { a.must(retry1).MaxLength = 10 }, "risks retry_limited orders.fulfillment.retry.1s"},
	{"a retry queue deletes itself", func(a *atlas) { a.must(retry1).Expires = time.Hour }, "loses queue_expires orders.fulfillment.retry.1s"},

	{"the exchange of outcomes is missing", func(a *atlas) { a.exchanges = nil }, "risks outcomes_missing redrive.outcomes"},
	{"the queue of outcomes is missing", func(a *atlas) { a.drop("redrive.outcomes") }, "risks outcomes_missing redrive.outcomes"},
	{"the queue of outcomes is not bound", func(a *atlas) { a.exchanges[0].Bindings = nil }, "loses outcomes_unbound redrive.outcomes"},
	{"reports expire", func(a *atlas) { a.must("redrive.outcomes").MessageTTL = time.Hour }, "loses message_ttl redrive.outcomes"},

	{"policies in force are not known", func(a *atlas) {
		q := a.must(mainQ)
		q.Incomplete, q.DeliveryLimit, q.ArgumentLimit, q.DeadLetter, q.Overflow = "statistics", None, None, nil, DropHead
	}, "unknown delivery_limit_differs orders.fulfillment\nunknown no_dlx orders.fulfillment\nunknown not_inspected orders.fulfillment"},
	{"consumers are not known", func(a *atlas) { q := a.must(mainQ); q.Consumers, q.Prefetches = None, nil }, "unknown no_consumer orders.fulfillment"},
	{"prefetch is not known", func(a *atlas) { a.must(mainQ).Prefetches = nil }, "unknown prefetch_above orders.fulfillment"},
}

func TestPlantedDrifts(t *testing.T) {
	codes := map[string]bool{}
	for _, c := range planted {
		t.Run(c.name, func(t *testing.T) {
			a := made(reference())
			c.do(a)
			_, found, _ := Compare(a, []policy.Queue{reference()}, Dialect{Major: 3, VHost: "/", Policies: true})
			if diff := cmp.Diff(c.want, brief(found)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, f := range found {
				codes[f.Code] = true
				if f.Text == "" || f.Advice == "" && f.Severity != quarantine.Unknown {
					t.Errorf("%s says not what it means or what to do: %+v", f.Code, f)
				}
			}
		})
	}
	if len(codes) < 25 {
		t.Errorf("only %d codes were seen: %v", len(codes), codes)
	}
}

// brief are findings as "severity code subject", a line each.
func brief(fs []quarantine.Finding) string {
	lines := []string{}
	for _, f := range fs {
		lines = append(lines, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Subject))
	}
	return strings.Join(lines, "\n")
}

func TestNothingDrifts(t *testing.T) {
	shared := reference()
	shared.Mode = policy.Shared
	for _, q := range []policy.Queue{reference(), shared} {
		steps, found, _ := Compare(made(q), []policy.Queue{q}, Dialect{Major: 3, VHost: "/", Policies: true})
		if len(found) > 0 {
			t.Errorf("found %s", brief(found))
		}
		for _, s := range steps {
			if s.State != quarantine.StepRight {
				t.Errorf("%s %s is %s: %s", s.Object, s.Name, s.State, s.Text)
			}
		}
	}
}

func TestNotes(t *testing.T) {
	with := func(f func(*policy.Queue)) policy.Queue {
		q := reference()
		f(&q)
		return q
	}
	for _, c := range []struct {
		q    policy.Queue
		want []string
	}{
		{reference(), []string{"deliveries_bound"}},
		{with(func(q *policy.Queue) { q.Retries, q.DeliveryLimit = 11, 11 }), []string{"deliveries_bound", "unusual_cap"}},
		{with(func(q *policy.Queue) { q.Retries, q.DeliveryLimit = 2, 2 }), []string{"deliveries_bound", "unusual_cap"}},
		{with(func(q *policy.Queue) { q.DeliveryLimit = 20 }), []string{"deliveries_bound", "limits_unequal"}},
		{with(func(q *policy.Queue) { q.Mode = policy.Shared }), []string{"deliveries_bound", "shared_retry_waits"}},
		{with(func(q *policy.Queue) { q.Mode, q.Delays = policy.Shared, []time.Duration{time.Second} }), []string{"deliveries_bound"}},
		{with(func(q *policy.Queue) { q.Kind = Classic }), []string{"classic_unlimited"}},
	} {
		var got []string
		for _, f := range Notes(c.q) {
			got = append(got, f.Code)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if text := Notes(reference())[0].Text; !strings.Contains(text, "at most 36 times") {
		t.Errorf("the bound is told as %q", text)
	}
}
