package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/rabbittest"
)

// cutsEnv is how many connections are cut where a test cuts many.
const cutsEnv = "REDRIVE_TEST_CUTS"

func cuts(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv(cutsEnv)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number from 1 on", cutsEnv, text)
	}
	return n
}

// seeded yields random numbers below n, from a seed that is printed.
func seeded(t testing.TB) func(n int) int {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("REDRIVE_TEST_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		must(t, err)
		seed = n
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
}

// capturing is a store that captures parcels from a real queue through a proxy.
type capturing struct {
	t    *testing.T
	r    genuine
	site *site
	wire *proxy
	sent map[string][]parcel // by queue
}

// newCapturing makes the queues orders.dlq, with a delivery limit of 20, and
// others.dlq beside it. Watch sees every frame of the program.
func newCapturing(t *testing.T, watch func(*link, frame) verb) *capturing {
	t.Helper()
	return newCapturingOn(t, rabbittest.Shared(t), watch)
}

func newCapturingOn(t *testing.T, node *rabbittest.Node, watch func(*link, frame) verb) *capturing {
	t.Helper()
	c := &capturing{t: t, r: genuine{rabbitOn(t, node)}, sent: map[string][]parcel{}}
	c.r.declareOrders()
	c.declareOthers()
	c.wire = newWatchingProxy(t, c.r.node.Addr(), watch)
	c.site = newSite(t, fmt.Sprintf("version: 1\nbroker: {url: \"amqp://%s/%s\", user: %s, password_file: password}\n%s",
		c.wire.addr(), c.r.vhost, brokerUser, strings.Replace(venueConfig, "{queue: orders.dlq, prefetch: 5}", "{queue: orders.dlq}, {queue: others.dlq}", 1)))
	return c
}

func (c *capturing) declareOthers() {
	c.t.Helper()
	_, err := c.r.channel().QueueDeclare("others.dlq", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 20})
	must(c.t, err)
}

// publish lets n more parcels be ready in a queue that nobody captures.
func (c *capturing) publish(queue string, n int) {
	c.t.Helper()
	c.send(queue, n)
	eventually(c.t, "what was published to be ready", func() bool { return c.r.ready(queue) >= n })
}

// send publishes n more parcels to a queue.
func (c *capturing) send(queue string, n int) {
	c.t.Helper()
	all := 0
	for _, ps := range c.sent {
		all += len(ps)
	}
	ps := parcels(all, n)
	c.r.publish(queue, ps...)
	c.sent[queue] = append(c.sent[queue], ps...)
}

// deliveries are how often the broker has delivered what is left in a queue and
// had it back, the most of any message. Looking spends one more of each.
func (c *capturing) deliveries(queue string) (most, left int) {
	c.t.Helper()
	conn := c.r.dial()
	ch, err := conn.Channel()
	must(c.t, err)
	for {
		d, ok, err := ch.Get(queue, false)
		must(c.t, err)
		if !ok {
			break
		}
		left++
		if n, ok := d.Headers["x-delivery-count"].(int64); ok {
			most = max(most, int(n))
		}
	}
	must(c.t, conn.Close())
	eventually(c.t, "what was looked at to be back", func() bool { return c.r.ready(queue) == left })
	return most, left
}

// whole checks that every parcel is in the store once, flagged duplicates
// apart, and returns how many of those there are. Nothing may be left outside.
func (c *capturing) whole() (duplicates int) {
	c.t.Helper()
	k := &killing{t: c.t, site: c.site}
	n := 0
	for queue, ps := range c.sent {
		k.sent = append(k.sent, ps...)
		if left := c.r.ready(queue); left != 0 {
			c.t.Errorf("%d messages are left in %s", left, queue)
		}
	}
	for name, times := range k.names() {
		n += times
		if times != 1 {
			c.t.Errorf("%s is in the store %d times", name, times)
		}
	}
	if n != len(k.sent) {
		c.t.Errorf("%d of %d are in the store", n, len(k.sent))
	}
	return len(c.site.envelopes()) - n
}

// parked is how status shows a queue, which has to be parked.
func (c *capturing) parked(queue, reason string) api.ParkedQueue {
	c.t.Helper()
	all := ask[api.StatusInfo](c.site, "status").Parked
	i := slices.IndexFunc(all, func(p api.ParkedQueue) bool { return p.Queue == queue })
	if i < 0 || all[i].Reason != reason {
		c.t.Fatalf("status shows as parked %+v, want %s by %s", all, queue, reason)
	}
	p := all[i]
	if p.Why == "" || !strings.Contains(p.Advice, "--unpark") || time.Since(p.Since) > hang || time.Since(p.Since) < 0 {
		c.t.Errorf("status says of it %+v", p)
	}
	text := c.site.ok("status").out.String()
	for _, want := range []string{queue, reason, "is parked since " + p.Since.Format("2006-01-02 15:04:05"), p.Why, "to do: " + p.Advice} {
		if !strings.Contains(text, want) {
			c.t.Errorf("status does not say %q:\n%s", want, text)
		}
	}
	return p
}

// part is what a capture says about one of its queues.
func part(t testing.TB, sum api.CaptureSummary, queue string) api.QueueSummary {
	t.Helper()
	for _, q := range sum.Queues {
		if q.Queue == queue {
			return q
		}
	}
	t.Fatalf("the capture says nothing of %s: %+v", queue, sum)
	return api.QueueSummary{}
}

// TestCutsAtRandomMoments cuts the connection of a capture at random moments,
// each after something was settled on it: in the middle of a frame or between
// two, in either direction. Nothing is lost, nothing is parked, and nobody
// connects more often than was cut.
func TestCutsAtRandomMoments(t *testing.T) {
	want := int64(cuts(t, 20))
	rnd := seeded(t)
	var c *capturing
	c = newCapturing(t, func(l *link, f frame) verb {
		switch {
		case l.queue == "" || c.wire.cuts.Load() >= want || l.left < 0:
			return pass
		case f.up && f.is(basic, ack) && l.left == 0:
			l.left = 1 + rnd(60) // this one passes
			return pass
		case l.left > 1 || l.left == 0:
			l.left = max(0, l.left-1)
			return pass
		}
		l.left = -1
		if rnd(2) == 0 {
			return stop
		}
		return tear
	})
	c.publish("orders.dlq", int(12*want))
	sum := ask[api.CaptureSummary](c.site, "capture", "--queue", "orders.dlq")
	n, opened := c.wire.cuts.Load(), c.wire.opened.Load()
	if n != want {
		t.Fatalf("%d connections were cut, want %d: there were too few messages for more", n, want)
	}
	// One for each session, and one for what is asked beside them.
	if opened > n+5 {
		t.Errorf("%d connections for %d cuts", opened, n)
	}
	most := int64(0)
	for _, e := range c.site.envelopes() {
		most = max(most, e.DeliveryCount)
	}
	duplicates := c.whole()
	if most > 10 {
		t.Errorf("a message was delivered %d times before it was safe", most)
	}
	if status := ask[api.StatusInfo](c.site, "status"); len(status.Parked) != 0 {
		t.Errorf("parked: %+v", status.Parked)
	}
	t.Logf("%d cuts, %d connections, %d captured, %d merged, %d possible duplicates, at most %d earlier deliveries",
		n, opened, sum.Captured, sum.Merged, duplicates, most)
}

// TestCutsBeforeAnySettlement lets no settlement of one queue pass: the queue
// is parked long before its messages have used up their limit, and says so; the
// other queue of the same capture is emptied. When the way is open again,
// --unpark goes on.
func TestCutsBeforeAnySettlement(t *testing.T) {
	var open atomic.Bool
	c := newCapturing(t, func(l *link, f frame) verb {
		if !open.Load() && l.queue == "orders.dlq" && f.up && f.is(basic, ack) {
			return stop
		}
		return pass
	})
	c.publish("orders.dlq", 40)
	c.publish("others.dlq", 40)

	p := c.site.want(3, "capture", "--json")
	sum := answer[api.CaptureSummary](p)
	bad, good := part(t, sum, "orders.dlq"), part(t, sum, "others.dlq")
	if bad.Parked != "sessions_lost" || bad.Error == nil || bad.Error.Code != api.CodeRefused || good.Captured != 40 || good.Error != nil || good.Parked != "" {
		t.Errorf("the capture says %+v\n%s", sum, p.err.String())
	}
	if got := c.parked("orders.dlq", "sessions_lost"); !strings.Contains(got.Why, "3 sessions in a row") {
		t.Errorf("status says why: %s", got.Why)
	}
	// Parked is parked: the next capture opens nothing for it.
	opened, cut := c.wire.opened.Load(), c.wire.cuts.Load()
	c.site.fails(3, `is parked since.*sessions_lost.*--unpark`, "capture", "--queue", "orders.dlq")
	if cut != 3 || opened > cut+1+3 || c.wire.cuts.Load() != cut {
		t.Errorf("%d connections were opened and %d cut, then %d", opened, cut, c.wire.cuts.Load())
	}
	// One try is one try.
	c.site.want(3, "capture", "--queue", "orders.dlq", "--unpark")
	c.parked("orders.dlq", "delivery_limit_near") // the broker says itself how often it was
	if c.wire.cuts.Load() != cut+1 {
		t.Errorf("%d tries after --unpark", c.wire.cuts.Load()-cut)
	}
	if most, left := c.deliveries("orders.dlq"); most != 4 || left != 40 {
		t.Errorf("%d messages are left, delivered %d times at most; want all 40, and 4", left, most)
	}
	open.Store(true)
	sum = ask[api.CaptureSummary](c.site, "capture", "--unpark")
	if len(ask[api.StatusInfo](c.site, "status").Parked) != 0 {
		t.Error("it is still parked")
	}
	t.Logf("%d captured and %d merged after --unpark, %d possible duplicates", sum.Captured, sum.Merged, c.whole())
}
