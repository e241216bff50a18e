package control_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

const orderBody = `{"operation": 1, "id":9007199254740993, "amount":1.10, "sku":"SKU-<88>", "note":"a\u0041"}`

// sku is a patch that corrects the stock number.
const sku = `[{"op":"test","path":"/sku","value":"SKU-<88>"},{"op":"replace","path":"/sku","value":"SKU-89"}]`

const repairedBody = `{"operation":1,"id":9007199254740993,"amount":1.10,"sku":"SKU-89","note":"a\u0041"}`

func (w *world) original(no event.EnvelopeNo) *quarantine.Original {
	w.Helper()
	var o *quarantine.Original
	must(w, w.store.View(func(r ledger.Reader) (err error) {
		o, err = quarantine.GetOriginal(r, w.keys, w.store, no)
		return err
	}))
	return o
}

// try calls an operation as somebody and returns its error.
func try[Req, Resp any](w *world, who string, op api.Op[Req, Resp], req Req) error {
	_, err := api.Call(as(who), w.c, op, req, nil)
	return err
}

// A repaired message goes out byte for byte as it was made, comes back as a
// child of the lineage, and can go again. The original stays as it was.
func TestRepairedMessageGoesOutAndComesBack(t *testing.T) {
	w := newWorld(t)
	ids := w.capture("orders.dlq", order("a", "1", time.Hour, orderBody), order("b", "1", time.Hour, `{"other":1}`))
	before := w.original(1)
	r := do(w, api.EnvelopeRepair, api.RepairRequest{ID: ids[0], Patch: []byte(sku), ContentType: "application/json", SetHeaders: []string{"x-fixed=yes"}, Why: "SKU was renamed"})
	if r.Candidate != 1 || !r.Live || len(r.Changes) != 3 {
		t.Fatalf("%+v", r)
	}
	p := do(w, api.GenerationPlan, fast(ids...))
	if p.Repaired != 1 || p.Generation.Repaired != 1 {
		t.Errorf("the plan speaks of %d and %d repaired members", p.Repaired, p.Generation.Repaired)
	}
	id := fmt.Sprint(p.Generation.Number)
	approve := api.ApproveRequest{ID: id, Digest: p.Generation.Manifest}
	if err := try(w, "ann", api.GenerationApprove, approve); !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), "another content") {
		t.Errorf("the planner of two members approves a repair: %v", err)
	}
	must(w, try(w, "bob", api.GenerationApprove, approve))
	w.end(w.start(id))
	out := w.wire.messages()
	if len(out) != 2 {
		t.Fatalf("%d went out", len(out))
	}
	if text := do(w, api.GenerationReport, api.GenerationRef{ID: id}).Text; !strings.Contains(text, "The plan had another content than was captured for 1 members.") {
		t.Errorf("the statement keeps the repair to itself:\n%s", text)
	}
	v := amqpwire.Parse(out[0].Properties)
	if string(out[0].Body) != repairedBody || v.ContentType != "application/json" {
		t.Errorf("%q goes out with content type %q", out[0].Body, v.ContentType)
	}
	if x, ok := v.Text("x-fixed"); !ok || x != "yes" {
		t.Errorf("header x-fixed: %q", x)
	}
	w.capture("orders.dlq", quarantine.Delivery{Properties: out[0].Properties, Body: out[0].Body, DeliveryCount: -1})
	kid := do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: "#3"})
	if kid.Lineage.Attempt != 2 || kid.Lineage.Stamp != "valid" || len(kid.Flags) > 0 && strings.Contains(strings.Join(kid.Flags, " "), "derived") {
		t.Errorf("what came back is %+v %v", kid.Lineage, kid.Flags)
	}
	after := w.original(1)
	if !bytes.Equal(before.Body, after.Body) || !bytes.Equal(before.Properties, after.Properties) {
		t.Error("the original was changed")
	}
	if got := string(w.original(3).Body); got != repairedBody {
		t.Errorf("the child has the body %q", got)
	}
	// The child carries on: neither it nor its parent contradicts the other.
	q := do(w, api.GenerationPlan, api.PlanRequest{IDs: []string{"#3"}, ToExchange: "events", ToRoutingKey: "k", DryRun: true})
	if q.Members != 1 {
		t.Errorf("the child cannot go: %+v", q.Excluded)
	}
}

// A repair that changes after the plan is not what was approved.
func TestRepairChangedAfterThePlan(t *testing.T) {
	w := newWorld(t)
	ids := w.capture("orders.dlq", order("a", "1", time.Hour, orderBody), order("b", "1", time.Hour, orderBody), order("c", "1", time.Hour, orderBody),
		order("d", "1", time.Hour, orderBody))
	for _, id := range ids[:2] {
		do(w, api.EnvelopeRepair, api.RepairRequest{ID: id, Patch: []byte(sku), Why: "renamed"})
	}
	id := w.planned(fast(ids...))
	zero := uint64(0)
	do(w, api.EnvelopeRepairs, api.RepairChoice{ID: ids[0], Use: &zero, Why: "was right"})           // repair → original
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: ids[1], Body: []byte(`{"a":1}`), Why: "better"}) // repair → another
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: ids[2], Patch: []byte(sku), Why: "renamed"})     // original → repair
	w.end(w.start(id))
	if n := w.wire.count(); n != 1 {
		t.Errorf("%d went out, want the one that is as planned", n)
	}
	for pos, m := range w.members(id) {
		want := "repair_changed"
		if pos == 3 {
			want = ""
		}
		if m.ReasonText() != want {
			t.Errorf("position %d: %q, want %q", pos, m.ReasonText(), want)
		}
	}
}

func TestCandidates(t *testing.T) {
	w := newWorld(t)
	id := w.capture("orders.dlq", order("a", "1", time.Hour, orderBody))[0]
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: id, Patch: []byte(sku), Why: "one"})
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: id, Body: []byte(`{"two":2}`), Why: "two"})
	one := uint64(1)
	do(w, api.EnvelopeRepairs, api.RepairChoice{ID: id, Use: &one, Why: "the first was better"})
	e := do(w, api.EnvelopeRepairs, api.RepairChoice{ID: id, Withdraw: 1, Why: "no"})
	if len(e.Repairs) != 2 || e.Repairs[0].State != "withdrawn" || e.Repairs[0].Live || e.Repairs[1].Live || e.Repairs[1].Diff == "" || e.Repairs[1].By != "os:ann" {
		t.Errorf("%+v", e.Repairs)
	}
	for _, c := range []api.RepairChoice{{Use: &one}, {Withdraw: 1}, {Withdraw: 3}, {Approve: 2}} {
		c.ID, c.Why = id, "why"
		if err := try(w, "bob", api.EnvelopeRepairs, c); !refusedWith(err, api.CodeRefused) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := try(w, "bob", api.EnvelopeRepairs, api.RepairChoice{ID: id, Why: "x"}); !refusedWith(err, api.CodeUsage) {
		t.Errorf("nothing chosen: %v", err)
	}
}

// What a repair may not be is refused, and nothing is written.
func TestRepairsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", order("a", "1", time.Hour, orderBody), order("b", "1", time.Hour, `{"a":1,"a":2}`), order("c", "1", time.Hour, "text"))
	records := do(w, api.Status, api.None{}).Records
	for name, c := range map[string]struct {
		req  api.RepairRequest
		code api.Code
	}{
		"no reason":            {api.RepairRequest{ID: "#1", Patch: []byte(sku)}, api.CodeUsage},
		"nothing":              {api.RepairRequest{ID: "#1", Why: "w"}, api.CodeUsage},
		"the same":             {api.RepairRequest{ID: "#3", Body: []byte("text"), Why: "w"}, api.CodeUsage},
		"both":                 {api.RepairRequest{ID: "#1", Patch: []byte(sku), Body: []byte("{}"), Why: "w"}, api.CodeUsage},
		"no JSON any more":     {api.RepairRequest{ID: "#1", Body: []byte("text"), Why: "w"}, api.CodeUsage},
		"no patch":             {api.RepairRequest{ID: "#1", Patch: []byte(`{"sku":1}`), Why: "w"}, api.CodeUsage},
		"a failing test":       {api.RepairRequest{ID: "#1", Patch: []byte(`[{"op":"test","path":"/sku","value":"x"}]`), Why: "w"}, api.CodeUsage},
		"a missing place":      {api.RepairRequest{ID: "#1", Patch: []byte(`[{"op":"remove","path":"/nothing"}]`), Why: "w"}, api.CodeUsage},
		"a name twice":         {api.RepairRequest{ID: "#2", Patch: []byte(`[{"op":"remove","path":"/a"}]`), Why: "w"}, api.CodeUsage},
		"a patch of text":      {api.RepairRequest{ID: "#3", Patch: []byte(`[{"op":"remove","path":"/a"}]`), Why: "w"}, api.CodeUsage},
		"a header that routes": {api.RepairRequest{ID: "#1", SetHeaders: []string{"CC=elsewhere"}, Why: "w"}, api.CodeUsage},
		"too large":            {api.RepairRequest{ID: "#3", Body: bytes.Repeat([]byte("x"), quarantine.MaxRepairBody+1), Why: "w"}, api.CodeUsage},
		"another operation":    {api.RepairRequest{ID: "#1", SetHeaders: []string{"x-operation-id=new"}, Why: "w"}, api.CodeRefused},
		"no new operation":     {api.RepairRequest{ID: "#1", Patch: []byte(sku), NewCommand: true, Why: "w"}, api.CodeRefused},
		"not the one it names": {api.RepairRequest{ID: "#1", SetHeaders: []string{"x-operation-id=new"}, NewCommand: true, Operation: "other", Why: "w"}, api.CodeRefused},
		"the old one as new":   {api.RepairRequest{ID: "#1", Patch: []byte(sku), NewCommand: true, Operation: "a", Why: "w"}, api.CodeRefused},
		"nobody":               {api.RepairRequest{ID: "#9", Patch: []byte(sku), Why: "w"}, api.CodeNotFound},
	} {
		err := try(w, "ann", api.EnvelopeRepair, c.req)
		if !refusedWith(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "SKU-") {
			t.Errorf("%s tells the content: %v", name, err)
		}
	}
	if got := do(w, api.Status, api.None{}).Records; got != records {
		t.Errorf("%d records were written", got-records)
	}
}

// A new command waits for somebody who did not make it, and is another
// operation than its original.
func TestNewCommandNeedsAnApprover(t *testing.T) {
	w := newWorld(t)
	ids := w.capture("orders.dlq", order("a", "1", time.Hour, orderBody))
	r := do(w, api.EnvelopeRepair, api.RepairRequest{ID: ids[0], Patch: []byte(sku), SetHeaders: []string{"x-operation-id=order-2"},
		NewCommand: true, Operation: "order-2", Why: "the customer ordered again"})
	if r.Live || !r.NewCommand {
		t.Fatalf("%+v", r)
	}
	e := do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: ids[0]})
	choice := api.RepairChoice{ID: ids[0], Approve: 1, Commitment: e.Repairs[0].Commitment, Why: "looked at"}
	one := uint64(1)
	if err := try(w, "bob", api.EnvelopeRepairs, api.RepairChoice{ID: ids[0], Use: &one, Why: "w"}); !refusedWith(err, api.CodeRefused) {
		t.Errorf("used before it is approved: %v", err)
	}
	if err := try(w, "ann", api.EnvelopeRepairs, choice); !refusedWith(err, api.CodeRefused) {
		t.Errorf("approved by its author: %v", err)
	}
	other := choice
	other.Commitment = strings.Repeat("0", 64)
	if err := try(w, "bob", api.EnvelopeRepairs, other); !refusedWith(err, api.CodeRefused) {
		t.Errorf("approved unseen: %v", err)
	}
	must(w, try(w, "bob", api.EnvelopeRepairs, choice))
	e = do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: ids[0]})
	if !e.Repairs[0].Live || e.Repairs[0].ApprovedBy != "os:bob" {
		t.Errorf("%+v", e.Repairs[0])
	}
	w.end(w.start(w.planned(fast(ids...))))
	v := amqpwire.Parse(w.wire.messages()[0].Properties)
	if op, _ := v.Text("x-operation-id"); op != "order-2" {
		t.Errorf("operation %q goes out", op)
	}
	// Another message of the new operation must not go while that is in doubt; one
	// of the old operation may: it was never carried out.
	same := order("x", "1", time.Hour, orderBody)
	e2 := amqpwire.Edit(same.Properties)
	e2.Set(amqpwire.StringField("x-operation-id", "order-2"))
	var err error
	same.Properties, err = e2.Bytes()
	must(w, err)
	w.capture("orders.dlq", same, order("a", "1", time.Hour, orderBody))
	p := do(w, api.GenerationPlan, api.PlanRequest{IDs: []string{"#2", "#3"}, DryRun: true})
	if p.Members != 1 || len(p.Excluded) != 1 || p.Excluded[0].Reason == "" {
		t.Errorf("%d members, %+v", p.Members, p.Excluded)
	}
}

// A purge takes repairs with it, and a late return is no child any more.
func TestPurgeErasesRepairs(t *testing.T) {
	w := newWorld(t)
	id := w.capture("orders.dlq", order("a", "1", time.Hour, orderBody))[0]
	do(w, api.EnvelopeRepair, api.RepairRequest{ID: id, Patch: []byte(sku), Why: "renamed"})
	do(w, api.EnvelopePurge, api.EnvelopeChange{IDs: []string{id}, Ticket: "T-1", Why: "asked for"})
	must(w, w.store.View(func(r ledger.Reader) error {
		if _, err := quarantine.GetRepair(r, w.keys, 1, 1); !errors.Is(err, quarantine.ErrErased) {
			t.Errorf("the repair opens: %v", err)
		}
		if _, err := quarantine.GetRepairFacts(r, 1, 1); !errors.Is(err, quarantine.ErrErased) {
			t.Errorf("its facts are there: %v", err)
		}
		return nil
	}))
	if err := try(w, "ann", api.EnvelopeRepair, api.RepairRequest{ID: id, Body: []byte("{}"), Why: "w"}); !refusedWith(err, api.CodeErased) {
		t.Errorf("a purged one is repaired: %v", err)
	}
	e := do(w, api.EnvelopeShow, api.EnvelopeShowRequest{ID: id})
	if len(e.Repairs) != 1 || e.Repairs[0].Live {
		t.Errorf("%+v", e.Repairs)
	}
}

// A preview writes nothing and hides values; with them it is a view of the
// payload, recorded before a byte leaves.
func TestRepairPreview(t *testing.T) {
	w := newWorld(t)
	id := w.capture("orders.dlq", order("a", "1", time.Hour, orderBody))[0]
	before := do(w, api.Status, api.None{}).Records
	r := do(w, api.EnvelopeRepair, api.RepairRequest{ID: id, Patch: []byte(sku), DryRun: true})
	if len(r.Changes) != 1 || r.Changes[0].Path != "/sku" || strings.Contains(r.Changes[0].From+r.Changes[0].To, "SKU") || r.Candidate != 0 {
		t.Errorf("%+v", r)
	}
	if sum := sha256.Sum256([]byte(repairedBody)); r.SHA256 != fmt.Sprintf("%x", sum) {
		t.Errorf("digest %s", r.SHA256)
	}
	if after := do(w, api.Status, api.None{}).Records; after != before {
		t.Errorf("%d records were written", after-before)
	}
	if err := try(w, "ann", api.EnvelopeRepair, api.RepairRequest{ID: id, Patch: []byte(sku), DryRun: true, Raw: true}); !refusedWith(err, api.CodeUsage) {
		t.Errorf("values without a reason: %v", err)
	}
	r = do(w, api.EnvelopeRepair, api.RepairRequest{ID: id, Patch: []byte(sku), DryRun: true, Raw: true, Why: "to see"})
	if r.Changes[0].From != `"SKU-<88>"` || r.Changes[0].To != `"SKU-89"` {
		t.Errorf("%+v", r.Changes)
	}
	if after := do(w, api.Status, api.None{}).Records; after != before+1 {
		t.Errorf("%d records, want the view", after-before)
	}
}

// Bodies that differ nearly everywhere make no list without end: it would be
// stored with the repair, and shown.
func TestDifferencesAreBounded(t *testing.T) {
	list := func(n int, value string) *quarantine.Original {
		return &quarantine.Original{Body: []byte("[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]")}
	}
	for n, want := range map[int]int{1000: 1000, 1001: 1} {
		got := control.Differences(list(n, "1"), list(n, "2"), true)
		if len(got) != want || n > 1000 && got[0].Path != "" {
			t.Errorf("%d places differ, %d are listed, first %+v", n, len(got), got[0])
		}
	}
}
