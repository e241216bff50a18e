package verify

import (
	"context"
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

// BenchmarkVerify verifies and replays a ledger of some 40,000 records: one
// generation of 10,000 members. The target is 100,000 records
// a second on one core.
func BenchmarkVerify(b *testing.B) {
	const members = 10_000
	k := newBook(b)
	k.capture(1, members)
	k.put(event.Subject{Gen: 1}, &event.GenerationPlanned{Manifest: k.manifest(1), Members: members,
		Limits: event.Limits{Burst: 10, Exposure: members, RateMilli: 1_000_000, Window: 10}})
	k.approve(1)
	k.start(1)
	for p := range uint64(members) {
		k.wait(1)
		k.moved(p)
		k.outcome(event.OutcomeAdmitted, 1, p)
		k.outcome(event.OutcomeSucceeded, 1, p)
	}
	k.checkpoint()
	b.ReportAllocs()
	for b.Loop() {
		rep, err := Verify(context.Background(), k, Options{Replay: true})
		if err != nil || rep.ExitCode() != 0 || rep.Generations[0].Counts[event.Succeeded] != members {
			b.Fatalf("%v %+v", err, rep)
		}
	}
	b.ReportMetric(float64(len(k.lines)*b.N)/b.Elapsed().Seconds(), "records/s")
}
