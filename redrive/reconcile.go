package redrive

import (
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Reconciled is what a reconciliation found, and who ran it.
type Reconciled struct {
	By       event.Actor
	At       uint64
	Source   string
	Evidence string
	Findings
}

// Findings count the members of a generation that were held against business
// data. Checked is the sum of Double, Early, Effected, None and NotEffected.
type Findings struct {
	Checked      uint64
	Double       uint64
	Early        uint64
	Effected     uint64
	None         uint64
	NotCheckable uint64
	NotEffected  uint64
	Unexpected   uint64
}

var effectFacts = map[event.Effect]Facts{
	event.Effected: FactEffected, event.NotEffected: FactNotEffected, event.DoubleEffect: FactEffected | FactDouble,
}

// Observed is what business data says about one released member.
type Observed struct {
	Pos   event.Position
	Count uint64 // effects of its operation
}

// Checkable is a member of a generation as business data can speak of it.
type Checkable struct {
	Pos       event.Position
	Env       event.EnvelopeNo
	Operation string // of what went out; "" when it has none
	Released  bool   // by this generation, at least tried
	// Elsewhere says that another generation has released it, or what came back
	// of it, since: an effect would be that one's.
	Elsewhere bool
}

// EachCheckable visits the members from a position on in release order, until
// fn returns false.
func EachCheckable(r ledger.Reader, g *Generation, from event.Position, fn func(Checkable) bool) error {
	var failed error
	var repairs RepairLists
	err := EachMemberFrom(r, g, from, func(pos event.Position, env event.EnvelopeNo) bool {
		var f *quarantine.Facts
		if f, failed = repairs.Outgoing(r, g, pos, env); failed != nil {
			return false
		}
		m := GetMember(r, g.No, pos)
		x := Checkable{Pos: pos, Env: env, Operation: f.Operation, Released: m.Tries > 0}
		x.Elsewhere = x.Released && carriedOn(r, g.No, env)
		return fn(x)
	})
	return errors.Join(err, failed)
}

// carriedOn reports whether another generation has moved the envelope, or one
// that came back of it.
func carriedOn(r ledger.Reader, no event.GenerationNo, env event.EnvelopeNo) bool {
	cell, ok := quarantine.GetCell(r, env)
	if !ok || cell.Gen != no {
		return true
	}
	for _, kid := range quarantine.Kids(r, env) {
		if c, ok := quarantine.GetCell(r, kid); ok && c.Gen != 0 {
			return true
		}
	}
	return false
}

// judge says which effect is recorded about a member, "" for none, and counts
// it. An effect that is not there proves something only when it should be
// there: after the deadline, or when somebody says that it is.
func (f *Findings) judge(m *Member, count uint64) event.Effect {
	f.Checked++
	switch {
	case count > 1:
		f.Double++
		return event.DoubleEffect
	case count == 1:
		f.Effected++
		return event.Effected
	}
	switch m.Disposition() {
	case event.Missing, event.AmbiguousEffect, event.Succeeded, event.DeduplicatedConsumer:
		f.NotEffected++
		return event.NotEffected
	case event.Undelivered, event.RejectedByConsumer, event.Requarantined:
		f.None++
	default:
		f.Early++
	}
	return ""
}

// ReconcileMembers records what business data says about members, as far as it
// is not known yet, and adds to the findings. Evidence is the commitment to it.
// Calling it again with the same changes nothing more.
func ReconcileMembers(v ledger.View, no event.GenerationNo, evidence string, seen []Observed, found *Findings) ([]event.Event, error) {
	if _, err := act(v, no, event.KindMemberReconciled); err != nil {
		return nil, err
	}
	by := map[event.Effect][]event.Position{}
	for _, o := range seen {
		m := GetMember(v, no, o.Pos)
		e := found.judge(&m, o.Count)
		if want := effectFacts[e]; m.Facts&want != want {
			by[e] = append(by[e], o.Pos)
		}
	}
	var out []event.Event
	for _, e := range event.Effects {
		out = append(out, positions(no, by[e], func(part event.Ranges) event.Body {
			return &event.MemberReconciled{Effect: e, Evidence: evidence, Pos: part}
		})...)
	}
	return out, nil
}

// ReconcileDone records what a reconciliation found, after its members.
func ReconcileDone(v ledger.View, no event.GenerationNo, source, evidence string, f Findings) ([]event.Event, error) {
	if _, err := act(v, no, event.KindGenerationReconciled); err != nil {
		return nil, err
	}
	return one(no, &event.GenerationReconciled{Checked: f.Checked, Double: f.Double, Early: f.Early, Effected: f.Effected, Evidence: evidence,
		None: f.None, NotCheckable: f.NotCheckable, NotEffected: f.NotEffected, Source: source, Unexpected: f.Unexpected}), nil
}

// CloseAsIs closes a generation with the numbers that it has: whoever has just
// seen them states them. A generation that is closed already stays so.
func CloseAsIs(v ledger.View, no event.GenerationNo, why string) ([]event.Event, error) {
	g, err := Get(v, no)
	if err != nil {
		return nil, err
	}
	if g.State == event.Closed {
		return nil, nil
	}
	return Close(v, no, g.statement(), why)
}

// CanCloseAsIs refuses, wrapping ErrState, what CloseAsIs would refuse once so
// many of the pending members have been settled. Nothing can be taken back that
// a reconciliation has recorded, so that this is asked before.
func CanCloseAsIs(v ledger.View, g *Generation, settled uint64) error {
	if g.State == event.Closed {
		return nil
	}
	if _, err := act(v, g.No, event.KindGenerationClosed); err != nil {
		return err
	}
	return g.awaits(g.Counts[event.Pending] - min(settled, g.Counts[event.Pending]))
}

// CanReconcile refuses, wrapping ErrState, a generation that has released
// nothing yet.
func CanReconcile(g *Generation) error {
	if _, err := next(g.State, event.KindMemberReconciled); err != nil {
		return fmt.Errorf("generation %d is %s, it has released nothing that could have an effect: %w", g.No, g.State, ErrState)
	}
	return nil
}

// effects keeps the counters of what business data says in step.
func (a *applying) effects(was, is Facts) {
	if is.Has(FactDouble) && !was.Has(FactDouble) {
		a.g.Doubles++
	}
	switch {
	case is.Disputed() && !was.Disputed():
		a.g.Disputes++
	case was.Disputed() && !is.Disputed():
		a.g.Disputes--
	}
}

func (a *applying) reconciled(b *event.GenerationReconciled) {
	a.g.Reconciled = &Reconciled{By: a.r.Actor, At: a.r.TS, Source: b.Source, Evidence: b.Evidence, Findings: Findings{
		Checked: b.Checked, Double: b.Double, Early: b.Early, Effected: b.Effected, None: b.None,
		NotCheckable: b.NotCheckable, NotEffected: b.NotEffected, Unexpected: b.Unexpected}}
}

// Add adds what another part of the members gave.
func (f *Findings) Add(g Findings) {
	f.Checked += g.Checked
	f.Double += g.Double
	f.Early += g.Early
	f.Effected += g.Effected
	f.None += g.None
	f.NotCheckable += g.NotCheckable
	f.NotEffected += g.NotEffected
	f.Unexpected += g.Unexpected
}

// Look tells what a person has to look at when a member had that many effects,
// "" for nothing, and the member as it is once that is known.
func Look(m Member, effects uint64) (finding string, after Member) {
	var f Findings
	e := f.judge(&m, effects)
	m.Facts |= effectFacts[e]
	switch {
	case e == event.DoubleEffect:
		finding = "double"
	case m.Facts.Disputed(), e == event.Effected && m.Facts.Contradicts():
		finding = "disputed"
	case e == event.NotEffected:
		finding = "not_effected"
	}
	return finding, m
}

// Freed reports whether business data has made a missing member, or one whose
// effect was in doubt, plannable again.
func (m *Member) Freed() bool {
	d := m.Disposition()
	return (d == event.Missing || d == event.AmbiguousEffect) && m.Facts.freed()
}

// EffectWord is what business data shows of a member: "effected", "double",
// "not_effected", or "" when nobody has looked.
func (f Facts) EffectWord() string {
	switch {
	case f.Has(FactDouble):
		return string(event.DoubleEffect)
	case f.Has(FactEffected):
		return string(event.Effected)
	case f.Has(FactNotEffected):
		return string(event.NotEffected)
	}
	return ""
}

// EachMemberFrom visits the members from a position on in release order, until
// fn returns false.
func EachMemberFrom(r ledger.Reader, g *Generation, from event.Position, fn func(event.Position, event.EnvelopeNo) bool) error {
	var c chunks
	for pos := from; uint64(pos) < g.Members; pos++ {
		env, err := g.envelope(r, &c, pos)
		if err != nil {
			return err
		}
		if !fn(pos, env) {
			return nil
		}
	}
	return nil
}
