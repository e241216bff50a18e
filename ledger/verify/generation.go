package verify

import (
	"slices"

	"github.com/redrivehq/redrive/ledger/event"
)

// day is the time after which an approval no longer lets a resume happen, ms.
const day = 24 * 60 * 60 * 1000

// slack allows the stamp of a record to be this much later than the moment at
// which its decision looked at the clock, ms.
const slack = 1000

// generation is one replay, recomputed.
type generation struct {
	no      event.GenerationNo
	state   event.State
	stopped bool // after a breach, or too large: no longer followed
	plan    event.GenerationPlanned
	limits  event.Limits
	stage   int
	reasons []string // for which it is paused
	dueStop bool     // an evaluation said pause or abort, and none came yet
	// dueThrottle says that an evaluation said throttle, and none came yet.
	dueThrottle bool
	throttles   map[string]uint64 // per mille by reason
	beside      func() uint64     // exposed by other generations of the destination

	barred   bool   // the last preflight of a start or resume said no
	expires  uint64 // latest expiry among the approvals
	renewed  uint64 // the same, among those given after the start
	started  bool
	startTS  uint64
	bucket   bucket
	order    *keyOrder // nil when nothing is ordered
	parents  map[event.Position]event.EnvelopeNo
	children map[event.EnvelopeNo]event.Position

	members        []member // up to the highest position that has a fact
	counts         [event.NumDispositions]uint64
	moved          uint64
	conflicts      uint64
	contradictions uint64
	open           uint64 // unresolved intents
	orphans        uint64 // those of them that an earlier epoch left behind
	seen           observed
}

var afterStart = []event.State{event.Running, event.Paused, event.Settling, event.Closed, event.Aborted, event.Expired}

// transitions says in which states a record may come, and the state after it.
// No state: it stays, or the body decides.
var transitions = map[event.Kind]struct {
	from []event.State
	to   event.State
}{
	event.KindGenerationApproved:  {from: []event.State{event.Planned, event.Approved, event.Running, event.Paused}},
	event.KindGenerationRejected:  {[]event.State{event.Planned, event.Approved}, event.Rejected},
	event.KindGenerationExpired:   {[]event.State{event.Planned, event.Approved, event.Paused}, event.Expired},
	event.KindGenerationStarted:   {[]event.State{event.Approved}, event.Running},
	event.KindGenerationAdvanced:  {from: []event.State{event.Running, event.Paused}},
	event.KindGenerationLimited:   {from: []event.State{event.Approved, event.Running, event.Paused}},
	event.KindGenerationEvaluated: {from: afterStart},
	event.KindGenerationThrottled: {from: []event.State{event.Running, event.Paused}},
	event.KindGenerationRevised:   {from: []event.State{event.Approved, event.Running, event.Paused}},
	event.KindGenerationPaused:    {[]event.State{event.Running, event.Paused}, event.Paused},
	event.KindGenerationResumed:   {from: []event.State{event.Paused}},
	event.KindGenerationAborted:   {[]event.State{event.Running, event.Paused}, event.Aborted},
	event.KindGenerationSettling:  {[]event.State{event.Running, event.Paused, event.Aborted, event.Expired}, event.Settling},
	event.KindGenerationClosed:    {[]event.State{event.Settling}, event.Closed},
	event.KindGenerationChecked:   {from: []event.State{event.Planned, event.Approved, event.Running, event.Paused}},

	event.KindMemberIntended:      {from: []event.State{event.Running}},
	event.KindMemberWithheld:      {from: []event.State{event.Running, event.Paused}},
	event.KindMemberResolved:      {from: afterStart},
	event.KindMemberConfirmedLate: {from: afterStart},
	event.KindMemberRuled:         {from: afterStart},
	event.KindMemberMissed:        {from: afterStart},
	event.KindOutcomeReported:     {from: afterStart},
	event.KindEnvelopeReturned:    {from: afterStart},

	event.KindMemberReconciled:     {from: afterStart},
	event.KindGenerationReconciled: {from: afterStart},
}

// apply checks one record of the generation against the state before it, and
// both sums after it.
func (g *generation) apply(r *event.Record) error {
	kind := r.Body.Kind()
	move := transitions[kind]
	if !slices.Contains(move.from, g.state) {
		law := LawState
		if kind == event.KindMemberIntended {
			law = LawGate
		}
		return broken(law, "%s while %s", kind, g.state)
	}
	if err := g.act(r); err != nil {
		return err
	}
	if move.to != "" {
		g.state = move.to
	}
	return g.checkSums()
}

func (g *generation) act(r *event.Record) error {
	switch b := r.Body.(type) {
	case *event.GenerationApproved:
		return g.approve(b)
	case *event.GenerationStarted:
		return g.start(r, b)
	case *event.GenerationChecked:
		return g.check(b)
	case *event.GenerationAdvanced:
		if int(b.Stage) != g.stage+1 || int(b.Stage) >= len(g.plan.Stages) {
			return broken(LawStage, "stage %d after stage %d of %d", b.Stage, g.stage, len(g.plan.Stages))
		}
		g.stage++
	case *event.GenerationLimited:
		g.limits = b.Limits
		g.bucket.reset(r.Mono)
		return checkLimits(b.Limits)
	case *event.GenerationEvaluated:
		return g.evaluate(b)
	case *event.GenerationThrottled:
		return g.throttle(b)
	case *event.GenerationRevised:
		return g.revise(b)
	case *event.GenerationPaused:
		g.dueStop = false
		if !slices.Contains(g.reasons, b.Reason) {
			g.reasons = append(g.reasons, b.Reason)
		}
	case *event.GenerationResumed:
		return g.resume(r, b)
	case *event.GenerationAborted:
		if have := g.counts[event.Waiting]; b.Freed != have {
			return broken(LawClosed, "the abort frees %d members, %d are waiting", b.Freed, have)
		}
	case *event.GenerationSettling:
		return g.settle()
	case *event.GenerationClosed:
		return g.close(b)
	case *event.GenerationReconciled:
		return g.reconcile(b)
	default:
		return g.memberAct(r)
	}
	return nil
}

// checkPlan checks what a plan says by itself.
func (g *generation) checkPlan() error {
	last := uint64(0)
	for _, n := range g.plan.Stages {
		if n <= last {
			return broken(LawPlan, "stages %v do not grow", g.plan.Stages)
		}
		last = n
	}
	if len(g.plan.Stages) > 0 && last != g.plan.Members {
		return broken(LawPlan, "the last stage ends at %d of %d members", last, g.plan.Members)
	}
	if err := checkOrder(&g.plan); err != nil {
		return err
	}
	return checkLimits(g.limits)
}

func checkLimits(l event.Limits) error {
	if l.Burst == 0 || l.Exposure == 0 || l.RateMilli == 0 || l.Window == 0 {
		return broken(LawPlan, "a limit is missing")
	}
	return nil
}

func (g *generation) approve(b *event.GenerationApproved) error {
	if b.Manifest != g.plan.Manifest {
		return broken(LawApproval, "approved is manifest %.12s, planned is %.12s", b.Manifest, g.plan.Manifest)
	}
	g.expires = max(g.expires, b.Expires)
	if g.started {
		g.renewed = max(g.renewed, b.Expires)
	}
	if g.state == event.Planned {
		g.state = event.Approved
	}
	return nil
}

func (g *generation) start(r *event.Record, b *event.GenerationStarted) error {
	if b.Manifest != g.plan.Manifest {
		return broken(LawApproval, "started is manifest %.12s, approved is %.12s", b.Manifest, g.plan.Manifest)
	}
	if r.TS > g.expires+slack {
		return broken(LawApproval, "started %d ms after the approval expired", r.TS-g.expires)
	}
	if g.barred {
		return broken(LawCheck, "started although its checks said no")
	}
	g.started, g.startTS = true, r.TS
	g.bucket.reset(r.Mono)
	return nil
}

func (g *generation) resume(r *event.Record, b *event.GenerationResumed) error {
	for _, reason := range b.Cleared {
		i := slices.Index(g.reasons, reason)
		if i < 0 {
			return broken(LawState, "cleared is %q, for which it was not paused", reason)
		}
		g.reasons = slices.Delete(g.reasons, i, i+1)
	}
	if len(b.Cleared) == 0 {
		return broken(LawState, "a resume that clears no reason")
	}
	if len(g.reasons) > 0 {
		return nil
	}
	if r.TS > g.startTS+day+slack && r.TS > g.renewed+slack {
		return broken(LawApproval, "resumed more than 24 h after the start without a new approval")
	}
	if g.barred {
		return broken(LawCheck, "resumed although its checks said no")
	}
	g.state = event.Running
	return nil
}

// check notes what a preflight said. What a plan found stands in nobody's way:
// a start looks again.
func (g *generation) check(b *event.GenerationChecked) error {
	if b.Failed+b.Unknown > b.Total || uint64(len(b.Names)) > b.Failed+b.Unknown {
		return broken(LawCheck, "%d checks, %d failed and %d unknown, %d of them in the way", b.Total, b.Failed, b.Unknown, len(b.Names))
	}
	if b.Phase != "plan" {
		g.barred = len(b.Names) > 0
	}
	return nil
}

func (g *generation) settle() error {
	decided := g.counts[event.Waiting] == 0 || g.state == event.Aborted || g.state == event.Expired
	switch {
	case !g.started:
		return broken(LawState, "settling without a start")
	case g.open > 0 || !decided:
		return broken(LawState, "settling with %d members waiting and %d intents unresolved", g.counts[event.Waiting], g.open)
	}
	return nil
}

func (g *generation) close(b *event.GenerationClosed) error {
	ambiguous := g.counts[event.AmbiguousPublish] + g.counts[event.AmbiguousEffect]
	missing, withheld := g.counts[event.Missing], g.counts[event.Withheld]
	if b.Ambiguous != ambiguous || b.Missing != missing || b.Withheld != withheld {
		return broken(LawClosed, "the statement names %d ambiguous, %d missing, %d withheld; there are %d, %d, %d",
			b.Ambiguous, b.Missing, b.Withheld, ambiguous, missing, withheld)
	}
	return nil
}

func (g *generation) selected() uint64 { return g.plan.Members + g.plan.Deduplicated + g.plan.Withheld }

// checkSums checks the two sums of the tally: over all dispositions, and over
// those that mean moved against the members with evidence of delivery.
func (g *generation) checkSums() error {
	var all, moved uint64
	for d, n := range g.counts {
		all += n
		if event.Disposition(d).Moved() {
			moved += n
		}
	}
	if all != g.selected() || moved != g.moved {
		return broken(LawTally, "%d selected and %d moved, the dispositions sum up to %d and %d", g.selected(), g.moved, all, moved)
	}
	return nil
}
