package redrive_test

import (
	"errors"
	"math"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// sends are the moments of intents, in milliseconds of a clock that no restart
// sets back.
type sends []int64

// most is the largest number of intents within any closed window.
func (s sends) most(window int64) (n int) {
	from := 0
	for to := range s {
		for s[to]-s[from] > window {
			from++
		}
		n = max(n, to-from+1)
	}
	return n
}

// pump takes whatever the rate allows, millisecond by millisecond, and
// confirms it at once.
func (b *book) pump(no event.GenerationNo, ms int, log *sends) {
	b.Helper()
	for range ms {
		b.tick(1)
		in := b.intend(no, 4096)
		for range in.Picks {
			*log = append(*log, b.now.UnixMilli())
		}
		if len(in.Picks) > 0 {
			b.resolve(no, end(in.Picks, event.Confirmed, "")...)
		}
	}
}

func limited(rate float64, burst uint32) func(*redrive.Manifest) {
	return func(m *redrive.Manifest) {
		milli, err := redrive.RateMilli(rate)
		if err != nil {
			panic(err)
		}
		m.Limits = event.Limits{RateMilli: milli, Burst: burst, Window: 4096, Exposure: 100_000}
	}
}

// With 50/s and a burst of 1 no second holds more than 51 intents, whatever
// happens to the generation in between.
func TestNoSecondHoldsMoreThanRatePlusBurst(t *testing.T) {
	b := newBook(t)
	b.orders(400)
	no := b.plan(limited(50, 1))
	b.approve(no)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	var log sends
	b.pump(no, 1100, &log)
	if len(log) < 50 {
		t.Fatalf("only %d intents in 1.1 s: the rate is not reached", len(log))
	}
	b.pause(no)
	b.must(func(v ledger.View) ([]event.Event, error) { return b.resumption(v, no, "go on") })
	b.pump(no, 300, &log)
	limits := b.gen(no).Limits
	for range 5 { // changing a limit fills no bucket
		b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Limit(v, no, limits, "the same", true) })
		b.pump(no, 30, &log)
	}
	for _, clean := range []bool{true, false, true} {
		b.restart(clean)
		b.pump(no, 200, &log)
	}
	if got := log.most(1000); got > 51 {
		t.Errorf("%d intents in one second, at most 51 are allowed", got)
	}
}

func TestBurstIsSpentOnceAndFillsAtTheRate(t *testing.T) {
	b := newBook(t)
	b.orders(200)
	no := b.plan(limited(10, 5))
	b.approve(no)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	if in := b.intend(no, 100); in.Hold != "rate" || in.Wait != msec(100) {
		t.Errorf("right after the start: %+v", in)
	}
	b.tick(99)
	if in := b.intend(no, 100); in.Hold != "rate" || in.Wait != msec(1) {
		t.Errorf("1 ms too early: %+v", in)
	}
	b.tick(60_000) // long enough to fill it many times
	if in := b.intend(no, 100); len(in.Picks) != 5 {
		t.Errorf("%d after a minute, want the burst of 5", len(in.Picks))
	}
	if in := b.intend(no, 100); in.Hold != "rate" {
		t.Errorf("a second burst: %+v", in)
	}
}

// A rate that is no whole number of microseconds is not rounded in its favour.
func TestHighRatesAreNotExceeded(t *testing.T) {
	for _, rate := range []float64{300_000, 700_000, 1_000_000, 30.3} {
		const burst, ms = 1000, 2
		b := newBook(t)
		b.orders(4000)
		no := b.running(limited(rate, burst))
		b.tick(100_000) // the bucket is full
		var log sends
		b.pump(no, ms+1, &log)
		if allowed := int(math.Floor(rate*ms/1000)) + burst; len(log) > allowed || len(log) < burst {
			t.Errorf("rate %v: %d intents in %d ms, at most %d are allowed", rate, len(log), ms, allowed)
		}
	}
}

func TestRatesThatMakeNoSense(t *testing.T) {
	for _, r := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1, math.Copysign(0, -1), redrive.MaxRate + 1, math.MaxFloat64, math.SmallestNonzeroFloat64, 0.0004} {
		if n, err := redrive.RateMilli(r); !errors.Is(err, redrive.ErrArgument) || n != 0 {
			t.Errorf("rate %v: %d, %v", r, n, err)
		}
	}
	for _, c := range []struct {
		rate float64
		want uint64
	}{{50, 50_000}, {0.001, 1}, {redrive.MaxRate, 1_000_000_000}} {
		if n, err := redrive.RateMilli(c.rate); err != nil || n != c.want {
			t.Errorf("rate %v: %d, %v; want %d", c.rate, n, err, c.want)
		}
	}
}

func TestLimitsOutOfRange(t *testing.T) {
	good := redrive.DefaultLimits()
	if err := redrive.CheckLimits(good); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(*event.Limits){
		func(l *event.Limits) { l.Window = 0 }, func(l *event.Limits) { l.Window = redrive.MaxWindow + 1 },
		func(l *event.Limits) { l.Burst = 0 }, func(l *event.Limits) { l.Burst = redrive.MaxWindow + 1 },
		func(l *event.Limits) { l.RateMilli = 0 }, func(l *event.Limits) { l.RateMilli = redrive.MaxRate*1000 + 1 },
		func(l *event.Limits) { l.Exposure = 0 }, func(l *event.Limits) { l.Exposure = redrive.MaxCohort + 1 },
	} {
		l := good
		change(&l)
		if err := redrive.CheckLimits(l); !errors.Is(err, redrive.ErrArgument) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

func TestLooseningNeedsAnApprover(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running(func(m *redrive.Manifest) {
		m.Limits = event.Limits{Window: 100, Burst: 100, RateMilli: 100_000, Exposure: 100}
	})
	limit := func(l event.Limits, approved bool) error {
		_, err := b.update(func(v ledger.View) ([]event.Event, error) { return redrive.Limit(v, no, l, "w", approved) })
		return err
	}
	for i, field := range []func(*event.Limits, int){
		func(l *event.Limits, by int) { l.Window += uint32(by) }, func(l *event.Limits, by int) { l.Burst += uint32(by) },
		func(l *event.Limits, by int) { l.RateMilli += uint64(by) }, func(l *event.Limits, by int) { l.Exposure += uint32(by) },
	} {
		tight, loose := b.gen(no).Limits, b.gen(no).Limits
		field(&tight, -1)
		if err := limit(tight, false); err != nil || b.gen(no).Limits != tight {
			t.Errorf("tightened (%d): %v", i, err)
		}
		if err := limit(loose, false); !errors.Is(err, redrive.ErrState) {
			t.Errorf("loosened without an approver (%d): %v", i, err)
		}
		if err := limit(loose, true); err != nil || b.gen(no).Limits != loose {
			t.Errorf("loosened by an approver (%d): %v", i, err)
		}
	}
}

func TestWindowExposureAndStageBoundWhatGoesOut(t *testing.T) {
	b := newBook(t)
	b.orders(30)
	no := b.running(stages(20, 30), func(m *redrive.Manifest) { m.Limits.Window, m.Limits.Exposure = 3, 8 })
	first := b.intended(no, 3)
	if in := b.intend(no, 10); in.Hold != "window" {
		t.Errorf("%+v", in)
	}
	b.resolve(no, end(first, event.Confirmed, "")...)
	second := b.sent(no, 3)
	if in := b.intend(no, 10); len(in.Picks) != 2 { // 6 of 8 are exposed
		t.Errorf("picked %d, 2 of the exposure are left", len(in.Picks))
	}
	if in := b.intend(no, 10); in.Hold != "exposure" {
		t.Errorf("%+v", in)
	}
	b.outcome(no, append(first, second...), event.OutcomeSucceeded)
	b.resolve(no, end([]redrive.Pick{{Pos: 6, Try: 1}, {Pos: 7, Try: 1}}, event.Confirmed, "")...)
	for range 4 {
		in := b.intend(no, 10)
		b.resolve(no, end(in.Picks, event.Confirmed, "")...)
		b.outcome(no, in.Picks, event.OutcomeSucceeded)
	}
	if in := b.intend(no, 10); in.Hold != "stage" || b.gen(no).Next != 20 {
		t.Errorf("%+v at %d", in, b.gen(no).Next)
	}
}
