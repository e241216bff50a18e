package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// keyed plans everything that can move in the order of keys: envelope n has
// the key and the number that name says.
func (b *book) keyed(onFailure string, name func(n int) (key, sequence string), change ...func(*redrive.Manifest)) event.GenerationNo {
	b.Helper()
	var members []event.EnvelopeNo
	var out []redrive.Exclusion
	b.view(func(v ledger.View) { members, out = b.cohort(v) })
	slices.Sort(members)
	list := make([]redrive.Keyed, 0, len(members))
	for _, no := range members {
		key, seq := name(int(no))
		list = append(list, redrive.Keyed{No: no, Key: key, Sequence: seq})
	}
	o := redrive.OrderKeys(list, nil)
	objects, index := redrive.KeyObjects(o.Links)
	b.ok(b.log.Store(context.Background(), ledger.Request{Actor: b.actor}, objects))
	no, err := b.freeze(o.Members, out, append([]func(*redrive.Manifest){func(m *redrive.Manifest) {
		m.Order, m.OnFailure, m.Keys, m.Heads = redrive.OrderPerKey, onFailure, index, o.Heads
	}}, change...)...)
	b.ok(err)
	b.approve(no)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	b.tick(1000)
	return no
}

// rows names envelopes so that each row of n has a key of its own.
func rows(n int) func(int) (string, string) {
	return func(no int) (string, string) { return fmt.Sprint("key-", (no-1)/n), strconv.Itoa((no-1)%n + 1) }
}

func (b *book) envs(picks []redrive.Pick) (out []event.EnvelopeNo) {
	for _, p := range picks {
		out = append(out, p.Env)
	}
	return out
}

// gap is what the message of a pick would say about missing predecessors.
func (b *book) gap(no event.GenerationNo, p redrive.Pick) (gap string) {
	b.Helper()
	b.view(func(v ledger.View) {
		var err error
		gap, err = (&redrive.Gaps{}).Before(v, b.gen(no), p.Pos)
		b.ok(err)
	})
	return gap
}

func TestNextOfAKeyWaitsForTheOneBefore(t *testing.T) {
	b := newBook(t)
	b.orders(6)
	no := b.keyed(redrive.OnFailurePark, rows(3))
	picks := b.sent(no, 2)
	if got := b.envs(picks); !slices.Equal(got, []event.EnvelopeNo{1, 4}) {
		t.Fatalf("first went %v", got)
	}
	if in := b.intend(no, 9); in.Hold != "order" || len(in.Picks) > 0 {
		t.Fatalf("%+v, before any outcome", in)
	}
	b.outcome(no, picks[1:], event.OutcomeSucceeded)
	if in := b.intend(no, 9); !slices.Equal(b.envs(in.Picks), []event.EnvelopeNo{5}) {
		t.Errorf("%+v, after the first of the second key succeeded", in)
	}
}

func TestFailureParksTheRestOfItsKey(t *testing.T) {
	b := newBook(t)
	b.orders(6)
	no := b.keyed(redrive.OnFailurePark, rows(3), stages(6))
	picks := b.intended(no, 2)
	b.resolve(no, end(picks[:1], event.Ambiguous, "connection_lost")...)
	b.resolve(no, end(picks[1:], event.Confirmed, "")...)
	for _, pos := range []event.Position{2, 4} {
		if m := b.member(no, pos); m.Disposition() != event.Withheld || m.ReasonText() != redrive.ReasonKeyParked {
			t.Errorf("position %d is %s (%s)", pos, m.Disposition(), m.ReasonText())
		}
	}
	// What was in doubt turns out well: nothing is taken back.
	b.rule(no, picks[0], event.RuledDelivered)
	b.outcome(no, picks, event.OutcomeSucceeded)
	b.resumeIfPaused(no)
	for range 2 {
		b.outcome(no, b.sent(no, 1), event.OutcomeSucceeded)
	}
	if g := b.state(no, event.Settling); g.Counts[event.Succeeded] != 4 || g.Counts[event.Withheld] != 2 {
		t.Errorf("counts %v", g.Counts)
	}
}

func (b *book) resumeIfPaused(no event.GenerationNo) {
	b.Helper()
	if b.gen(no).State == event.Paused {
		b.resume(no)
	}
}

func TestBlockedKeyStopsEverything(t *testing.T) {
	b := newBook(t)
	b.orders(20)
	no := b.keyed(redrive.OnFailureBlock, rows(2), stages(20))
	picks := b.sent(no, 10)
	b.now = b.now.Add(2 * time.Hour)
	b.outcome(no, picks[1:], event.OutcomeSucceeded)
	b.due()
	g := b.state(no, event.Paused)
	if len(g.Pauses) != 1 || g.Pauses[0].Reason != redrive.PauseKeyBlocked {
		t.Fatalf("paused for %v", g.Pauses)
	}
	_, err := b.update(func(v ledger.View) ([]event.Event, error) { return b.resumption(v, no, "go on") })
	if !errors.Is(err, redrive.ErrState) || !strings.Contains(err.Error(), "1 members wait") {
		t.Errorf("resumed: %v", err)
	}
	// What was missing comes in late: the key is not blocked any more.
	b.outcome(no, picks[:1], event.OutcomeSucceeded)
	b.resume(no)
	b.sent(no, 10)
}

func TestContinueStampsWhatIsMissing(t *testing.T) {
	b := newBook(t)
	b.orders(4)
	no := b.keyed(redrive.OnFailureContinue, func(n int) (string, string) { return "k", []string{"", "5", "7", "8", "12"}[n] }, stages(4))
	first := b.sent(no, 1)
	if got := b.gap(no, first[0]); got != "unknown" {
		t.Errorf("before the first: %q", got)
	}
	b.outcome(no, first, event.OutcomeSucceeded)
	second := b.sent(no, 1)
	if got := b.gap(no, second[0]); got != "1" {
		t.Errorf("7 after 5: %q", got)
	}
	b.now = b.now.Add(2 * time.Hour)
	b.due() // the second is missing
	b.resumeIfPaused(no)
	third := b.sent(no, 1)
	if got := b.gap(no, third[0]); got != "2" {
		t.Errorf("8 after 5, with 6 and 7 missing: %q", got)
	}
	b.outcome(no, third, event.OutcomeRejected)
	b.resumeIfPaused(no)
	if got := b.gap(no, b.sent(no, 1)[0]); got != "3" {
		t.Errorf("12 after 8: %q", got)
	}
}

func TestRebuildHandsTheRestToItsOwner(t *testing.T) {
	b := newBook(t)
	b.orders(3)
	no := b.keyed(redrive.OnFailureRebuild, rows(3), stages(3))
	b.resolve(no, end(b.intended(no, 1), event.Returned, "no_route")...)
	owner := ""
	b.view(func(v ledger.View) {
		b.ok(ledger.Records(v, 1, func(r *event.Record) bool {
			if a, ok := r.Body.(*event.EnvelopeAssigned); ok {
				owner += a.Owner + " " + a.Envs.String()
			}
			return true
		}))
	})
	if m := b.member(no, 2); owner != "catalog 2-3" || m.ReasonText() != redrive.ReasonKeyRebuild {
		t.Errorf("assigned %q, the last one is withheld for %s", owner, m.ReasonText())
	}
}

// A refused member of a later layer goes again when its turn is still there.
func TestRefusedMemberKeepsItsTurn(t *testing.T) {
	b := newBook(t)
	b.orders(4)
	no := b.keyed(redrive.OnFailurePark, rows(2), stages(4))
	b.outcome(no, b.sent(no, 2), event.OutcomeSucceeded)
	for range 3 {
		picks := b.intended(no, 2)
		vs := end(picks, event.Refused, "not_connected")
		for i := range vs {
			vs[i].Again = true
		}
		b.resolve(no, vs...)
	}
	b.restart(false)
	b.tick(1000)
	b.sent(no, 2)
	b.state(no, event.Settling)
}

// Whatever happens to members in whatever order, the law of order holds: that
// is checked by the verifier at the end of each run; here, that no run hangs
// with members that could go.
func TestOrderUnderRandomFates(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			b := newBook(t)
			b.orders(30)
			how := []string{redrive.OnFailurePark, redrive.OnFailureContinue, redrive.OnFailureRebuild, redrive.OnFailureBlock}[seed%4]
			retry := func(m *redrive.Manifest) {
				if m.Stages = []uint64{3, 12, 30}; seed%2 == 0 {
					m.Ambiguity, m.Inbox = redrive.AmbiguityRetry, 30*24*3_600_000
				}
			}
			no := b.keyed(how, rows(1+int(seed)%5), retry)
			for turn := 0; b.gen(no).State == event.Running || b.gen(no).State == event.Paused; turn++ {
				if turn > 2000 {
					t.Fatalf("does not end: %+v", b.gen(no).Counts)
				}
				b.turn(no, rnd)
			}
		})
	}
}

// turn lets the release go on by one step.
func (b *book) turn(no event.GenerationNo, rnd *rand.Rand) {
	b.Helper()
	b.tick(200)
	if b.gen(no).State == event.Paused {
		if _, err := b.update(func(v ledger.View) ([]event.Event, error) { return b.resumption(v, no, "go on") }); err != nil {
			b.abort(no)
			return
		}
		b.tick(1000)
	}
	if rnd.IntN(40) == 0 {
		b.restart(false)
	}
	in := b.intend(no, 1+rnd.IntN(5))
	if len(in.Picks) == 0 {
		b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) })
		b.tick(30_000 * rnd.IntN(3))
		if rnd.IntN(4) == 0 && b.gen(no).Counts[event.AmbiguousPublish] > 0 {
			b.must(func(v ledger.View) ([]event.Event, error) {
				return redrive.RuleAll(v, no, []event.Ruling{event.RuledDelivered, event.RuledNotDelivered}[rnd.IntN(2)], "asked")
			})
		}
	}
	for _, p := range in.Picks {
		one := []redrive.Pick{p}
		switch rnd.IntN(8) {
		case 0:
			b.resolve(no, end(one, event.Ambiguous, "connection_lost")...)
		case 1:
			v := end(one, event.Refused, "not_connected")
			v[0].Again = true
			b.resolve(no, v...)
		case 2:
			b.resolve(no, end(one, event.Confirmed, "")...) // and nobody ever reports
		case 3:
			b.resolve(no, end(one, event.Confirmed, "")...)
			b.outcome(no, one, event.OutcomeRejected)
		default:
			b.resolve(no, end(one, event.Confirmed, "")...)
			b.outcome(no, one, event.OutcomeSucceeded)
		}
	}
	if rnd.IntN(10) == 0 {
		b.now = b.now.Add(2 * time.Hour)
		b.due()
	}
}

func TestEarlyStagesHoldOnlyHeads(t *testing.T) {
	for _, c := range []struct {
		heads        uint64
		stages, want []uint64
	}{
		{0, []uint64{1, 11, 500}, []uint64{1, 11, 500}},
		{1, []uint64{1, 11, 500}, []uint64{1, 500}},
		{5, []uint64{1, 11, 61, 500}, []uint64{1, 5, 500}},
		{500, []uint64{1, 11, 61, 500}, []uint64{1, 11, 61, 500}},
		{3, []uint64{500}, []uint64{500}},
	} {
		if got := redrive.HeadStages(c.stages, c.heads); !slices.Equal(got, c.want) {
			t.Errorf("%v with %d heads: %v, want %v", c.stages, c.heads, got, c.want)
		}
	}
}

// Numbers rule within a key, whatever the order of capture; the heads of all
// keys go first, one of each kind before the rest of them.
func TestReleaseOrderByKey(t *testing.T) {
	o := redrive.OrderKeys([]redrive.Keyed{
		{No: 1, Key: "a", Sequence: "30", Kind: 1}, {No: 2, Key: "b", Sequence: "1", Kind: 1}, {No: 3, Key: "a", Sequence: "4", Kind: 1},
		{No: 4, Kind: 2}, {No: 5, Key: "c", Sequence: "x", Kind: 1}, {No: 6, Key: "c", Sequence: "1", Kind: 1}, {No: 7, Key: "a", Sequence: "5", Kind: 3},
	}, redrive.Passed{"a": {2, 7, 7, 40}, "b": {1}})
	if want := []event.EnvelopeNo{2, 4, 3, 5, 7, 6, 1}; !slices.Equal(o.Members, want) || o.Heads != 4 {
		t.Fatalf("members %v, %d heads", o.Members, o.Heads)
	}
	none, unknown := redrive.NoPosition, redrive.UnknownGap
	want := []redrive.Link{{Prev: none, Next: none, Missing: unknown}, {Prev: none, Next: none}, {Prev: none, Next: 4, Missing: 1},
		{Prev: none, Next: 5, Missing: unknown}, {Prev: 2, Next: 6}, {Prev: 3, Next: none, Missing: unknown}, {Prev: 4, Next: none, Missing: 23}}
	if !slices.Equal(o.Links, want) {
		t.Errorf("links %+v", o.Links)
	}
	if o.Keys != 3 || o.Keyed != 6 || o.Numeric != 2 || o.Unproven != 1 || o.Gaps != 2 || o.Unknown != 3 || o.Overtaken != 1 {
		t.Errorf("%+v", o)
	}
}

// A blocked generation is left by giving its keys up, which somebody has to
// approve.
func TestBlockIsLeftByARevision(t *testing.T) {
	for to, want := range map[string]string{redrive.OnFailurePark: redrive.ReasonKeyParked, redrive.OnFailureRebuild: redrive.ReasonKeyRebuild} {
		b := newBook(t)
		b.orders(20)
		no := b.keyed(redrive.OnFailureBlock, rows(2), stages(20))
		picks := b.sent(no, 10)
		b.captured(b.comeBack(no, picks[0]))
		b.outcome(no, picks[1:], event.OutcomeSucceeded)
		b.state(no, event.Paused)
		revise := func(to string, approved bool) error {
			_, err := b.update(func(v ledger.View) ([]event.Event, error) {
				return redrive.ReviseOnFailure(v, no, to, "given up", approved)
			})
			return err
		}
		if err := revise(to, false); !errors.Is(err, redrive.ErrState) {
			t.Errorf("without an approver: %v", err)
		}
		if err := revise(redrive.OnFailureContinue, true); !errors.Is(err, redrive.ErrArgument) {
			t.Errorf("to continue: %v", err)
		}
		b.ok(revise(to, true))
		if m := b.member(no, 10); m.Disposition() != event.Withheld || m.ReasonText() != want {
			t.Errorf("the rest of the key is %s (%s)", m.Disposition(), m.ReasonText())
		}
		b.resume(no)
		b.outcome(no, b.sent(no, 9), event.OutcomeSucceeded)
		if g := b.state(no, event.Settling); g.Counts[event.Succeeded] != 18 {
			t.Errorf("counts %v", g.Counts)
		}
	}
}
