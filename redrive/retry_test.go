package redrive_test

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// retrying is a plan for a consumer that remembers message ids for a day.
func retrying(m *redrive.Manifest) {
	m.Ambiguity, m.Inbox = redrive.AmbiguityRetry, uint64((24 * time.Hour).Milliseconds())
}

// doubtful releases one member and loses its confirm.
func (b *book) doubtful(change ...func(*redrive.Manifest)) (event.GenerationNo, redrive.Pick) {
	b.Helper()
	b.orders(1)
	no := b.running(change...)
	p := b.intended(no, 1)[0]
	b.resolve(no, end([]redrive.Pick{p}, event.Ambiguous, "connection_lost")...)
	b.resumeIfPaused(no)
	return no, p
}

// later is the next try of the only member, a while after it came into doubt.
func (b *book) later(no event.GenerationNo) redrive.Intention {
	b.Helper()
	b.tick(31_000)
	return b.intend(no, 5)
}

func TestRetryPublishesOnceMoreWithTheSameIdentity(t *testing.T) {
	b := newBook(t)
	no, first := b.doubtful(retrying)
	if in := b.intend(no, 5); in.Hold != "retry" || len(in.Picks) > 0 || in.Wait <= 0 || in.Wait > redrive.RetryAfter {
		t.Fatalf("at once: %+v", in)
	}
	b.state(no, event.Running)
	in := b.later(no)
	if len(in.Picks) != 1 || in.Picks[0] != (redrive.Pick{Pos: first.Pos, Try: 2, Env: first.Env}) {
		t.Fatalf("%+v, want try 2 of %+v", in, first)
	}
	// In doubt again: that is enough.
	b.resolve(no, end(in.Picks, event.Ambiguous, "connection_lost")...)
	b.resumeIfPaused(no)
	if in := b.later(no); len(in.Picks) > 0 {
		t.Errorf("a third copy: %+v", in)
	}
	if g := b.state(no, event.Settling); g.Counts[event.AmbiguousPublish] != 1 || g.Retries != 0 {
		t.Errorf("counts %v, %d retries", g.Counts, g.Retries)
	}
}

func TestHoldNeverPublishesAgain(t *testing.T) {
	b := newBook(t)
	no, first := b.doubtful()
	if in := b.later(no); len(in.Picks) > 0 {
		t.Fatalf("%+v", in)
	}
	b.rule(no, first, event.RuledNotDelivered)
	if in := b.later(no); len(in.Picks) > 0 {
		t.Fatalf("after the ruling: %+v", in)
	}
	b.state(no, event.Closed)
	b.custody(first.Env, event.Quarantined) // for a new plan
}

// The bound of the inbox is held again at the moment of the retry.
func TestRetryThatComesTooLateIsHeld(t *testing.T) {
	b := newBook(t)
	no, first := b.doubtful(retrying)
	b.now = b.now.Add(22 * time.Hour)
	if in := b.intend(no, 5); len(in.Picks) > 0 {
		t.Fatalf("%+v", in)
	}
	m := b.member(no, first.Pos)
	if m.Disposition() != event.AmbiguousPublish || m.ReasonText() != redrive.ReasonRetryExpired {
		t.Errorf("%s (%s)", m.Disposition(), m.ReasonText())
	}
	b.resumeIfPaused(no)
	b.state(no, event.Settling)
}

func TestInboxHolds(t *testing.T) {
	first, hour := time.Unix(1_000_000, 0), time.Hour
	for _, c := range []struct {
		age, margin time.Duration
		want        bool
	}{{0, 0, true}, {53 * time.Minute, 0, true}, {54 * time.Minute, 0, false}, {53 * time.Minute, time.Minute, false}, {52 * time.Minute, time.Minute, true}} {
		if got := redrive.InboxHolds(first.Add(c.age), first, hour, c.margin); got != c.want {
			t.Errorf("%s old with a margin of %s: %v", c.age, c.margin, got)
		}
	}
}

// Whatever tells that the message arrived makes the retry needless: an outcome,
// a return with our stamp, a confirm that comes late. The absence of all of them
// tells nothing.
func TestEvidenceTakesTheRetryBack(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(b *book, no event.GenerationNo, p redrive.Pick)
		want event.Disposition
	}{
		"outcome": {func(b *book, no event.GenerationNo, p redrive.Pick) {
			b.outcome(no, []redrive.Pick{p}, event.OutcomeSucceeded)
		}, event.Succeeded},
		"return": {func(b *book, no event.GenerationNo, p redrive.Pick) { b.captured(b.comeBack(no, p)) }, event.Requarantined},
		"late confirm": {func(b *book, no event.GenerationNo, p redrive.Pick) {
			b.resolve(no, redrive.Verdict{Pos: p.Pos, Try: p.Try, Resolution: event.Confirmed, Late: true})
		}, event.Pending},
		"ruling": {func(b *book, no event.GenerationNo, p redrive.Pick) { b.rule(no, p, event.RuledDelivered) }, event.Pending},
		"nothing, under hold": {func(b *book, no event.GenerationNo, _ redrive.Pick) {
			b.now = b.now.Add(200 * time.Hour)
			b.due()
		}, event.AmbiguousPublish},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t)
			change := retrying
			if c.want == event.AmbiguousPublish {
				change = func(*redrive.Manifest) {}
			}
			no, p := b.doubtful(change)
			c.tell(b, no, p)
			if in := b.later(no); len(in.Picks) > 0 {
				t.Errorf("published again: %+v", in)
			}
			if m := b.member(no, p.Pos); m.Disposition() != c.want {
				t.Errorf("%s, want %s", m.Disposition(), c.want)
			}
		})
	}
}

// A person's word that a try did not arrive frees the member at once, and what
// arrives all the same is a contradiction that is counted.
func TestRuledNotDeliveredGoesAgain(t *testing.T) {
	b := newBook(t)
	no, first := b.doubtful(retrying)
	b.rule(no, first, event.RuledNotDelivered)
	b.resumeIfPaused(no)
	second := b.sent(no, 1)[0]
	if second.Try != 2 {
		t.Fatalf("%+v", second)
	}
	b.resolve(no, redrive.Verdict{Pos: first.Pos, Try: 1, Resolution: event.Confirmed, Late: true})
	if g := b.state(no, event.Settling); g.Contradictions != 1 || g.Counts[event.Pending] != 1 {
		t.Errorf("%d contradictions, counts %v", g.Contradictions, g.Counts)
	}
}

// Only a try that was in doubt can be confirmed late, and only once, whatever
// was ruled about another try of the member.
func TestLateConfirmOfATryThatWasNeverInDoubt(t *testing.T) {
	b := newBook(t)
	no, first := b.doubtful(retrying)
	b.rule(no, first, event.RuledNotDelivered)
	b.resumeIfPaused(no)
	second := b.intended(no, 1)[0]
	late := func(try event.Try) int {
		return len(b.resolve(no, redrive.Verdict{Pos: first.Pos, Try: try, Resolution: event.Confirmed, Late: true}).Records)
	}
	if n := late(second.Try); n != 0 {
		t.Errorf("%d records of a late confirm of a try that is in flight", n)
	}
	if n := late(first.Try); n == 0 {
		t.Error("the late confirm of the try that was ruled on is not recorded")
	}
	if n := late(first.Try); n != 0 {
		t.Errorf("%d records of a late confirm that is known", n)
	}
}

// What a restart left in doubt is in doubt like everything else.
func TestRetryAfterRestart(t *testing.T) {
	b := newBook(t)
	b.orders(1)
	no := b.running(retrying)
	b.intended(no, 1)
	b.restart(false)
	b.state(no, event.Running)
	if in := b.later(no); len(in.Picks) != 1 || in.Picks[0].Try != 2 {
		t.Errorf("%+v", in)
	}
}

func TestNackedGoesAgainOnlyWhereThePlanSaysSo(t *testing.T) {
	for _, retries := range []uint64{0, redrive.MaxNackRetries} {
		b := newBook(t)
		b.orders(1)
		no := b.running(func(m *redrive.Manifest) { m.RetryNacked = retries })
		picks := b.intended(no, 1)
		for i := uint64(0); ; i++ {
			b.resolve(no, end(picks, event.Nacked, "queue_full")...)
			b.resumeIfPaused(no)
			if i == retries {
				break
			}
			rest := []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}[i]
			b.now = b.now.Add(rest - 1500*time.Millisecond) // a resume takes a second
			if in := b.intend(no, 1); rest > 2*time.Second && len(in.Picks) > 0 {
				t.Fatalf("nack %d: again before %s have passed", i+1, rest)
			}
			b.tick(3000)
			picks = b.intended(no, 1)
		}
		b.tick(60_000)
		if in := b.intend(no, 1); len(in.Picks) > 0 {
			t.Errorf("after %d nacks: %+v", retries+1, in)
		}
		if g := b.state(no, event.Closed); g.Counts[event.Undelivered] != 1 {
			t.Errorf("counts %v", g.Counts)
		}
	}
}

// A member in doubt is exposed already; its retry needs no more room.
func TestRetryWithoutRoomForMore(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running(retrying, func(m *redrive.Manifest) { m.Limits.Exposure = 1 })
	p := b.intended(no, 1)
	b.resolve(no, end(p, event.Ambiguous, "connection_lost")...)
	b.resumeIfPaused(no)
	if in := b.later(no); len(in.Picks) != 1 || in.Picks[0].Try != 2 {
		t.Errorf("%+v", in)
	}
}

// In a key, the next message waits for the retry, and fails with it.
func TestKeyWaitsForTheRetry(t *testing.T) {
	for _, good := range []bool{true, false} {
		b := newBook(t)
		b.orders(20)
		no := b.keyed(redrive.OnFailurePark, rows(2), retrying, stages(20))
		all := b.intended(no, 10)
		b.resolve(no, end(all[:1], event.Ambiguous, "connection_lost")...)
		b.resumeIfPaused(no)
		if m := b.member(no, 10); m.Disposition() != event.Waiting {
			t.Fatalf("the second of the key is %s while the first may go again", m.Disposition())
		}
		in := b.later(no)
		if len(in.Picks) != 1 || in.Picks[0].Try != 2 {
			t.Fatalf("%+v", in)
		}
		want := event.Withheld
		if good {
			b.resolve(no, end(in.Picks, event.Confirmed, "")...)
			b.outcome(no, in.Picks, event.OutcomeDeduplicated)
			want = event.Waiting
		} else {
			b.resolve(no, end(in.Picks, event.Ambiguous, "connection_lost")...)
		}
		if m := b.member(no, 10); m.Disposition() != want {
			t.Errorf("the second of the key is %s, want %s", m.Disposition(), want)
		}
	}
}
