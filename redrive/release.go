package redrive

import (
	"slices"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Pick is a member whose intent is durable: it may be published now.
type Pick struct {
	Pos event.Position
	Try event.Try
	Env event.EnvelopeNo
}

// Intention is what a T1 decided.
type Intention struct {
	Picks []Pick
	// Wait is how long until the rate allows the next intent, 0 when something
	// else is in the way.
	Wait time.Duration
	// Hold says why nothing was picked: "state", "window", "exposure", "rate",
	// "stage" (it waits for outcomes or its bake time), "unfit" (what was looked
	// at is withheld; there may be more), "order" (what waits has to wait for the
	// message before it), "retry" (another try is not due yet), "done".
	Hold string
}

// Intend is T1: it reads again everything that could say stop, and appends
// intents for at most limit members. When anything says stop, nothing is
// written.
func Intend(v ledger.View, no event.GenerationNo, limit int) (Intention, []event.Event, error) {
	g, err := Get(v, no)
	if err != nil {
		return Intention{}, nil, err
	}
	again, events, err := g.retried(v, limit)
	if err != nil || len(again.Picks)+len(events) > 0 {
		return again, events, err
	}
	n, in, err := g.room(v, limit)
	if err != nil || n == 0 {
		if again.Hold != "" {
			in = again
		}
		return in, nil, err
	}
	t := taking{v: v, g: g, withheld: map[string][]event.Position{}}
	if err := t.take(n); err != nil {
		return Intention{}, nil, err
	}
	in.Picks = t.picks
	if len(t.picks) == 0 {
		in.Hold = "unfit"
		if g.ordered() && len(t.withheld) == 0 {
			in.Hold = "order"
		}
	}
	return in, t.events(), nil
}

// room is how many members may go out now.
func (g *Generation) room(v ledger.View, limit int) (int, Intention, error) {
	if g.State != event.Running {
		return 0, Intention{Hold: "state"}, nil
	}
	if g.Counts[event.Waiting] == 0 {
		return 0, Intention{Hold: "done"}, nil
	}
	beside, err := g.exposedBeside(v)
	if err != nil {
		return 0, Intention{}, err
	}
	n := uint64(limit)
	used := uint64(g.Next) - g.Again.Count()
	if g.ordered() {
		used = 0 // members of a stage go in no row: what T1 takes says whether any is left
	}
	for _, bound := range []struct {
		hold       string
		limit, now uint64
	}{
		{"window", uint64(g.EffectiveWindow()), g.Unresolved},
		{"exposure", uint64(g.Limits.Exposure), g.Exposed() + beside},
		{"stage", g.stageEnd(), used},
	} {
		if bound.now >= bound.limit {
			return 0, Intention{Hold: bound.hold}, nil
		}
		n = min(n, bound.limit-bound.now)
	}
	allowed, wait := g.rate(v)
	if allowed == 0 {
		return 0, Intention{Hold: "rate", Wait: wait}, nil
	}
	return int(min(n, allowed)), Intention{}, nil
}

// interval is the time between two intents in nanoseconds, rounded up: a rate
// is never exceeded for want of a fraction.
func (g *Generation) interval() uint64 {
	rate := g.EffectiveRate()
	return (nanosPer1000s + rate - 1) / rate
}

const (
	nanosPer1000s  = 1_000_000_000_000
	nanosPerMillis = 1_000_000
)

// rate is the token bucket as a theoretical arrival time (the generic cell
// rate algorithm): exact, and a function of the ledger alone. In a new epoch,
// and after a start, resume or change of limits, the bucket is empty, so that
// no window of T seconds ever holds more than rate·T + burst intents.
func (g *Generation) rate(v ledger.View) (allowed uint64, wait time.Duration) {
	now := v.Mono * nanosPerMillis
	step := g.interval()
	full := step * uint64(g.Limits.Burst)
	at := g.RateAt
	if g.RateEpoch != v.Epoch {
		at = full
	}
	at = max(at, now)
	// n intents are allowed while at + n·step ≤ now + full.
	if at+step > now+full {
		return 0, time.Duration(at + step - now - full)
	}
	return (now + full - at) / step, 0
}

// taking collects the members of one T1.
type taking struct {
	v        ledger.View
	g        *Generation
	chunks   chunks
	repairs  RepairLists
	keys     keyList
	picks    []Pick
	withheld map[string][]event.Position
	looked   int
	exposure uint64 // of retries: how many more may become exposed
}

// maxLook bounds the members that one T1 looks at, so that a cohort of which
// most became unfit does not hold up a stop.
const maxLook = 8192

func (t *taking) take(n int) error {
	g := t.g
	for p := range g.Again.All() {
		if len(t.picks) == n || t.looked == maxLook {
			return nil
		}
		if err := t.consider(event.Position(p)); err != nil {
			return err
		}
	}
	if g.ordered() {
		return t.takeOrdered(n)
	}
	for p := g.Next; uint64(p) < g.stageEnd() && len(t.picks) < n && t.looked < maxLook; p++ {
		if err := t.consider(p); err != nil {
			return err
		}
	}
	return nil
}

// consider picks a member unless it has become unfit since the plan.
func (t *taking) consider(pos event.Position) error {
	t.looked++
	env, err := t.g.envelope(t.v, &t.chunks, pos)
	if err != nil {
		return err
	}
	c, _ := quarantine.GetCell(t.v, env)
	switch {
	case c.Flags.Has(quarantine.Held):
		t.withheld["held"] = append(t.withheld["held"], pos)
	case c.Custody == event.Purged:
		t.withheld["purged"] = append(t.withheld["purged"], pos)
	case c.Custody != event.Quarantined:
		t.withheld["not_quarantined"] = append(t.withheld["not_quarantined"], pos)
	case c.Flags.Has(quarantine.PayloadGone):
		t.withheld["payload_gone"] = append(t.withheld["payload_gone"], pos)
	default:
		m := GetMember(t.v, t.g.No, pos)
		if m.Tries >= event.MaxTries {
			t.withheld["tries_exhausted"] = append(t.withheld["tries_exhausted"], pos)
			return nil
		}
		stands, err := t.repairs.stands(t.v, t.g, pos, env, &c)
		if err != nil {
			return err
		}
		if !stands {
			t.withheld[ReasonRepairChanged] = append(t.withheld[ReasonRepairChanged], pos)
			return nil
		}
		reason, err := t.g.outElsewhere(t.v, c.Operation, env)
		if err != nil {
			return err
		}
		if reason != "" {
			t.withheld[reason] = append(t.withheld[reason], pos)
			return nil
		}
		t.picks = append(t.picks, Pick{Pos: pos, Try: m.Tries + 1, Env: env})
	}
	return nil
}

func (t *taking) events() []event.Event {
	var out []event.Event
	byTry := map[event.Try][]event.Position{}
	for _, p := range t.picks {
		byTry[p.Try] = append(byTry[p.Try], p.Pos)
	}
	for _, try := range sortedKeys(byTry) {
		out = append(out, positions(t.g.No, byTry[try], func(part event.Ranges) event.Body {
			return &event.MemberIntended{Pos: part, Try: try}
		})...)
	}
	for _, reason := range sortedKeys(t.withheld) {
		out = append(out, positions(t.g.No, t.withheld[reason], func(part event.Ranges) event.Body {
			return &event.MemberWithheld{Pos: part, Reason: reason}
		})...)
	}
	return out
}

// setLimit is the room that a set of positions may take in a record.
const setLimit = 2048

// positions makes one event for each part of a set that fits into a record.
func positions(no event.GenerationNo, ps []event.Position, body func(event.Ranges) event.Body) []event.Event {
	var out []event.Event
	for _, part := range event.RangesOf(ps...).Split(setLimit) {
		out = append(out, event.Event{Subj: event.Subject{Gen: no}, Body: body(part)})
	}
	return out
}

func sortedKeys[K interface{ ~string | ~uint8 }, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Verdict is how one try ended.
type Verdict struct {
	Pos        event.Position
	Try        event.Try
	Resolution event.Resolution
	Reason     string
	Again      bool // refused, and free to be sent later
	Late       bool // a confirm after the try had been called ambiguous
}

// Resolve is T2: resolutions of tries. What is already resolved is left out, so
// that a repeated answer changes nothing.
func Resolve(v ledger.View, no event.GenerationNo, verdicts []Verdict) ([]event.Event, error) {
	g, err := act(v, no, event.KindMemberResolved)
	if err != nil {
		return nil, err
	}
	type key struct {
		resolution event.Resolution
		reason     string
		again      bool
		late       bool
		try        event.Try
	}
	groups := map[key][]event.Position{}
	var order []key
	for _, d := range newAnswers(v, g, verdicts) {
		k := key{d.Resolution, d.Reason, d.Again, d.Late, d.Try}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], d.Pos)
	}
	// Late confirms go first: the last resolution may end the release, and
	// nothing about it may come behind that in the same decision.
	slices.SortStableFunc(order, func(a, b key) int {
		switch {
		case a.late == b.late:
			return 0
		case a.late:
			return -1
		}
		return 1
	})
	var out []event.Event
	for _, k := range order {
		out = append(out, positions(no, groups[k], func(part event.Ranges) event.Body {
			if k.late {
				return &event.MemberConfirmedLate{Pos: part, Try: k.try}
			}
			b := &event.MemberResolved{Pos: part, Try: k.try, Resolution: k.resolution, Reason: k.reason}
			if k.again {
				b.Again = 1
			}
			return b
		})...)
	}
	return out, nil
}

// newAnswers leaves out what is known already, and joins what one batch says
// about the same try: a try that was called ambiguous and whose confirm came
// right after it is confirmed.
func newAnswers(r ledger.Reader, g *Generation, verdicts []Verdict) []Verdict {
	type tryOf struct {
		pos event.Position
		try event.Try
	}
	var out []Verdict
	at := map[tryOf]int{}
	for _, d := range verdicts {
		m := GetMember(r, g.No, d.Pos)
		if uint64(d.Pos) >= g.Members || m.Tries < d.Try || d.Try == 0 {
			continue
		}
		k := tryOf{d.Pos, d.Try}
		if i, twice := at[k]; twice {
			if d.Late && out[i].Resolution == event.Ambiguous {
				out[i] = Verdict{Pos: d.Pos, Try: d.Try, Resolution: event.Confirmed}
			}
			continue
		}
		open := m.Facts.Has(FactUnresolved) && m.Tries == d.Try
		if (d.Late && m.doubted(d.Try)) || (!d.Late && open) {
			at[k] = len(out)
			out = append(out, d)
		}
	}
	return out
}

// doubted reports whether a late confirm of a try would be news: it is
// ambiguous, or a person has ruled that it was not delivered.
func (m *Member) doubted(try event.Try) bool {
	return (m.Ambiguous|m.RuledNot)&(1<<(try-1)) != 0
}
