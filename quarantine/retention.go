package quarantine

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// DefaultRetention is how long after its first death an envelope may stay
// open: 14 days, the retention of the reference runbook.
const DefaultRetention = 1_209_600 * time.Second

// Retention says when envelopes are overdue and when payloads go.
type Retention struct {
	// Deadline for open envelopes, counted from the first death. Defaults to
	// DefaultRetention. Nothing open is ever removed.
	Deadline time.Duration
	// ByQueue overrides Deadline for the queue of capture.
	ByQueue map[string]time.Duration
	// PayloadAge is how long after capture the payload of a finished envelope
	// is kept. 0 keeps it.
	PayloadAge time.Duration
}

// dueLimit bounds how many envelopes one decision handles; the rest is due in
// the next one.
const dueLimit = 5000

// retryDue is after how many seconds an envelope is looked at again whose time
// has come but whose custody does not allow the act.
const retryDue = 60

// Schedule remembers when the next envelope becomes due, so that a look at a
// large store is cheap when nothing is. It is a cache: the zero value looks at
// everything.
type Schedule struct {
	seen event.EnvelopeNo // envelopes that next knows about
	next int64            // seconds since 1970 of the earliest moment at which one of them may be due
}

// Due returns what time has brought: open envelopes that are overdue, and
// payloads of finished ones whose age has come. It looks at all envelopes only
// when one of them may be due, and otherwise at those that came since.
func (rt Retention) Due(v ledger.View, s *Schedule) ([]event.Event, error) {
	now := v.Now.Unix()
	from := s.seen + 1
	if s.seen == 0 || now >= s.next {
		from, s.next = 1, math.MaxInt64
	}
	words := Words(v)
	var overdue, expired []event.EnvelopeNo
	ScanCells(v, from, func(no event.EnvelopeNo, c *Cell) bool {
		late, old := rt.moments(c, words)
		switch {
		case late > 0 && late <= now && (c.Custody == event.Quarantined || c.Custody == event.Released):
			overdue = append(overdue, no)
		case old > 0 && old <= now && (c.Custody == event.ReturnedAsKid || c.Custody == event.ResolvedForNow) && !c.Flags.Has(Held):
			expired = append(expired, no)
		}
		for _, at := range []int64{late, old} {
			if at > now {
				s.next = min(s.next, at)
			} else if at > 0 {
				s.next = min(s.next, now+retryDue)
			}
		}
		s.seen = no
		return len(overdue)+len(expired) < dueLimit
	})
	if len(overdue)+len(expired) > 0 {
		s.seen = 0 // look again once this is recorded
	}
	var events []event.Event
	if len(overdue) > 0 {
		events = parts(event.RangesOf(overdue...), func(p event.Ranges) event.Body { return &event.EnvelopeOverdue{Envs: p} })
	}
	if len(expired) == 0 {
		return events, nil
	}
	gone := erasure{v: v, refs: map[event.EnvelopeNo]int64{}}
	for _, no := range expired {
		if err := gone.payload(no); err != nil {
			return nil, err
		}
	}
	more := parts(event.RangesOf(expired...), func(p event.Ranges) event.Body { return &event.EnvelopeExpired{Envs: p} })
	more[0].Objects = gone.objects
	return append(events, more...), nil
}

// moments are when an envelope becomes overdue and when its payload may go, in
// seconds since 1970; 0 for never, or not any more.
func (rt Retention) moments(c *Cell, words map[Word]string) (late, old int64) {
	limit := rt.Deadline
	if limit == 0 {
		limit = DefaultRetention
	}
	if d, ok := rt.ByQueue[words[c.Queue]]; ok {
		limit = d
	}
	if !c.Flags.Has(Overdue) && (c.Custody == event.Quarantined || c.Custody == event.Released) {
		late = int64(c.FirstDied) + int64(limit/time.Second)
	}
	if rt.PayloadAge > 0 && !c.Flags.Has(PayloadGone) {
		old = int64(c.Captured) + int64(rt.PayloadAge/time.Second)
	}
	return late, old
}

// Lateness counts the open envelopes of one owner by their retention deadline.
type Lateness struct {
	Owner   string
	Overdue uint64 // past it
	Soon    uint64 // within soon of it
}

// Late lists, by owner, the open envelopes that are past their deadline or will
// be within soon. Owners who have none are left out.
func (rt Retention) Late(r ledger.Reader, now time.Time, soon time.Duration) []Lateness {
	words := Words(r)
	by := map[Word]*Lateness{}
	ScanCells(r, 1, func(_ event.EnvelopeNo, c *Cell) bool {
		if c.Custody != event.Quarantined && c.Custody != event.Released {
			return true
		}
		late, _ := rt.moments(c, words)
		over := c.Flags.Has(Overdue) || late <= now.Unix()
		if !over && late > now.Add(soon).Unix() {
			return true
		}
		l := by[c.Owner]
		if l == nil {
			l = &Lateness{Owner: words[c.Owner]}
			by[c.Owner] = l
		}
		if over {
			l.Overdue++
		} else {
			l.Soon++
		}
		return true
	})
	out := make([]Lateness, 0, len(by))
	for _, l := range by {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b Lateness) int { return strings.Compare(a.Owner, b.Owner) })
	return out
}
