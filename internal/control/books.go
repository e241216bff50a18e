package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/ledger/verify"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// ledgerTail returns records as they stand in the ledger.
func (c *Controller) ledgerTail(_ context.Context, req api.TailRequest) (api.TailPage, error) {
	page := api.TailPage{Records: []json.RawMessage{}, Next: req.From}
	limit := req.Limit
	if limit == 0 {
		limit = 20
	}
	if limit < 1 || limit > maxPage {
		return page, usage(fmt.Errorf("limit %d: want 1 to %d", limit, maxPage))
	}
	var gen event.GenerationNo
	if req.Generation != "" {
		var err error
		if gen, err = c.find(req.Generation); err != nil {
			return page, err
		}
	}
	err := c.log.View(func(v ledger.View) error {
		from := req.From
		if from == 0 {
			from = 1
			if gen == 0 && v.Seq > uint64(limit) {
				from = v.Seq - uint64(limit) + 1
			}
		}
		page.Next = from
		return ledger.Records(v, from, func(r *event.Record) bool {
			page.Next = r.Seq + 1
			if gen != 0 && r.Subj.Gen != gen {
				return true
			}
			line, err := r.AppendLine(nil)
			if err != nil {
				return false
			}
			page.Records = append(page.Records, line)
			if req.From == 0 && gen != 0 {
				// The last ones of a generation: those before them go.
				page.Records = page.Records[max(0, len(page.Records)-limit):]
				return true
			}
			return len(page.Records) < limit
		})
	})
	return page, err
}

func (c *Controller) verifierSource() (*StoreSource, error) {
	return NewStoreSource(c.o.KV, c.o.Keys, c.o.Blobs, c.o.Ledger.Origin, c.o.Ledger.VerifierKey)
}

func (c *Controller) ledgerVerify(ctx context.Context, req api.VerifyRequest) (api.VerifyResult, error) {
	rep, err := c.verify(ctx, req)
	if err == nil && req.Pub != "" && len(rep.Findings) == 0 && rep.Unsigned > 0 {
		// What was written since the last checkpoint is sound, but not under a
		// signature yet; this very call may have written what was due.
		if err = c.log.Checkpoint(ctx); err == nil {
			rep, err = c.verify(ctx, req)
		}
	}
	if err != nil {
		return api.VerifyResult{}, err
	}
	return VerifyResult(rep), nil
}

func (c *Controller) verify(ctx context.Context, req api.VerifyRequest) (*verify.Report, error) {
	src, err := c.verifierSource()
	if err != nil {
		return nil, err
	}
	return verify.Verify(ctx, src, verify.Options{Pub: req.Pub, Replay: req.Replay, Payloads: req.Payloads, References: References})
}

// VerifyResult is a report of the verifier in wire form.
func VerifyResult(rep *verify.Report) api.VerifyResult {
	out := api.VerifyResult{ExitCode: rep.ExitCode(), Verdict: rep.Verdict(), Records: rep.Records, Root: rep.Root,
		Checkpoints: fmt.Sprintf("%d/%d", rep.Matched, rep.Checkpoints), Mismatches: []string{}, Checked: []string{},
		Incomplete: append([]string{}, rep.Incomplete...), Warnings: append([]string{}, rep.Warnings...)}
	for _, f := range rep.Findings {
		out.Mismatches = append(out.Mismatches, f.Error())
	}
	for _, l := range rep.Laws {
		out.Checked = append(out.Checked, string(l))
	}
	return out
}

// ledgerExport writes a bundle. The export is recorded first, and the ledger
// is signed over that record, so that the bundle covers its own making.
func (c *Controller) ledgerExport(ctx context.Context, req api.ExportRequest) (api.ExportResult, error) {
	if req.Dir == "" {
		return api.ExportResult{}, usage(errors.New("where to? give --out DIR, a directory that does not exist yet"))
	}
	scope, name := verify.Scope{}, "all"
	if req.Generation != "" {
		no, err := c.find(req.Generation)
		if err != nil {
			return api.ExportResult{}, err
		}
		scope.Gen, name = no, "generation"
	}
	if req.From != nil || req.To != nil {
		if scope.Gen != 0 || req.From == nil || req.To == nil {
			return api.ExportResult{}, usage(errors.New("give a generation, or both --from and --to"))
		}
		scope.From, scope.To, name = uint64(req.From.UnixMilli()), uint64(req.To.UnixMilli()), "time"
	}
	_, err := c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
		return []event.Event{{Body: &event.LedgerExported{Scope: name, Size: v.Seq}}}, nil
	})
	if err == nil {
		err = c.log.Checkpoint(ctx)
	}
	if err != nil {
		return api.ExportResult{}, err
	}
	src, err := c.verifierSource()
	if err != nil {
		return api.ExportResult{}, err
	}
	if err := src.cutAtCheckpoint(); err != nil {
		return api.ExportResult{}, err
	}
	err = verify.WriteBundle(ctx, req.Dir, src, verify.Export{Scope: scope, Sign: c.o.Sign, References: References})
	switch {
	case errors.Is(err, verify.ErrExists), errors.Is(err, verify.ErrEmptyScope):
		return api.ExportResult{}, usage(err)
	case err != nil:
		return api.ExportResult{}, err
	}
	return api.ExportResult{Dir: req.Dir, Size: src.size, Records: src.size}, nil
}

// References lists the objects that a manifest names in turn.
func References(r *event.Record, object []byte) ([]event.Digest, error) {
	plan, ok := r.Body.(*event.GenerationPlanned)
	if !ok {
		return nil, nil
	}
	if isKeyIndex(plan, object) {
		return redrive.KeyLists(object)
	}
	m, err := redrive.ParseManifest(object)
	if err != nil {
		return nil, err
	}
	if m.Keys != plan.Keys || m.OnFailure != plan.OnFailure {
		return nil, errors.New("manifest and record name different orders")
	}
	var out []event.Digest
	for _, list := range [][]string{m.Chunks, m.Excluded, m.Repairs, m.Strata} {
		for _, text := range list {
			d, err := event.ParseDigest(text)
			if err != nil {
				return nil, err
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// isKeyIndex tells the index of a key list from the manifest beside it.
func isKeyIndex(plan *event.GenerationPlanned, object []byte) bool {
	return plan.Keys != "" && event.Digest(sha256.Sum256(object)).String() == plan.Keys
}

func (c *Controller) ledgerCheckpoint(ctx context.Context, _ api.None) (api.CheckpointInfo, error) {
	if err := c.log.Checkpoint(ctx); err != nil {
		return api.CheckpointInfo{}, err
	}
	var out api.CheckpointInfo
	err := c.log.View(func(v ledger.View) error {
		ledger.Checkpoints(v, func(size uint64, signed []byte) bool {
			out.Size, out.Signed = size, string(signed)
			return true
		})
		return nil
	})
	return out, err
}

// storeCheck looks for contradictions between what the store holds: sums,
// members, custody, sealed originals.
func (c *Controller) storeCheck(ctx context.Context, _ api.None) (api.StoreReport, error) {
	rep := api.StoreReport{Problems: []string{}}
	err := c.log.View(func(v ledger.View) error {
		rep.Records, rep.Envelopes = v.Seq, uint64(quarantine.Count(v))
		gens, err := redrive.All(v)
		if err != nil {
			return err
		}
		for _, g := range gens {
			if _, err := g.Tally(); err != nil {
				rep.Problems = append(rep.Problems, err.Error())
			}
			if got := redrive.Recount(v, g); got != g.Counts {
				rep.Problems = append(rep.Problems, fmt.Sprintf("generation %d: counters %v, recounted %v", g.No, g.Counts, got))
			}
		}
		return nil
	})
	if err != nil {
		return rep, err
	}
	for no := event.EnvelopeNo(1); uint64(no) <= rep.Envelopes && len(rep.Problems) < 100; no++ {
		if err := ctx.Err(); err != nil {
			return rep, err
		}
		err := c.log.View(func(v ledger.View) error {
			cell, ok := quarantine.GetCell(v, no)
			if !ok {
				return fmt.Errorf("envelope %d has no cell", no)
			}
			if cell.Flags.Has(quarantine.PayloadGone) {
				return nil
			}
			if _, err := quarantine.GetOriginal(v, c.o.Keys, c.o.Blobs, no); err != nil {
				return err
			}
			rs, err := quarantine.GetRepairs(v, no)
			for _, x := range rs.Candidates {
				if _, err := c.outgoing(v, no, x.No); err != nil {
					return err
				}
			}
			return err
		})
		if err != nil {
			rep.Problems = append(rep.Problems, err.Error())
		}
	}
	rep.OK = len(rep.Problems) == 0
	return rep, nil
}

// storeRebuild derives all state from the ledger again and compares it with
// that of a snapshot, so that nobody waits for it.
func (c *Controller) storeRebuild(ctx context.Context, req api.RebuildRequest) (api.RebuildReport, error) {
	rep := api.RebuildReport{Differences: []string{}}
	if !req.Check {
		return rep, usage(errors.New("only --check is possible: it rebuilds into a copy and compares; the live state is never replaced while it is in use"))
	}
	frozen, scratch, remove, err := c.o.Scratch()
	if err != nil {
		return rep, err
	}
	defer func() {
		if e := remove(); e != nil {
			c.o.Logger.WarnContext(ctx, "remove the scratch stores", slog.Any("error", e))
		}
	}()
	projectors := Projectors(c.o.Keys)
	if err := ledger.Rebuild(ctx, frozen, scratch, projectors); err != nil {
		return rep, err
	}
	diffs, err := ledger.Compare(frozen, scratch, projectors)
	if err != nil {
		return rep, err
	}
	for _, d := range diffs {
		rep.Differences = append(rep.Differences, fmt.Sprintf("%s: bucket %s differs first at key %s", d.Projector, d.Bucket, hex.EncodeToString(d.Key)))
	}
	rep.OK = len(rep.Differences) == 0
	return rep, frozen.View(func(r ledger.Reader) error {
		rep.Records = ledger.Size(r)
		digest := ledger.StateDigest(r, projectors)
		rep.Digest = digest.String()
		return nil
	})
}
