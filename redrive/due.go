package redrive

import (
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// planTTL is how long a plan may wait for its approval.
const planTTL = 7 * 24 * time.Hour

// Due returns what time has brought to generations: plans and approvals that
// nobody used, pauses that lasted too long, outcomes that did not come.
func Due(v ledger.View) ([]event.Event, error) {
	gens, err := Unfinished(v)
	if err != nil {
		return nil, err
	}
	now := uint64(v.Now.UnixMilli())
	var out []event.Event
	for _, g := range gens {
		switch g.State {
		case event.Planned:
			if now >= g.PlannedAt+uint64(planTTL.Milliseconds()) {
				out = append(out, one(g.No, &event.GenerationExpired{Why: "not approved in time"})...)
			}
		case event.Approved:
			if now >= g.Approval.Expires {
				out = append(out, one(g.No, &event.GenerationExpired{Why: "not started in time"})...)
			}
		case event.Paused:
			if len(g.Pauses) > 0 && now >= g.Pauses[0].At+uint64(maxPause.Milliseconds()) {
				// What else is due follows in the next decision: an abort that ends
				// the release, and facts behind it, do not fit into one.
				out = append(out, one(g.No, &event.GenerationAborted{Freed: g.Counts[event.Waiting], Why: "paused longer than 72 h"})...)
				continue
			}
		}
		if g.State == event.Running {
			out = append(out, liftNacked(g, now)...)
		}
		out = append(out, missed(v, g, now)...)
	}
	return out, nil
}

// missed finds members whose outcome deadline has passed. The records since
// which they wait are read in order, so only those are looked at.
func missed(r ledger.Reader, g *Generation, now uint64) []event.Event {
	if g.Counts[event.Pending]+g.Counts[event.Admitted] == 0 {
		return nil
	}
	var late []event.Position
	r.Scan(bucketConfirmed, ledger.Key2(uint64(g.No), 0), func(k, v []byte) bool {
		if ledger.Unkey(k) != uint64(g.No) || ledger.Unkey(v)+g.Deadline > now {
			return false
		}
		set, err := event.ParseRanges(string(v[8:]))
		if err != nil {
			return false
		}
		for p := range set.All() {
			m := GetMember(r, g.No, event.Position(p))
			if m.awaits() {
				late = append(late, event.Position(p))
			}
		}
		return len(late) < 20_000
	})
	return positions(g.No, late, func(part event.Ranges) event.Body { return &event.MemberMissed{Pos: part} })
}

// awaits reports whether an outcome can still come in time.
func (m *Member) awaits() bool {
	d := m.Disposition()
	return (d == event.Pending || d == event.Admitted) && !m.Facts.Has(FactDeadline)
}

// NextDue is when the next outcome deadline of a generation falls, zero when
// none is awaited.
func NextDue(r ledger.Reader, g *Generation) time.Time {
	var at time.Time
	if g.Counts[event.Pending]+g.Counts[event.Admitted] == 0 {
		return at
	}
	r.Scan(bucketConfirmed, ledger.Key2(uint64(g.No), 0), func(k, v []byte) bool {
		if ledger.Unkey(k) == uint64(g.No) {
			at = time.UnixMilli(int64(ledger.Unkey(v) + g.Deadline))
		}
		return false
	})
	return at
}
