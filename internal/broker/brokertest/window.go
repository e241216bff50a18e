package brokertest

import (
	"bytes"
	"context"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// canStall selects what needs a broker that keeps silent on demand.
func canStall(h Harness) bool { return h.Stall != nil }

func windowChecks() []check {
	return []check{
		{"the window bounds publishes without a result", canStall, windowBound},
		{"an overdue confirm is ambiguous, its late confirm a fact", canStall, overdue},
		{"late confirms are waited for no longer than the grace", canStall, graceEnds},
		{"close at the end of its context resolves the rest", canStall, closeResolves},
		{"close of the releaser resolves what is in flight", canStall, releaserResolves},
		{"a broken connection makes publishes ambiguous", func(h Harness) bool { return h.Stall != nil && h.Cut != nil }, cutChannel},
	}
}

// stall silences the broker until resume, at the latest until the subtest ends.
func (e *env) stall() (resume func()) {
	resume = e.h.Stall(e.TB)
	e.closers = append(e.closers, func() error { resume(); return nil })
	return resume
}

// three publishes three numbered messages to q.
func (e *env) three(c redrive.Channel, q string) {
	e.Helper()
	for i := range 3 {
		e.publish(c, uint64(i), Raw{RoutingKey: q, Properties: persistent(), Body: number(i)})
	}
}

func windowBound(e *env) {
	q := e.h.NewQueue(e.TB)
	c := e.channel(e.releaser(), 3)
	resume := e.stall()
	e.three(c, q)
	ctx, cancel := context.WithTimeout(e.ctx, 200*time.Millisecond)
	defer cancel()
	err := c.Publish(ctx, message(99, Raw{RoutingKey: q, Properties: persistent(), Body: number(99)}))
	e.wantErr("a publish beyond the window", err, redrive.ErrNotSent)
	resume()
	e.wantConfirmed(e.results(c, 3)...)
	e.publish(c, 3, Raw{RoutingKey: q, Properties: persistent(), Body: number(3)})
	e.wantConfirmed(e.results(c, 1)...)
	e.noMore(c)
	e.holds(q, numbers(0, 4)...)
}

func overdue(e *env) {
	q := e.h.NewQueue(e.TB)
	r := e.releaser()
	c, err := r.Open(e.ctx, redrive.ChannelOptions{Window: 8, ConfirmDeadline: 200 * time.Millisecond, LateGrace: limit})
	if err != nil {
		e.Fatal(err)
	}
	resume := e.stall()
	e.three(c, q)
	e.wantAmbiguous("confirm_deadline", e.results(c, 3)...)
	err = c.Publish(e.ctx, message(99, Raw{RoutingKey: q, Properties: persistent(), Body: number(99)}))
	e.wantErr("a publish after an overdue confirm", err, redrive.ErrNotSent)
	resume()
	seen := map[uint64]bool{}
	for _, res := range e.results(c, 3) {
		if res.Resolution != event.Confirmed || !res.Late || seen[res.Token] {
			e.Errorf("%+v, want one late confirm for each", res)
		}
		seen[res.Token] = true
	}
	e.noMore(c)
	e.holds(q, numbers(0, 3)...)
}

func graceEnds(e *env) {
	q := e.h.NewQueue(e.TB)
	c, err := e.releaser().Open(e.ctx, redrive.ChannelOptions{
		Window: 8, ConfirmDeadline: 150 * time.Millisecond, LateGrace: 50 * time.Millisecond,
	})
	if err != nil {
		e.Fatal(err)
	}
	resume := e.stall()
	e.three(c, q)
	e.wantAmbiguous("confirm_deadline", e.results(c, 3)...)
	select {
	case r, ok := <-c.Results():
		if ok {
			e.Errorf("one result too many: %+v", r)
		}
	case <-e.ctx.Done():
		e.Error("results do not end")
	}
	resume()
	e.noMore(c)
}

// wantAmbiguous checks results and that each token has one. An empty reason
// stands for any.
func (e *env) wantAmbiguous(reason string, rs ...redrive.Result) {
	e.Helper()
	seen := map[uint64]bool{}
	for _, r := range rs {
		if r.Resolution != event.Ambiguous || r.Late || seen[r.Token] || r.Reason == "" || reason != "" && r.Reason != reason {
			e.Errorf("%+v, want ambiguous %s, once", r, reason)
		}
		seen[r.Token] = true
	}
}

func closeResolves(e *env) {
	q := e.h.NewQueue(e.TB)
	c := e.channel(e.releaser(), 8)
	resume := e.stall()
	e.three(c, q)
	ctx, cancel := context.WithTimeout(e.ctx, 100*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx) // an error may say that confirms are missing
	e.wantAmbiguous("", e.results(c, 3)...)
	resume()
	e.noMore(c)
}

func releaserResolves(e *env) {
	q := e.h.NewQueue(e.TB)
	r := e.releaser()
	c := e.channel(r, 8)
	resume := e.stall()
	e.three(c, q)
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	e.wantAmbiguous("", e.results(c, 3)...)
	resume()
	if err := <-closed; err != nil {
		e.Errorf("close: %v", err)
	}
	e.noMore(c)
}

func cutChannel(e *env) {
	q := e.h.NewQueue(e.TB)
	r := e.releaser()
	c := e.channel(r, 8)
	resume := e.stall()
	e.three(c, q)
	e.h.Cut(e.TB)
	e.wantAmbiguous("connection_lost", e.results(c, 3)...)
	err := c.Publish(e.ctx, message(99, Raw{RoutingKey: q, Properties: persistent(), Body: number(99)}))
	e.wantErr("a publish on a lost channel", err, redrive.ErrNotSent)
	resume()
	e.noMore(c)
	// What was called ambiguous is there or not; the rest certainly is not.
	for _, m := range e.h.Drain(e.TB, q) {
		if bytes.Equal(m.Body, number(99)) {
			e.Error("a message that was not sent arrived")
		}
	}
}
