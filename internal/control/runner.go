package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/time/rate"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// runner is one channel's worth of a release.
type runner struct {
	c      *Controller
	no     event.GenerationNo
	gate   *gate
	ch     redrive.Channel
	caps   redrive.ReleaserCaps
	single bool // one queue is the destination, so a nack is definite
	rules  *redrive.Manifest
	over   bool // the channel accepts nothing more
	// stop, when not "", is why the generation has to stand still: what stands
	// in the way of one message stands in the way of all.
	stop string

	sent sentTimes

	limiter *rate.Limiter
	limits  event.Limits
	tokens  int
	pass    uint64 // count of stops that the intents in hand were decided under
}

// publishAll alternates T1 and handover until there is nothing to do on this
// channel any more.
func (r *runner) publishAll(ctx context.Context) error {
	for !r.over {
		if err := ctx.Err(); err != nil {
			return err
		}
		changed := r.c.changes.next()
		in, err := r.intend(ctx)
		if err != nil {
			return err
		}
		switch {
		case len(in.Picks) > 0:
			err = r.handOver(ctx, in.Picks)
		case in.Hold == "state" || in.Hold == "done":
			return nil
		case in.Hold == "stop":
		case in.Hold == "rate":
			err = r.c.wait(ctx, changed, max(in.Wait, time.Millisecond))
		case in.Hold == "stage" || in.Hold == "order":
			err = r.advance(ctx, changed)
		default:
			err = r.c.wait(ctx, changed, tick)
		}
		if err != nil {
			return err
		}
	}
	if r.stop != "" {
		return r.pause(ctx, r.stop, stopReasons[r.stop])
	}
	return nil
}

var stopReasons = map[string]string{
	"blocked":       "the broker does not take messages now: it is low on memory or disk",
	"no_exchange":   "the exchange of the destination does not exist any more",
	"no_permission": "the broker lets redrive's user publish there no more: give it write permission on the exchange, amq.default for queues",
	"kill_switch":   "the file STOP is in the data directory",
	"unreadable":    "a stored original does not open; run: redrive store check",
}

// pause makes the generation stand still for a reason that the runner found.
func (r *runner) pause(ctx context.Context, reason, why string) error {
	r.gate.shut()
	_, err := r.c.log.Update(context.WithoutCancel(ctx), ledger.Request{Actor: event.System, Urgent: true}, func(v ledger.View) ([]event.Event, error) {
		return redrive.PauseBy(v, r.no, reason, why)
	})
	if errors.Is(err, redrive.ErrState) {
		return nil // it ended by itself meanwhile
	}
	return err
}

// intend waits for the rate and runs T1. The limiter paces; the exact bound is
// held by the decision itself.
func (r *runner) intend(ctx context.Context) (redrive.Intention, error) {
	if r.c.o.Stopped() {
		r.over, r.stop = true, "kill_switch"
		return redrive.Intention{Hold: "stop"}, nil
	}
	g, err := r.c.generation(r.no)
	if err != nil {
		return redrive.Intention{}, err
	}
	if g.State != event.Running {
		return redrive.Intention{Hold: "state"}, nil // seen at once, however low the rate is
	}
	limits := g.Limits
	limits.RateMilli = g.EffectiveRate()
	if r.limiter == nil || r.limits != limits {
		r.limits = limits
		r.limiter = rate.NewLimiter(rate.Limit(float64(limits.RateMilli)/1000), int(limits.Burst))
		r.limiter.AllowN(time.Now(), int(limits.Burst)) // begins empty
		r.tokens = 0
	}
	for r.tokens < int(min(g.Limits.Burst, g.Limits.Window)) && r.limiter.Allow() {
		r.tokens++
	}
	if r.tokens == 0 {
		// Not longer than a tick, so that a changed limit and the kill switch are
		// seen however low the rate is.
		next := time.Duration(1000 * float64(time.Second) / float64(limits.RateMilli))
		return redrive.Intention{Hold: "rate", Wait: min(next, tick)}, nil
	}
	var in redrive.Intention
	_, err = r.c.log.Update(ctx, ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
		r.pass = r.gate.stops.Load()
		var events []event.Event
		var err error
		in, events, err = redrive.Intend(v, r.no, r.tokens)
		return events, err
	})
	if err != nil {
		return redrive.Intention{}, err
	}
	r.tokens -= min(len(in.Picks), r.tokens)
	return in, nil
}

// advance opens the next stage, or waits for what it needs.
func (r *runner) advance(ctx context.Context, changed <-chan struct{}) error {
	rc, err := r.c.log.Update(ctx, ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
		g, err := redrive.Get(v, r.no)
		if err != nil {
			return nil, err
		}
		return redrive.Advance(v, r.no, r.c.watchOf(r.no).required(g))
	})
	if err != nil || rc.First > 0 {
		return err
	}
	if err := r.c.settleDue(ctx); err != nil {
		return err
	}
	return r.c.wait(ctx, changed, tick)
}

// handOver publishes members whose intents are durable. What the gate holds
// back, or the channel does not take, is refused; it was never sent.
func (r *runner) handOver(ctx context.Context, picks []redrive.Pick) error {
	const page = 64 // originals in memory at once
	var refused []redrive.Verdict
	for len(picks) > 0 {
		n := min(len(picks), page)
		messages, bad, err := r.load(picks[:n])
		refused = append(refused, bad...)
		if err != nil {
			// Nothing of what is left was sent, and that is recorded.
			for _, p := range picks {
				refused = append(refused, redrive.Verdict{Pos: p.Pos, Try: p.Try, Resolution: event.Refused, Again: true, Reason: "shutdown"})
			}
			return errors.Join(err, r.c.resolve(r.no, refused))
		}
		for _, m := range messages {
			if v, no := r.publish(ctx, m); no {
				refused = append(refused, v)
			}
		}
		picks = picks[n:]
	}
	return r.c.resolve(r.no, refused)
}

func token(p event.Position, t event.Try) uint64 { return uint64(p)<<8 | uint64(t) }

func untoken(n uint64) (event.Position, event.Try) { return event.Position(n >> 8), event.Try(n) }

// publish hands one message over, unless the gate is shut.
func (r *runner) publish(ctx context.Context, m redrive.Message) (redrive.Verdict, bool) {
	pos, try := untoken(m.Token)
	v := redrive.Verdict{Pos: pos, Try: try, Resolution: event.Refused, Again: true}
	if r.stop == "" && r.c.o.Stopped() {
		r.over, r.stop = true, "kill_switch"
	}
	if r.gate.stops.Load() != r.pass || r.stop != "" {
		v.Reason = "paused"
		return v, true
	}
	if ctx.Err() != nil || r.c.log.Err() != nil {
		// What becomes of it might not be recorded any more.
		r.over, v.Reason = true, "shutdown"
		return v, true
	}
	if r.over {
		v.Reason = "not_connected"
		return v, true
	}
	r.sent.began(m.Token)
	err := r.ch.Publish(ctx, m)
	if err == nil || !errors.Is(err, redrive.ErrNotSent) {
		return v, false // a result follows
	}
	r.sent.dropped(m.Token)
	var why *redrive.RefusedError
	if !errors.As(err, &why) {
		why = &redrive.RefusedError{Reason: "not_connected"}
	}
	v.Reason = why.Reason
	switch why.Reason {
	case "not_connected", "channel_closed":
		r.over = true
	case "blocked", "no_exchange", "no_permission":
		r.over, r.stop = true, why.Reason
	case "shutdown", "cancelled":
	default:
		v.Again = false // this message is the cause, and would be refused again
	}
	return v, true
}

// load opens originals and builds the messages. One that cannot be sent is
// refused for good, with its reason.
func (r *runner) load(picks []redrive.Pick) (messages []redrive.Message, refused []redrive.Verdict, err error) {
	err = r.c.log.View(func(v ledger.View) error {
		g, err := redrive.Get(v, r.no)
		if err != nil {
			return err
		}
		b := building{r: r, g: g}
		for _, p := range picks {
			m, err := b.build(v, p)
			reason, ok := refusal(err)
			switch {
			case ok:
				if reason == reasonUnreadable {
					r.over, r.stop = true, reason
				}
				refused = append(refused, redrive.Verdict{Pos: p.Pos, Try: p.Try, Resolution: event.Refused, Reason: reason})
			case err != nil:
				return err
			default:
				messages = append(messages, m)
			}
		}
		return nil
	})
	return messages, refused, err
}

// reasonUnreadable is of a stored original that does not open: of the store, not
// of the message.
const reasonUnreadable = "unreadable"

// refusal is the reason for which a message cannot go out, when err is about it
// alone.
func refusal(err error) (reason string, ok bool) {
	var why *redrive.RefusedError
	switch {
	case errors.As(err, &why):
		return why.Reason, true
	case errors.Is(err, quarantine.ErrErased):
		return "payload_gone", true
	case errors.Is(err, ledger.ErrIntegrity), errors.Is(err, fs.ErrNotExist):
		return reasonUnreadable, true
	}
	return "", false
}

// building makes the messages of one page, within one read transaction.
type building struct {
	r       *runner
	g       *redrive.Generation
	gaps    redrive.Gaps
	repairs redrive.RepairLists
}

func (b *building) build(v ledger.View, p redrive.Pick) (redrive.Message, error) {
	r, g := b.r, b.g
	o, err := r.c.outgoingOf(v, g, &b.repairs, p)
	if err != nil {
		return redrive.Message{}, err
	}
	f, err := quarantine.GetFacts(v, p.Env)
	if err != nil {
		return redrive.Message{}, err
	}
	st := r.c.o.Stamps.Stamp(g, f, p)
	if st.Gap, err = b.gaps.Before(v, g, p.Pos); err != nil {
		return redrive.Message{}, err
	}
	m, err := redrive.BuildMessage(o, g.Destination.For(f), r.rules, st, r.caps)
	m.Token = token(p.Pos, p.Try)
	return m, err
}

// collect is T2: it records what became of publishes until the channel has no
// more results. When that fails it stops the publishing, and still reads on, so
// that the channel can end.
func (r *runner) collect(stop func()) error {
	var failed error
	results := r.ch.Results()
	for res := range results {
		batch := []redrive.Verdict{r.verdict(res)}
		for more := true; more && len(batch) < 1024; {
			select {
			case res, ok := <-results:
				if more = ok; ok {
					batch = append(batch, r.verdict(res))
				}
			default:
				more = false
			}
		}
		if failed == nil {
			if failed = r.c.resolve(r.no, batch); failed != nil {
				stop()
			}
		}
	}
	return failed
}

// verdict is a result in the terms of the ledger. A nack where several queues
// may be bound says nothing about the others.
func (r *runner) verdict(res redrive.Result) redrive.Verdict {
	r.sent.ended(res.Token)
	pos, try := untoken(res.Token)
	v := redrive.Verdict{Pos: pos, Try: try, Resolution: res.Resolution, Reason: res.Reason, Late: res.Late}
	if v.Resolution == event.Nacked && !r.single {
		v.Resolution, v.Reason = event.Ambiguous, "nack_multi"
	}
	return v
}

// resolve records verdicts. It is urgent: what has left the house is recorded
// even when space is short.
func (c *Controller) resolve(no event.GenerationNo, vs []redrive.Verdict) error {
	if len(vs) == 0 {
		return nil
	}
	_, err := c.log.Update(context.Background(), ledger.Request{Actor: event.System, Urgent: true}, func(v ledger.View) ([]event.Event, error) {
		return redrive.Resolve(v, no, vs)
	})
	if err != nil {
		return fmt.Errorf("record %d resolutions of generation %d: %w", len(vs), no, err)
	}
	return nil
}
