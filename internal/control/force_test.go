package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// operation is a dead message that carries out an operation.
func operation(name, body string) quarantine.Delivery {
	d := order("m-"+name, "1", time.Hour, body)
	e := amqpwire.Edit(d.Properties)
	e.Set(amqpwire.StringField("x-operation-id", name))
	var err error
	if d.Properties, err = e.Bytes(); err != nil {
		panic(err)
	}
	return d
}

// stays lists why envelopes of a plan stay.
func stays(p *api.Plan) map[string]uint64 {
	out := map[string]uint64{}
	for _, x := range p.Excluded {
		out[x.Reason] = x.Count
	}
	return out
}

// One operation goes once, and not again while it is in doubt or after it
// succeeded, whatever has become of it: each of these is overruled by its own
// name only.
func TestForceOverrulesByName(t *testing.T) {
	for _, c := range []struct {
		reason  string
		outcome event.Outcome // of the first release; "" for none
	}{
		{"duplicate", "none"}, {"identity_conflict", "none"}, {"operation_in_doubt", ""}, {"operation_in_doubt", event.OutcomeAdmitted},
		{"operation_resolved", event.OutcomeSucceeded}, {"operation_resolved", event.OutcomeRejected}, {"operation_resolved", event.OutcomeDeduplicated},
		{"operation_in_doubt", event.OutcomeAmbiguous},
	} {
		t.Run(c.reason+" "+string(c.outcome), func(t *testing.T) {
			w := newWorld(t)
			second := `{"a":1}`
			if c.reason == "identity_conflict" {
				second = `{"a":2}`
			}
			ids := w.capture("orders.dlq", operation("op-1", `{"a":1}`), operation("op-1", second))
			if c.outcome != "none" {
				ids = ids[1:]
				w.end(w.start(w.planned(fast("#1"))))
				if c.outcome != "" {
					do(w, api.OutcomeReport, api.OutcomeRequest{Via: "command", Reports: []string{w.reportOf(w.wire.messages()[0], c.outcome)}})
				}
			}
			p, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{IDs: ids, DryRun: true}, nil)
			if got := stays(&p); got[c.reason] == 0 && (err == nil || !strings.Contains(err.Error(), c.reason)) {
				t.Fatalf("%v stays, %v; want %s", got, err, c.reason)
			}
			for _, other := range []string{"duplicate", "identity_conflict", "operation_in_doubt", "operation_resolved", "possible_duplicate"} {
				req := fast(ids...)
				req.DryRun, req.Force, req.ForceWhy = true, []string{other}, "the customer waits"
				p, err := api.Call(as("ann"), w.c, api.GenerationPlan, req, nil)
				if all := err == nil && int(p.Members) == len(ids); all != (other == c.reason) && !(c.reason == "identity_conflict" && other == c.reason) {
					t.Errorf("forced %s: %d members, %v", other, p.Members, err)
				}
			}
			req := fast(ids...)
			req.Force, req.ForceWhy = []string{c.reason}, "the customer waits"
			forced := do(w, api.GenerationPlan, req)
			approve := api.ApproveRequest{ID: fmt.Sprint(forced.Generation.Number), Digest: forced.Generation.Manifest}
			if err := try(w, "ann", api.GenerationApprove, approve); !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), "forces "+c.reason) {
				t.Errorf("its planner approves it: %v", err)
			}
			g, err := api.Call(as("bob"), w.c, api.GenerationApprove, approve, nil)
			must(w, err)
			if !slices.Equal(g.Forced, []string{c.reason}) || g.ForceWhy != "the customer waits" {
				t.Errorf("the approver sees %v %q", g.Forced, g.ForceWhy)
			}
			before := w.wire.count()
			w.end(w.start(approve.ID))
			if text := do(w, api.GenerationReport, api.GenerationRef{ID: approve.ID}).Text; !strings.Contains(text, "Overruled was "+c.reason+": the customer waits.") {
				t.Errorf("the statement keeps the force to itself:\n%s", text)
			}
			if n := w.wire.count() - before; n != int(forced.Members) || n == 0 {
				t.Errorf("%d go out of %d", n, forced.Members)
			}
		})
	}
}

// What protects somebody else's word, or has nothing to send, is never forced.
func TestForceHasLimits(t *testing.T) {
	w := newWorld(t)
	ids := w.orders(2)
	for _, reason := range []string{"held", "purged", "reserved", "payload_gone", "not_quarantined", "operation_reserved", "no_origin", "everything", ""} {
		req := fast(ids...)
		req.Force, req.ForceWhy = []string{reason}, "why"
		if err := try(w, "ann", api.GenerationPlan, req); !refusedWith(err, api.CodeUsage) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	for _, req := range []api.PlanRequest{{IDs: ids, Force: []string{"duplicate"}}, {IDs: ids, ForceWhy: "why"}, {IDs: ids, Force: []string{"duplicate"}, ForceWhy: strings.Repeat("y", 2000)}} {
		if err := try(w, "ann", api.GenerationPlan, req); !refusedWith(err, api.CodeUsage) {
			t.Errorf("%v %.20q: %v", req.Force, req.ForceWhy, err)
		}
	}
}

// A conflict is shown place by place, without the values unless they were asked
// for with a reason.
func TestCompareShowsAConflict(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", operation("op-1", `{"amount":9007199254740993,"card":"4111-SECRET"}`), operation("op-1", `{"amount":9007199254740992,"card":"4111-SECRET"}`))
	c := do(w, api.EnvelopeCompare, api.CompareRequest{A: "#1", B: "#2"})
	if c.Verdict != "identity_conflict" || !c.SameOperation || c.SameMeaning || len(c.Differences) != 1 || c.Differences[0].Path != "/amount" || c.Differences[0].From != "a number" {
		t.Errorf("%+v", c)
	}
	if err := try(w, "ann", api.EnvelopeCompare, api.CompareRequest{A: "#1", B: "#2", Raw: true}); !refusedWith(err, api.CodeUsage) {
		t.Errorf("values without a reason: %v", err)
	}
	c = do(w, api.EnvelopeCompare, api.CompareRequest{A: "#1", B: "#2", Raw: true, Why: "which one is right"})
	if c.Differences[0].From != "9007199254740993" || c.Differences[0].To != "9007199254740992" {
		t.Errorf("%+v", c.Differences)
	}
}
