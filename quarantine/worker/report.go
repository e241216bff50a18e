package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
)

// reporter remembers that reports go nowhere, so that it is said once.
type reporter struct{ once sync.Once }

// maxReported bounds the texts of a report, as its contract does.
const maxReported = 1024

// report publishes what became of a released message. Without the exchange of
// reports nobody waits for them: that is said once. Any other trouble is tried
// for as long as a copy would be, since a message without a report ends as
// missing.
func (sh *shift) report(m *Message, d Decision) {
	w := sh.w
	what := outcomeOf(d)
	if what == "" || !m.released {
		return
	}
	r := outcome.Report{
		Stamp: m.stamp, MAC: m.mac, Outcome: what, Operation: m.Operation, Effect: quarantine.CleanText(effectOf(m, d), maxReported),
		ConsumerVersion: w.o.Version, Detail: d.Reason, At: w.timestamp(),
	}
	c, err := reportCopy(&r)
	if err == nil {
		err = sh.persist(m, "report its outcome", func(ctx context.Context) error { return w.publishReport(ctx, c) })
	}
	if err != nil {
		w.o.Log.LogAttrs(sh.ctx, slog.LevelError, "the outcome of a released message was not reported: its generation will count it as missing",
			slog.String("queue", w.q.Name), slog.String("message_id", m.ID), slog.String("outcome", string(what)), slog.Any("error", err))
	}
}

func effectOf(m *Message, d Decision) string {
	if m.Effect == "" {
		return d.Reference
	}
	return m.Effect
}

// publishReport takes an exchange that is absent, or leads nowhere, for an
// answer.
func (w *worker) publishReport(ctx context.Context, c Copy) error {
	err := w.conn.Publisher.Publish(ctx, c)
	var bad *PublishError
	if !errors.As(err, &bad) || bad.Resolution != event.Returned && bad.Reason != "no_exchange" && bad.Reason != "no_permission" {
		return err
	}
	w.reports.once.Do(func() {
		w.o.Log.LogAttrs(ctx, slog.LevelWarn, "outcomes are not reported: the exchange redrive.outcomes is not there, leads to no queue, or may not be used; "+
			"`redrive policy apply` declares it", slog.String("event", "outcomes_absent"), slog.Any("error", err))
	})
	return nil
}

// reportCopy makes the message of a report.
func reportCopy(r *outcome.Report) (Copy, error) {
	body, err := r.Encode()
	if err != nil {
		return Copy{}, err
	}
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.ContentType | amqpwire.DeliveryMode, ContentType: "application/json", DeliveryMode: persistent})
	return Copy{Exchange: outcome.Exchange, Properties: props, Body: body}, err
}
