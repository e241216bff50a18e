package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// maxPatch is how many bytes a JSON Patch may have.
const maxPatch = 256 << 10

// repair makes a candidate out of an original, or shows what it would be.
func (c *Controller) repair(ctx context.Context, req api.RepairRequest) (api.Repair, error) {
	if req.Why == "" && !req.DryRun {
		return api.Repair{}, usage(errors.New("a repair needs a reason, it goes into the ledger: say it with --why"))
	}
	var no event.EnvelopeNo
	err := c.log.View(func(v ledger.View) (err error) {
		no, err = quarantine.Lookup(v, req.ID)
		return err
	})
	if err == nil && req.Raw {
		_, err = c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
			return quarantine.View(v, event.RangesOf(no), "repair", req.Why)
		})
	}
	if err != nil {
		return api.Repair{}, err
	}
	d := drafting{c: c, no: no, req: &req}
	if err := d.make(); err != nil {
		return api.Repair{}, err
	}
	if req.DryRun {
		return d.out, nil
	}
	rc, err := c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
		return quarantine.Repair(v, c.o.Keys, &d.rules, no, d.draft, req.Why)
	})
	for _, r := range rc.Records {
		if b, ok := r.Body.(*event.EnvelopeRepaired); ok {
			d.out.Candidate, d.out.Live = b.Candidate, b.NewCommand == 0
		}
	}
	return d.out, err
}

// drafting is a repair on its way.
type drafting struct {
	c     *Controller
	no    event.EnvelopeNo
	req   *api.RepairRequest
	rules quarantine.Rules
	draft quarantine.Draft
	out   api.Repair
}

// make compares outside of the transactions that read: with a large body that
// takes a while.
func (d *drafting) make() error {
	f, o, err := d.c.opened(d.no)
	if err != nil {
		return err
	}
	source := d.c.o.Config.Source(f.Queue)
	if d.rules, err = source.Rules(); err != nil {
		return err
	}
	d.draft = quarantine.Draft{NewCommand: d.req.NewCommand, Operation: d.req.Operation}
	if d.draft.Body, err = repairedBody(o.Body, d.req); err != nil {
		return usage(err)
	}
	if d.draft.Properties, err = repairedProperties(o.Properties, d.req); err != nil {
		return usage(err)
	}
	after := &quarantine.Original{Properties: d.draft.Properties, Body: d.draft.Body}
	all := differences(o, after, true)
	if len(all) == 0 {
		return usage(errors.New("the repair changes nothing"))
	}
	if d.draft.Diff, err = json.Marshal(all); err != nil {
		return fmt.Errorf("write the difference down: %w", err)
	}
	var facts quarantine.RepairFacts
	err = d.c.log.View(func(v ledger.View) (err error) {
		facts, err = quarantine.CheckDraft(v, d.c.o.Keys, &d.rules, d.no, d.draft)
		return err
	})
	if err != nil {
		return err
	}
	digest := sha256.Sum256(d.draft.Body)
	d.out = api.Repair{Envelope: f.ID.String(), NewCommand: d.req.NewCommand, Changes: differences(o, after, d.req.Raw),
		SizeBefore: f.BodySize, SizeAfter: facts.BodySize, SHA256: hex.EncodeToString(digest[:])}
	return nil
}

// repairedBody is the body after the repair. What was JSON stays JSON, and has
// each name once: readers disagree about which of two counts, so that the
// consumer's operation might not be the one that was checked.
func repairedBody(body []byte, req *api.RepairRequest) ([]byte, error) {
	var out []byte
	switch whole := req.WholeBody || len(req.Body) > 0; {
	case whole && len(req.Patch) > 0:
		return nil, errors.New("give a patch or a body, not both")
	case whole:
		out = req.Body
		if jsonBody(body) && !jsonBody(out) {
			return nil, errors.New("the original is JSON, and the new body is none")
		}
	case len(req.Patch) > 0:
		var err error
		if out, err = patched(body, req.Patch); err != nil {
			return nil, err
		}
	default:
		return body, nil
	}
	if jsonBody(out) && !jsontext.Value(out).IsValid() {
		return nil, errors.New("a name would stand twice in one of the objects of the new body")
	}
	return out, nil
}

func jsonBody(b []byte) bool { return jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true)) }

// patched applies a JSON Patch. Numbers and texts that it does not name keep
// their spelling; spaces between them go.
func patched(body, patch []byte) ([]byte, error) {
	if len(patch) > maxPatch {
		return nil, fmt.Errorf("a patch of %d bytes, at most %d are taken", len(patch), maxPatch)
	}
	if len(body) > quarantine.MaxRepairBody {
		return nil, fmt.Errorf("the body has %d bytes, a patch takes at most %d", len(body), quarantine.MaxRepairBody)
	}
	if !jsontext.Value(body).IsValid() {
		return nil, errors.New("the body is no JSON, or a name stands twice in one of its objects: give the whole body with --body")
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("this is no JSON Patch (RFC 6902): %w", err)
	}
	o := jsonpatch.NewApplyOptions()
	o.EscapeHTML, o.SupportNegativeIndices, o.AccumulatedCopySizeLimit = false, false, quarantine.MaxRepairBody
	out, err := p.ApplyWithOptions(body, o)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, jsonpatch.ErrTestFailed):
		return nil, errors.New("the patch does not apply: a test in it fails")
	case errors.Is(err, jsonpatch.ErrMissing):
		return nil, errors.New("the patch does not apply: a place that it names is not there")
	}
	return nil, errors.New("the patch does not apply to this body") // the words of the library may quote it
}

func repairedProperties(props []byte, req *api.RepairRequest) ([]byte, error) {
	e := amqpwire.Edit(props)
	if req.ContentType != "" {
		e.SetContentType(req.ContentType)
	}
	var set []string
	for _, pair := range req.SetHeaders {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, errors.New("--set-header: want NAME=VALUE")
		}
		set = append(set, name, value)
	}
	if err := redrive.CheckSet(set); err != nil {
		return nil, err
	}
	for i := 0; i < len(set); i += 2 {
		e.Set(amqpwire.StringField(set[i], set[i+1]))
	}
	out, err := e.Bytes()
	if errors.Is(err, amqpwire.ErrUnwalkable) {
		return nil, errors.New("the header table of this message cannot be edited without guessing; repair the body alone")
	}
	return out, err
}

// chooseRepair is a person's word about a candidate.
func (c *Controller) chooseRepair(ctx context.Context, req api.RepairChoice) (api.Envelope, error) {
	if countTrue(req.Use != nil, req.Withdraw > 0, req.Approve > 0) != 1 {
		return api.Envelope{}, usage(errors.New("give one of --use, --withdraw and --approve, with the number of a repair"))
	}
	var no event.EnvelopeNo
	err := c.log.View(func(v ledger.View) (err error) {
		no, err = quarantine.Lookup(v, req.ID)
		return err
	})
	if err != nil {
		return api.Envelope{}, err
	}
	_, err = c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
		switch {
		case req.Use != nil:
			return quarantine.UseRepair(v, no, *req.Use, req.Why)
		case req.Withdraw > 0:
			return quarantine.WithdrawRepair(v, no, req.Withdraw, req.Why)
		}
		return quarantine.ApproveRepair(v, no, req.Approve, request(ctx, req.As).Actor, req.Commitment, req.Why)
	})
	if err != nil {
		return api.Envelope{}, err
	}
	return c.envelopeShow(ctx, api.EnvelopeShowRequest{ID: fmt.Sprintf("#%d", no)})
}

func repairStates(v ledger.View, no event.EnvelopeNo) ([]api.RepairState, error) {
	rs, err := quarantine.GetRepairs(v, no)
	var out []api.RepairState
	for _, c := range rs.Candidates {
		s := api.RepairState{Candidate: c.No, Live: rs.Live == c.No, State: "usable", At: moment(c.At), By: c.Author.Subject, Why: c.Why,
			Commitment: c.Commitment, Diff: c.Diff, NewCommand: c.NewCommand}
		switch {
		case c.Withdrawn:
			s.State = "withdrawn"
		case !c.Usable():
			s.State = "waits for approval"
		}
		if c.Approved != nil {
			s.ApprovedBy = c.Approved.Subject
		}
		out = append(out, s)
	}
	return out, err
}

// compareEnvelopes shows in what two envelopes differ, for whoever has to decide
// which of them is right.
func (c *Controller) compareEnvelopes(ctx context.Context, req api.CompareRequest) (api.Comparison, error) {
	var nos [2]event.EnvelopeNo
	err := c.log.View(func(v ledger.View) (err error) {
		for i, id := range []string{req.A, req.B} {
			if nos[i], err = quarantine.Lookup(v, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && nos[0] == nos[1] {
		err = usage(errors.New("these are one envelope; give two"))
	}
	if err == nil && req.Raw {
		_, err = c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
			return quarantine.View(v, event.RangesOf(nos[:]...), "compare", req.Why)
		})
	}
	if err != nil {
		return api.Comparison{}, err
	}
	out := api.Comparison{Differences: []api.Difference{}}
	var fs [2]*quarantine.Facts
	var os [2]*quarantine.Original
	for i, no := range nos {
		if fs[i], os[i], err = c.opened(no); err != nil {
			return out, err
		}
	}
	a, b := fs[0], fs[1]
	out.A, out.B = a.ID.String(), b.ID.String()
	out.SameOperation = a.Operation != "" && a.Operation == b.Operation
	out.SameMeaning, out.SameBody = a.Fingerprint == b.Fingerprint, a.BodyDigest == b.BodyDigest
	out.Differences = append(out.Differences, differences(os[0], os[1], req.Raw)...)
	switch {
	case out.SameOperation && out.SameMeaning:
		out.Verdict = "duplicate"
	case out.SameOperation && a.OperationFrom != "property:message_id":
		out.Verdict = redrive.ReasonConflict
	default:
		out.Verdict = "unrelated"
	}
	return out, nil
}

// opened reads an envelope with its original.
func (c *Controller) opened(no event.EnvelopeNo) (f *quarantine.Facts, o *quarantine.Original, err error) {
	err = c.log.View(func(v ledger.View) (err error) {
		if f, err = quarantine.GetFacts(v, no); err == nil {
			o, err = quarantine.GetOriginal(v, c.o.Keys, c.o.Blobs, no)
		}
		return err
	})
	return f, o, err
}
