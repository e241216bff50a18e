package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// judge runs a message that has passed the gate, tells the gate what it learned,
// and says what becomes of the message.
func (sh *shift) judge(m *Message, probe bool) Decision {
	w := sh.w
	d := w.examine(sh.ctx, m)
	switch {
	case sh.ctx.Err() != nil:
		w.gate.leave(probe)
	case d.Act == ActHold && w.blame(m, &d):
		w.gate.ok(probe)
	case d.Act == ActHold:
		wait := w.gate.fail(probe, d.After)
		w.o.Log.LogAttrs(sh.ctx, slog.LevelWarn, "paused: a dependency is down",
			slog.String("event", "worker_paused"), slog.String("queue", w.q.Name), slog.String("reason", d.Reason),
			slog.String("code", d.Code), slog.Duration("probe_after", wait), slog.String("error", w.text(d.Text)))
	case w.gate.ok(probe):
		w.o.Log.LogAttrs(sh.ctx, slog.LevelInfo, "resumed: the dependency is back",
			slog.String("event", "worker_resumed"), slog.String("queue", w.q.Name))
	}
	return d
}

// maxSuspect is how often a message may stop everything for a dependency that
// others then find well.
const maxSuspect = 2

// blame tells whether it is the message rather than the dependency: others got
// through, and it failed again, and that more than once. Then it is retried like
// one with a transient failure, and does not stop the others any more.
func (w *worker) blame(m *Message, d *Decision) bool {
	openings := w.gate.openings()
	if m.hold != nil && openings > m.openings {
		m.suspect++
	}
	held := *d
	m.hold, m.openings = &held, openings
	if m.suspect < maxSuspect {
		return false
	}
	d.Act = ActRetry
	d.exhaust(&w.q, m.retries)
	return true
}

// examine takes a message through everything that comes before its copy.
func (w *worker) examine(ctx context.Context, m *Message) Decision {
	decide := func(f *Failure) Decision { return Decide(w.p, &w.q, f, m.retries) }
	if rule := w.malformed(m); rule != "" {
		return decide(&Failure{Class: event.Permanent, Reason: w.q.Words.Malformed, Err: errors.New("the body breaks its schema: " + rule)})
	}
	if w.parks() && m.Key != "" && !m.released {
		parked, err := w.o.Keys.Parked(ctx, w.q.Name, m.Key)
		if err != nil {
			return w.storeDown("keys_unreachable", err)
		}
		if parked {
			return decide(&Failure{Class: event.Permanent, Reason: w.q.Words.Parked, Err: errors.New("an earlier message of this key is quarantined")})
		}
	}
	if w.o.Inbox == nil || m.Operation == "" {
		return w.run(ctx, m)
	}
	seen, err := w.o.Inbox.Begin(ctx, w.operation(m))
	if err != nil {
		return w.storeDown("inbox_unreachable", err)
	}
	switch seen.State {
	case SeenDone:
		return decide(Duplicate(seen.Effect))
	case SeenConflict:
		return decide(&Failure{Class: event.Permanent, Reason: reasonConflict, Err: errors.New("the operation id belongs to another message with another meaning")})
	}
	m.Resumed = seen.State == SeenBegun
	d := w.run(ctx, m)
	if err := w.remember(ctx, m, d); err != nil {
		w.o.Log.LogAttrs(ctx, slog.LevelWarn, "the inbox did not take the result: a duplicate of this message would run again",
			slog.String("queue", w.q.Name), slog.String("message_id", m.ID), slog.Any("error", err))
	}
	return d
}

// storeDown is the failure of a store that this worker needs.
func (w *worker) storeDown(reason string, err error) Decision {
	d := Decide(w.p, &w.q, Systemic(reason, 0, err), 0)
	d.Act = ActHold // whatever a policy says about the word
	return d
}

// remember tells the inbox how the run ended. What may have had an effect stays
// begun.
func (w *worker) remember(ctx context.Context, m *Message, d Decision) error {
	whatever := context.WithoutCancel(ctx)
	switch {
	case d.Act == ActDone, d.Act == ActReject:
		return w.o.Inbox.Done(whatever, w.operation(m), m.Effect)
	case d.Act == ActDrop:
		return w.o.Inbox.Done(whatever, w.operation(m), d.Reference)
	case d.Class != event.AmbiguousOutcome && ctx.Err() == nil:
		return w.o.Inbox.Forget(whatever, w.operation(m))
	}
	return nil // of a run that we ended, only a good end is known to be one
}

// malformed names the rule of its schema that a body breaks, "" when there is
// none.
func (w *worker) malformed(m *Message) string {
	if w.o.Schema == nil {
		return ""
	}
	rule, known := w.o.Schema.Check(m.Type, m.SchemaVersion, m.Body)
	if !known {
		rule, known = w.o.Schema.Check(anyType, "", m.Body)
	}
	if !known {
		return ""
	}
	return rule
}

// anyType stands in a policy for the types that it does not name.
const anyType = "*"

// maxStack bounds the stack of a panic in the log, in bytes. It has names of
// functions and no values of strings.
const maxStack = 8 << 10

// run calls the handler and decides by its error.
func (w *worker) run(ctx context.Context, m *Message) Decision {
	timedOut, err := w.call(ctx, m)
	w.o.Observe(StepRun, m)
	if err == nil {
		return Decision{Act: ActDone}
	}
	return Decide(w.p, &w.q, understand(err, timedOut), m.retries)
}

// call runs the handler in a goroutine of its own, so that a panic, an exit or a
// time-out ends no more than this run. A handler that does not return when its
// context ends is waited for: two runs of one message at a time are worse.
func (w *worker) call(ctx context.Context, m *Message) (timedOut bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result := make(chan error, 1)
	go func() {
		err := errExit
		defer func() {
			if v := recover(); v != nil {
				err = panicked(v)
				w.o.Log.LogAttrs(ctx, slog.LevelError, "the handler panicked", slog.String("event", "handler_panic"),
					slog.String("queue", w.q.Name), slog.String("message_id", m.ID), slog.String("stack", quarantine.CleanText(string(debug.Stack()), maxStack)))
			}
			result <- err
		}()
		err = w.h(ctx, m)
	}()
	var late <-chan time.Time
	if w.q.Timeout > 0 {
		late = w.conn.Clock.After(w.q.Timeout)
	}
	for {
		select {
		case err := <-result:
			return timedOut, err
		case <-late:
			late, timedOut = nil, true
			cancel(errTimeout)
		}
	}
}
