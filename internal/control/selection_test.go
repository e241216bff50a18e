package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/predicate"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

func (w *world) predicates() quarantine.Predicates {
	w.Helper()
	e, err := predicate.New()
	must(w, err)
	return e
}

// order is a dead message with a schema version, which died some time ago.
func order(id, schema string, ago time.Duration, body string) quarantine.Delivery {
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.MessageID | amqpwire.Headers, MessageID: id,
		Headers: []amqpwire.Field{amqpwire.StringField("x-death-reason", "unknown_sku"), amqpwire.StringField("x-schema-version", schema),
			amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Count: 1, Time: uint64(time.Now().Add(-ago).Unix())})}})
	if err != nil {
		panic(err)
	}
	return quarantine.Delivery{Properties: props, Body: []byte(body), DeliveryCount: -1}
}

// picks lists the numbers that a query selects, and holds a dry run of a plan
// with the same conditions against it.
func (w *world) picks(n api.Narrowing) []uint64 {
	w.Helper()
	var out []uint64
	for _, e := range do(w, api.EnvelopeList, api.EnvelopeQuery{Narrowing: n, Custody: []string{"quarantined"}}).Envelopes {
		out = append(out, e.Number)
	}
	groups := do(w, api.EnvelopeGroups, api.EnvelopeQuery{Narrowing: n, Custody: []string{"quarantined"}})
	if int(groups.Total) != len(out) {
		w.Errorf("%+v: %d are listed and %d are counted", n, len(out), groups.Total)
	}
	p, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{Narrowing: n, DryRun: true, ToExchange: "events", ToRoutingKey: "order"}, nil)
	if len(out) > 0 {
		must(w, err)
	}
	if int(p.Selected) != len(out) {
		w.Errorf("%+v: a list shows %d, a plan selects %d", n, len(out), p.Selected)
	}
	return out
}

func TestConditionsOfSelections(t *testing.T) {
	w := newWorld(t)
	ids := w.capture("orders.dlq", order("a", "1", 3*time.Hour, `{"total":5}`), order("b", "2", time.Minute, `{"total":150}`),
		order("c", "2", 3*time.Hour, `no json`))
	do(w, api.EnvelopeAnnotate, api.EnvelopeChange{IDs: ids[1:], Note: "waits for the Catalogue team"})
	do(w, api.EnvelopeAnnotate, api.EnvelopeChange{IDs: ids[:1], Note: "other"})
	for _, c := range []struct {
		n    api.Narrowing
		want []uint64
	}{
		{api.Narrowing{Schema: "2"}, []uint64{2, 3}},
		{api.Narrowing{Schema: "3"}, nil},
		{api.Narrowing{OlderThan: "2h"}, []uint64{1, 3}},
		{api.Narrowing{NewerThan: "2h"}, []uint64{2}},
		{api.Narrowing{NewerThan: "4h", OlderThan: "1h", Schema: "1"}, []uint64{1}},
		{api.Narrowing{MinAttempts: 1, MaxAttempts: 1}, []uint64{1, 2, 3}},
		{api.Narrowing{MinAttempts: 2}, nil},
		{api.Narrowing{Note: "catalogue"}, []uint64{2, 3}},
		{api.Narrowing{Where: `body != null && body.total > 100`}, []uint64{2}},
		{api.Narrowing{Where: `body == null`}, []uint64{3}},
		{api.Narrowing{Where: `now - env.first_died > duration("2h")`}, []uint64{1, 3}},
		{api.Narrowing{Where: `env.message_id in ["a", "b"] && headers["x-schema-version"] == "1"`}, []uint64{1}},
	} {
		if got := w.picks(c.n); !slices.Equal(got, c.want) {
			t.Errorf("%+v selects %v, want %v", c.n, got, c.want)
		}
	}
}

// One envelope for which a predicate cannot be told selects nothing, and is
// named.
func TestWhereSelectsNothingWhenInDoubt(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", order("a", "1", time.Hour, `{"total":5}`), order("b", "1", time.Hour, `{"sum":"tops3cret"}`))
	second := do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: "#2"}).ID
	for _, where := range []string{`body.total > 1`, `body.sum > 1 || true && body.sum > 1`} {
		before := do(w, api.Status, api.None{}).Records
		_, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{Narrowing: api.Narrowing{Where: where}}, nil)
		if !refusedWith(err, api.CodeUsage) || !strings.Contains(err.Error(), "selects nothing") || strings.Contains(err.Error(), "tops3cret") {
			t.Errorf("%s: %v", where, err)
		}
		if where == `body.total > 1` && !strings.Contains(err.Error(), second) {
			t.Errorf("it does not name %s: %v", second, err)
		}
		if got := do(w, api.Status, api.None{}).Records; got != before {
			t.Errorf("%d records were written", got-before)
		}
		_, err = api.Call(as("ann"), w.c, api.EnvelopeList, api.EnvelopeQuery{Narrowing: api.Narrowing{Where: where}}, nil)
		if !refusedWith(err, api.CodeUsage) {
			t.Errorf("a list: %v", err)
		}
	}
}

// The words of a person in a selection are looked at before anything is done.
func TestConditionsThatMakeNoSense(t *testing.T) {
	w := newWorld(t)
	w.orders(1)
	for _, n := range []api.Narrowing{{OlderThan: "yesterday"}, {OlderThan: "500000h", NewerThan: "1h"}, {MinAttempts: 3, MaxAttempts: 2}, {Outcomes: []string{"missing"}},
		{Where: "body."}, {Where: "env.size"}, {Note: strings.Repeat("n", 2000)}} {
		if n.Outcomes == nil || n.Generation != "" {
			if _, err := api.Call(as("ann"), w.c, api.EnvelopeList, api.EnvelopeQuery{Narrowing: n}, nil); !refusedWith(err, api.CodeUsage) {
				t.Errorf("%+v: %v", n, err)
			}
		}
		if _, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{Narrowing: n, DryRun: true}, nil); !refusedWith(err, api.CodeUsage) {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

// A generation is a condition: what it moved, and what came back of it. What
// the plan meant by its words stands in the manifest, and the report asks the
// same.
func TestSelectionByGeneration(t *testing.T) {
	w := newWorld(t)
	ids := w.orders(3)
	id := w.planned(fast(ids...))
	w.end(w.start(id))
	out := w.wire.messages()
	w.capture("orders.dlq", quarantine.Delivery{Properties: out[0].Properties, Body: out[0].Body, DeliveryCount: -1})
	w.capture("orders.dlq", dead("stranger", []byte("x")))
	if got := w.picks(api.Narrowing{Generation: id}); !slices.Equal(got, []uint64{4}) {
		t.Errorf("of the generation %v are quarantined, want the one that came back", got)
	}
	if got := w.picks(api.Narrowing{Generation: id, Outcomes: []string{"requarantined"}, MinAttempts: 2}); !slices.Equal(got, []uint64{4}) {
		t.Errorf("came back: %v", got)
	}
	if got := w.picks(api.Narrowing{Generation: id, Outcomes: []string{"missing", "succeeded"}}); got != nil {
		t.Errorf("missing or succeeded: %v", got)
	}
	all := do(w, api.EnvelopeList, api.EnvelopeQuery{Narrowing: api.Narrowing{Generation: id}}).Envelopes
	if len(all) != 4 {
		t.Errorf("%d envelopes have to do with generation %s, want 4", len(all), id)
	}
	p := do(w, api.GenerationPlan, api.PlanRequest{Narrowing: api.Narrowing{Generation: id, Outcomes: []string{"requarantined"}, Where: `env.attempt == 2`, NewerThan: "1h"},
		ToExchange: "events", ToRoutingKey: "order"})
	must(w, w.store.View(func(r ledger.Reader) error {
		g, err := redrive.Get(r, event.GenerationNo(p.Generation.Number))
		must(w, err)
		m, err := redrive.GetManifest(r, g.Manifest)
		s := m.Selection
		if s.Generation != w.show(id).ID || s.Where != `env.attempt == 2` || s.WhereIn != predicate.Language || s.DiedFrom == 0 || m.Version != redrive.ManifestVersion {
			t.Errorf("%+v", s)
		}
		return err
	}))
	if !strings.Contains(p.Generation.Selection, "where=env.attempt == 2") {
		t.Errorf("it shows %q", p.Generation.Selection)
	}
}

// What was captured later is found by the words of the plan, an expression
// among them.
func TestReportCountsNewerByTheSameWords(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", order("a", "1", time.Hour, `{"total":500}`))
	p := do(w, api.GenerationPlan, api.PlanRequest{Narrowing: api.Narrowing{Where: `has(body.total) && body.total > 100`, Schema: "1"}})
	w.capture("orders.dlq", order("b", "1", time.Hour, `{"total":600}`), order("c", "1", time.Hour, `{"total":6}`), order("d", "2", time.Hour, `{"total":600}`))
	r := do(w, api.GenerationReport, api.GenerationRef{ID: fmt.Sprint(p.Generation.Number)})
	if r.Newer != 1 || r.Unsure != "" {
		t.Errorf("%d newer, %q", r.Newer, r.Unsure)
	}
	w.capture("orders.dlq", order("e", "1", time.Hour, `{"total":"much"}`))
	r = do(w, api.GenerationReport, api.GenerationRef{ID: fmt.Sprint(p.Generation.Number)})
	if r.Unsure == "" || !strings.Contains(r.Text, "not known") {
		t.Errorf("%d newer, %q", r.Newer, r.Unsure)
	}
}

// A plan with a predicate looks at envelopes in short transactions: others get
// in between, and what they change counts when its turn comes.
func TestWhereLooksInPages(t *testing.T) {
	w := newWorld(t)
	var ds []quarantine.Delivery
	for i := range 600 {
		ds = append(ds, order(fmt.Sprint("o-", i), "1", time.Hour, fmt.Sprintf(`{"n":%d}`, i)))
	}
	w.capture("orders.dlq", ds...)
	between := 0
	w.kv.afterView("matching", func() {
		between++
		do(w, api.EnvelopeAnnotate, api.EnvelopeChange{IDs: []string{"#600"}, Note: "in between"})
	})
	p := do(w, api.GenerationPlan, api.PlanRequest{Narrowing: api.Narrowing{Where: `body.n >= 300`}, DryRun: true})
	if between != 1 || p.Members != 300 {
		t.Errorf("%d members, and others got in between %d times", p.Members, between)
	}
}
