package rabbitmq_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	broker "github.com/redrivehq/redrive/internal/broker/rabbitmq"
	"github.com/redrivehq/redrive/internal/postgrestest"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// kinds are the orders of the reference run that are not like all others, each
// once in fifty, with what becomes of them.
var kinds = []struct {
	kind  string
	dead  string // reason, last reason and retry count in quarantine, "" for an effect or none
	owner string
	works bool // it has one effect
}{
	{"permanent", "unknown_sku//0", "Catalog team", false},
	{"transient", "retries_exhausted/downstream_timeout/5", "Fulfillment team", false},
	{"once", "", "", true},
	{"unknown", "retries_exhausted/unknown/5", "Fulfillment on-call", false},
	{"panic", "retries_exhausted/unknown/5", "Fulfillment on-call", false},
	{"rejected", "", "", false},
	{"duplicate", "", "", false},
	{"ambiguous", "carrier_silent//0", "Fulfillment on-call", false},
	{"defect", "new_field//0", "Fulfillment on-call", false},
	{"malformed", "schema_invalid//0", "Orders API team", false},
}

// replicas are worker processes that are started again when they are killed.
type replicas struct {
	w    *world
	env  []string
	mu   sync.Mutex
	now  map[*exec.Cmd]bool
	stop bool
	died int
	all  sync.WaitGroup
}

func (r *replicas) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop {
		return
	}
	cmd := r.w.spawn(r.env...)
	r.now[cmd] = true
	r.all.Go(func() {
		err := cmd.Wait()
		r.mu.Lock()
		delete(r.now, cmd)
		again := killed(err)
		if again {
			r.died++
		}
		r.mu.Unlock()
		if again {
			r.start()
		} else if err != nil {
			r.w.t.Errorf("a worker ended by itself: %v", err)
		}
	})
}

// end asks all of them to finish, and waits for that.
func (r *replicas) end() {
	r.mu.Lock()
	r.stop = true
	for cmd := range r.now {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	r.mu.Unlock()
	r.all.Wait()
}

// TestReferenceSystem lives through the reference system: three replicas, orders
// of all kinds (see orderCount), one that kills the process, and a warehouse that
// is down for longer than the whole ladder. Each order has one effect for its idempotency
// key, or is in quarantine with its reason.
func TestReferenceSystem(t *testing.T) {
	orders := orderCount()
	w := newWorld(t)
	dir := t.TempDir()
	file, down := filepath.Join(dir, "effects"), filepath.Join(dir, "down")
	must(t, os.WriteFile(down, nil, 0o600))
	works, dead, owners := map[string]int{}, map[string]string{"killer-1": "///delivery_limit"}, map[string]string{}
	put := func(id, operation string) {
		body := fmt.Sprintf(`{"order_id":%q,"customer_id":"c-1","lines":[{"sku":"SKU-1","quantity":1}]}`, operation)
		if strings.HasPrefix(id, "malformed") {
			body = "{}"
		}
		props := order(t, id, func(v *amqpwire.View) {
			v.Headers = append(v.Headers, amqpwire.StringField("x-idempotency-key", operation))
		})
		w.raw.Publish("", w.q.Name, props, []byte(body))
	}
	for i := range orders {
		kind := "ok"
		if i%50 < len(kinds) {
			k := kinds[i%50]
			kind = k.kind
			id := fmt.Sprint(kind, "-", i)
			if k.dead != "" {
				dead[id], owners[k.dead] = k.dead, k.owner
			}
			if k.works {
				works[id] = 1
			}
		} else {
			works[fmt.Sprint("ok-", i)] = 1
		}
		id := fmt.Sprint(kind, "-", i)
		if i == orders/2 {
			put("killer-1", "killer-1")
		}
		put(id, id)
	}

	r := &replicas{w: w, now: map[*exec.Cmd]bool{}, env: []string{
		envEffects + "=" + file, envDown + "=" + down, envInbox + "=" + postgrestest.Start(t).Address("postgres"),
	}}
	for range w.q.Replicas {
		r.start()
	}
	t.Cleanup(r.end)
	// Twenty-five failures of one worker, with their back-offs, take longer than
	// the ladder.
	w.until(func() bool {
		for _, n := range effects(t, down) {
			if n >= 25 {
				return true
			}
		}
		return false
	})
	if got := effects(t, file); len(got) > 0 {
		t.Errorf("%d orders had an effect without a warehouse", len(got))
	}
	must(t, os.Remove(down))
	w.until(func() bool { return len(effects(t, file)) == len(works) })
	// Some orders come once more, now that all have had their effect.
	for i := 20; i < orders; i += 500 {
		put(fmt.Sprint("ok-", i, "-again"), fmt.Sprint("ok-", i))
	}
	c, err := broker.ParseURL(w.url)
	must(t, err)
	s, err := broker.NewSource(t.Context(), c)
	must(t, err)
	defer s.Close()
	w.until(func() bool {
		d, err := s.Depth(t.Context(), w.q.Quarantine)
		must(t, err)
		m, err := s.Depth(t.Context(), w.q.Name)
		must(t, err)
		return d.Ready >= len(dead) && m.Ready == 0
	})
	r.end()
	if got := effects(t, file); !maps.Equal(got, works) {
		t.Errorf("%d orders had an effect, want %d", len(got), len(works))
		for id, n := range got {
			if n != works[id] {
				t.Errorf("%s had %d effects, want %d", id, n, works[id])
			}
		}
	}
	got := w.dead()
	for id, want := range dead {
		if got[id] != want {
			t.Errorf("%s is in quarantine as %q, want %q", id, got[id], want)
		}
	}
	if len(got) != len(dead) {
		t.Errorf("%d are in quarantine, want %d", len(got), len(dead))
	}
	for reason, want := range owners {
		parts := strings.Split(reason, "/")
		if _, owner := w.policy.Classify(parts[0], parts[1]); owner != want {
			t.Errorf("%s belongs to %s, want %s", reason, owner, want)
		}
	}
	w.rest()
	if r.died != w.q.DeliveryLimit+1 {
		t.Errorf("%d workers were killed, want %d", r.died, w.q.DeliveryLimit+1)
	}
}
