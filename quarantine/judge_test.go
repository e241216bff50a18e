package quarantine_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// reference is the policy of the reference system, with more at its end.
func (b *book) reference(more string) *policy.Policy {
	b.Helper()
	text, err := os.ReadFile("../testdata/policies/fulfillment.yaml")
	b.ok(err)
	p, err := policy.Parse("fulfillment.yaml", append(text, more...))
	b.ok(err)
	return p
}

// judgeBy captures from now on as the source's policy says.
func (b *book) judgeBy(p *policy.Policy, source string, predicates quarantine.Predicates) {
	b.Helper()
	judge, err := quarantine.NewJudge(p, predicates, b.now)
	b.ok(err)
	b.pr.Judge, b.pr.Rules, b.from = judge, quarantine.DefaultRules(), source
	if q, ok := p.Quarantines(source); ok {
		b.ok(b.pr.Rules.TakeFrom(&q))
	}
}

// TestClassificationAtCapture is the table of how a message's end becomes its
// reason, class and owner.
func TestClassificationAtCapture(t *testing.T) {
	b := newBook(t)
	b.judgeBy(b.reference(""), "orders.fulfillment.dlq", nil)
	died := func(reason string, pairs ...string) amqpwire.View {
		return amqpwire.View{Headers: append(texts(pairs...), amqpwire.DeathField(death("orders.fulfillment", reason, 1_700_000_100)))}
	}
	for _, c := range []struct {
		name         string
		view         amqpwire.View
		reason, last string
		class        event.Class
		owner        string
	}{
		// By the worker's own headers.
		{"schema_invalid", headers("x-death-reason", "schema_invalid"), "schema_invalid", "", event.Permanent, "Orders API team"},
		{"unknown_sku", headers("x-death-reason", "unknown_sku", "x-error-code", "404"), "unknown_sku", "", event.Permanent, "Catalog team"},
		{"exhausted", headers("x-death-reason", "retries_exhausted", "x-last-reason", "downstream_timeout"), "retries_exhausted", "downstream_timeout", event.Transient, "Fulfillment team"},
		{"exhausted for an unmapped error", headers("x-death-reason", "retries_exhausted", "x-last-reason", "unknown"), "retries_exhausted", "unknown", event.Transient, "Fulfillment on-call"},
		{"exhausted, and only a code", headers("x-death-reason", "retries_exhausted", "x-error-code", "40P01"), "retries_exhausted", "", event.Transient, "Fulfillment team"},
		{"the worker's word stands above rules and broker", died("delivery_limit", "x-death-reason", "unknown_sku", "x-exception", "WarehouseTimeout"), "unknown_sku", "", event.Permanent, "Catalog team"},
		{"a reason that nobody knows", headers("x-death-reason", "moon_phase"), "moon_phase", "", event.Unclassified, "Fulfillment on-call"},

		// By what the broker did.
		{"delivery limit", died("delivery_limit"), "worker_crash", "", event.ConsumerDefect, "Fulfillment on-call"},
		{"expired", died("expired"), "expired", "", event.Unclassified, "Fulfillment on-call"},
		{"rejected", died("rejected"), "rejected", "", event.Unclassified, "Fulfillment on-call"},
		{"overflow", died("maxlen"), "overflow", "", event.Unclassified, "Fulfillment on-call"},
		{"nothing known", amqpwire.View{}, "", "", event.Unclassified, "Fulfillment on-call"},

		// By rules, when other workers rejected it.
		{"header", died("rejected", "x-exception", "WarehouseTimeout"), "downstream_timeout", "", event.Transient, "Fulfillment team"},
		{"header of another value", died("rejected", "x-exception", "WarehouseTimeouts"), "rejected", "", event.Unclassified, "Fulfillment on-call"},
		{"error text", died("rejected", "x-last-error", "pq: DEADLOCK detected"), "db_conflict", "", event.Transient, "Fulfillment team"},
		{"the first rule wins", died("rejected", "x-exception", "WarehouseTimeout", "x-last-error", "deadlock"), "downstream_timeout", "", event.Transient, "Fulfillment team"},
		{"a rule, and the broker's limit stays visible", died("delivery_limit", "x-last-error", "deadlock"), "db_conflict", "worker_crash", event.Transient, "Fulfillment team"},
		{"without any death the home is the queue of the policy", headers("x-exception", "WarehouseTimeout"), "downstream_timeout", "", event.Transient, "Fulfillment team"},
		{"died elsewhere", amqpwire.View{Headers: append(texts("x-exception", "WarehouseTimeout"), amqpwire.DeathField(death("orders.other", "rejected", 1)))},
			"rejected", "", event.Unclassified, "Fulfillment on-call"},

		// By a code.
		{"code", died("rejected", "x-error-code", "404"), "unknown_sku", "", event.Permanent, "Catalog team"},
		{"code of an expired one", died("expired", "x-error-code", "40001"), "db_conflict", "expired", event.Transient, "Fulfillment team"},
		{"code that nobody knows", died("rejected", "x-error-code", "500"), "rejected", "", event.Unclassified, "Fulfillment on-call"},
		{"last reason only", headers("x-last-reason", "unknown_sku"), "", "unknown_sku", event.Permanent, "Catalog team"},
	} {
		nos, _ := b.capture(b.delivery(c.name, c.view))
		f := b.facts(nos[0])
		if f.Reason != c.reason || f.LastReason != c.last || f.Class != c.class || f.Owner != c.owner || f.Policy != "2026-12-01" {
			t.Errorf("%s: %q after %q, %s, of %s, policy %s; want %q after %q, %s, of %s", c.name, f.Reason, f.LastReason, f.Class, f.Owner, f.Policy, c.reason, c.last, c.class, c.owner)
		}
	}
}

func TestNamesOfThePolicy(t *testing.T) {
	b := newBook(t)
	text, err := os.ReadFile("../testdata/policies/whatsapp-send.yaml")
	b.ok(err)
	p, err := policy.Parse("whatsapp-send.yaml", text)
	b.ok(err)
	p.Queues[0].Headers.Reason, p.Queues[0].Headers.Attempts = "x-why", "x-tries"
	p.Queues[0].Ordering.Key = "body:/to"
	b.judgeBy(p, "whatsapp.send.dlq", nil)
	nos, _ := b.capture(
		b.delivery(`{"to":"4917"}`, headers("x-why", "meta_error_132000", "x-tries", "0", "x-fbtrace-id", "AbC", "x-idempotency-key", "op-1", "x-operation-id", "other")),
		b.delivery(`{}`, headers("x-error-code", "131047", "x-death-reason", "not_read", "x-operation-id", "op-2", "x-trace-id", "T")),
		b.delivery(`{}`, headers("x-error-code", "131048")))
	f := b.facts(nos[0])
	if f.Reason != "meta_error_132000" || f.Class != event.Permanent || f.Owner != "Messaging team" || f.Attempts != 1 || f.TraceID != "AbC" ||
		f.Operation != "op-1" || f.OrderingKey != "4917" || f.DiedQueue != "whatsapp.send" {
		t.Errorf("%+v", f)
	}
	// The code alone says it; a header that the policy renamed is not read; what
	// others name too is found by the other names.
	if f = b.facts(nos[1]); f.Reason != "meta_error_131047" || f.Class != event.Permanent || f.Operation != "op-2" || f.TraceID != "T" {
		t.Errorf("%+v", f)
	}
	if f = b.facts(nos[2]); f.Reason != "" || f.Class != event.Unclassified || f.Owner != "Messaging on-call" {
		t.Errorf("%+v", f)
	}
}

// A worker's copy does not say where it was worked: on its way through a retry
// it died in the retry queue, and a first failure has no death at all.
func TestWhereAWorkersCopyDied(t *testing.T) {
	b := newBook(t)
	p := b.reference("")
	b.judgeBy(p, "orders.fulfillment.dlq", nil)
	retried := amqpwire.View{Headers: append(texts("x-death-reason", "retries_exhausted"), amqpwire.DeathField(death("orders.fulfillment.retry.10m", "expired", 1_700_000_100)))}
	elsewhere := amqpwire.View{Headers: []amqpwire.Field{amqpwire.DeathField(death("invoices", "rejected", 1_700_000_100))}}
	nos, _ := b.capture(b.delivery("a", retried), b.delivery("b", headers("x-death-reason", "unknown_sku")), b.delivery("c", elsewhere))
	for i, want := range []string{"orders.fulfillment", "orders.fulfillment", "invoices"} {
		if f := b.facts(nos[i]); f.DiedQueue != want {
			t.Errorf("message %d died in %q, want %q", i, f.DiedQueue, want)
		}
	}
	// Two queues with one quarantine: nobody knows.
	other := p.Queues[0]
	other.Name, other.RetryQueue = "orders.express", "orders.express.retry"
	p.Queues = append(p.Queues, other)
	b.ok(p.Validate())
	b.judgeBy(p, "orders.fulfillment.dlq", nil)
	if nos, _ = b.capture(b.delivery("d", headers("x-death-reason", "unknown_sku"))); b.facts(nos[0]).DiedQueue != "" {
		t.Errorf("it is said to have died in %q", b.facts(nos[0]).DiedQueue)
	}
	b.judgeBy(p, "another.queue", nil)
	if nos, _ = b.capture(b.delivery("e", headers("x-death-reason", "unknown_sku"))); b.facts(nos[0]).DiedQueue != "" {
		t.Error("a queue of which the policy says nothing has a home")
	}
}

// compiles makes predicates that decide by the queue in which a message died.
type compiles struct{ err error }

func (compiles) Language() string { return "test" }
func (c compiles) Compile(text string, _ time.Time) (quarantine.Predicate, error) {
	return died(text), c.err
}

type died string

func (died) Content() bool { return true }
func (d died) Match(s quarantine.Subject) (bool, error) {
	if d == "broken" {
		return true, errors.New("it cannot be evaluated")
	}
	return s.Facts.DiedQueue == string(d) && s.Original != nil && s.Reason == "expired", nil
}

func TestRulesWithExpressions(t *testing.T) {
	b := newBook(t)
	p := b.reference("")
	p.Rules = []policy.Rule{{When: "broken", Reason: "unknown"}, {When: "orders", Reason: "db_conflict"}}
	b.judgeBy(p, "orders.fulfillment.dlq", compiles{})
	nos, _ := b.capture(
		b.delivery("a", amqpwire.View{Headers: []amqpwire.Field{amqpwire.DeathField(death("orders", "expired", 1))}}),
		b.delivery("b", amqpwire.View{Headers: []amqpwire.Field{amqpwire.DeathField(death("others", "expired", 1))}}))
	if f := b.facts(nos[0]); f.Reason != "db_conflict" || f.LastReason != "expired" {
		t.Errorf("%q after %q", f.Reason, f.LastReason)
	}
	if f := b.facts(nos[1]); f.Reason != "expired" {
		t.Errorf("an expression that cannot be evaluated decides: %q", f.Reason)
	}
	for _, predicates := range []quarantine.Predicates{nil, compiles{errors.New("wrong")}} {
		var f *policy.Fault
		if _, err := quarantine.NewJudge(p, predicates, b.now); !errors.As(err, &f) || f.Path[2] != "when" {
			t.Errorf("%v", err)
		}
	}
}
