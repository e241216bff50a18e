package redrive_test

import (
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// A message that was ruled not delivered turns out to be out, or done, after a
// plan took another one of the same operation: that one stays.
func TestOperationThatIsOutAfterAll(t *testing.T) {
	for want, late := range map[string]func(b *book, no event.GenerationNo, picks []redrive.Pick){
		"operation_in_doubt": func(b *book, no event.GenerationNo, picks []redrive.Pick) {
			b.resolve(no, redrive.Verdict{Pos: picks[0].Pos, Try: picks[0].Try, Resolution: event.Confirmed, Late: true})
		},
		"operation_resolved": func(b *book, no event.GenerationNo, picks []redrive.Pick) {
			b.outcome(no, picks, event.OutcomeSucceeded)
		},
		"": func(*book, event.GenerationNo, []redrive.Pick) {},
	} {
		t.Run(want, func(t *testing.T) {
			b := newBook(t)
			first := b.capture(message{op: "order-7", body: `{"n":1}`})
			old := b.running(stages(1))
			picks := b.intended(old, 1)
			b.resolve(old, end(picks, event.Ambiguous, "connection_lost")...)
			b.must(func(v ledger.View) ([]event.Event, error) {
				return redrive.RuleAll(v, old, event.RuledNotDelivered, "it is not there")
			})
			b.abort(old)
			b.custody(first[0], event.Quarantined)
			second := b.capture(message{op: "order-7", body: `{"n":1}`})
			no, err := b.freeze(second, nil)
			b.ok(err)
			b.approve(no)
			b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
			b.tick(1000)
			late(b, old, picks)
			in := b.intend(no, 1)
			m := b.member(no, 0)
			if want == "" {
				if len(in.Picks) != 1 {
					t.Errorf("nothing goes out: %+v", in)
				}
				return
			}
			if len(in.Picks) > 0 || m.Disposition() != event.Withheld {
				t.Errorf("%d go out, the member is %s", len(in.Picks), m.Disposition())
			}
			found := false
			b.view(func(v ledger.View) {
				b.ok(ledger.Records(v, 1, func(r *event.Record) bool {
					w, ok := r.Body.(*event.MemberWithheld)
					found = found || ok && w.Reason == want
					return true
				}))
			})
			if !found {
				t.Errorf("not withheld for %s", want)
			}
			// A purge erases of which operation it was, also for a rebuild.
			if want == "operation_resolved" {
				b.must(func(v ledger.View) ([]event.Event, error) {
					return quarantine.Purge(v, event.RangesOf(first[0]), "T-1", "", func(event.EnvelopeNo) event.GenerationNo { return 0 })
				})
			}
		})
	}
}
