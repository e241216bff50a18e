package redrive

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Results of an evaluation.
const (
	ResultOK           = "ok"
	ResultBreach       = "breach"
	ResultInconclusive = "inconclusive" // no data, too little, NaN, more than one value
	ResultError        = "error"        // the question failed
	ResultStale        = "stale"        // the last answer is too old
)

// Actions that an evaluation has.
const (
	ActionNone     = "none"
	ActionThrottle = "throttle"
	ActionPause    = "pause"
	ActionAbort    = "abort"
	ActionHold     = "hold" // the stage does not advance
)

// Probe asks something outside of the ledger how a generation does. Implementations
// are safe for concurrent use; each Observe is given about three seconds.
type Probe interface {
	// Name is the stable name of the signal: 1 to 60 lower-case letters, digits,
	// "_", "." or "-". It is the reason of what the probe pauses.
	Name() string
	// Observe looks once. It returns, and does not panic, whatever the other side
	// says; what cannot be understood is inconclusive or an error, never ok.
	Observe(ctx context.Context, g *Generation) Observation
}

// Observation is what a probe saw.
type Observation struct {
	Result string // ok, breach, inconclusive, error or stale; anything else counts as error
	// Action of a breach: throttle or pause. Empty means pause.
	Action string
	Value  int64  // for people and records
	Detail string // for people; never text of a message, never a secret
	At     time.Time
}

// Terms say when what a probe sees has consequences. A zero field takes its
// default.
type Terms struct {
	Breaches int // that many of the last Of looks must be bad. Defaults to 3
	Of       int // Defaults to 5, at most 100
	Silence  int // that many looks in a row without a usable answer pause. Defaults to 3
	// SilenceSpares says that silence has no consequence but that the stage does
	// not advance.
	SilenceSpares bool
	// Optional says that the stage may advance without an ok of this probe.
	Optional bool
	// StaysPaused says that only a person ends a pause of this probe, never the
	// system.
	StaysPaused bool
}

// Termed is a Probe with its own Terms.
type Termed interface{ Terms() Terms }

// TermsOf returns the terms of a probe with all defaults filled in.
func TermsOf(p Probe) Terms {
	var t Terms
	if x, ok := p.(Termed); ok {
		t = x.Terms()
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&t.Of, 5}, {&t.Breaches, 3}, {&t.Silence, 3}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	t.Of = min(max(t.Of, MinLooks), 100)
	t.Breaches = min(t.Breaches, t.Of)
	return t
}

// Series is what the last looks of one probe at one generation said. It is kept
// by whoever polls; what follows from it goes into the ledger.
type Series struct {
	last    []Observation // newest last, at most Of
	silent  int           // in a row
	ClearAt time.Time     // since when everything was ok, zero when it is not
}

// Clone is a copy that later looks do not change.
func (s *Series) Clone() *Series {
	c := *s
	c.last = slices.Clone(s.last)
	return &c
}

// ClearSince says for how long, and how often since a moment, the looks were ok
// without a break.
func (s *Series) ClearSince(at time.Time) Clear {
	c := Clear{Since: s.ClearAt}
	for i := len(s.last) - 1; i >= 0 && s.last[i].Result == ResultOK && !s.last[i].At.Before(at); i-- {
		c.Rounds++
	}
	return c
}

// Add takes one look in.
func (s *Series) Add(o Observation, t Terms) {
	switch o.Result {
	case ResultOK, ResultBreach, ResultInconclusive, ResultStale:
	default:
		o.Result = ResultError
	}
	if o.Result == ResultOK {
		if s.ClearAt.IsZero() {
			s.ClearAt = o.At
		}
	} else {
		s.ClearAt = time.Time{}
	}
	if o.Result == ResultOK || o.Result == ResultBreach {
		s.silent = 0
	} else {
		s.silent++
	}
	if s.last = append(s.last, o); len(s.last) > t.Of {
		s.last = s.last[len(s.last)-t.Of:]
	}
}

// Last is the latest look, the zero Observation when there was none.
func (s *Series) Last() Observation {
	if len(s.last) == 0 {
		return Observation{}
	}
	return s.last[len(s.last)-1]
}

// judge is the evaluation of a series. Bad looks that ask for a pause are
// counted apart from those that ask for a throttle only.
func (s *Series) judge(name string, t Terms) *event.GenerationEvaluated {
	o := s.Last()
	e := &event.GenerationEvaluated{Signal: name, Rule: formulaExternal + " " + RuleVersion, Of: uint64(len(s.last)),
		Limit: uint64(t.Breaches), Result: ResultOK, Action: ActionNone, Value: uint64(max(o.Value, 0))}
	if o.Result != ResultOK && o.Result != ResultBreach {
		e.Rule, e.Bad, e.Of, e.Limit = formulaSilence+" "+RuleVersion, uint64(s.silent), uint64(s.silent), uint64(t.Silence)
		if t.SilenceSpares {
			e.Limit = neverSilent
		}
		e.Result, e.Action = o.Result, ActionHold
		if e.Bad >= e.Limit {
			e.Action = ActionPause
		}
		return e
	}
	pause, bad := uint64(0), uint64(0)
	for _, x := range s.last {
		if x.Result == ResultBreach {
			bad++
			if x.Action != ActionThrottle {
				pause++
			}
		}
	}
	switch {
	case pause >= e.Limit:
		e.Bad, e.Result, e.Action = pause, ResultBreach, ActionPause
	case bad >= e.Limit:
		e.Bad, e.Result, e.Action = bad, ResultBreach, ActionThrottle
	default:
		e.Bad = bad
	}
	return e
}

// neverSilent is the limit of a silence that has no consequence.
const neverSilent = 1 << 40

// Observe records what a series of looks means for a generation, when that is
// news, and acts on it.
func Observe(v ledger.View, no event.GenerationNo, name string, s *Series, t Terms) ([]event.Event, error) {
	g, err := Get(v, no)
	if err != nil || g.State != event.Running && g.State != event.Paused || len(s.last) == 0 {
		return nil, err
	}
	e := s.judge(name, t)
	result := e.Result + " " + e.Action
	if g.External[name] == result {
		return nil, nil
	}
	out := one(no, e)
	why := fmt.Sprintf("%s: %d of the last %d looks; %s", e.Result, e.Bad, e.Of, s.Last().Detail)
	switch {
	case e.Action == ActionPause && !g.pausedFor(name):
		out = append(out, one(no, &event.GenerationPaused{Reason: name, Why: cut(why, maxWhy)})...)
	case e.Action == ActionThrottle:
		out = append(out, one(no, g.throttled(name, why))...)
	case e.Result == ResultOK && g.throttledFor(name):
		out = append(out, one(no, &event.GenerationThrottled{Permille: 1000, Reason: name, Why: "it is ok again"})...)
	}
	return out, nil
}

func (g *Generation) throttledFor(reason string) bool {
	for _, t := range g.Throttles {
		if t.Reason == reason {
			return true
		}
	}
	return false
}
