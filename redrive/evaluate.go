package redrive

import (
	"fmt"
	"strings"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// RuleVersion is stored with every evaluation, so that it can be judged by the
// rules of its time.
const RuleVersion = "2026-12.1"

// Formulas of rules; GenerationEvaluated says what each does with the numbers.
const (
	formulaCount    = "count"
	formulaRatio    = "ratio"
	formulaWilson   = "wilson"
	formulaExternal = "external"
	formulaSilence  = "silence"
)

// Signals that pause a generation, which are the reasons of such pauses too.
const (
	SignalStageBad      = "stage_bad"        // a bad member in a stage of at most ten
	SignalUnroutable    = "unroutable"       // the broker returned a message
	SignalNacked        = "nacked"           // the broker did not take messages: its queue is full, or in trouble
	SignalAmbiguous     = "ambiguous"        // a publish is in doubt, other than after a restart
	SignalRequarantined = "requarantined"    // too many came back
	SignalRejected      = "rejected"         // the consumer said no to too many, or does not know what it did
	SignalMissing       = "missing"          // too many outcomes did not come in time
	SignalVersion       = "consumer_version" // a report came from another version than the manifest expects
)

// rule is one look at a signal. Limits are inclusive: reaching one is a breach.
type rule struct {
	signal, scope, formula     string
	action                     string // of a breach
	bad, of, limit, floor, zee uint64
}

func (ru *rule) key() string { return ru.signal + " " + ru.scope }

func (ru *rule) breach() bool {
	switch ru.formula {
	case formulaRatio:
		return ru.of > 0 && ru.of >= ru.floor && ru.bad*1000 >= ru.limit*ru.of
	case formulaWilson:
		return ru.bad >= ru.floor && wilsonAbove(ru.bad, ru.of, ru.limit, ru.zee)
	}
	return ru.bad >= ru.limit
}

func (ru *rule) evaluated() *event.GenerationEvaluated {
	e := &event.GenerationEvaluated{Signal: ru.signal, Scope: ru.scope, Rule: ru.formula + " " + RuleVersion,
		Bad: ru.bad, Of: ru.of, Limit: ru.limit, Floor: ru.floor, Z: ru.zee, Result: ResultOK, Action: ActionNone}
	if ru.breach() {
		e.Result, e.Action = ResultBreach, ru.action
	}
	return e
}

// why says in words what the numbers of a breach are.
func (ru *rule) why() string {
	limit := fmt.Sprintf("limit %d", ru.limit)
	switch ru.formula {
	case formulaRatio:
		limit = fmt.Sprintf("limit %d.%d %%", ru.limit/10, ru.limit%10)
	case formulaWilson:
		limit = fmt.Sprintf("surely more than the limit of %d.%d %%", ru.limit/10, ru.limit%10)
	}
	return fmt.Sprintf("%d of %d, %s%s", ru.bad, ru.of, limit, after(" in ", ru.scope))
}

func after(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

const (
	// nackSpan is the time in which nacks are counted, ms.
	nackSpan = 60_000
	// nackTries is the number of tries in which the share of nacks is counted.
	nackTries = 100
	// ratioFloor and abortFloor are the least bad members with which a ratio
	// says something; missingFloor the least members that must have matured.
	ratioFloor, abortFloor, missingFloor = 3, 10, 20
	// retryShare is the part of the moved members that may be in doubt where they
	// are sent again, in parts of one.
	retryShare = 100
)

// rules are all looks at what the ledger knows. Only members that have matured
// are in a ratio: their outcome is known or its deadline has passed. What the
// last resume has looked at does not count again.
func (g *Generation) rules(r ledger.Reader, now uint64) []rule {
	v, seen, t := votes(r, g), &g.Seen, g.Thresholds
	bad := func(is, was uint64) uint64 { return is - min(is, was) }
	matured := bad(v.Matured, seen.Matured)
	doubt := t.Of(LimitAmbiguous)
	if g.Ambiguity == "retry" {
		doubt = max(t.Of(LimitAmbiguousRetry), (g.delivered()+retryShare-1)/retryShare)
	}
	minute, last := g.nacks(now)
	nacked := bad(v.Nacked, seen.Nacked)
	out := []rule{
		{signal: SignalStageBad, formula: formulaCount, action: ActionPause, bad: bad(v.StageBad, seen.StageBad), limit: t.Of(LimitStageBad), of: g.smallMembers()},
		{signal: SignalUnroutable, formula: formulaCount, action: ActionPause, bad: bad(v.Unroutable, seen.Unroutable), limit: t.Of(LimitUnroutable), of: g.Members},
		{signal: SignalNacked, scope: "first", formula: formulaCount, action: ActionThrottle, bad: min(minute, nacked), limit: 1, of: g.Resolved},
		{signal: SignalNacked, scope: "minute", formula: formulaCount, action: ActionPause, bad: min(minute, nacked), limit: t.Of(LimitNacked), of: g.Resolved},
		{signal: SignalNacked, scope: "share", formula: formulaRatio, action: ActionPause, bad: min(last, nacked), limit: t.Of(LimitNackShare),
			of: min(bad(g.Resolved, seen.Resolved), nackTries), floor: nackTries},
		{signal: SignalAmbiguous, formula: formulaCount, action: ActionPause, bad: bad(v.Doubtful, seen.Doubtful), limit: doubt, of: g.Members},
		{signal: SignalVersion, formula: formulaCount, action: ActionPause, bad: bad(v.Foreign, seen.Foreign), limit: t.Of(LimitVersion), of: g.Members},
		wilson(SignalRequarantined, "", ActionPause, bad(v.Requarantined, seen.Requarantined), matured, t.Of(LimitRequarantined), ratioFloor, z95),
		wilson(SignalRequarantined, "abort", ActionAbort, bad(v.Requarantined, seen.Requarantined), matured, t.Of(LimitAbort), abortFloor, z95),
		wilson(SignalRejected, "", ActionPause, bad(v.Rejected, seen.Rejected), matured, t.Of(LimitRejected), ratioFloor, z95),
	}
	if g.Evidence == EvidenceOutcomes {
		out = append(out, rule{signal: SignalMissing, formula: formulaRatio, action: ActionPause, bad: bad(v.Missing, seen.Missing), of: matured,
			limit: t.Of(LimitMissing), floor: missingFloor})
	}
	for i, s := range v.Strata {
		was := Stratum{}
		if i < len(seen.Strata) {
			was = seen.Strata[i]
		}
		n := bad(s.Matured, was.Matured)
		scope := fmt.Sprintf("stratum %d", i)
		out = append(out,
			wilson(SignalRequarantined, scope, ActionPause, bad(s.Requarantined, was.Requarantined), n, t.Of(LimitRequarantined), ratioFloor, zStrata),
			wilson(SignalRejected, scope, ActionPause, bad(s.Rejected, was.Rejected), n, t.Of(LimitRejected), ratioFloor, zStrata))
	}
	return out
}

func wilson(signal, scope, action string, bad, n, limit, floor, z uint64) rule {
	return rule{signal: signal, scope: scope, formula: formulaWilson, action: action, bad: bad, of: max(n, bad), limit: limit, floor: floor, zee: z}
}

// evaluate applies the rules, and says what follows: abort before pause before
// throttle. Stopped says that the generation does not run on.
func evaluate(v ledger.View, g *Generation) (events []event.Event, stopped bool) {
	if g.State != event.Running && g.State != event.Paused {
		return nil, false
	}
	add := func(b event.Body) { events = append(events, event.Event{Subj: event.Subject{Gen: g.No}, Body: b}) }
	paused := map[string]bool{}
	abort, now := "", uint64(v.Now.UnixMilli())
	for _, ru := range g.rules(v, now) {
		e := ru.evaluated()
		if e.Result == g.lastResult(ru.key()) {
			continue
		}
		add(e)
		switch {
		case e.Action == ActionPause && !g.pausedFor(ru.signal) && !paused[ru.signal]:
			stopped, paused[ru.signal] = true, true
			add(&event.GenerationPaused{Reason: ru.signal, Why: ru.why()})
		case e.Action == ActionAbort:
			abort = ru.signal + ": " + ru.why()
		case e.Action == ActionThrottle:
			add(g.throttled(ru.signal, ru.why()))
		}
	}
	if abort != "" {
		stopped = true
		add(&event.GenerationAborted{Freed: g.Counts[event.Waiting], Why: abort})
	}
	return events, stopped
}

func (g *Generation) lastResult(key string) string {
	if r, ok := g.Results[strings.TrimSpace(key)]; ok {
		return r
	}
	return ResultOK
}

func (g *Generation) pausedFor(reason string) bool {
	for _, p := range g.Pauses {
		if p.Reason == reason {
			return true
		}
	}
	return false
}

// nacks counts those of the last minute and those among the last hundred tries.
func (g *Generation) nacks(now uint64) (minute, last uint64) {
	for _, n := range g.Nacks {
		if n.At+nackSpan > now {
			minute++
		}
		if n.Resolved+nackTries > g.Resolved {
			last++
		}
	}
	return minute, last
}

// delivered is the number of members that the broker has.
func (g *Generation) delivered() (n uint64) {
	for d, count := range g.Counts {
		if event.Disposition(d).Moved() {
			n += count
		}
	}
	return n
}
