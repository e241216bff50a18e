package worker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/dedup/bolt"
)

func text(name, value string) amqpwire.Field       { return amqpwire.StringField(name, value) }
func long(name string, value int64) amqpwire.Field { return amqpwire.LongField(name, value) }

func (w *world) memory() *bolt.Store {
	w.t.Helper()
	s, err := bolt.Open(filepath.Join(w.t.TempDir(), "inbox"), time.Hour)
	must(w.t, err)
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestInbox drops what has had its effect, runs again what has not, and asks a
// person about one id with two meanings.
func TestInbox(t *testing.T) {
	w := newWorld(t)
	inbox := w.memory()
	w.opts.Inbox = inbox
	put := func(id, op, body string) { w.publish(order(t, id, with(text("x-idempotency-key", op))), body) }
	put("a", "op-1", `{"n":1}`)
	put("b", "op-1", ` { "n" : 1 }`) // the same meaning
	put("c", "op-1", `{"n":2}`)      // another one
	put("d", "op-2", `{}`)           // succeeds in its second run
	put("e", "op-3", `{}`)           // begun by a worker that died
	put("f", "op-4", `{}`)           // an effect that may be there
	must(t, begin(t, inbox, "op-3", "{}"))
	var ran runs
	resumed := map[string]bool{}
	w.work(7, func(_ context.Context, m *worker.Message) error {
		ran.add(m)
		resumed[m.ID] = m.Resumed
		m.Effect = "shipment of " + m.Operation
		switch {
		case m.ID == "d" && m.Run == 1:
			return errors.New("not yet")
		case m.ID == "f":
			return worker.Ambiguous("carrier_silent", nil)
		}
		return nil
	})
	if got := ran.String(); !strings.HasPrefix(got, "a/1 d/1 e/1 f/1") && !strings.HasPrefix(got, "a/1 d/1 ") || strings.Contains(got, "b/") || strings.Contains(got, "c/") {
		t.Errorf("%s", got)
	}
	if fmt.Sprint(resumed) != "map[a:false d:false e:true f:false]" {
		t.Errorf("%v", resumed)
	}
	reasons := map[string]string{}
	for _, d := range w.drain("orders.fulfillment.dlq") {
		v := amqpwire.Parse(d.Properties)
		reasons[v.MessageID], _ = v.Text("x-death-reason")
	}
	if fmt.Sprint(reasons) != "map[c:identity_conflict f:carrier_silent]" {
		t.Errorf("%v", reasons)
	}
	if got := w.logs.events(t, "duplicate"); len(got) != 1 || got[0]["message_id"] != "b" || got[0]["level"] != "INFO" {
		t.Errorf("%v", got)
	}
	for op, want := range map[string]worker.SeenState{"op-1": worker.SeenDone, "op-2": worker.SeenDone, "op-3": worker.SeenDone, "op-4": worker.SeenBegun} {
		body := "{}"
		if op == "op-1" {
			body = `{"n":1}`
		}
		if got, err := inbox.Begin(t.Context(), operation(op, body)); err != nil || got.State != want {
			t.Errorf("%s: %+v, %v", op, got, err)
		}
	}
}

func operation(id, body string) worker.Operation {
	return worker.Operation{ID: id, Fingerprint: quarantine.Fingerprint("order.placed", []byte(body)), Now: time.Now()}
}

func begin(t *testing.T, inbox worker.Inbox, id, body string) error {
	_, err := inbox.Begin(t.Context(), operation(id, body))
	return err
}

// TestInboxDown waits for an inbox that does not answer, and spends no retry.
func TestInboxDown(t *testing.T) {
	w := newWorld(t)
	w.opts.Inbox = &flaky{Inbox: w.memory(), fails: 3}
	w.publish(order(t, "a"), "{}")
	var ran runs
	w.work(1, func(_ context.Context, m *worker.Message) error { ran.add(m); return nil })
	if got := ran.String(); got != "a/1" {
		t.Errorf("%s", got)
	}
	if got := w.logs.events(t, "worker_paused"); len(got) != 3 || got[0]["reason"] != "inbox_unreachable" {
		t.Errorf("%v", got)
	}
}

// flaky is an inbox that fails some times.
type flaky struct {
	worker.Inbox
	fails int
}

func (f *flaky) Begin(ctx context.Context, op worker.Operation) (worker.Seen, error) {
	if f.fails > 0 {
		f.fails--
		return worker.Seen{}, errors.New("no connection")
	}
	return f.Inbox.Begin(ctx, op)
}

// TestParkedKeys sends the messages of a key after a quarantined one, until the
// last released one has had its effect.
func TestParkedKeys(t *testing.T) {
	w := newWorld(t)
	q := &w.policy.Queues[0]
	q.Ordering.Key, q.Ordering.OnFailure = "header:x-ordering-key", "park"
	w.opts.Keys = w.memory()
	put := func(id, key string, fields ...amqpwire.Field) {
		w.publish(order(t, id, with(append(fields, text("x-ordering-key", key))...)), "{}")
	}
	var ran runs
	bad := true
	handle := func(_ context.Context, m *worker.Message) error {
		ran.add(m)
		if m.ID == "a1" && bad {
			return worker.Permanent("unknown_sku", nil)
		}
		return nil
	}
	put("a1", "a")
	put("a2", "a")
	put("b1", "b")
	put("a3", "a")
	w.work(4, handle)
	if got := ran.String(); got != "a1/1 b1/1" {
		t.Errorf("%s", got)
	}
	var reasons []string
	for _, d := range w.drain("orders.fulfillment.dlq") {
		v := amqpwire.Parse(d.Properties)
		reason, _ := v.Text("x-death-reason")
		reasons = append(reasons, v.MessageID+" "+reason)
	}
	if got := strings.Join(reasons, ", "); got != "a1 unknown_sku, a2 predecessor_quarantined, a3 predecessor_quarantined" {
		t.Errorf("%s", got)
	}

	// They are released in order. The key stays parked until the last of them.
	bad, ran.all = false, nil
	_, stamp := released(1)
	put("a1", "a", stamp...)
	put("a4", "a") // new: follows them aside
	put("a2", "a", stamp...)
	put("a3", "a", append(stamp, text(worker.HeaderLastOfKey, "true"))...)
	put("a5", "a")
	w.work(5, handle)
	if got := ran.String(); got != "a1/1 a2/1 a3/1 a5/1" {
		t.Errorf("%s", got)
	}
}

// TestParkedKeysNeedAStore that all replicas share.
func TestParkedKeysNeedAStore(t *testing.T) {
	for name, c := range map[string]struct {
		key      string
		replicas int
		store    bool
		want     string
	}{
		"no key":          {"", 1, true, "names no key"},
		"no store":        {"header:k", 1, false, "needs a store"},
		"three replicas":  {"header:k", 3, true, "one store that all of them share"},
		"a wrong formula": {"heather:k", 1, true, "expression"},
	} {
		w := newWorld(t)
		q := &w.policy.Queues[0]
		q.Ordering.Key, q.Ordering.OnFailure, q.Replicas = c.key, "park", c.replicas
		if c.store {
			w.opts.Keys = w.memory()
		}
		err := worker.Run(t.Context(), w.conn, w.policy, func(context.Context, *worker.Message) error { return nil }, w.opts)
		if !errors.Is(err, worker.ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
