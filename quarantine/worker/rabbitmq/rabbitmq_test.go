package rabbitmq_test

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/rabbitmq"
)

// TestClasses lets one message of each kind through the reference system.
func TestClasses(t *testing.T) {
	w := newWorld(t)
	schema, err := rabbitmq.Schemas("../../../testdata/policies", w.q)
	must(t, err)
	good := []byte(`{"order_id":"o-1","customer_id":"c-1","lines":[{"sku":"SKU-1","quantity":1}]}`)
	if broken, known := schema.Check("order.placed", "", good); broken != "" || !known {
		t.Fatalf("the example breaks its schema: %q, %v", broken, known)
	}
	kinds := map[string]int{ // settlements of each
		"ok": 1, "permanent": 1, "transient": 6, "once": 2, "unknown": 6, "panic": 6, "duplicate": 1, "rejected": 1, "ambiguous": 1, "defect": 1, "malformed": 1,
	}
	n := 0
	for kind, times := range kinds {
		body := good
		if kind == "malformed" {
			body = []byte("{}")
		}
		w.raw.Publish("", w.q.Name, order(t, kind+"-1"), body)
		n += times
	}
	w.run(n, handle, worker.Options{Concurrency: 4, Schema: schema})
	want := map[string]string{
		"permanent-1": "unknown_sku//0", "transient-1": "retries_exhausted/downstream_timeout/5", "unknown-1": "retries_exhausted/unknown/5",
		"panic-1": "retries_exhausted/unknown/5", "ambiguous-1": "carrier_silent//0", "defect-1": "new_field//0", "malformed-1": "schema_invalid//0",
	}
	if got := w.dead(); !maps.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	w.rest()
}

// TestAwkward has cases R24 and R37, and header values that client libraries do
// not survive, for copies on a real broker: their neighbours pass.
func TestAwkward(t *testing.T) {
	w := newWorld(t)
	put := func(id string, edits ...func(*amqpwire.View)) {
		w.raw.Publish("", w.q.Name, order(t, id, edits...), []byte(`{"order":1}`))
	}
	large := func(n int) func(*amqpwire.View) {
		return func(v *amqpwire.View) {
			v.Headers = append(v.Headers, amqpwire.StringField("x-exception-stacktrace", strings.Repeat("s", n)))
		}
	}
	put("permanent-big", large(120000))
	put("permanent-bigger", large(130500))
	put("transient-full", large(131072-8-130))
	put("permanent-user", func(v *amqpwire.View) { v.Present |= amqpwire.UserID; v.UserID = "guest" })
	deep := amqpwire.TableField("deep")
	for range 40 {
		deep = amqpwire.TableField("deep", deep)
	}
	put("once-odd", func(v *amqpwire.View) {
		v.Headers = append(v.Headers, deep, amqpwire.Field{Name: "l", Value: amqpwire.Value{Kind: amqpwire.Int64Old, Data: int64(7)}})
	})
	put("ok-neighbour")
	w.run(7, handle, worker.Options{})
	want := map[string]string{
		"permanent-big": "unknown_sku//0", "permanent-bigger": "unknown_sku//0", "permanent-user": "unknown_sku//0", "transient-full": "header_too_large//",
	}
	if got := w.dead(); !maps.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	w.rest()
}

// TestKilled ends the process around the copy and the acknowledgement: nothing
// is lost, and a copy may be there twice.
func TestKilled(t *testing.T) {
	for _, at := range []string{string(worker.StepReceived), string(worker.StepRun), "publish", string(worker.StepCopied), string(worker.StepReported), string(worker.StepSettled)} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			file := filepath.Join(t.TempDir(), "effects")
			w.publish("ok-1", "permanent-1", "ok-2")
			first := w.spawn(envKill+"="+at, envEffects+"="+file)
			if err := first.Wait(); !killed(err) {
				t.Fatalf("the worker was not killed: %v", err)
			}
			t.Setenv(envEffects, file)
			left := 2
			if at == string(worker.StepSettled) {
				left = 1
			}
			w.run(left, handle, worker.Options{})
			if got := w.dead(); !maps.Equal(got, map[string]string{"permanent-1": "unknown_sku//0"}) {
				t.Errorf("%q", got)
			}
			if got := effects(t, file); !maps.Equal(got, map[string]int{"ok-1": 1, "ok-2": 1}) {
				t.Errorf("%v", got)
			}
			w.rest()
		})
	}
}

// TestKiller lets one message kill every worker that takes it: the broker
// dead-letters it with its sixth delivery, and none of its neighbours.
func TestKiller(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "effects")
	want := map[string]int{}
	var ids []string
	for _, id := range strings.Split(strings.Repeat("ok ", 30), " ")[:30] {
		id += "-" + string(rune('a'+len(ids)%26)) + string(rune('a'+len(ids)/26))
		ids = append(ids, id)
		want[id] = 1
	}
	w.publish(ids[:15]...)
	w.publish("killer-1")
	w.publish(ids[15:]...)
	ended := make(chan error, 3)
	start := func() {
		cmd := w.spawn(envEffects + "=" + file)
		go func() { ended <- cmd.Wait() }()
	}
	for range 3 {
		start()
	}
	deaths := 0
	for deaths < 6 {
		if err := <-ended; !killed(err) {
			t.Fatalf("a worker ended by itself: %v", err)
		}
		if deaths++; deaths <= 3 {
			start() // three replicas until the third death, and as many as are left to die then
		}
	}
	start()
	w.until(func() bool { return len(effects(t, file)) == len(want) })
	got := map[string]string{}
	w.until(func() bool { maps.Copy(got, w.dead()); return len(got) > 0 })
	if !maps.Equal(got, map[string]string{"killer-1": "///delivery_limit"}) {
		t.Errorf("%q", got)
	}
	for id, n := range effects(t, file) {
		if n < 1 || want[id] == 0 {
			t.Errorf("%s has %d effects", id, n)
		}
	}
}

// TestRefused says what is wrong before anything is worked.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	if _, err := rabbitmq.Dial(t.Context(), rabbitmq.Config{URL: "amqp://x:s3cret@127.0.0.1:1/%zz"}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
	other := &policy.Policy{Queues: []policy.Queue{{Name: "nowhere"}}}
	err := rabbitmq.Run(t.Context(), rabbitmq.Config{URL: w.url}, other, handle, worker.Options{})
	if !errors.Is(err, quarantine.ErrQueueMissing) {
		t.Errorf("%v", err)
	}
}
