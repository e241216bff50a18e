package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// limit is how long anything may take that must happen. A healthy broker needs
// a fraction; it is long for machines that are busy.
const limit = 60 * time.Second

// check is one subtest: the sentence it proves, and the proof.
type check struct {
	name  string
	needs func(Harness) bool // nil is always
	run   func(*env)
}

// Run proves that a driver keeps the contracts of its ports.
func Run(t *testing.T, h Harness) {
	for _, group := range []struct {
		name   string
		checks []check
	}{
		{"source", sourceChecks()},
		{"settlement", settleChecks()},
		{"bytes", exactChecks()},
		{"releaser", releaserChecks()},
		{"window", windowChecks()},
		{"inspection", inspectChecks()},
		{"layout", layoutChecks()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.checks {
				if c.needs == nil || c.needs(h) {
					t.Run(c.name, func(t *testing.T) { runCheck(t, h, c) })
				}
			}
		})
	}
}

func runCheck(t *testing.T, h Harness, c check) {
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	e := &env{TB: t, h: h, ctx: ctx}
	defer func() {
		e.closeAll()
		cancel()
		if err := goleak.Find(before); err != nil {
			t.Errorf("goroutines stay behind: %v", err)
		}
	}()
	c.run(e)
}

// env is what a subtest works with.
type env struct {
	testing.TB
	h       Harness
	ctx     context.Context //nolint:containedctx // the life of one subtest
	closers []func() error
}

func (e *env) closeAll() {
	for i := len(e.closers) - 1; i >= 0; i-- {
		if err := e.closers[i](); err != nil {
			e.Errorf("close: %v", err)
		}
	}
}

func (e *env) source() quarantine.Source {
	s := e.h.NewSource(e.TB)
	e.closers = append(e.closers, s.Close)
	return s
}

func (e *env) releaser() redrive.Releaser {
	r := e.h.NewReleaser(e.TB)
	e.closers = append(e.closers, r.Close)
	return r
}

// open opens a session on q that must open.
func (e *env) open(s quarantine.Source, q string, prefetch int) quarantine.Session {
	e.Helper()
	session, err := s.Open(e.ctx, quarantine.SessionOptions{Queue: q, Prefetch: prefetch})
	if err != nil {
		e.Fatalf("open %q: %v", q, err)
	}
	return session
}

// channel opens a channel that must open.
func (e *env) channel(r redrive.Releaser, window int) redrive.Channel {
	e.Helper()
	c, err := r.Open(e.ctx, redrive.ChannelOptions{Window: window, ConfirmDeadline: limit, LateGrace: limit})
	if err != nil {
		e.Fatalf("open a channel: %v", err)
	}
	return c
}

// fill makes a queue with n messages whose bodies are their numbers.
func (e *env) fill(n int) string {
	q := e.h.NewQueue(e.TB)
	ms := make([]Raw, n)
	for i := range ms {
		ms[i] = Raw{RoutingKey: q, Properties: persistent(), Body: number(i)}
	}
	e.h.Publish(e.TB, ms...)
	return q
}

// receive takes n deliveries.
func (e *env) receive(s quarantine.Session, n int) []quarantine.Delivery {
	e.Helper()
	out := make([]quarantine.Delivery, 0, n)
	for len(out) < n {
		select {
		case d, ok := <-s.Deliveries():
			if !ok {
				e.Fatalf("the session ended after %d of %d deliveries: %v", len(out), n, s.Err())
			}
			out = append(out, d)
		case <-e.ctx.Done():
			e.Fatalf("%d of %d deliveries came", len(out), n)
		}
	}
	return out
}

// none fails when a delivery is there. It is called when everything that was
// to come has come, so that it needs no waiting.
func (e *env) none(s quarantine.Session) {
	e.Helper()
	select {
	case d, ok := <-s.Deliveries():
		if ok {
			e.Fatalf("delivery of %q, beyond the prefetch", d.Body)
		}
		e.Fatalf("the session ended: %v", s.Err())
	default:
	}
}

// ended waits until a session is over.
func (e *env) ended(s quarantine.Session) {
	e.Helper()
	for {
		select {
		case _, ok := <-s.Deliveries():
			if !ok {
				return
			}
		case <-e.ctx.Done():
			e.Fatal("the session does not end")
		}
	}
}

// depth waits until the queue has n ready messages: a broker may take a moment
// to count.
func (e *env) depth(s quarantine.Source, q string, n int) quarantine.Depth {
	e.Helper()
	for {
		d, err := s.Depth(e.ctx, q)
		if err != nil {
			e.Fatalf("depth of %q: %v", q, err)
		}
		if d.Ready == n {
			return d
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-e.ctx.Done():
			e.Fatalf("%d messages are ready, want %d", d.Ready, n)
		}
	}
}

// holds takes everything out of q and compares bodies and order.
func (e *env) holds(q string, want ...[]byte) {
	e.Helper()
	var got [][]byte
	for _, m := range e.h.Drain(e.TB, q) {
		got = append(got, m.Body)
	}
	if diff := cmp.Diff(texts(want), texts(got)); diff != "" {
		e.Errorf("the queue holds (-want +got):\n%s", diff)
	}
}

func (e *env) settle(s quarantine.Session, rs ...quarantine.Receipt) {
	e.Helper()
	if err := s.Settle(e.ctx, rs); err != nil {
		e.Fatalf("settle: %v", err)
	}
}

func (e *env) wantErr(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func texts(bodies [][]byte) []string {
	out := make([]string, 0, len(bodies))
	for _, b := range bodies {
		out = append(out, string(b))
	}
	return out
}

func bodies(ds []quarantine.Delivery) [][]byte {
	out := make([][]byte, 0, len(ds))
	for _, d := range ds {
		out = append(out, d.Body)
	}
	return out
}

func receipts(ds []quarantine.Delivery) []quarantine.Receipt {
	out := make([]quarantine.Receipt, 0, len(ds))
	for _, d := range ds {
		out = append(out, d.Receipt)
	}
	return out
}

func number(i int) []byte { return fmt.Appendf(nil, "%05d", i) }

func numbers(from, to int) [][]byte {
	var out [][]byte
	for i := from; i < to; i++ {
		out = append(out, number(i))
	}
	return out
}

// persistent is delivery mode 2 and nothing else.
func persistent() []byte { return []byte{0x10, 0x00, 2} }

// sameAgain compares the properties of a delivery with those of an earlier one,
// leaving out how often the broker says it was delivered.
func sameAgain(t testing.TB, want, got []byte) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	e := amqpwire.Edit(got)
	e.Strip(amqpwire.HeaderDeliveryCount, amqpwire.HeaderAcquiredCount)
	stripped, err := e.Bytes()
	if err != nil {
		t.Errorf("properties %x: %v", got, err)
		return
	}
	// A table that exists only because of what the broker added is no change.
	if w := amqpwire.Parse(want); !w.Has(amqpwire.Headers) && len(amqpwire.Parse(stripped).Headers) == 0 {
		e.Drop(amqpwire.Headers)
		if stripped, err = e.Bytes(); err != nil {
			t.Errorf("properties %x: %v", got, err)
			return
		}
	}
	if !bytes.Equal(want, stripped) {
		t.Errorf("properties\n%x, want\n%x", stripped, want)
	}
}
