package quarantine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// due records what time has brought, and returns the numbers by kind.
func (b *book) due(rt quarantine.Retention, s *quarantine.Schedule) map[event.Kind]string {
	b.Helper()
	rc := b.must(func(v ledger.View) ([]event.Event, error) { return rt.Due(v, s) })
	out := map[event.Kind]string{}
	for _, r := range rc.Records {
		switch e := r.Body.(type) {
		case *event.EnvelopeOverdue:
			out[e.Kind()] += e.Envs.String()
		case *event.EnvelopeExpired:
			out[e.Kind()] += e.Envs.String()
		}
	}
	return out
}

func TestOverdueOnceAndNeverRemoved(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	b.capture(b.delivery("old", headers("x-first-failed-at", fmt.Sprint(b.now.Unix()-3600))))
	var s quarantine.Schedule
	rt := quarantine.Retention{PayloadAge: time.Hour}
	b.now = b.now.Add(quarantine.DefaultRetention - time.Hour - time.Second)
	if got := b.due(rt, &s); len(got) != 0 {
		t.Errorf("too early: %v", got)
	}
	b.now = b.now.Add(time.Second)
	if got := b.due(rt, &s); got[event.KindEnvelopeOverdue] != "3" || len(got) != 1 {
		t.Errorf("the clock runs from the first death: %v", got)
	}
	b.now = b.now.Add(time.Hour)
	if got := b.due(rt, &s); got[event.KindEnvelopeOverdue] != "1-2" || len(got) != 1 {
		t.Errorf("%v", got)
	}
	b.now = b.now.Add(100 * quarantine.DefaultRetention)
	if got := b.due(rt, &s); len(got) != 0 {
		t.Errorf("overdue again: %v", got)
	}
	for no := event.EnvelopeNo(1); no <= 3; no++ {
		if _, err := b.original(no); err != nil || !b.cell(no).Flags.Has(quarantine.Overdue) || b.cell(no).Custody != event.Quarantined {
			t.Errorf("envelope %d: %v %+v", no, err, b.cell(no))
		}
	}
}

func TestDeadlineOfAQueue(t *testing.T) {
	b := newBook(t)
	d := b.delivery("x", headers())
	d.Queue = "fast.dlq"
	b.capture(d, b.delivery("y", headers()))
	var s quarantine.Schedule
	rt := quarantine.Retention{ByQueue: map[string]time.Duration{"fast.dlq": time.Minute}}
	b.now = b.now.Add(time.Minute)
	if got := b.due(rt, &s); got[event.KindEnvelopeOverdue] != "1" {
		t.Errorf("%v", got)
	}
}

func TestPayloadsOfFinishedEnvelopesExpire(t *testing.T) {
	b := newBook(t)
	nos := b.orders(4)
	b.ok(b.do("resolve", nos[1:]...))
	b.ok(b.do("hold", nos[2]))
	b.ok(b.do("purge", nos[3]))
	var s quarantine.Schedule
	rt := quarantine.Retention{PayloadAge: time.Hour}
	b.now = b.now.Add(time.Hour - time.Second)
	if got := b.due(rt, &s); len(got) != 0 {
		t.Errorf("too early: %v", got)
	}
	b.now = b.now.Add(time.Second)
	if got := b.due(quarantine.Retention{}, new(quarantine.Schedule)); len(got) != 0 {
		t.Errorf("without an age payloads stay: %v", got)
	}
	if got := b.due(rt, &s); got[event.KindEnvelopeExpired] != "2" || len(got) != 1 {
		t.Errorf("%v", got)
	}
	if _, err := b.original(nos[1]); err == nil || b.cell(nos[1]).Custody != event.ResolvedForNow || b.facts(nos[1]).Operation == "" {
		t.Error("an expiry takes the payload and nothing else")
	}
	b.ok(b.do("unhold", nos[2]))
	b.now = b.now.Add(time.Minute)
	if got := b.due(rt, &s); got[event.KindEnvelopeExpired] != "3" {
		t.Errorf("after the hold: %v", got)
	}
	b.ok(b.do("purge", nos[1])) // the rest of one that has expired
}

// A shared body goes with the last envelope of a lineage that needs it.
func TestExpiryLeavesTheBodyToTheChild(t *testing.T) {
	b := newBook(t)
	root := b.orders(1)[0]
	back, _ := b.release(root)
	kids, _ := b.capture(back)
	b.ok(b.do("resolve", root))
	b.now = b.now.Add(time.Hour)
	var s quarantine.Schedule
	if got := b.due(quarantine.Retention{PayloadAge: time.Hour}, &s); got[event.KindEnvelopeExpired] != "1" {
		t.Errorf("%v", got)
	}
	if _, err := b.original(kids[0]); err != nil {
		t.Errorf("the child: %v", err)
	}
}

// A schedule that remembers finds what a full scan finds, at the latest a
// minute after it.
func TestScheduleEqualsAFullScan(t *testing.T) {
	root, n := t.TempDir(), 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		r.Cleanup(func() { _ = os.RemoveAll(dir) })
		b := openBook(r, dir)
		b.orders(5)
		var s quarantine.Schedule
		rt := quarantine.Retention{Deadline: time.Duration(rapid.IntRange(60, 3600).Draw(r, "deadline")) * time.Second,
			PayloadAge: time.Duration(rapid.IntRange(60, 3600).Draw(r, "age")) * time.Second}
		pending := map[string]time.Time{} // what a full scan sees, since when
		for range rapid.IntRange(5, 20).Draw(r, "steps") {
			no := event.EnvelopeNo(rapid.IntRange(1, 5).Draw(r, "envelope"))
			switch rapid.SampledFrom([]string{"resolve", "hold", "unhold", "purge", "capture", "wait", "wait"}).Draw(r, "act") {
			case "resolve":
				_ = b.do("resolve", no) // refusals are as good as acts here
			case "hold":
				_ = b.do("hold", no)
			case "unhold":
				_ = b.do("unhold", no)
			case "purge":
				_ = b.do("purge", no)
			case "capture":
				b.orders(1)
			case "wait":
				b.now = b.now.Add(time.Duration(rapid.IntRange(0, 1200).Draw(r, "seconds")) * time.Second)
			}
			b.full(rt, pending)
			b.due(rt, &s)
			left := map[string]time.Time{}
			b.full(rt, left)
			for what := range pending {
				if _, still := left[what]; !still {
					delete(pending, what)
				} else if b.now.Sub(pending[what]) > time.Minute {
					r.Fatalf("%s is due since %s and was not found", what, b.now.Sub(pending[what]))
				}
			}
		}
	})
}

// full notes what a schedule that remembers nothing finds due now.
func (b *book) full(rt quarantine.Retention, seen map[string]time.Time) {
	b.Helper()
	b.view(func(v ledger.View) {
		events, err := rt.Due(v, new(quarantine.Schedule))
		b.ok(err)
		for _, e := range events {
			var envs event.Ranges
			switch body := e.Body.(type) {
			case *event.EnvelopeOverdue:
				envs = body.Envs
			case *event.EnvelopeExpired:
				envs = body.Envs
			}
			for no := range envs.All() {
				what := fmt.Sprint(e.Body.Kind(), " ", no)
				if _, ok := seen[what]; !ok {
					seen[what] = v.Now
				}
			}
		}
	})
}

func TestDueIsBounded(t *testing.T) {
	b := newBook(t)
	for range 13 {
		b.orders(500)
	}
	b.now = b.now.Add(quarantine.DefaultRetention)
	var s quarantine.Schedule
	var counts []uint64
	for range 3 {
		var n uint64
		rc := b.must(func(v ledger.View) ([]event.Event, error) { return quarantine.Retention{}.Due(v, &s) })
		for _, r := range rc.Records {
			if e, ok := r.Body.(*event.EnvelopeOverdue); ok {
				n += e.Envs.Count()
			}
		}
		counts = append(counts, n)
	}
	if !slices.Equal(counts, []uint64{5000, 1500, 0}) {
		t.Errorf("%v in each decision", counts)
	}
}
