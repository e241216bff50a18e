package redrive_test

import (
	"context"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// longest reports the slowest of several transactions beside their mean.
type longest time.Duration

func (l *longest) time(fn func()) {
	start := time.Now()
	fn()
	*l = max(*l, longest(time.Since(start)))
}

func (l longest) report(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(l)/1e6, "max-ms")
}

// BenchmarkRelease is one T1 and one T2 of 64 members: of a plain cohort, of one
// with as many kinds of members as are told apart, and of one in which 10,000
// others go out repaired.
func BenchmarkRelease(bb *testing.B) {
	bb.Run("plain", func(bb *testing.B) { benchmarkRelease(bb, 1, 0) })
	bb.Run("kinds", func(bb *testing.B) { benchmarkRelease(bb, redrive.MaxStrata, 0) })
	bb.Run("repairs", func(bb *testing.B) { benchmarkRelease(bb, 1, 10_000) })
}

func benchmarkRelease(b *testing.B, kinds, repaired int) {
	b.Helper()
	const batch = 64
	bk := newBook(b)
	members := envelopes(1, batch*b.N+repaired)
	for n := 0; n < len(members); n += 512 {
		bk.orders(min(512, len(members)-n))
	}
	var list []redrive.RepairedMember
	for pos := batch * b.N; pos < len(members); pos++ {
		list = append(list, redrive.RepairedMember{Pos: event.Position(pos), Candidate: 1})
	}
	of := make([]uint8, len(members))
	for i := range of {
		of[i] = uint8(i % kinds)
	}
	lists, digests := redrive.RepairObjects(list)
	strata, strataDigests := redrive.StratumObjects(of)
	bk.ok(bk.log.Store(context.Background(), ledger.Request{Actor: bk.actor}, append(lists, strata...)))
	no, err := bk.freeze(members, nil, func(m *redrive.Manifest) {
		m.Limits.Window, m.Limits.Exposure = batch, redrive.MaxCohort
		m.Repairs, m.Strata = digests, strataDigests
		m.Evidence = redrive.EvidenceReturns // so that what moved is in the ratios
	})
	bk.ok(err)
	bk.approve(no)
	bk.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	var slowest longest
	b.ResetTimer()
	for range b.N {
		bk.tick(1000)
		var picks []redrive.Pick
		slowest.time(func() { picks = bk.intended(no, batch) })
		slowest.time(func() { bk.resolve(no, end(picks, event.Confirmed, "")...) })
	}
	b.StopTimer()
	slowest.report(b)
	b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "members/s")
}

// BenchmarkFreeze plans a million members: the lists go into the store in
// small transactions, the freeze is the only one that checks.
func BenchmarkFreeze(bb *testing.B) {
	b := newBook(bb)
	b.orders(1)
	members := envelopes(1, 1_000_000)
	var stored, frozen longest
	bb.ResetTimer()
	for range bb.N {
		m := b.manifest(members, nil)
		objects := redrive.ReservationObjects(m.ID, members)
		chunks, digests := redrive.MemberObjects(members)
		m.Chunks = digests
		objects = append(objects, chunks...)
		for len(objects) > 0 {
			n := min(len(objects), 16)
			stored.time(func() { b.ok(b.log.Store(context.Background(), ledger.Request{Actor: b.actor}, objects[:n])) })
			objects = objects[n:]
		}
		var no event.GenerationNo
		frozen.time(func() {
			b.must(func(v ledger.View) ([]event.Event, error) {
				events, n, err := redrive.Freeze(v, m)
				no = n
				return events, err
			})
		})
		b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Reject(v, no, "the next round") })
	}
	bb.StopTimer()
	stored.report(bb)
	bb.ReportMetric(float64(frozen)/1e6, "freeze-max-ms")
}
