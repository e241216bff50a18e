package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// errGivenUp is why a message is left to the broker although its session lives.
var errGivenUp = errors.New("its copy could not be made in time")

// finish does what was decided: the copy, the report, the acknowledgement, in
// that order. With an error the message is not acknowledged.
func (sh *shift) finish(m *Message, d Decision) error {
	var err error
	switch d.Act {
	case ActRetry, ActPostpone:
		d, err = sh.again(m, d)
	case ActQuarantine:
		err = sh.aside(m, d)
	case ActDone:
		err = sh.clear(m)
	}
	if err != nil {
		return err
	}
	sh.report(m, d)
	sh.w.o.Observe(StepReported, m)
	if err := sh.settle(m); err != nil {
		return err
	}
	sh.w.log(sh.ctx, m, d)
	return nil
}

// again puts a copy into a retry queue. A message that has no room for the count
// of its retries would be retried for ever, so it is quarantined instead.
func (sh *shift) again(m *Message, d Decision) (Decision, error) {
	err := sh.copy(m, sh.w.retrySheet(m, d))
	var bad *quarantine.UnsendableError
	if !errors.As(err, &bad) {
		return d, err
	}
	d.Act, d.Last, d.Reason = ActQuarantine, d.Reason, reasonNoRoom
	if bad.Reason == reasonTooLarge {
		d.Reason = reasonTooLarge
	}
	return d, sh.aside(m, d)
}

// aside puts a copy into the quarantine queue, with as much context as there is
// room for. The key is parked first, so that no later message of it slips by.
func (sh *shift) aside(m *Message, d Decision) error {
	w := sh.w
	if w.parks() && m.Key != "" {
		if err := sh.persist(m, "park the key", func(ctx context.Context) error {
			return w.o.Keys.Park(ctx, w.q.Name, m.Key, w.conn.Clock.Now())
		}); err != nil {
			return err
		}
	}
	s := w.quarantineSheet(m, d)
	less := s
	less.must, less.may, less.text = s.must[:1], nil, "" // the reason
	bare := less
	bare.must = nil
	var err error
	for _, s := range []sheet{s, less, bare} {
		err = sh.copy(m, s)
		var bad *quarantine.UnsendableError
		if !errors.As(err, &bad) {
			return err
		}
	}
	sh.hold(m, d, err)
	return err
}

// clear takes a key off the parked ones when its last released message has had
// its effect.
func (sh *shift) clear(m *Message) error {
	w := sh.w
	if !w.parks() || !m.lastOfKey || m.Key == "" {
		return nil
	}
	return sh.persist(m, "clear the key", func(ctx context.Context) error {
		return w.o.Keys.Clear(ctx, w.q.Name, m.Key)
	})
}

// hold is for a message that the broker takes in no form: it stays where it is,
// unacknowledged and in sight, and takes one place of the prefetch.
func (sh *shift) hold(m *Message, d Decision, err error) {
	sh.w.o.Log.LogAttrs(sh.ctx, slog.LevelError, "a message can neither be worked nor moved aside; it stays unacknowledged: "+
		"let the broker take larger messages, or take it out of the queue by hand",
		slog.String("event", "message_held"), slog.String("queue", m.Queue), slog.String("reason", d.Reason),
		slog.String("message_id", m.ID), slog.Int("bytes", len(m.Body)), slog.Any("error", err))
	sh.w.o.Observe(StepHeld, m)
}

// copy makes a copy and publishes it until the broker has confirmed it.
func (sh *shift) copy(m *Message, s sheet) error {
	c, err := sh.w.copyOf(m, s)
	if err != nil {
		return err
	}
	err = sh.persist(m, fmt.Sprintf("copy it to queue %q", s.queue), func(ctx context.Context) error {
		return sh.w.conn.Publisher.Publish(ctx, c)
	})
	if err == nil {
		sh.w.o.Observe(StepCopied, m)
	}
	return err
}

// persist does something that must be done before the message can be
// acknowledged, again and again until it works, the time that a message may be
// held is over, or the session is.
func (sh *shift) persist(m *Message, what string, do func(context.Context) error) error {
	w := sh.w
	wait := w.scaled(leastBackoff)
	for {
		if err := sh.s.Err(); err != nil {
			return err // the broker delivers it again: a copy now would be one too many
		}
		err := do(sh.ctx)
		if err == nil {
			return nil
		}
		var bad *PublishError
		if errors.As(err, &bad) && bad.hopeless() {
			return &quarantine.UnsendableError{Reason: bad.Reason, Detail: bad.Detail}
		}
		w.o.Log.LogAttrs(sh.ctx, slog.LevelError, "something that must be done before the acknowledgement fails; the message waits", slog.String("event", "worker_stalled"), slog.String("what", what),
			slog.String("queue", w.q.Name), slog.String("message_id", m.ID), slog.Duration("again_after", wait), slog.Any("error", err))
		if !w.conn.Clock.Now().Before(m.Received.Add(w.o.HoldLimit + w.o.HoldLimit/3)) {
			return errors.Join(errGivenUp, err)
		}
		select {
		case <-sh.ctx.Done():
			return errors.Join(sh.ctx.Err(), err)
		case <-sh.leave.Done():
			return errors.Join(sh.leave.Err(), err)
		case <-w.conn.Clock.After(wait):
		}
		wait = min(2*wait, w.scaled(mostBackoff))
	}
}

// giveBack returns a message before the broker takes it back with everything
// else that is unacknowledged.
func (sh *shift) giveBack(m *Message) error {
	return sh.s.Return(context.WithoutCancel(sh.ctx), []quarantine.Receipt{m.delivery.Receipt})
}

// leftBehind says that a message was left to the broker, unless its end was
// asked for or said before.
func (sh *shift) leftBehind(m *Message, d Decision, err error) {
	var held *quarantine.UnsendableError
	if sh.leave.Err() != nil || errors.As(err, &held) {
		return
	}
	if errors.Is(err, errGivenUp) {
		err = errors.Join(err, sh.giveBack(m))
	}
	sh.w.o.Log.LogAttrs(sh.ctx, slog.LevelWarn, "a message was not acknowledged and comes again", slog.String("queue", sh.w.q.Name),
		slog.String("message_id", m.ID), slog.String("act", string(d.Act)), slog.Any("error", err))
}

// log writes the record of what became of a message. It has no content of the
// message but its id and type, and is written for quarantines and drops only.
func (w *worker) log(ctx context.Context, m *Message, d Decision) {
	attrs := []slog.Attr{
		slog.String("queue", w.q.Name), slog.String("reason", d.Reason), slog.String("type", m.Type), slog.String("message_id", m.ID),
		slog.Int("attempts", m.Run), slog.String("consumer_version", w.o.Version),
	}
	switch d.Act {
	case ActQuarantine:
		attrs = append([]slog.Attr{slog.String("event", "poison_message")}, attrs...)
		attrs = append(attrs, slog.String("code", d.Code), slog.String("last_reason", d.Last), slog.String("class", d.Class.String()), slog.String("owner", d.Owner))
		w.o.Log.LogAttrs(ctx, slog.LevelWarn, "poison_message", attrs...)
	case ActDrop:
		attrs = append([]slog.Attr{slog.String("event", "duplicate")}, attrs...)
		w.o.Log.LogAttrs(ctx, slog.LevelInfo, "duplicate", attrs...)
	}
}

// outcomeOf is what is reported for a message that was released, "" for nothing:
// a retry has no outcome yet, and a quarantined message reports itself.
func outcomeOf(d Decision) event.Outcome {
	switch {
	case d.Act == ActDone:
		return event.OutcomeSucceeded
	case d.Act == ActDrop:
		return event.OutcomeDeduplicated
	case d.Act == ActReject:
		return event.OutcomeRejected
	case d.Act == ActQuarantine && d.Class == event.AmbiguousOutcome:
		return event.OutcomeAmbiguous
	}
	return ""
}
