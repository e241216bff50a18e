package control

import (
	"context"
	"slices"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// horizon holds the age of the members against what the consumer's inbox
// remembers. A message that it may have handled and forgotten would be handled a
// second time, so it is withheld, unless the plan forces it.
func (t *vetting) horizon(context.Context) error {
	horizon := time.Duration(t.set.Inbox.Horizon)
	if horizon == 0 {
		t.found(redrive.CheckHorizon, redrive.CheckUnknown, false, "the destination declares no inbox horizon")
		return nil
	}
	forced := slices.Contains(t.forced, redrive.ReasonBeyondHorizon)
	var n, bad int
	var oldest time.Time
	err := t.each(func(v ledger.View, no event.EnvelopeNo) error {
		f, err := quarantine.GetFacts(v, no)
		if err != nil {
			return err
		}
		n++
		first := redrive.FirstAttempt(f)
		if oldest.IsZero() || first.Before(oldest) {
			oldest = first
		}
		if redrive.InboxHolds(t.now, first, horizon, redrive.RetryMargin) {
			return nil
		}
		if bad++; !forced {
			t.reject(no, redrive.ReasonBeyondHorizon)
		}
		return nil
	})
	if err != nil || n == 0 {
		return err
	}
	text := withheldText(bad, n)
	if bad > 0 && forced {
		text, bad = text+", which the plan forces, and all others", 0
	}
	t.found(redrive.CheckHorizon, judged(bad), false, "%s lie within nine tenths of the declared horizon of %s; the oldest is from %s", text, horizon, oldest.UTC().Format(time.RFC3339))
	return nil
}
