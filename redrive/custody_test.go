package redrive_test

import (
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

func (b *book) settle(no ...event.EnvelopeNo) {
	b.Helper()
	b.must(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Resolve(v, event.RangesOf(no...), "done by hand", "T-1", reservedBy(b, v))
	})
}

// What a person has settled is not opened again by the mere passing of time.
func TestDeadlineLeavesWhatAPersonSettled(t *testing.T) {
	b := newBook(t)
	envs := b.orders(1)
	no := b.running()
	b.sent(no, 1)
	b.state(no, event.Settling)
	b.settle(envs[0])
	b.now = b.now.Add(2 * 3_600_000 * msec(1))
	b.due()
	if g := b.gen(no); g.Counts[event.Missing] != 1 {
		t.Fatalf("counts %v", g.Counts)
	}
	b.custody(envs[0], event.ResolvedForNow)
}

// T1 reads earlier-delivery evidence again: what generation 1 delivered after
// all is not sent by generation 2.
func TestEvidenceOfAnEarlierReleaseStopsALaterOne(t *testing.T) {
	b := newBook(t)
	envs := b.orders(1)
	first := b.running()
	p := b.intended(first, 1)
	b.resolve(first, end(p, event.Ambiguous, "connection_lost")...)
	b.abort(first)
	b.rule(first, p[0], event.RuledNotDelivered)

	second := b.running()
	q := b.intended(second, 1)
	again := end(q, event.Refused, "not_connected")
	again[0].Again = true
	b.resolve(second, again...)
	b.custody(envs[0], event.Quarantined)

	b.outcome(first, p, event.OutcomeSucceeded)
	b.custody(envs[0], event.ResolvedForNow)
	if in := b.intend(second, 1); len(in.Picks) != 0 {
		t.Errorf("released again: %+v", in)
	}
	if g := b.gen(second); g.Counts[event.Withheld] != 1 {
		t.Errorf("counts %v", g.Counts)
	}
}

// Evidence of an earlier generation does not touch what a later one has on its
// way.
func TestEvidenceOfAnEarlierReleaseLeavesALaterOneAlone(t *testing.T) {
	b := newBook(t)
	envs := b.orders(1)
	first := b.running()
	p := b.intended(first, 1)
	b.resolve(first, end(p, event.Ambiguous, "connection_lost")...)
	b.abort(first)
	b.rule(first, p[0], event.RuledNotDelivered)
	second := b.running()
	b.sent(second, 1)
	b.outcome(first, p, event.OutcomeSucceeded)
	b.custody(envs[0], event.Released)
	if c := b.cell(envs[0]); c.Gen != second {
		t.Errorf("moved last by generation %d, want %d", c.Gen, second)
	}
}

func twins(b *book) []event.EnvelopeNo {
	return b.capture(message{op: "o1", reason: "unknown_sku", body: `{"a":1}`}, message{op: "o1", reason: "unknown_sku", body: `{"a":1}`})
}

func TestDuplicatesFollowTheirSibling(t *testing.T) {
	for _, c := range []struct {
		name string
		acts []event.Outcome
		want event.Custody
	}{
		{"succeeded", []event.Outcome{event.OutcomeSucceeded}, event.ResolvedForNow},
		{"rejected", []event.Outcome{event.OutcomeRejected}, event.Quarantined},
		{"deduplicated", []event.Outcome{event.OutcomeDeduplicated}, event.Quarantined},
		{"succeeded then rejected", []event.Outcome{event.OutcomeSucceeded, event.OutcomeRejected}, event.Quarantined},
		{"rejected then succeeded", []event.Outcome{event.OutcomeRejected, event.OutcomeSucceeded}, event.Quarantined},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook(t)
			envs := twins(b)
			no := b.running()
			g := b.gen(no)
			if g.Members != 1 || g.Deduplicated != 1 {
				t.Fatalf("%d members, %d deduplicated", g.Members, g.Deduplicated)
			}
			p := b.sent(no, 1)
			for _, o := range c.acts {
				b.outcome(no, p, o)
			}
			b.custody(envs[1], c.want)
		})
	}
}

// A sibling that comes back after it had succeeded takes its followers along,
// in whatever order both became known.
func TestFollowersDoNotDependOnTheOrderOfFacts(t *testing.T) {
	for _, first := range []string{"outcome", "return"} {
		b := newBook(t)
		envs := twins(b)
		no := b.running()
		p := b.sent(no, 1)
		back := b.comeBack(no, p[0])
		if first == "outcome" {
			b.outcome(no, p, event.OutcomeSucceeded)
			b.custody(envs[1], event.ResolvedForNow)
		}
		b.captured(back)
		if first == "return" {
			b.outcome(no, p, event.OutcomeSucceeded)
		}
		b.custody(envs[1], event.Quarantined)
		b.custody(envs[0], event.ReturnedAsKid)
	}
}

// A follower that a person settled stays settled.
func TestFollowerSettledByAPersonStaysSettled(t *testing.T) {
	b := newBook(t)
	envs := twins(b)
	no := b.running()
	p := b.sent(no, 1)
	back := b.comeBack(no, p[0])
	b.settle(envs[1])
	b.outcome(no, p, event.OutcomeSucceeded)
	b.captured(back)
	b.custody(envs[1], event.ResolvedForNow)
}

func TestRegressionsAfterTheClose(t *testing.T) {
	b := newBook(t)
	b.orders(12)
	no := b.running()
	p := b.sent(no, 12)
	b.outcome(no, p[2:], event.OutcomeSucceeded)
	b.now = b.now.Add(2 * 3_600_000 * msec(1))
	b.due()
	b.must(func(v ledger.View) ([]event.Event, error) {
		return redrive.Close(v, no, redrive.Statement{Missing: 2}, "nobody answers")
	})
	b.outcome(no, p[:1], event.OutcomeSucceeded)
	if g := b.state(no, event.Closed); g.Regressions != 0 || g.Status() != "closed" || g.Counts[event.Succeeded] != 11 {
		t.Errorf("good news after the close: %d regressions, %s, %v", g.Regressions, g.Status(), g.Counts)
	}
	b.captured(b.comeBack(no, p[1]))
	if g := b.state(no, event.Closed); g.Regressions != 1 || g.Status() != "completed with regressions" {
		t.Errorf("%d regressions, %s", g.Regressions, g.Status())
	}
}
