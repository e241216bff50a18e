package integration

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// keysEnv is how many ordering keys of ten messages each the tests of order
// have, 40 by default.
const keysEnv = "REDRIVE_TEST_KEYS"

const perKey = 10

func keyCount(t testing.TB) int {
	text := os.Getenv(keysEnv)
	if text == "" {
		return 40
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 {
		t.Fatalf("%s=%q: want a number from 2 on", keysEnv, text)
	}
	return n
}

// turns are the messages of n keys, all keys mixed.
func turns(keys int) (out []amqp.Publishing) {
	for seq := range perKey {
		for k := range keys {
			out = append(out, amqp.Publishing{MessageId: fmt.Sprintf("k%d-%d", k, seq+1), Body: fmt.Appendf(nil, `{"key":%d,"n":%d}`, k, seq+1),
				Headers: amqp.Table{"x-death-reason": "unknown_sku", "x-ordering-key": fmt.Sprint("k", k), "x-sequence": strconv.Itoa(seq + 1)}})
		}
	}
	return out
}

// queueing is a consumer that notes what it gets of each key. Every second key
// has one message that it cannot handle: one in twenty.
type queueing struct {
	mu     sync.Mutex
	got    map[string][]int
	gaps   map[string]string // by message id
	copies map[string]int
}

func (q *queueing) handle(o outcomes) func(*amqp.Channel, amqp.Delivery) verdict {
	return func(ch *amqp.Channel, d amqp.Delivery) verdict {
		key, _ := d.Headers["x-ordering-key"].(string)
		text, _ := d.Headers["x-sequence"].(string)
		n, _ := strconv.Atoi(text)
		q.mu.Lock()
		q.got[key] = append(q.got[key], n)
		q.gaps[d.MessageId], _ = d.Headers["x-redrive-gap"].(string)
		q.copies[d.MessageId]++
		q.mu.Unlock()
		if n == failing(key) {
			return refuse
		}
		o.report(ch, d, "succeeded")
		return take
	}
}

// failing is the message of a key that fails, 0 for none.
func failing(key string) int {
	n, _ := strconv.Atoi(key[1:])
	if n%2 == 1 {
		return 0
	}
	return n/2%perKey + 1
}

// releaseByKey releases all keys and returns what the consumer saw.
func releaseByKey(t *testing.T, onFailure string, keys int) (*queueing, api.Generation) {
	t.Helper()
	r := newRabbit(t)
	r.declareOrders()
	o := r.declareOutcomes()
	r.publish("orders.dlq", turns(keys)...)
	s := newSite(t, r.config("destinations: [{queue: orders, evidence: outcomes, order: per-key}]\n"))
	s.ok("capture")
	q := &queueing{got: map[string][]int{}, gaps: map[string]string{}, copies: map[string]int{}}
	r.work("orders", q.handle(o))
	p := ask[api.Plan](s, "generation", "plan", "--all", "--fix", "mended", "--to-queue", "orders", "--on-failure", onFailure, "--rate", "100000",
		"--burst", "500", "--window", "1000", "--exposure", "2000", "--stages", "12", "--bake", "1ms", "--outcome-deadline", "10m",
		"--threshold", "requarantined=50%")
	if p.Order == nil || p.Order.Keys != uint64(keys) || p.Order.Keyed != uint64(keys*perKey) || p.Order.Gaps != 0 || p.Order.Unknown != uint64(keys) {
		t.Fatalf("the plan says %+v", p.Order)
	}
	s.ok("generation", "approve", p.Generation.ID)
	s.want(5, "generation", "start", p.Generation.ID)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q, ask[api.Generation](s, "generation", "show", p.Generation.ID)
}

// TestParkedKeysOnRabbitMQ: no message of a key is delivered after one of it has
// failed, all come in order, and keys without a failure are whole.
func TestParkedKeysOnRabbitMQ(t *testing.T) {
	keys := keyCount(t)
	q, g := releaseByKey(t, "park", keys)
	withheld, failed := uint64(0), uint64(0)
	for k := range keys {
		key := fmt.Sprint("k", k)
		want := perKey
		if at := failing(key); at > 0 {
			want = at
			failed++
			withheld += uint64(perKey - at)
		}
		if len(q.got[key]) != want {
			t.Errorf("%s: %v were delivered, want 1 to %d", key, q.got[key], want)
			continue
		}
		for i, n := range q.got[key] {
			if n != i+1 {
				t.Errorf("%s: delivered in the order %v", key, q.got[key])
				break
			}
		}
	}
	all := uint64(keys * perKey)
	checkTally(t, g, all, map[string]uint64{"succeeded": all - failed - withheld, "requarantined": failed, "withheld": withheld})
	for id, gap := range q.gaps {
		if first := id[len(id)-2:] == "-1"; first != (gap == "unknown") {
			t.Errorf("%s says %q about missing messages", id, gap)
		}
	}
}

// TestContinuedKeysOnRabbitMQ: everything is delivered, in order, and what comes
// after a failure carries the number of messages that are missing before it.
func TestContinuedKeysOnRabbitMQ(t *testing.T) {
	keys := keyCount(t)
	q, _ := releaseByKey(t, "continue", keys)
	for k := range keys {
		key := fmt.Sprint("k", k)
		if len(q.got[key]) != perKey {
			t.Errorf("%s: %v were delivered", key, q.got[key])
		}
		for n := 1; n <= perKey; n++ {
			want := ""
			switch {
			case n == 1:
				want = "unknown"
			case n == 2 && failing(key) == 1:
				want = "1+"
			case n > 1 && failing(key) == n-1:
				want = "1"
			}
			if gap := q.gaps[fmt.Sprintf("%s-%d", key, n)]; gap != want {
				t.Errorf("%s-%d says %q about missing messages, want %q", key, n, gap, want)
			}
		}
	}
}
