package control

import (
	"fmt"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// expectedAs are the dispositions in which each expected outcome shows.
var expectedAs = map[string]event.Disposition{
	string(event.OutcomeAdmitted): event.Admitted, string(event.OutcomeSucceeded): event.Succeeded,
	string(event.OutcomeDeduplicated): event.DeduplicatedConsumer, string(event.OutcomeRejected): event.RejectedByConsumer,
	string(event.OutcomeAmbiguous): event.AmbiguousEffect,
}

// expectation compares expected outcomes with those of the members, nil when
// none were stated. What was never to move had no outcome to expect.
func expectation(g *redrive.Generation, expected []string) *api.Expectation {
	if len(expected) == 0 {
		return nil
	}
	as := map[event.Disposition]bool{}
	for _, o := range expected {
		as[expectedAs[o]] = true
	}
	x := &api.Expectation{Otherwise: map[string]uint64{}}
	for d, n := range g.Counts {
		switch d := event.Disposition(d); {
		case n == 0:
		case as[d]:
			x.Met += n
		default:
			x.Unmet += n
			x.Otherwise[d.String()] = n
		}
	}
	return x
}

// otherwise lists what became of the members that did not end as expected.
func otherwise(x *api.Expectation, state string) string {
	var parts []string
	for d := range event.NumDispositions {
		if n := x.Otherwise[event.Disposition(d).String()]; n > 0 {
			name := spoken(event.Disposition(d))
			if event.Disposition(d) == event.Waiting && ended(state) {
				name = "never sent"
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	return listed(parts)
}

func wireReconciled(r *redrive.Reconciled) *api.Reconciled {
	if r == nil {
		return nil
	}
	return &api.Reconciled{By: r.By.Subject, At: moment(r.At), Source: r.Source, Commitment: r.Evidence, Checked: r.Checked, Effected: r.Effected,
		Double: r.Double, NotEffected: r.NotEffected, None: r.None, Early: r.Early, NotCheckable: r.NotCheckable, Unexpected: r.Unexpected}
}
