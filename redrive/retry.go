package redrive

import (
	"math/bits"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// What becomes of a member whose publish is in doubt.
const (
	AmbiguityHold  = "hold"  // it is never published again by itself
	AmbiguityRetry = "retry" // once more, for a consumer that remembers message ids
)

// ReasonRetryExpired is of a member in doubt that could not be published again
// in time: its consumer may have forgotten the message id by now. It stays in
// doubt.
const ReasonRetryExpired = "retry_expired"

const (
	// RetryAfter is how long an ambiguous try rests before the next one: time
	// for a late confirm, an outcome or a return to say what became of it.
	RetryAfter = 30 * time.Second
	// RetryMargin is what a retry may take: its confirm deadline, twice, and the
	// difference between two clocks.
	RetryMargin = time.Minute
	// MaxNackRetries bounds the repetitions after definite nacks.
	MaxNackRetries = 3
)

// nackRests are the times between a nack and the next try.
var nackRests = [MaxNackRetries]time.Duration{time.Second, 5 * time.Second, 25 * time.Second}

// bucketRetry lists, under generation and position, the members that are to be
// published again, with the time before which they are not, ms.
var bucketRetry = ledger.Bucket{Name: "generation.retry"}

// retryable reports whether a member waits for another try although an earlier
// one ended: one that is in doubt for the first time, one that was ruled not
// delivered, one that was nacked. A try that a restart left in doubt is like
// any other: nobody knows more about it.
func (g *Generation) retryable(m *Member) bool {
	if m.Facts.Has(FactUnresolved|FactWithheld|FactRefused|FactUnroutable) || m.Tries >= event.MaxTries {
		return false
	}
	switch m.Disposition() {
	case event.AmbiguousPublish:
		return g.Ambiguity == AmbiguityRetry && bits.OnesCount32(m.Ambiguous) == 1 && !m.Facts.Has(FactNacked)
	case event.Undelivered:
		if m.Facts.Has(FactNacked) {
			return uint64(m.Nacks) <= g.RetryNacked && m.Nacks > 0
		}
		return g.Ambiguity == AmbiguityRetry && m.Facts.Has(FactRuledNot)
	}
	return false
}

// rest is how long a member rests before its next try.
func (m *Member) rest() time.Duration {
	switch {
	case m.Disposition() == event.AmbiguousPublish:
		return RetryAfter
	case m.Facts.Has(FactNacked):
		return nackRests[min(max(m.Nacks, 1), MaxNackRetries)-1]
	}
	return 0
}

// retries keeps bucketRetry in step with one member that changed.
func (a *applying) retries(pos event.Position, was, is *Member) {
	g := a.g
	before, after := g.retryable(was), g.retryable(is)
	k := ledger.Key2(uint64(g.No), uint64(pos))
	if after && !before {
		g.Retries++
	}
	switch {
	case after && (!before || was.Disposition() != is.Disposition()):
		a.fail(a.w.Put(bucketRetry, k, ledger.Key(a.r.TS+uint64(is.rest().Milliseconds()))))
	case before && !after:
		g.Retries--
		a.fail(a.w.Delete(bucketRetry, k))
	}
}

// InboxHolds reports whether a consumer that remembers message ids for horizon
// still knows a message that it first saw at first, when it gets it again
// within margin: nine tenths of the horizon count.
func InboxHolds(now, first time.Time, horizon, margin time.Duration) bool {
	return now.Add(margin).Before(first.Add(horizon / 10 * 9))
}

// FirstAttempt is when a message can have been seen first by its consumer, as
// far as its envelope tells: the earliest time that anybody wrote down.
func FirstAttempt(f *quarantine.Facts) time.Time {
	first := f.Captured
	for _, ms := range []uint64{f.FirstSeen, f.FirstDied, f.Died} {
		if ms > 0 {
			first = min(first, ms)
		}
	}
	return time.UnixMilli(int64(first))
}

// retake picks members that are to be published again and whose time has come.
// What is due too late for the consumer's inbox is taken out of the release and
// stays in doubt. next is when the next one is due, 0 for none.
func (t *taking) retake(n int) (next uint64, err error) {
	g, now := t.g, uint64(t.v.Now.UnixMilli())
	t.v.Scan(bucketRetry, ledger.Key2(uint64(g.No), 0), func(k, v []byte) bool {
		if ledger.Unkey(k) != uint64(g.No) || len(t.picks) >= n {
			return false
		}
		pos := event.Position(ledger.Unkey(k[8:]))
		if due := ledger.Unkey(v); due > now {
			if next == 0 || due < next {
				next = due
			}
			return true
		}
		err = t.again(pos)
		return err == nil
	})
	return next, err
}

// again considers one member for another try.
func (t *taking) again(pos event.Position) error {
	if turn, err := t.stillItsTurn(pos); err != nil || !turn {
		return err
	}
	m := GetMember(t.v, t.g.No, pos)
	if m.Disposition() != event.AmbiguousPublish {
		return t.exposed(pos)
	}
	env, err := t.g.envelope(t.v, &t.chunks, pos)
	if err != nil {
		return err
	}
	c, _ := quarantine.GetCell(t.v, env)
	f, err := quarantine.GetFacts(t.v, env)
	if err != nil {
		return err
	}
	switch {
	case c.Custody == event.Purged || c.Flags.Has(quarantine.PayloadGone):
		t.withheld["payload_gone"] = append(t.withheld["payload_gone"], pos)
	case c.Flags.Has(quarantine.Held):
		t.withheld["held"] = append(t.withheld["held"], pos)
	case c.Custody != event.Released || c.Gen != t.g.No:
		t.withheld["not_quarantined"] = append(t.withheld["not_quarantined"], pos)
	case !InboxHolds(t.v.Now, FirstAttempt(f), time.Duration(t.g.Inbox)*time.Millisecond, RetryMargin):
		t.withheld[ReasonRetryExpired] = append(t.withheld[ReasonRetryExpired], pos)
	default:
		t.picks = append(t.picks, Pick{Pos: pos, Try: m.Tries + 1, Env: env})
	}
	return nil
}

// stillItsTurn reports whether the one before a member in its key still lets it
// go: what became known since the first try may say otherwise. Behind one that
// failed it is taken out of the release.
func (t *taking) stillItsTurn(pos event.Position) (bool, error) {
	g := t.g
	if !g.ordered() {
		return true, nil
	}
	l, err := t.keys.at(t.v, g, pos)
	if err != nil || l.Prev == NoPosition {
		return err == nil, err
	}
	before := GetMember(t.v, g.No, l.Prev)
	f := g.fate(&before)
	if f == fateFailed && !g.lets(f) {
		t.withheld[ReasonKeyParked] = append(t.withheld[ReasonKeyParked], pos)
	}
	return g.lets(f), nil
}

// exposed considers a member that is not exposed now, as long as there is room.
func (t *taking) exposed(pos event.Position) error {
	before := len(t.picks)
	if t.exposure == 0 {
		return nil
	}
	err := t.consider(pos)
	t.exposure -= uint64(len(t.picks) - before)
	return err
}

// retried is the part of T1 that is about members whose earlier try ended.
// The exposure of those in doubt is counted already; what the broker did not take
// becomes exposed again, and needs room.
func (g *Generation) retried(v ledger.View, limit int) (in Intention, events []event.Event, err error) {
	if g.State != event.Running || g.Retries == 0 {
		return in, nil, nil
	}
	window := uint64(g.EffectiveWindow())
	if g.Unresolved >= window {
		return Intention{Hold: "window"}, nil, nil
	}
	beside, err := g.exposedBeside(v)
	if err != nil {
		return in, nil, err
	}
	if g.Exposed()+beside > uint64(g.Limits.Exposure) {
		return Intention{Hold: "exposure"}, nil, nil
	}
	allowed, wait := g.rate(v)
	if allowed == 0 {
		return Intention{Hold: "rate", Wait: wait}, nil, nil
	}
	t := taking{v: v, g: g, withheld: map[string][]event.Position{}, exposure: uint64(g.Limits.Exposure) - g.Exposed() - beside}
	next, err := t.retake(int(min(uint64(limit), allowed, window-g.Unresolved)))
	if err != nil {
		return in, nil, err
	}
	in.Picks, in.Hold = t.picks, "retry"
	if next > 0 {
		in.Wait = time.Duration(next-uint64(v.Now.UnixMilli())) * time.Millisecond
	}
	return in, t.events(), nil
}
