package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/worker"
)

type sqlError string

func (e sqlError) Error() string    { return "ERROR: could not serialize access" }
func (e sqlError) SQLState() string { return string(e) }

// TestFailureClasses has one row for each way in which a run can end.
func TestFailureClasses(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		err  error // of every run
		runs int   // how often the message runs

		reason, last, code, text string // of the quarantined copy; reason "" when there is none
		retries                  int64
		class, owner             string // of the record
	}{
		{name: "ok", runs: 1},
		{name: "permanent", err: worker.Permanent("unknown_sku", errors.New("no SKU 88")), runs: 1,
			reason: "unknown_sku", text: "no SKU 88", class: "permanent", owner: "Catalog team"},
		{name: "permanent by its code", err: worker.Permanent("", errors.New("no SKU 88")).WithCode("404"), runs: 1,
			reason: "unknown_sku", code: "404", text: "no SKU 88", class: "permanent", owner: "Catalog team"},
		{name: "wrapped", err: fmt.Errorf("order 7: %w", worker.Permanent("unknown_sku", nil)), runs: 1,
			reason: "unknown_sku", text: "order 7: unknown_sku", class: "permanent", owner: "Catalog team"},
		{name: "permanent of a reason that nobody knows", err: worker.Permanent("odd", boom), runs: 1,
			reason: "odd", text: "boom", class: "permanent", owner: "Fulfillment on-call"},
		{name: "permanent without a reason", err: worker.Permanent("", boom), runs: 1,
			reason: "permanent", text: "boom", class: "permanent", owner: "Fulfillment on-call"},
		{name: "transient", err: worker.Transient("downstream_timeout", boom), runs: 6,
			reason: "retries_exhausted", last: "downstream_timeout", text: "boom", retries: 5, class: "transient", owner: "Fulfillment team"},
		{name: "an SQLSTATE", err: fmt.Errorf("insert: %w", sqlError("40P01")), runs: 6,
			reason: "retries_exhausted", last: "db_conflict", code: "40P01", text: "insert: ERROR: could not serialize access", retries: 5, class: "transient", owner: "Fulfillment team"},
		{name: "unknown", err: boom, runs: 6,
			reason: "retries_exhausted", last: "unknown", text: "boom", retries: 5, class: "transient", owner: "Fulfillment on-call"},
		{name: "unknown code", err: (&worker.Failure{Err: boom}).WithCode("E77"), runs: 6,
			reason: "retries_exhausted", last: "unknown", code: "E77", text: "boom", retries: 5, class: "transient", owner: "Fulfillment on-call"},
		{name: "the policy knows better than the handler", err: worker.Transient("unknown_sku", boom), runs: 1,
			reason: "unknown_sku", text: "boom", class: "permanent", owner: "Catalog team"},
		{name: "never retry", err: worker.Transient("downstream_timeout", boom).WithCode("131047"), runs: 1,
			reason: "meta_error_131047", code: "131047", text: "boom", class: "permanent", owner: "Messaging team"},
		{name: "duplicate", err: worker.Duplicate("shipment 9"), runs: 1},
		{name: "dropped by the policy", err: worker.Permanent("duplicate_order", nil), runs: 1},
		{name: "rejected", err: worker.Rejected("credit_limit", boom), runs: 1},
		{name: "ambiguous", err: worker.Ambiguous("carrier_silent", boom), runs: 1,
			reason: "carrier_silent", text: "boom", class: "ambiguous_effect", owner: "Fulfillment on-call"},
		{name: "ambiguous, whatever the policy says of its reason", err: worker.Ambiguous("downstream_timeout", boom), runs: 1,
			reason: "downstream_timeout", text: "boom", class: "ambiguous_effect", owner: "Fulfillment team"},
		{name: "ambiguous with a never-retry code", err: worker.Ambiguous("x", boom).WithCode("131047"), runs: 1,
			reason: "meta_error_131047", code: "131047", text: "boom", class: "ambiguous_effect", owner: "Messaging team"},
		{name: "defect", err: worker.Defect("new_field", boom), runs: 1,
			reason: "new_field", text: "boom", class: "consumer_defect", owner: "Fulfillment on-call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.publish(order(t, "m-1"), `{"order":1}`)
			var runs []int
			w.work(c.runs, func(_ context.Context, m *worker.Message) error {
				runs = append(runs, m.Run)
				return c.err
			})
			for i, n := range runs {
				if n != i+1 {
					t.Errorf("runs %v", runs)
				}
			}
			if len(runs) != c.runs {
				t.Errorf("ran %d times, want %d", len(runs), c.runs)
			}
			if c.reason == "" {
				w.rest()
				if got := w.logs.events(t, "poison_message"); len(got) > 0 {
					t.Errorf("%v", got)
				}
				return
			}
			w.rest("orders.fulfillment.dlq")
			want := []string{"x-consumer-version=fulfillment-worker 1.4.0", "x-death-reason=" + c.reason, "x-died-at=T", "x-died-queue=orders.fulfillment"}
			if c.code != "" {
				want = append(want, "x-error-code="+c.code)
			}
			want = append(want, "x-first-failed-at=T", "x-last-error="+c.text)
			if c.last != "" {
				want = append(want, "x-last-reason="+c.last)
			}
			want = append(want, "x-origin-exchange=", "x-origin-routing-key=orders.fulfillment", fmt.Sprintf("x-retry-count=%d", c.retries))
			ds := w.drain("orders.fulfillment.dlq")
			if got := headers(ds[0]); got != strings.Join(want, "\n") || len(ds) != 1 {
				t.Errorf("%d copies, the first with\n%s\nwant\n%s", len(ds), got, strings.Join(want, "\n"))
			}
			got := w.logs.events(t, "poison_message")
			if len(got) != 1 {
				t.Fatalf("%d records", len(got))
			}
			for name, want := range map[string]any{"level": "WARN", "reason": c.reason, "last_reason": c.last, "code": c.code, "class": c.class, "owner": c.owner,
				"type": "order.placed", "message_id": "m-1", "attempts": float64(c.runs), "consumer_version": "fulfillment-worker 1.4.0"} {
				if got[0][name] != want {
					t.Errorf("%s is %v, want %v", name, got[0][name], want)
				}
			}
			if strings.Contains(fmt.Sprint(got[0]), "boom") {
				t.Errorf("the record has the error text: %v", got[0])
			}
		})
	}
}

// TestPanic and an exit of the handler's goroutine are unknown failures, not the
// end of the process.
func TestPanic(t *testing.T) {
	w := newWorld(t)
	w.publish(order(t, "m-1"), "{}")
	w.publish(order(t, "m-2"), "{}")
	w.policy.Queues[0].Retries = 0
	w.work(2, func(_ context.Context, m *worker.Message) error {
		if m.ID == "m-1" {
			panic("password=hunter2 for 491701234567")
		}
		runtime.Goexit()
		return nil
	})
	texts := map[string]string{}
	for _, d := range w.drain("orders.fulfillment.dlq") {
		h := strings.Split(headers(d), "\n")
		for _, line := range h {
			if text, ok := strings.CutPrefix(line, "x-last-error="); ok {
				texts[text] = ""
			}
		}
	}
	for _, want := range []string{"panic: password=*** for 49***67", "the handler ended its goroutine (runtime.Goexit)"} {
		if _, ok := texts[want]; !ok {
			t.Errorf("%q is not among %q", want, texts)
		}
	}
	if strings.Contains(w.logs.String(), "hunter2") {
		t.Errorf("a secret is in the log: %s", w.logs)
	}
}

// TestTimeout ends the context of a run by the policy's clock.
func TestTimeout(t *testing.T) {
	c := newClock()
	w := open(t, c)
	w.policy.Queues[0].Timeout = 5 * time.Second
	w.policy.Queues[0].Retries = 0
	w.publish(order(t, "m-1"), "{}")
	settled := w.steps(worker.StepSettled)
	w.start(func(ctx context.Context, _ *worker.Message) error {
		<-ctx.Done()
		return fmt.Errorf("warehouse: %w", context.Cause(ctx))
	})
	c.await(t, 5*time.Second)
	c.advance(5 * time.Second)
	w.await(settled, 1)
	got := w.drain("orders.fulfillment.dlq")
	if h := headers(got[0]); !strings.Contains(h, "x-last-reason=downstream_timeout") || !strings.Contains(h, "x-error-code=timeout") {
		t.Errorf("%s", h)
	}
}

// TestMalformed holds bodies against their schema before the handler sees them.
func TestMalformed(t *testing.T) {
	w := newWorld(t)
	w.opts.Schema = schemas{"order.placed": "", "*": "#/required"}
	w.publish(order(t, "good"), "{}")
	bad := order(t, "bad")
	e := []byte(strings.Replace(string(bad), "order.placed", "other.placed", 1))
	w.publish(e, "{}")
	var ran []string
	w.work(2, func(_ context.Context, m *worker.Message) error { ran = append(ran, m.ID); return nil })
	if fmt.Sprint(ran) != "[good]" {
		t.Errorf("ran %q", ran)
	}
	got := w.drain("orders.fulfillment.dlq")
	if len(got) != 1 || !strings.Contains(headers(got[0]), "x-death-reason=schema_invalid\n") || !strings.Contains(headers(got[0]), "#/required") {
		t.Errorf("%+v", got)
	}
}

// schemas knows what is wrong with the bodies of each type.
type schemas map[string]string

func (s schemas) Check(typ, _ string, _ []byte) (string, bool) { v, ok := s[typ]; return v, ok }
func (s schemas) Digest() string                               { return "" }

var _ quarantine.Schema = schemas{}
