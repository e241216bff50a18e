package redrive_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// runs is how many seeds a test tries: few each day, and as many as the
// environment says when there is time.
func runs(few int) int {
	if n, err := strconv.Atoi(os.Getenv("REDRIVE_TEST_MESSAGES")); err == nil && n > few {
		return min(n, 1000)
	}
	return few
}

// However pauses, resumes, restarts, changes of the rate and throttles follow
// each other, no second holds more than 51 intents of a generation with 50/s,
// there is no intent between a pause and its resume, and a restart leaves what
// is paused paused.
func TestRandomStopsKeepRateAndGate(t *testing.T) {
	for seed := range uint64(runs(8)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { randomStops(newBook(t), rand.New(rand.NewPCG(seed, 51))) })
	}
}

func randomStops(b *book, rnd *rand.Rand) {
	const members = 250
	b.orders(members)
	no := b.plan(limited(50, 1), stages(1, 10, members), func(m *redrive.Manifest) { m.Bake = 1 })
	b.approve(no)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	full, sent := b.gen(no).Limits, sends{}
	for range 60 {
		was := b.gen(no).State
		before := len(sent)
		b.pump(no, rnd.IntN(150), &sent)
		if was == event.Paused && len(sent) != before {
			b.Fatalf("%d intents while it stands still", len(sent)-before)
		}
		if was == event.Closed || was == event.Settling {
			break
		}
		b.act(no, rnd, full)
		if g := b.gen(no); was == event.Paused && g.State == event.Running && len(g.Pauses) > 0 {
			b.Fatalf("it runs although it is paused for %v", g.Pauses)
		}
	}
	if n := sent.most(1000); n > 51 {
		b.Errorf("%d intents in one second", n)
	}
	seen := map[event.Position]bool{}
	b.view(func(v ledger.View) {
		for pos := range event.Position(members) {
			if m := redrive.GetMember(v, no, pos); m.Tries > 1 {
				b.Errorf("position %d was tried %d times", pos, m.Tries)
			} else if m.Tries == 1 {
				seen[pos] = true
			}
		}
	})
	if len(seen) != len(sent) {
		b.Errorf("%d members were tried, %d intents were seen", len(seen), len(sent))
	}
}

// act does one of the things that people and signals do.
func (b *book) act(no event.GenerationNo, rnd *rand.Rand, full event.Limits) {
	b.Helper()
	was := b.gen(no).State
	try := func(decide ledger.Decide) { _, _ = b.update(decide) } // refused in some states
	switch rnd.IntN(8) {
	case 0, 1:
		try(func(v ledger.View) ([]event.Event, error) {
			return redrive.PauseBy(v, no, redrive.PauseOperator, "look")
		})
	case 2, 3:
		try(func(v ledger.View) ([]event.Event, error) { return b.resumption(v, no, "go on") })
	case 4:
		b.restart(rnd.IntN(2) == 0)
		if is := b.gen(no).State; was == event.Paused && is != event.Paused {
			b.Fatalf("a restart made it %s", is)
		}
		b.tick(300_000) // no crash loop
	case 5:
		l := full
		l.RateMilli = uint64(1 + rnd.IntN(int(full.RateMilli)))
		try(func(v ledger.View) ([]event.Event, error) { return redrive.Limit(v, no, l, "w", true) })
	case 6:
		permille := []uint64{100, 500, 1000}[rnd.IntN(3)]
		if g := b.gen(no); permille == 1000 && len(g.Throttles) == 0 || was != event.Running && was != event.Paused {
			return
		}
		b.must(func(ledger.View) ([]event.Event, error) {
			return []event.Event{{Subj: event.Subject{Gen: no}, Body: &event.GenerationThrottled{Permille: permille, Reason: "depth", Why: "w"}}}, nil
		})
	case 7:
		try(func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) })
	}
}
