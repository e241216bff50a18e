package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// history is a message with a death history, latest death first.
func history(t *testing.T, id string, deaths ...amqpwire.Death) quarantine.Delivery {
	t.Helper()
	headers := []amqpwire.Field{amqpwire.StringField("note", "keep")}
	if len(deaths) > 0 {
		headers = append(headers, amqpwire.DeathField(deaths...),
			amqpwire.StringField(amqpwire.HeaderFirstDeathQueue, "orders"), amqpwire.StringField(amqpwire.HeaderFirstDeathReason, "rejected"))
	}
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.MessageID | amqpwire.Headers | amqpwire.Expiration, MessageID: id, Expiration: "5000", Headers: headers})
	must(t, err)
	return quarantine.Delivery{Exchange: "dlx", RoutingKey: "dead", Properties: props, Body: []byte(id), DeliveryCount: -1}
}

func death(exchange, key string) amqpwire.Death {
	return amqpwire.Death{Queue: "orders", Reason: "rejected", Exchange: exchange, RoutingKeys: []string{key, "copied"}, Count: 2, Time: 1700000000}
}

// Each message goes back to the exchange and key that it had first, its stamp
// holds there, and what comes back keeps that origin.
func TestOriginalDestination(t *testing.T) {
	w := newWorld(t)
	w.cfg.Destinations = []config.Destination{{Exchange: "shop"}, {Exchange: "mail"}}
	retry := amqpwire.Death{Queue: "orders.retry", Reason: "expired", RoutingKeys: []string{"orders.retry"}, Count: 1, Time: 1700000001}
	w.capture("orders.dlq", history(t, "a", death("shop", "order.created"), retry), history(t, "b", retry, death("mail", "")),
		history(t, "c", death("", "orders")), history(t, "naked"))

	p := do(w, api.GenerationPlan, api.PlanRequest{All: true, ToOriginal: true, Rate: 1_000_000, Burst: 64, Bake: "1ms"})
	if p.Members != 3 || len(p.Excluded) != 1 || p.Excluded[0] != (api.Excluded{Reason: redrive.ReasonNoOrigin, Count: 1}) {
		t.Fatalf("%d members, %v stay", p.Members, p.Excluded)
	}
	warned := strings.Join(p.Warnings, "\n")
	for _, x := range []string{"exchange shop", "exchange mail"} {
		if !strings.Contains(warned, x) {
			t.Errorf("no warning names %s:\n%s", x, warned)
		}
	}
	_, err := api.Call(as("bob"), w.c, api.GenerationApprove, api.ApproveRequest{ID: "1", Digest: p.Generation.Manifest, Why: "looked at"}, nil)
	must(t, err)
	call := w.start("1")
	w.until("three messages to go out", func() bool { return w.wire.count() == 3 })
	call.cancel()
	<-call.done
	dests := map[string]redrive.Destination{}
	sent := w.wire.messages()
	for _, m := range sent {
		dests[string(m.Body)] = m.Dest
	}
	want := map[string]redrive.Destination{"a": {Exchange: "shop", RoutingKey: "order.created"}, "b": {Exchange: "mail"}, "c": {RoutingKey: "orders"}}
	for id, d := range want {
		if dests[id] != d {
			t.Errorf("%s went to %+v, want %+v", id, dests[id], d)
		}
	}

	// It dies again, and tells only of the queue to which it was sent.
	for _, m := range sent {
		if string(m.Body) != "a" {
			continue
		}
		e := amqpwire.Edit(m.Properties)
		e.Set(amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Exchange: "", RoutingKeys: []string{"orders"}, Count: 1, Time: uint64(time.Now().Unix())}))
		props, err := e.Bytes()
		must(t, err)
		ids := w.capture("orders.dlq", quarantine.Delivery{Exchange: "dlx", RoutingKey: "dead", Properties: props, Body: m.Body, DeliveryCount: -1})
		child := do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: ids[0]})
		if child.Lineage.Attempt != 2 {
			t.Errorf("what came back is attempt %d with flags %v", child.Lineage.Attempt, child.Flags)
		}
		p := do(w, api.GenerationPlan, api.PlanRequest{IDs: ids, ToOriginal: true})
		var m *redrive.Manifest
		must(t, w.store.View(func(r ledger.Reader) error {
			g, err := redrive.Get(r, event.GenerationNo(p.Generation.Number))
			must(t, err)
			m, err = redrive.GetManifest(r, g.Manifest)
			return err
		}))
		if len(m.Original) != 1 || m.Original[0] != "shop" {
			t.Errorf("the second release goes to %v, want the exchange of the first publish", m.Original)
		}
	}
}

// The first queue of several is a choice; the default is the last in which a
// consumer gave it up.
func TestFirstOrLastHop(t *testing.T) {
	manual := amqpwire.Death{Queue: "orders.manual", Reason: "rejected", RoutingKeys: []string{"orders.manual"}, Count: 1, Time: 1700000002}
	for name, c := range map[string]struct {
		req  api.PlanRequest
		want string
	}{
		"last":  {api.PlanRequest{All: true, DryRun: true}, "queue orders.manual"},
		"first": {api.PlanRequest{All: true, DryRun: true, ToFirst: true}, "queue orders"},
	} {
		w := newWorld(t)
		w.capture("orders.dlq", history(t, "a", manual, death("shop", "k")))
		if p := do(w, api.GenerationPlan, c.req); p.Destination != c.want {
			t.Errorf("%s: to %s, want %s", name, p.Destination, c.want)
		}
	}
}

// What a message says about its origin is no permission to send it there.
func TestOriginalDestinationIsAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		d    amqpwire.Death
		says string
	}{
		"exchange": {death("shop", "order.created"), "exchange shop, which is not listed"},
		"queue":    {death("", "payments"), "queue payments, which is not listed"},
	} {
		w := newWorld(t)
		w.capture("orders.dlq", history(t, "a", c.d))
		_, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{All: true, ToOriginal: true}, nil)
		if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A plan shows what it would change before anybody approves it.
func TestPlanShowsChanges(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", history(t, "a", death("shop", "k")), history(t, "b", death("shop", "k")))
	req := api.PlanRequest{All: true, ToQueue: "orders", DropHeaders: []string{"note"}, SetHeaders: []string{"x-fix=a=b"}, Persistent: true, DryRun: true}
	p := do(w, api.GenerationPlan, req)
	got := map[string]uint64{}
	for _, c := range p.Changes.List {
		got[c.What+" "+c.Name+" "+c.How] = c.Count
	}
	for _, want := range []string{"property expiration removed", "property delivery_mode added", "header x-death removed", "header note removed", "header x-fix added"} {
		if got[want] != 2 {
			t.Errorf("%d %s, want 2 in %v", got[want], want, got)
		}
	}
	if p.Changes.Examined != 2 {
		t.Errorf("%d were examined", p.Changes.Examined)
	}
	for name, bad := range map[string]api.PlanRequest{
		"long":     {SetHeaders: []string{strings.Repeat("k", 256) + "=v"}},
		"no value": {SetHeaders: []string{"k"}},
		"keep":     {KeepHeaders: []string{"note"}},
		"stamp":    {KeepHeaders: []string{"x-redrive-mac"}},
		"drop":     {DropHeaders: []string{""}},
		"two":      {ToExchange: "events", ToRoutingKey: "k"},
	} {
		bad.All, bad.ToQueue = true, "orders"
		if _, err := api.Call(as("ann"), w.c, api.GenerationPlan, bad, nil); !refusedWith(err, api.CodeUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One message that tells a history of its own is not carried to a queue of its
// choice by the cohort that it hides in.
func TestForgedOriginIsNotCarriedAlong(t *testing.T) {
	forged := amqpwire.Death{Queue: "payments", Reason: "rejected", RoutingKeys: []string{"payments"}, Count: 1, Time: 1700000000}
	nowhere := amqpwire.Death{Reason: "rejected", RoutingKeys: []string{""}, Count: 1}
	for name, d := range map[string]amqpwire.Death{"forged": forged, "nowhere": nowhere} {
		w := newWorld(t)
		w.cfg.Destinations = []config.Destination{{Exchange: "shop"}}
		ids := w.capture("orders.dlq", history(t, "a", death("shop", "k")), history(t, "b", death("", "orders")), history(t, "x", d))
		_, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{All: true, ToOriginal: true}, nil)
		if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), "is not listed") {
			t.Errorf("%s: %v", name, err)
		}
		if p := do(w, api.GenerationPlan, api.PlanRequest{IDs: ids[:2], ToOriginal: true, DryRun: true}); p.Members != 2 {
			t.Errorf("%s: without it %d members, want 2", name, p.Members)
		}
	}
}

// A name that a message has, but that no queue can have or that was not kept
// byte for byte, is never guessed to be a destination.
func TestDestinationIsNotGuessed(t *testing.T) {
	for name, queue := range map[string]string{
		"long": strings.Repeat("q", 300), "not UTF-8": "orders\xff", "beyond the table of names": "(other)",
	} {
		for _, first := range []bool{false, true} {
			if name == "long" && !first {
				continue // the table of names cuts it to one that is possible, which the plan then shows
			}
			w := newWorld(t)
			w.capture("orders.dlq", history(t, "a", amqpwire.Death{Queue: queue, Reason: "rejected", RoutingKeys: []string{"k"}, Count: 1}))
			_, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{All: true, ToFirst: first}, nil)
			if !refusedWith(err, api.CodeUsage) || !strings.Contains(err.Error(), "--to-queue") {
				t.Errorf("%s, first %v: %v", name, first, err)
			}
		}
	}
}

// Where nothing may be written, the plan says so and the start refuses, before
// the approval is used up.
func TestDeniedDestination(t *testing.T) {
	w := newWorld(t)
	w.cfg.Destinations = []config.Destination{{Exchange: "shop"}}
	w.wire.denied = "403 ACCESS_REFUSED - write access refused"
	w.capture("orders.dlq", history(t, "a", death("shop", "k")), history(t, "b", death("shop", "k")))
	for _, original := range []bool{false, true} {
		p := do(w, api.GenerationPlan, api.PlanRequest{All: true, ToOriginal: original, Bake: "1ms"})
		if !strings.Contains(strings.Join(p.Warnings, "\n"), w.wire.denied) {
			t.Errorf("original %v: no warning: %v", original, p.Warnings)
		}
		no := fmt.Sprint(p.Generation.Number)
		_, err := api.Call(as("bob"), w.c, api.GenerationApprove, api.ApproveRequest{ID: no, Digest: p.Generation.Manifest, Why: "looked at"}, nil)
		must(t, err)
		if !original { // a permission can depend on the key, so the release finds out
			_, err = api.Call(as("bob"), w.c, api.GenerationStart, api.RunRequest{ID: no}, nil)
			if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), w.wire.denied) || !strings.Contains(err.Error(), "nothing was started") {
				t.Errorf("start: %v", err)
			}
			if g := do(w, api.GenerationShow, api.GenerationRef{ID: no}); g.State != "approved" {
				t.Errorf("it is %s", g.State)
			}
		}
		do(w, api.GenerationReject, api.GenerationAct{ID: no, Why: "no permission"})
	}
}

// What a plan did not look at, it says.
func TestMoreOriginalsThanAreLookedAt(t *testing.T) {
	w := newWorld(t)
	w.cfg.Destinations = []config.Destination{{Exchange: "shop"}}
	var ids []string
	for i := range 22 {
		ids = append(ids, w.capture("orders.dlq", history(t, fmt.Sprint(i), death("shop", fmt.Sprintf("key.%d", i))))...)
	}
	const says = "the destinations of 2 of them"
	for n, want := range map[int]bool{20: false, 22: true} {
		p := do(w, api.GenerationPlan, api.PlanRequest{IDs: ids[:n], ToOriginal: true, DryRun: true})
		if got := strings.Contains(strings.Join(p.Warnings, "\n"), says); got != want || len(p.Routes) != 20 {
			t.Errorf("%d keys: %d routes, warnings %q", n, len(p.Routes), p.Warnings)
		}
	}
}
