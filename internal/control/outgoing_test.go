package control_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/schema"
	"github.com/redrivehq/redrive/redrive"
)

// newCommand makes a repair of an envelope that is another operation, approved
// and live.
func (w *world) newCommand(id, operation string, headers ...string) {
	w.Helper()
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: id, SetHeaders: append(headers, "x-operation-id="+operation), NewCommand: true,
		Operation: operation, Why: "ordered again"})
	e := do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: id})
	must(w, try(w, "bob", api.EnvelopeRepairs, api.RepairChoice{ID: id, Approve: 1, Commitment: e.Repairs[0].Commitment, Why: "looked at"}))
}

// Who is asked about a repaired message is asked about what goes out: its
// operation, its type, and its version of the schema.
func TestChecksLookAtWhatGoesOut(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	var files []schema.File
	for name, f := range map[string]schema.File{
		`{"required":["sku"]}`:   {Type: "OrderPlaced", Version: "1", Path: filepath.Join(dir, "one.json")},
		`{"required":["stock"]}`: {Type: "OrderPlaced", Version: "2", Path: filepath.Join(dir, "two.json")},
	} {
		must(t, os.WriteFile(f.Path, []byte(name), 0o600))
		files = append(files, f)
	}
	set, err := schema.Load(files)
	must(t, err)
	asked, authorize := ask(t, none)
	w.cfg.Destinations = []config.Destination{{Queue: "orders", Authorize: authorize}}
	w.contract = set
	w.crash()
	w.capture("orders.dlq", typed("one", "OrderPlaced", []byte(`{"sku":"A"}`)))
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: "#1", SetHeaders: []string{"x-schema-version=2"}, Why: "version 2 is meant"})
	if p, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{All: true, DryRun: true}, nil); err == nil && stays(&p)[redrive.ReasonSchema] != 1 {
		t.Errorf("what goes out is version 2 and breaks its schema: %d members, %v", p.Members, stays(&p))
	}
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: "#1", SetHeaders: []string{"x-schema-version=2"}, Body: []byte(`{"stock":"A"}`), Why: "version 2"})
	if p := do(w, api.GenerationPlan, api.PlanRequest{All: true, DryRun: true}); p.Members != 1 {
		t.Errorf("what goes out fulfils version 2: %v", stays(&p))
	}

	w.capture("orders.dlq", typed("two", "Other", []byte(`{}`)))
	w.newCommand("#2", "order-2")
	do(w, api.GenerationPlan, api.PlanRequest{IDs: []string{"#2"}, DryRun: true})
	asked.mu.Lock()
	defer asked.mu.Unlock()
	if got := asked.asked[len(asked.asked)-1]; got != "order-2" {
		t.Errorf("asked about %q, and order-2 goes out", got)
	}
}

// A repair that puts a message under another key, or at another place in it, is
// ordered as what it becomes.
func TestOrderIsThatOfWhatGoesOut(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", turn("a", "1"), turn("b", "2"), turn("b", "4"))
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: "#1", SetHeaders: []string{"x-ordering-key=b", "x-sequence=3"}, Why: "it is b's"})
	plan := perKey(3, "park")
	plan.DryRun = true
	if p := do(w, api.GenerationPlan, plan); p.Order.Keys != 1 || p.Order.Gaps != 0 {
		t.Errorf("%+v", p.Order)
	}
}

// The effect of a new command is that of its own operation.
func TestReconcileANewCommand(t *testing.T) {
	w := newWorld(t)
	ids := w.orders(2)
	w.newCommand(ids[0], "order-new")
	req := fast(ids...)
	req.OutcomeDeadline = "1ms"
	id := w.planned(req)
	w.end(w.start(id))
	w.until("nobody reported", func() bool { return w.show(id).Tally["missing"] == 2 })
	r := do(w, api.GenerationReconcile, api.ReconcileRequest{ID: id, File: w.file("order-new,1\norder-1,1\norder-2,1\n")})
	if r.Effected != 2 || r.Unexpected != 1 || !slices.Equal(r.UnexpectedOperations, []string{"order-1"}) {
		t.Errorf("%+v", r)
	}
	page := do(w, api.GenerationMembers, api.MembersRequest{ID: id, WithIdentity: true, Why: "which orders?"})
	if page.Members[0].Operation != "order-new" || page.Members[1].Operation != "order-2" {
		t.Errorf("%+v", page.Members)
	}
}

// Readers of JSON disagree about a name that stands twice: what one of them
// takes for the operation need not be the one of the plan.
func TestRepairsHaveEachNameOnce(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", order("a", "1", time.Hour, `{"order":"A"}`), order("b", "1", time.Hour, "text"))
	for name, req := range map[string]api.RepairRequest{
		"body":    {ID: "#1", Body: []byte(`{"order":"A","sku":1,"order":"B"}`)},
		"of text": {ID: "#2", Body: []byte(`{"order":"A","order":"B"}`)},
		"nested":  {ID: "#1", Patch: []byte(`[{"op":"add","path":"/x","value":{"a":1,"a":2}}]`)},
		"root":    {ID: "#1", Patch: []byte(`[{"op":"replace","path":"","value":{"order":"A","order":"B"}}]`)},
	} {
		req.Why = "why"
		if err := try(w, "ann", api.EnvelopeRepair, req); !refusedWith(err, api.CodeUsage) || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// While a message is out, its operation is in doubt: a word about its repairs
// must not make it look like another one.
func TestRepairsAreChosenInQuarantineOnly(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", operation("op-1", `{"a":1}`), operation("op-1", `{"a":1}`))
	w.newCommand("#1", "op-new")
	zero, one := uint64(0), uint64(1)
	do(w, api.EnvelopeRepairs, api.RepairChoice{ID: "#1", Use: &zero, Why: "the old one after all"})
	w.end(w.start(w.planned(fast("#1"))))
	for name, c := range map[string]api.RepairChoice{"use": {Use: &one}, "withdraw": {Withdraw: 1}} {
		c.ID, c.Why = "#1", "why"
		if err := try(w, "ann", api.EnvelopeRepairs, c); !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), "is released") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{IDs: []string{"#2"}, DryRun: true}, nil)
	if err == nil || !strings.Contains(err.Error(), redrive.ReasonOperationInDoubt) {
		t.Errorf("the same operation is planned while it is out: %d members, %v", p.Members, err)
	}
}

// What a generation has reserved stays reserved, also while another repair is
// live: the first one can come back, and both would go out.
func TestRepairHidesNoReservation(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", operation("op-1", `{"a":1}`), operation("op-1", `{"a":1}`), operation("op-new", `{"a":1}`))
	w.newCommand("#1", "op-new")
	zero, one := uint64(0), uint64(1)
	use := func(n *uint64) {
		t.Helper()
		do(w, api.EnvelopeRepairs, api.RepairChoice{ID: "#1", Use: n, Why: "this one"})
	}
	taken := func(id string) {
		t.Helper()
		if err := try(w, "ann", api.GenerationPlan, fast(id)); !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), redrive.ReasonOperationReserved) {
			t.Errorf("a second plan takes the operation: %v", err)
		}
	}
	use(&zero)
	first := w.planned(fast("#1"))
	taken("#2")
	use(&one)
	taken("#2")
	do(w, api.GenerationReject, api.GenerationAct{ID: first, Why: "the new one is right"})
	second := w.planned(fast("#1"))
	use(&zero)
	taken("#3")
	use(&one)
	w.end(w.start(second))
	if p := do(w, api.GenerationPlan, fast("#2")); p.Members != 1 {
		t.Errorf("the old operation is not free: %v", p.Excluded)
	}
}
