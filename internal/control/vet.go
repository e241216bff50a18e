package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/probe"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// vetting holds members against the contract that is in force at a destination
// now: schemas, authorization, the consumer's inbox, the cap on attempts. A
// redrive does not get around what new messages have to fulfil.
type vetting struct {
	c   *Controller
	now time.Time
	set config.Destination
	// each visits the members that are to go out, in short read transactions.
	each   func(fn func(v ledger.View, no event.EnvelopeNo) error) error
	unfit  map[event.EnvelopeNo]string
	forced []string // reasons to stay that the plan overrules
	checks []redrive.Check
	away   error // the broker did not answer
}

// vet finds the members that must not go to d now, and marks them. What was
// found is among the checks of the plan.
func (p *planning) vet(ctx context.Context, d redrive.Destination) (withheld bool, err error) {
	set, _ := p.c.o.Config.Destination(d)
	t := &vetting{c: p.c, now: p.now, set: set, each: p.eachOpened, forced: p.m.Forced}
	if err := t.run(ctx); err != nil {
		return false, err
	}
	p.checks = t.checks
	for i := range p.found {
		if reason := t.unfit[p.found[i].No]; reason != "" {
			p.found[i].Unfit = reason
		}
	}
	return len(t.unfit) > 0, nil
}

// eachOpened visits the members in pages so short that each may be opened.
func (p *planning) eachOpened(fn func(v ledger.View, no event.EnvelopeNo) error) error {
	return p.inPages(vetPage, fn)
}

func (t *vetting) run(ctx context.Context) error {
	t.unfit = map[event.EnvelopeNo]string{}
	for _, look := range []func(context.Context) error{t.lineage, t.schema, t.authorization, t.inbox, t.horizon} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *vetting) found(name string, result redrive.CheckResult, required bool, format string, args ...any) {
	t.checks = append(t.checks, redrive.Check{Name: name, Result: result, Required: required,
		At: uint64(t.now.UnixMilli()), Evidence: fmt.Sprintf(format, args...)})
}

// reject marks a member; the first reason stays.
func (t *vetting) reject(no event.EnvelopeNo, reason string) {
	if t.unfit[no] == "" {
		t.unfit[no] = reason
	}
}

// withheldText tells how many members a check takes out.
func withheldText(n, of int) string {
	if n == 0 {
		return fmt.Sprintf("all %d", of)
	}
	return fmt.Sprintf("%d of %d do not", n, of)
}

// lineage looks at earlier generations of the same messages. One that has failed
// as often as the cap allows is not sent once more.
func (t *vetting) lineage(context.Context) error {
	limit := t.c.o.Config.Limits.Attempts
	var n, again, over int
	most := uint16(1)
	err := t.each(func(v ledger.View, no event.EnvelopeNo) error {
		cell, _ := quarantine.GetCell(v, no)
		n++
		if cell.Attempt > 1 {
			again++
		}
		most = max(most, cell.Attempt)
		if cell.Attempt > limit {
			over++
			t.reject(no, redrive.ReasonAttemptLimit)
		}
		return nil
	})
	switch {
	case over > 0:
		t.found(redrive.CheckLineage, redrive.CheckFailed, false, "%d of %d have failed more than %d times (limits.attempts)", over, n, limit)
	case again == 0:
		t.found(redrive.CheckLineage, redrive.CheckOK, false, "none of %d was released before", n)
	default:
		t.found(redrive.CheckLineage, redrive.CheckOK, false, "%d of %d were released before and came back, at most %d times", again, n, most-1)
	}
	return err
}

// maxRules bounds how many broken rules a check names.
const maxRules = 10

// schema holds bodies against the schemas of their types and versions.
func (t *vetting) schema(ctx context.Context) error {
	s := t.c.o.Schema
	if s.Digest() == "" {
		t.found(redrive.CheckSchema, redrive.CheckUnknown, false, "no schemas are configured")
		return nil
	}
	var n, bad, without int
	broken := map[string]int{}
	all, err := t.members()
	if err != nil {
		return err
	}
	for _, no := range all {
		f, o, err := t.goesOut(no)
		if _, alone := refusal(err); alone {
			continue // it will not go out at all
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return fmt.Errorf("hold bodies against their schemas: %w", err)
		}
		n++
		switch violation, known := s.Check(f.Type, f.Schema, o.Body); {
		case !known:
			without++
		case violation != "":
			bad++
			if broken[violation] > 0 || len(broken) < maxRules {
				broken[violation]++
			}
			t.reject(no, redrive.ReasonSchema)
		}
	}
	text := withheldText(bad, n-without) + fmt.Sprintf(" fulfil their schema (set %.12s)", s.Digest())
	for _, rule := range sorted(broken) {
		text += fmt.Sprintf("; %d break %s", broken[rule], rule)
	}
	if without > 0 {
		text += fmt.Sprintf("; %d have a type without a schema", without)
	}
	t.found(redrive.CheckSchema, judged(bad), false, "%s", text)
	return nil
}

// members lists who is to go out.
func (t *vetting) members() (nos []event.EnvelopeNo, err error) {
	err = t.each(func(_ ledger.View, no event.EnvelopeNo) error { nos = append(nos, no); return nil })
	return nos, err
}

// goesOut reads what a member says and what goes out of it, in a read
// transaction of its own: a large body may be judged for seconds after it.
func (t *vetting) goesOut(no event.EnvelopeNo) (f *quarantine.Facts, o *quarantine.Original, err error) {
	err = t.c.log.View(func(v ledger.View) error {
		var err error
		if f, err = factsNow(v, no); err == nil {
			o, err = t.c.outgoingNow(v, no)
		}
		return err
	})
	return f, o, err
}

// judged is the result of a check that looked at every member. What breaks it is
// withheld, so it stands in nobody's way.
func judged(bad int) redrive.CheckResult {
	if bad > 0 {
		return redrive.CheckFailed
	}
	return redrive.CheckOK
}

// authorization asks which of the operations are not authorized any more.
func (t *vetting) authorization(ctx context.Context) error {
	return t.operations(ctx, redrive.CheckAuthorization, redrive.ReasonNotAuthorized, "are authorized", t.set.Authorize)
}

// inbox asks which of the operations the consumer has seen.
func (t *vetting) inbox(ctx context.Context) error {
	return t.operations(ctx, redrive.CheckInbox, redrive.ReasonInboxHasIt, "are new to the consumer's inbox", t.set.InboxProbe)
}

func (t *vetting) operations(ctx context.Context, name, reason, good string, target *config.Target) error {
	if target == nil {
		t.found(name, redrive.CheckUnknown, false, "nobody is asked: none is configured for the destination")
		return nil
	}
	asker, err := t.c.askOperations(target)
	if err != nil {
		return err
	}
	var batch []probe.Operation
	var nos []event.EnvelopeNo
	var n, bad int
	ask := func() error {
		if len(batch) == 0 {
			return nil
		}
		listed, err := asker.Listed(ctx, batch)
		if err != nil {
			return errNoAnswer{err}
		}
		for i, o := range batch {
			if listed[o.Envelope] {
				bad++
				t.reject(nos[i], reason)
			}
		}
		n += len(batch)
		batch, nos = batch[:0], nos[:0]
		return nil
	}
	// Asked outside the read transaction that found them.
	all, err := t.members()
	if err != nil {
		return err
	}
	for page := range slices.Chunk(all, probe.MaxBatch) {
		err := t.c.log.View(func(v ledger.View) error {
			for _, no := range page {
				f, err := factsNow(v, no)
				if err != nil {
					return err
				}
				batch, nos = append(batch, probe.Operation{Envelope: f.ID.String(), Operation: f.Operation, Type: f.Type}), append(nos, no)
			}
			return nil
		})
		if err == nil {
			err = ask()
		}
		var silent errNoAnswer
		switch {
		case errors.As(err, &silent) && ctx.Err() == nil:
			t.found(name, redrive.CheckUnknown, true, "after %d of %d: %v", n, len(all), silent.error)
			return nil
		case err != nil:
			return err
		}
	}
	t.found(name, judged(bad), false, "%s %s", withheldText(bad, n), good)
	return nil
}

// errNoAnswer marks what went wrong at whoever was asked.
type errNoAnswer struct{ error }

func (e errNoAnswer) Unwrap() error { return e.error }
