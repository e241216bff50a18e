package redrive

import (
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Projector keeps generations, members and tallies. It implements
// ledger.Projector and runs after the one of package quarantine, whose cells
// it asks to change custody.
type Projector struct{}

// Name implements ledger.Projector.
func (Projector) Name() string { return "redrive" }

// Buckets implements ledger.Projector.
func (Projector) Buckets() []ledger.Bucket {
	return []ledger.Bucket{bucketGeneration, bucketGenID, bucketOpen, bucketMember, bucketConfirmed, bucketStarts, bucketReady, bucketRetry, bucketOutAfterAll}
}

// Apply implements ledger.Projector.
func (p Projector) Apply(w ledger.Writer, r *event.Record) error {
	if b, ok := r.Body.(*event.LedgerOpened); ok && b.Unclean != 0 {
		return w.Put(bucketStarts, ledger.Key(r.Seq), ledger.Key(r.TS))
	}
	if b, ok := r.Body.(*event.EnvelopePurged); ok {
		return forgetOutAfterAll(w, b.Envs)
	}
	if r.Subj.Gen == 0 {
		return nil
	}
	if b, ok := r.Body.(*event.GenerationPlanned); ok {
		return planned(w, r, b)
	}
	g, err := Get(w, r.Subj.Gen)
	if err != nil {
		return err
	}
	to, err := next(g.State, r.Body.Kind())
	if err != nil {
		return fmt.Errorf("generation %d: %w", g.No, err)
	}
	a := applying{w: w, r: r, g: g, members: memberEditor{w: w, gen: g.No}, custody: map[event.EnvelopeNo]event.Custody{}}
	if err := a.body(r.Body); err != nil {
		return err
	}
	if to != "" {
		g.State = to
	}
	return a.finish()
}

func planned(w ledger.Writer, r *event.Record, b *event.GenerationPlanned) error {
	m, err := GetManifest(w, b.Manifest)
	if err != nil {
		return err
	}
	g := &Generation{No: r.Subj.Gen, ID: m.ID, State: event.Planned, Manifest: b.Manifest,
		Members: b.Members, Withheld: b.Withheld, Deduplicated: b.Deduplicated, Stages: b.Stages, Limits: b.Limits,
		Destination: m.Destination(), Repairs: m.Repairs, Evidence: m.Evidence, Bake: m.Bake,
		Deadline: m.Deadline, Ambiguity: m.Ambiguity, Inbox: m.Inbox, RetryNacked: m.RetryNacked,
		Keys: b.Keys, Heads: m.Heads, OnFailure: b.OnFailure, Planner: r.Actor, PlannedAt: r.TS, PlannedSeq: r.Seq, Changed: r.TS,
		Shared: b.Destination, Consumer: m.Consumer}
	if g.Thresholds, err = ParseThresholds(m.Thresholds); err != nil {
		return fmt.Errorf("manifest %s: %w", b.Manifest, err)
	}
	g.Counts[event.Waiting] = b.Members
	if err := w.Put(bucketGenID, []byte(m.ID), ledger.Key(uint64(g.No))); err != nil {
		return err
	}
	return g.store(w)
}

// applying is one record on its way into a generation.
type applying struct {
	w       ledger.Writer
	r       *event.Record
	g       *Generation
	chunks  chunks
	strata  strata
	members memberEditor
	keys    keyList
	custody map[event.EnvelopeNo]event.Custody
	took    bool
	follow  []event.Position   // members that succeeded, or do not count as succeeded any more
	risky   []event.EnvelopeNo // free again although they may have been delivered
	err     error
}

func (a *applying) step(why string) *Step { return &Step{By: a.r.Actor, At: a.r.TS, Why: why} }

func (a *applying) body(b event.Body) error {
	g := a.g
	switch b := b.(type) {
	case *event.GenerationApproved:
		g.Approval = &Approval{By: a.r.Actor, At: a.r.TS, Expires: b.Expires, Why: b.Why}
	case *event.GenerationRejected:
		g.Ended = a.step(b.Why)
	case *event.GenerationExpired:
		g.Ended = a.step(b.Why)
	case *event.GenerationStarted:
		g.Started = a.step("")
		g.Changed = a.r.TS
		a.emptyBucket()
	case *event.GenerationChecked:
		g.Checked = &Preflown{Phase: b.Phase, At: a.r.TS, Checks: b.Checks, Stand: b.Names}
	case *event.GenerationAdvanced:
		g.Stage = b.Stage
		g.Changed = a.r.TS
		if g.lastStage() {
			g.Pace.begin()
		}
	case *event.GenerationLimited:
		g.Limits = b.Limits
		a.emptyBucket()
	case *event.GenerationEvaluated:
		a.evaluated(b)
	case *event.GenerationThrottled:
		a.throttle(b)
	case *event.GenerationRevised:
		return a.revised(b)
	case *event.GenerationPaused:
		if !g.pausedFor(b.Reason) {
			g.Pauses = append(g.Pauses, Pause{Reason: b.Reason, By: a.r.Actor, At: a.r.TS, Why: b.Why})
		}
	case *event.GenerationResumed:
		a.resumed(b)
	case *event.GenerationAborted:
		g.Ended = a.step(b.Why)
	case *event.GenerationSettling:
	case *event.GenerationClosed:
		g.Ended = a.step(b.Why)
	case *event.GenerationReconciled:
		a.reconciled(b)
	default:
		a.member(b)
	}
	return a.err
}

// emptyBucket makes the token bucket empty as of this record.
func (a *applying) emptyBucket() {
	a.g.RateEpoch = a.r.Epoch
	a.g.RateAt = a.r.Mono*nanosPerMillis + a.g.interval()*uint64(a.g.Limits.Burst)
}

// member applies facts about members.
func (a *applying) member(b event.Body) {
	switch b := b.(type) {
	case *event.MemberIntended:
		a.intended(b)
	case *event.MemberResolved:
		a.resolved(b)
	case *event.MemberConfirmedLate:
		a.each(b.Pos, func(m *Member) { a.delivered(m, FactConfirmedLate, b.Try) })
		a.waiting(b.Pos)
	case *event.MemberRuled:
		a.each(b.Pos, func(m *Member) {
			if b.Ruling == event.RuledDelivered {
				a.delivered(m, FactRuledDelivered, b.Try)
				return
			}
			m.certain(b.Try)
			m.RuledNot |= 1 << (b.Try - 1)
			m.Facts |= FactRuledNot
			m.Reason = reasonNumber("ruled_not_delivered")
		})
		if b.Ruling == event.RuledDelivered {
			a.waiting(b.Pos)
		}
	case *event.MemberWithheld:
		a.each(b.Pos, func(m *Member) { m.Facts |= FactWithheld; m.Reason = reasonNumber(b.Reason) })
		a.decided(b.Pos)
	case *event.MemberMissed:
		a.each(b.Pos, func(m *Member) { m.Facts |= FactDeadline })
		a.forget()
	case *event.EnvelopeReturned:
		if b.Again == 0 {
			a.each(event.RangesOf(b.Pos), func(m *Member) { m.Facts |= FactReturned })
			a.forget()
		}
	case *event.OutcomeReported:
		a.g.Foreign += b.Foreign
		a.latencies(b.Pos)
		a.each(b.Pos, func(m *Member) { m.Facts |= outcomeFacts[b.Outcome] })
		a.forget()
	case *event.MemberReconciled:
		a.each(b.Pos, func(m *Member) { m.Facts |= effectFacts[b.Effect] })
		a.forget()
	}
}

var outcomeFacts = map[event.Outcome]Facts{
	event.OutcomeAdmitted: FactAdmitted, event.OutcomeSucceeded: FactSucceeded, event.OutcomeRejected: FactRejected,
	event.OutcomeDeduplicated: FactDeduplicated, event.OutcomeAmbiguous: FactEffectAmbiguous,
}

func (a *applying) intended(b *event.MemberIntended) {
	a.took = true
	a.each(b.Pos, func(m *Member) {
		m.Facts |= FactUnresolved
		m.Tries = b.Try
	})
	a.decided(b.Pos)
	g := a.g
	g.Pace.sent(g.Unresolved)
	if g.RateEpoch != a.r.Epoch {
		g.RateEpoch, g.RateAt = a.r.Epoch, g.interval()*uint64(g.Limits.Burst)
	}
	g.RateAt = max(g.RateAt, a.r.Mono*nanosPerMillis) + g.interval()*b.Pos.Count()
}

// decided moves positions out of what has never been tried or waits again.
func (a *applying) decided(pos event.Ranges) {
	g := a.g
	var left []uint64
	for p := range g.Again.All() {
		if !pos.Contains(p) {
			left = append(left, p)
		}
	}
	if len(g.Again) > 0 {
		g.Again = event.RangesOf(left...)
	}
	for _, r := range pos {
		switch last := event.Position(r.Last); {
		case !g.ordered():
			g.Next = max(g.Next, last+1)
		case r.First < g.Heads:
			g.Next = max(g.Next, event.Position(min(r.Last+1, g.Heads)))
			g.Reach = max(g.Reach, last+1)
		default:
			g.Reach = max(g.Reach, last+1)
		}
	}
}

func (a *applying) resolved(b *event.MemberResolved) {
	g := a.g
	bit := uint32(1) << (b.Try - 1)
	a.each(b.Pos, func(m *Member) {
		m.Facts &^= FactUnresolved
		g.Resolved++
		switch b.Resolution {
		case event.Confirmed:
			a.delivered(m, FactConfirmed, 0)
		case event.Returned:
			m.Facts |= FactUnroutable
			m.Reason = reasonNumber(b.Reason)
			g.Unroutable++
		case event.Nacked:
			m.Facts |= FactNacked
			if g.RetryNacked > 0 {
				m.Nacks++
			}
			a.nacked()
			m.Reason = reasonNumber(b.Reason)
		case event.Ambiguous:
			m.Ambiguous |= bit
			if b.Reason == ReasonRestart {
				m.Restart |= bit
			} else {
				g.Doubtful++
			}
		case event.Refused:
			if b.Again == 0 {
				m.Facts |= FactRefused
				m.Reason = reasonNumber(b.Reason)
			}
		}
	})
	switch {
	case b.Resolution == event.Confirmed:
		g.Pace.confirmed(b.Pos.Count(), g.Limits.Window)
		a.waiting(b.Pos)
	case b.Resolution == event.Refused && b.Again != 0:
		again := b.Pos
		if g.ordered() {
			again = a.heads(b.Pos)
		}
		for p := range g.Again.All() {
			again = append(again, event.Range{First: p, Last: p})
		}
		g.Again = union(again)
	}
}

// heads are those of a set that go by position: what else waits again is ready
// by what happened before it in its key.
func (a *applying) heads(pos event.Ranges) (out event.Ranges) {
	for _, r := range pos {
		if r.First < a.g.Heads {
			out = append(out, event.Range{First: r.First, Last: min(r.Last, a.g.Heads-1)})
		}
	}
	return out
}

func union(rs event.Ranges) event.Ranges {
	var all []uint64
	for _, r := range rs {
		for n := r.First; n <= r.Last; n++ {
			all = append(all, n)
		}
	}
	return event.RangesOf(all...)
}

// certain takes the doubt, and what a person said about it, off a try.
func (m *Member) certain(try event.Try) {
	bit := uint32(1) << (try - 1)
	m.Ambiguous, m.Restart, m.RuledNot = m.Ambiguous&^bit, m.Restart&^bit, m.RuledNot&^bit
}

// delivered adds a fact that says that the broker has the message.
func (a *applying) delivered(m *Member, f Facts, try event.Try) {
	m.Facts |= f
	if try > 0 {
		m.certain(try)
	}
	if m.ConfirmedAt == 0 {
		m.ConfirmedAt = uint32(a.r.TS / 1000)
	}
}

// waiting notes that members wait for their outcome from now on.
func (a *applying) waiting(pos event.Ranges) {
	v := append(ledger.Key(a.r.TS), pos.String()...)
	if err := a.w.Put(bucketConfirmed, ledger.Key2(uint64(a.g.No), a.r.Seq), v); err != nil && a.err == nil {
		a.err = err
	}
}

// forget removes the notes of members that wait for outcomes, as far as all of
// them have one or missed theirs.
func (a *applying) forget() {
	if err := a.members.flush(); err != nil && a.err == nil {
		a.err = err
	}
	var done [][]byte
	a.w.Scan(bucketConfirmed, ledger.Key2(uint64(a.g.No), 0), func(k, v []byte) bool {
		set, err := event.ParseRanges(string(v[8:]))
		if ledger.Unkey(k) != uint64(a.g.No) || ledger.Unkey(v)+a.g.Deadline > a.r.TS || err != nil {
			return false
		}
		for p := range set.All() {
			if m := GetMember(a.w, a.g.No, event.Position(p)); m.awaits() {
				return false
			}
		}
		done = append(done, append([]byte(nil), k...))
		return true
	})
	for _, k := range done {
		if err := a.w.Delete(bucketConfirmed, k); err != nil && a.err == nil {
			a.err = err
		}
	}
}

// each changes members and keeps counters and custody in step.
func (a *applying) each(pos event.Ranges, fn func(*Member)) {
	g := a.g
	for p := range pos.All() {
		if p >= g.Members {
			a.err = fmt.Errorf("generation %d has no position %d: %w", g.No, p, ledger.ErrIntegrity)
			return
		}
		var before, after Member
		err := a.members.edit(event.Position(p), func(m *Member) {
			before = *m
			fn(m)
			after = *m
		})
		if err != nil {
			a.err = err
			return
		}
		was, is := before.Facts, after.Facts
		switch {
		case is.Has(FactUnresolved) && !was.Has(FactUnresolved):
			g.Unresolved++
		case was.Has(FactUnresolved) && !is.Has(FactUnresolved):
			g.Unresolved--
		}
		if is.Contradicts() && !was.Contradicts() {
			g.Contradictions++
		}
		a.effects(was, is)
		if d := after.Disposition(); d != before.Disposition() {
			a.moved(event.Position(p), before.Disposition(), d)
		}
		a.answers(event.Position(p), &before, &after)
		a.retries(event.Position(p), &before, &after)
		if g.ordered() {
			a.link(event.Position(p), &before, &after)
		}
	}
}

func (a *applying) moved(pos event.Position, before, after event.Disposition) {
	g := a.g
	g.Counts[before]--
	g.Counts[after]++
	a.stratum(pos, before, after)
	g.Changed = a.r.TS
	if g.State == event.Closed {
		switch after {
		case event.Requarantined, event.RejectedByConsumer, event.AmbiguousEffect:
			g.Regressions++
		}
	}
	if before == event.Succeeded || after == event.Succeeded {
		a.follow = append(a.follow, pos)
	}
}

// answers changes the custody of an envelope. A fact that changes nobody's
// answer leaves it alone: it may have been changed by a person since.
func (a *applying) answers(pos event.Position, before, after *Member) {
	to := custodyOf(after)
	if custodyOf(before) == to {
		return
	}
	g := a.g
	env, err := g.envelope(a.w, &a.chunks, pos)
	if err != nil {
		a.err = err
		return
	}
	a.custody[env] = to
	if to == event.Quarantined && after.Facts.freed() {
		a.risky = append(a.risky, env)
	}
	if outAfterAll(before, after) {
		a.fail(noteOutAfterAll(a.w, env))
	}
}

func (a *applying) finish() error {
	if err := a.members.flush(); err != nil {
		return err
	}
	if g := a.g; g.Seen.any() {
		g.Seen.forgive(votes(a.w, g))
	}
	if len(a.custody) > 0 {
		if err := quarantine.SetCustody(a.w, a.g.No, a.took, a.custody); err != nil {
			return err
		}
	}
	if err := quarantine.MarkDuplicateRisk(a.w, a.risky); err != nil {
		return err
	}
	for _, pos := range a.follow {
		if err := a.followers(pos); err != nil {
			return err
		}
	}
	return a.g.store(a.w)
}

// followers resolves the envelopes that stayed because this member went in
// their place, and takes that back when the member turns out not to have
// succeeded.
func (a *applying) followers(pos event.Position) error {
	m := GetMember(a.w, a.g.No, pos)
	succeeded := m.Disposition() == event.Succeeded
	prefix := followKey(a.g.ID, pos)
	to := map[event.EnvelopeNo]event.Custody{}
	a.w.Scan(bucketFollow, prefix, func(k, _ []byte) bool {
		if string(k[:len(prefix)]) != string(prefix) {
			return false
		}
		no := event.EnvelopeNo(ledger.Unkey(k[len(prefix):]))
		c, ok := quarantine.GetCell(a.w, no)
		switch {
		case ok && succeeded && c.Custody == event.Quarantined:
			to[no] = event.ResolvedForNow
		case ok && !succeeded && c.Custody == event.ResolvedForNow && c.Gen == a.g.No:
			to[no] = event.Quarantined
		}
		return true
	})
	if len(to) == 0 {
		return nil
	}
	return quarantine.SetCustody(a.w, a.g.No, true, to)
}
