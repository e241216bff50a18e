package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// consumersPolicy is the reference system in small: its delays are cut down in
// proportion.
const consumersPolicy = `format: 1
version: "consumers"
default_owner: Fulfillment on-call
reasons:
  schema_invalid: {class: permanent, owner: Orders API team}
  unknown_sku: {class: permanent, owner: Catalog team}
  downstream_timeout: {class: transient, owner: Fulfillment team, codes: [timeout]}
  db_conflict: {class: transient, owner: Fulfillment team, codes: ["40001"]}
  unknown: {class: transient, owner: Fulfillment on-call}
queues:
  - queue: orders
    kind: quorum
    prefetch: 10
    replicas: 1
    retries: 5
    delivery_limit: 5
    delays: [3ms, 15ms, 90ms, 360ms, 1800ms]
    jitter: 20%
    retention: 14d
    timeout: 500ms
    schemas: {order.placed: order.json}
    operation: "property:message_id"
`

// supervised is a handler that is started again whenever it ends, on the port
// that it had first.
type supervised struct {
	t     testing.TB
	argv  []string
	sites string // the file with its effects
	port  int

	mu   sync.Mutex
	p    *process
	ends int
	stop bool
	done chan struct{}
}

// supervise starts a handler and keeps it up until the test ends.
func supervise(t testing.TB, effects string, argv ...string) *supervised {
	t.Helper()
	h := &supervised{t: t, argv: argv, sites: effects, done: make(chan struct{})}
	h.start()
	eventually(t, "the handler's port", func() bool {
		line, _ := bufio.NewReader(strings.NewReader(h.p.out.String())).ReadString('\n')
		h.port, _ = strconv.Atoi(strings.TrimSpace(line)) // 0 until the line is whole
		return h.port != 0 || h.p.ended()
	})
	if h.port == 0 {
		t.Fatalf("%v: %s", argv, h.p.err.String())
	}
	go h.keep()
	t.Cleanup(func() {
		h.mu.Lock()
		h.stop = true
		p := h.p
		h.mu.Unlock()
		p.kill()
		<-h.done
	})
	return h
}

func (h *supervised) start() {
	h.p = startProcess(h.t, exec.Command(h.argv[0], append(h.argv[1:len(h.argv):len(h.argv)], strconv.Itoa(h.port), h.sites)...))
}

func (h *supervised) keep() {
	defer close(h.done)
	for {
		<-h.p.done
		h.mu.Lock()
		if h.stop {
			h.mu.Unlock()
			return
		}
		h.ends++
		h.start()
		h.mu.Unlock()
	}
}

func (h *supervised) ended() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ends
}

// TestConsumersInOtherLanguages runs the example handlers behind "redrive
// worker": every class of failure occurs, one order kills the handler each time,
// and the warehouse is down at first.
func TestConsumersInOtherLanguages(t *testing.T) {
	folder, err := filepath.Abs("../../testdata/consumers")
	if err != nil {
		t.Fatal(err)
	}
	for name, argv := range map[string][]string{"python": {"python3", "orders.py"}, "node": {"node", "orders.mjs"}} {
		t.Run(name, func(t *testing.T) {
			argv := []string{argv[0], filepath.Join(folder, argv[1])}
			consumerScenario(t, argv)
		})
	}
}

func consumerScenario(t *testing.T, argv []string) {
	r := newRabbit(t)
	s := newSite(t, r.config(""))
	s.write("policy.yaml", consumersPolicy)
	s.write("order.json", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["order"],"properties":{"order":{"type":"integer"}}}`)
	s.ok("policy", "apply", "--policy", s.path("policy.yaml"), "--yes")

	effects := s.path("effects")
	if err := os.WriteFile(effects+".down", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := supervise(t, effects, argv...)

	want := map[string]string{} // message id → reason of its quarantine, "" for one effect, "none" for none
	var batch []amqp.Publishing
	add := func(n int, reason, body string) {
		for range n {
			id := fmt.Sprintf("order-%d", len(want)+1)
			text := strings.ReplaceAll(body, "N", strconv.Itoa(len(want)+1))
			want[id] = reason
			batch = append(batch, amqp.Publishing{MessageId: id, Type: "order.placed", ContentType: "application/json", Body: []byte(text)})
		}
	}
	add(20, "", `{"order":N}`)
	add(2, "unknown_sku", `{"order":N,"fault":"unknown_sku","sku":"x-1"}`)
	add(2, "", `{"order":N,"fault":"db_conflict"}`)
	add(1, "retries_exhausted", `{"order":N,"fault":"timeout","sleep":60}`)
	add(2, "none", `{"order":N,"fault":"rejected"}`)
	add(2, "defect", `{"order":N,"fault":"defect"}`)
	add(2, "schema_invalid", `{"order":"N"}`)
	add(1, "retries_exhausted", `{"order":N,"fault":"killer"}`)
	add(20, "", `{"order":N}`)
	r.publish("orders", append(batch, batch[:5]...)...) // five of them twice

	w := s.start("worker", "--policy", s.path("policy.yaml"), "--http", fmt.Sprintf("http://127.0.0.1:%d/orders", h.port),
		"--concurrency", "4", "--consumer-version", "v1", "--verbose")
	eventually(t, "the worker to see that the warehouse is down", func() bool { return w.ended() || strings.Contains(w.err.String(), "warehouse_down") })
	if err := os.Remove(effects + ".down"); err != nil {
		t.Fatal(err)
	}
	aside := 0
	for _, reason := range want {
		if reason != "" && reason != "none" {
			aside++
		}
	}
	eventually(t, "every order to have its effect or to be in quarantine", func() bool {
		return w.ended() || r.ready("orders.dlq") == aside && len(effectsIn(t, effects)) == len(want)-aside-2
	})
	w.signal(2)
	w.exits(0)

	if h.ended() < 6 {
		t.Errorf("the killer ended the handler %d times, want once for each of six runs", h.ended())
	}
	got := effectsIn(t, effects)
	for id, reason := range want {
		if n := got[id]; (reason == "") != (n == 1) || n > 1 {
			t.Errorf("%s (%q) had %d effects", id, reason, n)
		}
	}
	seen := map[string]string{}
	for _, d := range r.drained("orders.dlq") {
		reason, _ := d.Headers["x-death-reason"].(string)
		if reason == "" || d.Headers["x-consumer-version"] != "v1" {
			t.Errorf("%s: %v", d.MessageId, d.Headers)
		}
		seen[d.MessageId] = reason
	}
	for id, reason := range want {
		switch reason {
		case "", "none":
		case "defect":
			if _, there := seen[id]; !there {
				t.Errorf("%s is not in quarantine", id)
			}
		default:
			if seen[id] != reason {
				t.Errorf("%s is in quarantine for %q, want %q", id, seen[id], reason)
			}
		}
	}
	if len(seen) != aside {
		t.Errorf("%d in quarantine, want %d: %v", len(seen), aside, maps.Keys(seen))
	}
	for line := range strings.Lines(w.err.String()) {
		if strings.Contains(line, `"poison_message"`) && !json.Valid([]byte(line)) {
			t.Errorf("no JSON record: %s", line)
		}
	}
}

// effectsIn counts the effects of each key in a file of a handler.
func effectsIn(t testing.TB, file string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		key, _, _ := strings.Cut(line, " ")
		out[key]++
	}
	return out
}

// drained takes all messages off a queue.
func (r *rabbit) drained(queue string) (out []amqp.Delivery) {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			r.t.Fatal(err)
		}
		if !ok {
			return out
		}
		out = append(out, d)
	}
}
