package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/quarantine/worker"
)

// released is the stamp of a release, and its headers.
func released(n byte) (stamp.Stamp, []amqpwire.Field) {
	s := stamp.Stamp{Generation: strings.Repeat("1", 26), Envelope: strings.Repeat("2", 26), Position: uint32(n), Try: 1}
	return s, s.Headers(stamp.MAC{n})
}

// TestReports gives each outcome that a stamped message can have, before its
// acknowledgement; others report nothing.
func TestReports(t *testing.T) {
	w := newWorld(t)
	w.outcomes()
	answers := []error{nil, worker.Duplicate("shipment 9"), worker.Rejected("credit_limit", nil), worker.Ambiguous("carrier_silent", nil), worker.Permanent("unknown_sku", nil)}
	for i := range answers {
		_, fields := released(byte(i))
		w.publish(order(t, fmt.Sprint(i), with(fields...)), "{}")
	}
	w.publish(order(t, "5"), "{}") // has no stamp
	w.work(len(answers)+1, func(_ context.Context, m *worker.Message) error {
		m.Effect = ""
		if m.ID == "0" {
			m.Effect = "shipment 8"
		}
		return append(answers, nil)[m.ID[0]-'0']
	})
	var got []string
	for _, d := range w.drain(outcome.Queue) {
		r, err := outcome.Parse(d.Body)
		must(t, err)
		want, _ := released(byte(r.Stamp.Position))
		if r.Stamp != want || r.MAC != (stamp.MAC{byte(r.Stamp.Position)}) || r.ConsumerVersion != "fulfillment-worker 1.4.0" || r.At == "" {
			t.Errorf("%+v", r)
		}
		got = append(got, fmt.Sprintf("%d %s %s %s", r.Stamp.Position, r.Outcome, r.Operation, r.Effect))
	}
	want := []string{"0 succeeded 0 shipment 8", "1 deduplicated 1 shipment 9", "2 rejected 2 ", "3 ambiguous 3 "}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// A quarantined copy keeps its stamp: that is how its return is recognized.
	for _, d := range w.drain("orders.fulfillment.dlq") {
		if _, _, present, err := stamp.Read(amqpwire.Parse(d.Properties)); !present || err != nil {
			t.Errorf("stamp: %v, %v", present, err)
		}
	}
}

// TestNobodyWaitsForReports: without the exchange it is said once, and the
// messages are done.
func TestNobodyWaitsForReports(t *testing.T) {
	w := newWorld(t)
	for i := range byte(3) {
		_, fields := released(i)
		w.publish(order(t, fmt.Sprint(i), with(fields...)), "{}")
	}
	w.work(3, func(context.Context, *worker.Message) error { return nil })
	w.rest()
	if got := w.logs.events(t, "outcomes_absent"); len(got) != 1 {
		t.Errorf("%d records", len(got))
	}
}

// TestCopy compares a copy with the delivery, byte by byte but for what a copy
// may not take along. It has what cases R32 and R37 are about.
func TestCopy(t *testing.T) {
	w := newWorld(t)
	must(t, w.broker.DeclareExchange(t.Context(), local.ExchangeSpec{Name: "orders", Kind: local.Direct}))
	must(t, w.broker.Bind(t.Context(), local.Binding{Exchange: "orders", Queue: mainQueue, Key: "order.created"}))
	props := order(t, "u-1", func(v *amqpwire.View) {
		v.Present |= amqpwire.UserID | amqpwire.Expiration | amqpwire.Priority | amqpwire.CorrelationID
		v.UserID, v.Expiration, v.DeliveryMode = "guest", "600000", 1
		v.Headers = []amqpwire.Field{
			amqpwire.StringField("twice", "1"), amqpwire.LongField("MT-Redelivery-Count", 5),
			amqpwire.LongField("x-delivery-count", 20), amqpwire.StringField("twice", "2"), amqpwire.StringField("business-key", "keep-me"),
			amqpwire.ArrayField("CC", amqpwire.Value{Kind: amqpwire.Str, Data: mainQueue}), amqpwire.StringField("x-death-reason", "of another life"),
			amqpwire.ArrayField("x-death"), amqpwire.StringField("x-last-error", "stale"), amqpwire.StringField("traceparent", "00-abc-01"),
			{Name: "l", Value: amqpwire.Value{Kind: amqpwire.Int64Old, Data: int64(7)}},
		}
	})
	w.publishTo("orders", "order.created", props, "\x00\xff")
	w.opts.Observe = func(_ worker.Step, m *worker.Message) {
		if m.Exchange != "orders" || m.RoutingKey != "order.created" {
			t.Errorf("run %d was first published to %q, %q", m.Run, m.Exchange, m.RoutingKey)
		}
	}
	w.work(2, func(_ context.Context, m *worker.Message) error {
		if m.Run == 1 {
			return errors.New("first")
		}
		return worker.Permanent("unknown_sku", nil)
	})
	got := w.drain("orders.fulfillment.dlq")
	if len(got) != 1 || string(got[0].Body) != "\x00\xff" {
		t.Fatalf("%+v", got)
	}
	v := amqpwire.Parse(got[0].Properties)
	if v.Has(amqpwire.UserID) || v.Has(amqpwire.Expiration) || v.DeliveryMode != 2 || !v.Has(amqpwire.Priority|amqpwire.CorrelationID) || v.MessageID != "u-1" {
		t.Errorf("%+v", v)
	}
	const want = `MT-Redelivery-Count=5
business-key=keep-me
l=7
traceparent=00-abc-01
twice=1
twice=2
x-consumer-version=fulfillment-worker 1.4.0
x-death-reason=unknown_sku
x-died-at=T
x-died-queue=orders.fulfillment
x-first-failed-at=T
x-last-error=unknown_sku
x-origin-exchange=orders
x-origin-expiration=600000
x-origin-routing-key=order.created
x-retry-count=1
x-trace-id=00-abc-01`
	if h := headers(got[0]); h != want {
		t.Errorf("%s\nwant\n%s", h, want)
	}
	if f, _ := v.Header("l"); f.Kind != amqpwire.Int64Old {
		t.Errorf("l is of kind %s", f.Kind)
	}
}

// narrow is a publisher that takes less than its broker.
type narrow struct {
	worker.Publisher
	limits quarantine.Limits
	failed func(worker.Copy) error
}

func (n narrow) Limits() quarantine.Limits { return n.limits }

func (n narrow) Publish(ctx context.Context, c worker.Copy) error {
	if n.failed != nil {
		if err := n.failed(c); err != nil {
			return err
		}
	}
	return n.Publisher.Publish(ctx, c)
}

// TestHeaderBudget is case R24 for the worker's own copies: what it adds gives
// way, the least useful first, and the message gets out in any case.
func TestHeaderBudget(t *testing.T) {
	text := strings.Repeat("e", 400)
	for _, c := range []struct {
		name string
		room int // bytes beside the message's own
		want []string
	}{
		{"all", 2000, []string{"x-consumer-version", "x-death-reason", "x-died-at", "x-died-queue", "x-first-failed-at", "x-last-error:400", "x-origin-exchange", "x-origin-routing-key", "x-retry-count"}},
		{"shorter text", 600, []string{"x-consumer-version", "x-death-reason", "x-died-at", "x-died-queue", "x-first-failed-at", "x-last-error:291", "x-origin-exchange", "x-origin-routing-key", "x-retry-count"}},
		{"no text", 300, []string{"x-consumer-version", "x-death-reason", "x-died-at", "x-died-queue", "x-first-failed-at", "x-origin-exchange", "x-origin-routing-key", "x-retry-count"}},
		{"what informs most", 150, []string{"x-death-reason", "x-died-queue", "x-first-failed-at", "x-retry-count"}},
		{"what must be", 110, []string{"x-death-reason", "x-first-failed-at", "x-retry-count"}},
		{"the reason", 40, []string{"x-death-reason"}},
		{"nothing", 5, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			props := order(t, "big-h", with(amqpwire.StringField("x-exception-stacktrace", strings.Repeat("s", 5000))))
			w.conn.Publisher = narrow{Publisher: w.conn.Publisher, limits: quarantine.Limits{MaxHeader: len(props) + 12 + c.room}}
			w.publish(props, "{}")
			w.work(1, func(context.Context, *worker.Message) error { return worker.Permanent("unknown_sku", errors.New(text)) })
			var got []string
			for _, d := range w.drain("orders.fulfillment.dlq") {
				for line := range strings.SplitSeq(headers(d), "\n") {
					name, value, _ := strings.Cut(line, "=")
					if name == "x-last-error" {
						name += fmt.Sprint(":", len(value))
					}
					if name != "x-exception-stacktrace" {
						got = append(got, name)
					}
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			w.rest()
		})
	}
}

// TestNoRoomForTheCount quarantines what cannot be retried: without its count it
// would be retried for ever.
func TestNoRoomForTheCount(t *testing.T) {
	w := newWorld(t)
	props := order(t, "big-h")
	w.conn.Publisher = narrow{Publisher: w.conn.Publisher, limits: quarantine.Limits{MaxHeader: len(props) + 12 + 50}}
	w.publish(props, "{}")
	w.work(1, func(context.Context, *worker.Message) error { return errors.New("boom") })
	got := w.drain("orders.fulfillment.dlq")
	if len(got) != 1 || headers(got[0]) != "x-death-reason=header_too_large" {
		t.Errorf("%+v", got)
	}
}

// TestHeld keeps a message in sight that the broker takes in no form, and goes
// on with the others.
func TestHeld(t *testing.T) {
	w := newWorld(t)
	w.policy.Queues[0].Prefetch = 2
	w.conn.Publisher = narrow{Publisher: w.conn.Publisher, limits: quarantine.Limits{MaxBody: 10}}
	w.publish(order(t, "first"), "{}")
	w.publish(order(t, "large"), strings.Repeat("x", 11))
	w.publish(order(t, "after"), "{}")
	held, settled := w.steps(worker.StepHeld), w.steps(worker.StepSettled)
	stop := w.start(func(_ context.Context, m *worker.Message) error {
		if m.ID == "large" {
			return worker.Permanent("unknown_sku", nil)
		}
		return nil
	})
	w.await(held, 1)
	w.await(settled, 2)
	must(t, stop())
	w.rest(mainQueue)
	if got := w.logs.events(t, "message_held"); len(got) != 1 || got[0]["message_id"] != "large" {
		t.Errorf("%v", got)
	}
}

// TestCopyThatFails acknowledges nothing before its copy is confirmed, however
// often that fails.
func TestCopyThatFails(t *testing.T) {
	for _, res := range []event.Resolution{event.Returned, event.Nacked, event.Ambiguous, event.Refused} {
		t.Run(string(res), func(t *testing.T) {
			w := newWorld(t)
			settled := w.steps(worker.StepSettled)
			fails := 0
			w.conn.Publisher = narrow{Publisher: w.conn.Publisher, failed: func(worker.Copy) error {
				if fails++; fails <= 3 {
					if len(settled) > 0 {
						t.Error("acknowledged before the copy")
					}
					return &worker.PublishError{Resolution: res, Reason: "some_reason"}
				}
				return nil
			}}
			w.publish(order(t, "m"), "{}")
			stop := w.start(func(context.Context, *worker.Message) error { return worker.Permanent("unknown_sku", nil) })
			w.await(settled, 1)
			must(t, stop())
			if fails != 4 {
				t.Errorf("published %d times", fails)
			}
			w.rest("orders.fulfillment.dlq")
		})
	}
}

// TestCopyInVain gives a message back when its copy cannot be made before the
// broker would take it away.
func TestCopyInVain(t *testing.T) {
	c := newClock()
	w := open(t, c)
	w.opts.Scale, w.opts.HoldLimit = 1, 3*time.Minute
	w.conn.Publisher = narrow{Publisher: w.conn.Publisher, failed: func(worker.Copy) error {
		return &worker.PublishError{Resolution: event.Returned, Reason: "no_route"}
	}}
	w.publish(order(t, "m"), "{}")
	received := w.steps(worker.StepReceived)
	w.start(func(context.Context, *worker.Message) error { return worker.Permanent("unknown_sku", nil) })
	for wait := time.Second; wait < time.Minute; wait *= 2 {
		c.await(t, wait)
		c.advance(wait)
	}
	c.await(t, time.Minute)
	c.advance(4 * time.Minute)
	if again := w.await(received, 2)[1]; !again.Redelivered || again.Run != 1 {
		t.Errorf("%+v", again)
	}
}

// TestDelays: a message in the 10-minute retry does not hold back one in the
// 1-second retry. In one shared queue it does, which is what that mode warns of.
func TestDelays(t *testing.T) {
	for _, c := range []struct {
		mode  policy.RetryMode
		queue string // where the long one waits
		again bool   // the short one runs while the long one waits
	}{{policy.PerDelay, "orders.fulfillment.retry.10m", true}, {policy.Shared, "orders.fulfillment.retry", false}} {
		t.Run(string(c.mode), func(t *testing.T) {
			k := newClock()
			w := open(t, k)
			w.policy.Queues[0].Mode, w.policy.Queues[0].Jitter = c.mode, 0
			w.declareRetries()
			w.opts.Scale = 1
			w.publish(order(t, "long", with(long("x-retry-count", 4))), "{}")
			w.publish(order(t, "short"), "{}")
			settled, ran := w.steps(worker.StepSettled), w.steps(worker.StepRun)
			w.start(func(_ context.Context, m *worker.Message) error {
				if m.Run == 2 {
					return nil
				}
				return errors.New("later")
			})
			w.await(settled, 2)
			w.await(ran, 2)
			k.advance(time.Second)
			s, err := w.broker.Stats(t.Context(), c.queue)
			must(t, err)
			if c.again {
				if m := w.await(ran, 1)[0]; m.ID != "short" || s.Ready != 1 {
					t.Errorf("%s ran, %d wait", m.ID, s.Ready)
				}
				return
			}
			if s.Ready != 2 {
				t.Errorf("%d wait", s.Ready)
			}
			k.advance(10 * time.Minute)
			w.await(ran, 2)
		})
	}
}

// TestOrderOfCompletion: a message that fails does not make those behind it
// wait for its retries.
func TestOrderOfCompletion(t *testing.T) {
	w := newWorld(t)
	w.opts.Scale = 600 // ten minutes for the first retry: it does not come into this
	w.publish(order(t, "poison"), "{}")
	const n = 50
	for i := range n {
		w.publish(order(t, fmt.Sprintf("ok-%02d", i)), "{}")
	}
	settled := w.steps(worker.StepSettled)
	stop := w.start(func(_ context.Context, m *worker.Message) error {
		if m.ID == "poison" {
			return errors.New("boom")
		}
		return nil
	})
	for i, m := range w.await(settled, n+1) {
		want := "poison"
		if i > 0 {
			want = fmt.Sprintf("ok-%02d", i-1)
		}
		if m.ID != want {
			t.Errorf("number %d is %s, want %s", i, m.ID, want)
		}
	}
	must(t, stop())
}
