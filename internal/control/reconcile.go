package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// Bounds of a reconciliation: of what is held in memory, of what one
// transaction records, and of what the answer lists.
const (
	maxEvidence    = 10_000_000 // operations
	reconcileBatch = 20_000     // members
	maxFound       = 1000
	maxNamed       = 20
)

// reconciling is one reconciliation on its way.
type reconciling struct {
	c    *Controller
	req  api.ReconcileRequest
	no   event.GenerationNo
	wire api.Reconciliation

	mine     []redrive.Checkable // released, with an operation, and nobody else's
	released map[string]bool     // operations of mine
	others   map[string]bool     // operations that other generations carry on
	asked    []string            // all operations of the cohort

	counts     map[string]uint64 // effects by operation
	commitment string
	found      redrive.Findings
}

// reconcile holds a generation against business data. What it finds is
// recorded in parts, so that a stop never waits for it; the record that sums it
// up comes last.
func (c *Controller) reconcile(ctx context.Context, req api.ReconcileRequest, progress func(api.Progress)) (api.Reconciliation, error) {
	no, err := c.find(req.ID)
	if err != nil {
		return api.Reconciliation{}, err
	}
	if (req.File == "") == (req.Address == "") {
		return api.Reconciliation{}, usage(errors.New("give one source of evidence: --evidence FILE, or --evidence-sql with --query"))
	}
	if req.DryRun && req.Close {
		return api.Reconciliation{}, usage(errors.New("--dry-run writes nothing, so it cannot close"))
	}
	if req.Close && req.Why == "" {
		return api.Reconciliation{}, usage(errors.New("closing states what stays open: say with --why why that is acceptable"))
	}
	if c.o.Evidence == nil {
		return api.Reconciliation{}, usage(errors.New("this process can read no evidence"))
	}
	r := &reconciling{c: c, req: req, no: no, released: map[string]bool{}, others: map[string]bool{}, counts: map[string]uint64{}}
	r.wire = api.Reconciliation{DryRun: req.DryRun, Members: []api.EffectOf{}, NotCheckableMembers: []api.EffectOf{},
		UnexpectedOperations: []string{}, Statuses: map[string]uint64{}}
	if err := r.members(); err != nil {
		return api.Reconciliation{}, err
	}
	progress(api.Progress{Stage: "note", Message: fmt.Sprintf("%d released members have an operation; reading the evidence", len(r.mine))})
	if err := r.read(ctx); err != nil {
		return api.Reconciliation{}, err
	}
	r.unexpected()
	if err := r.closable(); err != nil {
		return api.Reconciliation{}, err
	}
	if err := r.record(ctx); err != nil {
		return api.Reconciliation{}, err
	}
	return r.answer(ctx)
}

// members collects the operations to ask for, in pages, so that no read
// transaction lasts long.
func (r *reconciling) members() error {
	asked := map[string]bool{}
	for next, more := event.Position(0), true; more; {
		err := r.c.log.View(func(v ledger.View) error {
			g, err := redrive.Get(v, r.no)
			if err != nil {
				return err
			}
			if err := redrive.CanReconcile(g); err != nil {
				return err
			}
			from := next
			more = false
			return redrive.EachCheckable(v, g, from, func(x redrive.Checkable) bool {
				if x.Pos >= from+factsPage {
					next, more = x.Pos, true
					return false
				}
				if x.Operation != "" {
					asked[x.Operation] = true
				}
				r.sort(v, x)
				return true
			})
		})
		if err != nil {
			return err
		}
	}
	r.asked = slices.Sorted(maps.Keys(asked))
	return nil
}

func (r *reconciling) sort(v ledger.View, x redrive.Checkable) {
	switch {
	case !x.Released:
	case x.Operation == "" || x.Elsewhere:
		r.found.NotCheckable++
		finding := "no_operation"
		if x.Elsewhere {
			r.others[x.Operation] = true
			finding = "elsewhere"
		}
		if len(r.wire.NotCheckableMembers) < maxNamed {
			r.wire.NotCheckableMembers = append(r.wire.NotCheckableMembers, r.effectOf(v, x, 0, finding))
		}
	default:
		r.mine = append(r.mine, x)
		r.released[x.Operation] = true
	}
}

func (r *reconciling) effectOf(v ledger.View, x redrive.Checkable, n uint64, finding string) api.EffectOf {
	id, _ := ulidOf(v, x.Env) // its facts have just been read
	m := redrive.GetMember(v, r.no, x.Pos)
	return api.EffectOf{Position: uint64(x.Pos), Envelope: id, Disposition: m.Disposition().String(), Effects: n, Finding: finding}
}

// read takes the evidence in and commits to it.
func (r *reconciling) read(ctx context.Context) error {
	source, err := r.c.o.Evidence(ctx, r.req)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // was only read
	r.wire.Source = source.Source()
	err = source.Each(ctx, r.asked, func(x redrive.Effect) error {
		r.counts[x.Operation] += x.Count
		if len(r.counts) > maxEvidence {
			return usage(fmt.Errorf("the evidence names more than %d operations: cut it down to the time of the generation", maxEvidence))
		}
		if _, known := r.wire.Statuses[x.Status]; x.Count > 0 && x.Status != "" && (known || len(r.wire.Statuses) < maxNamed) {
			r.wire.Statuses[x.Status]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	var canonical []byte
	for _, op := range slices.Sorted(maps.Keys(r.counts)) {
		canonical = fmt.Appendf(canonical, "%d:%s %d\n", len(op), op, r.counts[op])
	}
	r.commitment = r.c.o.Stamps.CommitEvidence(canonical).String()
	return nil
}

// unexpected finds effects that nothing of this generation explains.
func (r *reconciling) unexpected() {
	var ops []string
	for op, n := range r.counts {
		if n > 0 && !r.released[op] && !r.others[op] {
			ops = append(ops, op)
		}
	}
	slices.Sort(ops)
	r.found.Unexpected = uint64(len(ops))
	for _, op := range ops[:min(len(ops), maxNamed)] {
		r.wire.UnexpectedOperations = append(r.wire.UnexpectedOperations, text(op))
	}
}

// closable refuses an end that would be refused after everything else was
// recorded.
func (r *reconciling) closable() error {
	if !r.req.Close {
		return nil
	}
	var settled uint64
	for page := range slices.Chunk(r.mine, scanPage) {
		err := r.c.log.View(func(v ledger.View) error {
			for _, x := range page {
				m := redrive.GetMember(v, r.no, x.Pos)
				if m.Disposition() == event.Pending && r.counts[x.Operation] > 0 {
					settled++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.c.log.View(func(v ledger.View) error {
		g, err := redrive.Get(v, r.no)
		if err == nil {
			err = redrive.CanCloseAsIs(v, g, settled)
		}
		return err
	})
}

// record writes down what the evidence says, or only looks in a dry run.
func (r *reconciling) record(ctx context.Context) error {
	for batch := range slices.Chunk(r.mine, reconcileBatch) {
		var found redrive.Findings
		seen := make([]redrive.Observed, 0, len(batch))
		for _, x := range batch {
			seen = append(seen, redrive.Observed{Pos: x.Pos, Count: r.counts[x.Operation]})
		}
		decide := func(v ledger.View) ([]event.Event, error) {
			found = redrive.Findings{}
			return redrive.ReconcileMembers(v, r.no, r.commitment, seen, &found)
		}
		if err := r.decide(ctx, decide); err != nil {
			return err
		}
		r.found.Add(found)
	}
	return r.decide(ctx, func(v ledger.View) ([]event.Event, error) {
		out, err := redrive.ReconcileDone(v, r.no, r.wire.Source, r.commitment, r.found)
		if err != nil || !r.req.Close {
			return out, err
		}
		end, err := redrive.CloseAsIs(v, r.no, r.req.Why)
		return append(out, end...), err
	})
}

func (r *reconciling) decide(ctx context.Context, decide ledger.Decide) error {
	if r.req.DryRun {
		return r.c.log.View(func(v ledger.View) error {
			_, err := decide(v)
			return err
		})
	}
	_, err := r.c.update(ctx, r.req.As, decide)
	return err
}

// answer lists what a person has to look at.
func (r *reconciling) answer(ctx context.Context) (api.Reconciliation, error) {
	w, f := &r.wire, &r.found
	w.Commitment = r.commitment
	w.Checked, w.Effected, w.Double, w.NotEffected, w.None, w.Early = f.Checked, f.Effected, f.Double, f.NotEffected, f.None, f.Early
	w.NotCheckable, w.Unexpected = f.NotCheckable, f.Unexpected
	for page := range slices.Chunk(r.mine, scanPage) {
		err := r.c.log.View(func(v ledger.View) error {
			for _, x := range page {
				n := r.counts[x.Operation]
				finding, after := redrive.Look(redrive.GetMember(v, r.no, x.Pos), n)
				if after.Freed() {
					w.Freed++
				}
				if finding != "" && len(w.Members) < maxFound {
					w.Members = append(w.Members, r.effectOf(v, x, n, finding))
				}
			}
			return nil
		})
		if err != nil {
			return *w, err
		}
	}
	if !r.req.Close {
		var err error
		w.Generation, err = r.c.show(r.no)
		return *w, err
	}
	rep, err := r.c.report(ctx, api.GenerationRef{ID: r.req.ID})
	w.Generation, w.Text = rep.Generation, rep.Text
	return *w, err
}
