package app

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/demo"
)

// story is the whole life of a redrive.
func (t *teller) story(ctx context.Context, w *demo.World) error {
	for _, part := range []func(context.Context, *demo.World) error{t.morning, t.capture, t.wrongFix, t.rightFix, t.evening} {
		if err := part(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// morning publishes the orders, one of them twice under the same operation.
func (t *teller) morning(ctx context.Context, w *demo.World) error {
	orders := demo.Day(t.o.Seed)
	twice := ""
	for _, o := range orders {
		if o.SKU == demo.NewSKU {
			twice = o.Operation
		}
	}
	t.chapter("Morning: a new article is sold that the worker's catalogue does not know", "")
	if err := w.Produce(ctx, orders, twice); err != nil {
		return err
	}
	return w.Await(ctx, len(orders)+1)
}

func (t *teller) capture(ctx context.Context, _ *demo.World) error {
	t.chapter("The dead letters are moved into the store, each exactly as it was", "capture")
	sum, err := call(ctx, t, demoOperator, api.CaptureRun, api.CaptureRequest{})
	if err = cmp.Or(err, sum.Err()); err != nil {
		return err
	}
	t.say("   %d messages captured. A message leaves its queue only after it is durable here.", sum.Captured)
	g, err := call(ctx, t, demoOperator, api.EnvelopeGroups, api.EnvelopeQuery{})
	if err != nil {
		return err
	}
	for _, x := range g.Groups {
		t.say("   %3d  %-19s %-10s %s", x.Count, x.Reason, x.Class, x.Owner)
	}
	return nil
}

// wrongFix releases with a fix that does not work: the first message tells.
func (t *teller) wrongFix(ctx context.Context, _ *demo.World) error {
	t.chapter("Somebody restarts the worker and calls that a fix", `generation plan --reason unknown_sku --to-queue … --fix "worker restarted"`)
	g, err := t.planAndApprove(ctx, "worker restarted")
	if err != nil {
		return err
	}
	t.say("   $ redrive generation start %d", g.Number)
	g, err = call(ctx, t, demoOperator, api.GenerationStart, api.RunRequest{ID: g.ID})
	if err != nil {
		return err
	}
	if g.State != "paused" || len(g.Pauses) == 0 {
		return fmt.Errorf("the demo expected a pause and found generation %d %s", g.Number, g.State)
	}
	t.say("   Stage 1 is one message. It came back, and the generation paused by itself:")
	t.say("   %s: %s. Moved %d of %d; the others never left the store.", g.Pauses[0].Reason, g.Pauses[0].Why, g.Funnel.Moved, g.Funnel.Selected)
	t.chapter("It is stopped for good, and what did not move is free again", fmt.Sprintf(`generation abort %d --why "the catalogue still lacks %s"`, g.Number, demo.NewSKU))
	g, err = call(ctx, t, demoOperator, api.GenerationAbort, api.GenerationAct{ID: g.ID, Why: "the catalogue still lacks " + demo.NewSKU})
	if err != nil {
		return err
	}
	t.say("   generation %d is %s: %d moved + %d not moved = %d selected.", g.Number, g.State, g.Funnel.Moved, g.Funnel.Selected-g.Funnel.Moved, g.Funnel.Selected)
	return nil
}

// planAndApprove plans as one person and approves as another.
func (t *teller) planAndApprove(ctx context.Context, fix string) (api.Generation, error) {
	p, err := call(ctx, t, demoOperator, api.GenerationPlan, api.PlanRequest{Reason: "unknown_sku", ToQueue: demo.Orders, Fix: fix, Rate: 200, Expected: []string{"succeeded"}})
	if err != nil {
		return api.Generation{}, err
	}
	t.say("   %d selected, %d frozen for release in stages of %s; nothing moves yet.", p.Selected, p.Members, api.StageSizes(p.Stages))
	for _, x := range p.Excluded {
		t.say("   %d stays: %s (the same operation goes once).", x.Count, x.Reason)
	}
	digest := p.Generation.Manifest
	t.say("   Somebody else approves exactly this manifest, %s…", digest[:16])
	return call(ctx, t, demoApprover, api.GenerationApprove, api.ApproveRequest{ID: p.Generation.ID, Digest: digest})
}

// rightFix releases again after the cause is gone. One order was fulfilled by
// hand meanwhile, and one can never be.
func (t *teller) rightFix(ctx context.Context, w *demo.World) error {
	t.chapter("The catalogue team adds the article; one customer was served by hand meanwhile", `generation plan --reason unknown_sku --to-queue … --fix "catalogue 2.4.1 adds SKU-88"`)
	w.Learn(demo.NewSKU)
	for _, o := range demo.Day(t.o.Seed) {
		if o.SKU == demo.NewSKU {
			w.Fulfil(o.Operation)
			break
		}
	}
	g, err := t.planAndApprove(ctx, "catalogue 2.4.1 adds SKU-88")
	if err != nil {
		return err
	}
	t.say("   $ redrive generation start %d", g.Number)
	if g, err = call(ctx, t, demoOperator, api.GenerationStart, api.RunRequest{ID: g.ID}); err != nil {
		return err
	}
	t.say("   %d of %d stages were opened, each when the one before was known and every signal said ok.", g.Stage, len(g.Stages))
	f := g.Funnel
	t.say("   selected %d · moved %d · succeeded %d · deduplicated %d · came back %d · ambiguous %d · missing %d",
		f.Selected, f.Moved, f.Succeeded, f.Deduplicated, f.Requarantined, f.Ambiguous, f.Missing)
	t.chapter("The statement: what became of every message, what remains, and who owns it", fmt.Sprintf("generation report %d", g.Number))
	r, err := call(ctx, t, demoOperator, api.GenerationReport, api.GenerationRef{ID: g.ID})
	if err != nil {
		return err
	}
	t.indent(r.Text)
	return nil
}

func (t *teller) evening(ctx context.Context, _ *demo.World) error {
	t.chapter("What is still in quarantine in all", "envelope list --groups --custody quarantined")
	g, err := call(ctx, t, demoOperator, api.EnvelopeGroups, api.EnvelopeQuery{Custody: []string{"quarantined"}})
	if err != nil {
		return err
	}
	for _, x := range g.Groups {
		t.say("   %3d  %-19s %-10s %s", x.Count, x.Reason, x.Class, x.Owner)
	}
	t.chapter("Anyone can check that this history was not changed", "ledger verify --replay --payloads")
	v, err := call(ctx, t, demoOperator, api.LedgerVerify, api.VerifyRequest{Replay: true, Payloads: true})
	if err != nil {
		return err
	}
	t.say("   %s: %d records, %s checkpoints signed, %d laws checked at every position.", v.Verdict, v.Records, v.Checkpoints, len(v.Checked))
	if v.ExitCode != 0 {
		return &api.Error{Code: api.CodeIntegrity, Message: fmt.Sprintf("the demo's own ledger does not verify: %v %v", v.Mismatches, v.Incomplete)}
	}
	if t.o.Data != "" {
		t.say("\nThe data is in %s: try  redrive --data %s envelope list", t.o.Data, t.o.Data)
		t.say("or, for a page to show around:  redrive --data %s generation report 2 --format html --out report.html", t.o.Data)
	}
	return nil
}
