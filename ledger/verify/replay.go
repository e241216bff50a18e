package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redrivehq/redrive/ledger/event"
)

// maxReplayed bounds the members of a generation, and the envelopes, that
// replay holds in memory; a ledger can claim any number.
const maxReplayed = 1 << 24

// replay recomputes all state from records, sharing nothing with the code that
// wrote them.
type replay struct {
	rep     *Report
	one     bool // the scope is one generation: no laws about envelopes
	gens    map[event.GenerationNo]*generation
	planned event.GenerationNo
	keys    *keyOrder // of the plan that comes next
	envs    envelopes
	pinned  *event.SourcePinned // the last one

	opened bool
	closed bool // since opened
	epoch  uint64
}

func newReplay(rep *Report, one bool) *replay {
	return &replay{rep: rep, one: one, gens: map[event.GenerationNo]*generation{}}
}

// apply takes a record in. A breach is reported once for each generation: what
// follows from it would be noise.
func (p *replay) apply(r *event.Record) {
	p.report(r, p.session(r))
	if !p.one {
		p.report(r, p.envs.apply(r))
		p.report(r, p.source(r))
	}
	if plan, ok := r.Body.(*event.GenerationPlanned); ok {
		p.report(r, p.plan(r, plan))
		return
	}
	if _, ok := transitions[r.Body.Kind()]; !ok {
		return
	}
	g := p.gens[r.Subj.Gen]
	if g == nil {
		p.report(r, broken(LawPlan, "%s names generation %d, which was not planned", r.Body.Kind(), r.Subj.Gen))
		return
	}
	if g.stopped {
		return
	}
	if err := g.apply(r); err != nil {
		g.stopped = true
		p.report(r, err)
	}
}

func (p *replay) report(r *event.Record, err error) {
	if err == nil {
		return
	}
	var f *Finding
	if !errors.As(err, &f) {
		return
	}
	reason := f.Reason
	if g := p.gens[r.Subj.Gen]; g != nil {
		reason = fmt.Sprintf("generation %d: %s", g.no, reason)
	}
	p.rep.fail(&Finding{Law: f.Law, Seq: r.Seq, Place: fmt.Sprintf("record %d", r.Seq), Reason: reason})
}

// session checks that ledger.opened begins each epoch and ledger.closed ends
// it. The record before the first of them can only be ledger.created.
func (p *replay) session(r *event.Record) error {
	switch b := r.Body.(type) {
	case *event.LedgerCreated:
		return nil
	case *event.LedgerOpened:
		again, clean := p.opened && r.Epoch == p.epoch, !p.opened || p.closed
		first := !p.opened
		p.opened, p.closed, p.epoch = true, false, r.Epoch
		for _, g := range p.gens {
			g.orphans = g.open
			g.bucket.reset(0)
		}
		if again {
			return broken(LawSession, "epoch %d is opened twice", r.Epoch)
		}
		if !first && clean == (b.Unclean == 1) {
			return broken(LawSession, "unclean is %d, but whether the epoch before was closed says otherwise", b.Unclean)
		}
		return nil
	case *event.LedgerClosed:
		open := uint64(0)
		for _, g := range p.gens {
			open += g.open
		}
		if open > 0 {
			p.rep.warn("record %d closes the ledger in order with %d unresolved intents", r.Seq, open)
		}
	case *event.LedgerExported:
		if b.Size >= r.Seq {
			return broken(LawSession, "an export of %d records is recorded as number %d", b.Size, r.Seq)
		}
	}
	switch {
	case !p.opened || r.Epoch != p.epoch:
		p.opened, p.closed, p.epoch = true, false, r.Epoch
		return broken(LawSession, "epoch %d does not begin with ledger.opened", r.Epoch)
	case p.closed:
		return broken(LawSession, "a record after ledger.closed in the same epoch")
	}
	_, p.closed = r.Body.(*event.LedgerClosed)
	return nil
}

// source checks that messages come from the broker that is pinned, if one is:
// captures name its vhost.
func (p *replay) source(r *event.Record) error {
	switch b := r.Body.(type) {
	case *event.SourcePinned:
		before := p.pinned
		p.pinned = b
		if before != nil && b.Why == "" {
			return broken(LawSource, "cluster %q, vhost %q is pinned instead of cluster %q, vhost %q, without a reason", b.Cluster, b.VHost, before.Cluster, before.VHost)
		}
	case *event.EnvelopeCaptured:
		if p.pinned != nil && b.VHost != p.pinned.VHost {
			return broken(LawSource, "captured in vhost %q, pinned is vhost %q", b.VHost, p.pinned.VHost)
		}
	}
	return nil
}

// plan begins a generation.
func (p *replay) plan(r *event.Record, b *event.GenerationPlanned) error {
	no := r.Subj.Gen
	if p.gens[no] != nil || !p.one && no != p.planned+1 {
		return broken(LawPlan, "generation %d is planned after generation %d", no, p.planned)
	}
	p.planned = no
	g := &generation{no: no, state: event.Planned, plan: *b, limits: b.Limits, order: p.keys}
	g.beside = func() uint64 { return p.beside(g) }
	p.gens[no] = g
	if b.Members > maxReplayed || b.Deduplicated > maxReplayed || b.Withheld > maxReplayed {
		p.rep.incomplete("replay: generation %d selects more members than this verifier can hold", no)
		g.stopped = true
		return nil
	}
	g.counts[event.Waiting] = b.Members
	g.counts[event.DeduplicatedPlan] = b.Deduplicated
	g.counts[event.Withheld] = b.Withheld
	if err := g.checkPlan(); err != nil {
		g.stopped = true
		return err
	}
	return nil
}

// finish puts the tallies into the report, in the order of generations.
func (p *replay) finish() {
	if p.envs.unheld {
		p.rep.incomplete("replay: there are more envelopes than this verifier can hold")
	}
	for _, no := range slices.Sorted(maps.Keys(p.gens)) {
		g := p.gens[no]
		t := Tally{Gen: no, State: g.state, Selected: g.selected(), Moved: g.moved, Counts: g.counts,
			Conflicts: g.conflicts, Contradictions: g.contradictions}
		p.rep.Generations = append(p.rep.Generations, t)
		if g.contradictions > 0 {
			p.rep.warn("generation %d: %d tries were seen although they are recorded as not delivered", no, g.contradictions)
		}
	}
}
