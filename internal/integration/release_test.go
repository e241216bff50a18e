package integration

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// declare makes a durable queue.
func (r *rabbit) declare(queue string, args amqp.Table) {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		r.t.Fatal(err)
	}
}

// bind makes an exchange and binds queues to it.
func (r *rabbit) bind(exchange, kind, key string, queues ...string) {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	if err := ch.ExchangeDeclare(exchange, kind, true, false, false, false, nil); err != nil {
		r.t.Fatal(err)
	}
	for _, q := range queues {
		if err := ch.QueueBind(q, key, exchange, false, nil); err != nil {
			r.t.Fatal(err)
		}
	}
}

// take gets one message out of a queue.
func (r *rabbit) take(queue string) amqp.Delivery {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	var d amqp.Delivery
	eventually(r.t, "a message in "+queue, func() bool {
		var ok bool
		var err error
		d, ok, err = ch.Get(queue, true)
		must(r.t, err)
		return ok
	})
	return d
}

// released captures the dead-letter queue, plans everything with these flags,
// and releases it until everything is decided.
func (s *site) released(code int, flags ...string) api.Generation {
	s.t.Helper()
	s.ok("capture")
	p := ask[api.Plan](s, append([]string{"generation", "plan", "--all", "--fix", "mended", "--bake", "1ms", "--rate", "10000"}, flags...)...)
	id := p.Generation.ID
	s.ok("generation", "approve", id, "--why", "no-stages")
	s.want(code, "generation", "start", id, "--no-wait")
	return ask[api.Generation](s, "generation", "show", id)
}

// everywhere allows the destinations of these tests.
const everywhere = "destinations: [{queue: orders}, {queue: strict}, {exchange: shop}]\n"

// TestReleasedMessageDiesAgain: a broker before 4.0 believes the x-death of a
// published message, and drops one whose next hop stands there without a
// rejection, with no word to anybody. Stripped, it arrives.
func TestReleasedMessageDiesAgain(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	r.declare("retry", nil)
	r.declare("strict", amqp.Table{"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"})
	death := amqp.Table{"queue": "retry", "reason": "expired", "exchange": "", "count": int64(1), "routing-keys": []any{"retry"}}
	m := amqp.Publishing{MessageId: "m", Body: []byte("b"), Headers: amqp.Table{"x-death": []any{death}}}
	r.publish("orders.dlq", m)
	s := newSite(t, r.config(everywhere))
	s.released(5, "--to-queue", "strict")
	if d := r.take("retry"); d.MessageId != "m" {
		t.Errorf("in the retry queue is %q", d.MessageId)
	}

	// What the strip table is for, and the warning that whoever keeps it gets.
	m.MessageId = "n"
	r.publish("orders.dlq", m)
	s.ok("capture")
	p := s.ok("generation", "plan", "--id", "#2", "--to-queue", "strict", "--no-strip", "--dry-run")
	if !strings.Contains(p.out.String(), "x-death is kept") {
		t.Errorf("no warning:\n%s", p.out.String())
	}
	r.publish("strict", m)
	arrives := strings.HasPrefix(r.node.Version(), "4.")
	if arrives {
		r.take("retry")
	} else {
		eventually(t, "the message to be gone", func() bool { return r.ready("strict") == 0 })
		if n := r.ready("retry"); n != 0 {
			t.Errorf("%d messages arrived with their x-death: this broker is not as the strip table says", n)
		}
	}
}

// TestOnlyTheQueueWhereItDied: of two queues that got the message, one failed.
// Neither the exchange nor CC may bring the other one a second copy.
func TestOnlyTheQueueWhereItDied(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	r.declare("reports", nil)
	r.bind("shop", "topic", "#", "orders", "reports")
	ch := r.channel()
	must(t, ch.PublishWithContext(t.Context(), "shop", "order.created", true, false,
		amqp.Publishing{MessageId: "m", Body: []byte("b"), Headers: amqp.Table{"CC": []any{"order.copied"}}}))
	w := r.work("orders", func(*amqp.Channel, amqp.Delivery) verdict { return refuse })
	eventually(t, "the dead letter", func() bool { return r.ready("orders.dlq") == 1 })
	w.stop()
	if n := r.ready("reports"); n != 1 {
		t.Fatalf("%d copies in reports", n)
	}

	s := newSite(t, r.config(everywhere))
	s.released(5)
	if d := r.take("orders"); d.MessageId != "m" || d.Exchange != "" || d.Headers["CC"] != nil {
		t.Errorf("orders got %q by exchange %q with %v", d.MessageId, d.Exchange, d.Headers)
	}
	if n := r.ready("reports"); n != 1 {
		t.Errorf("%d messages in reports, want the first copy alone", n)
	}

	// On request it goes to the exchange, with its own routing key.
	r.publish("orders.dlq", amqp.Publishing{MessageId: "n", Body: []byte("n"), Headers: amqp.Table{"x-death": []any{
		amqp.Table{"queue": "orders", "reason": "rejected", "exchange": "shop", "count": int64(1), "routing-keys": []any{"order.created"}}}}})
	s.released(5, "--to-original")
	for _, q := range []string{"orders", "reports"} {
		for r.ready(q) > 1 {
			r.take(q)
		}
		if d := r.take(q); d.MessageId != "n" || d.Exchange != "shop" || d.RoutingKey != "order.created" {
			t.Errorf("%s got %q by exchange %q with key %q", q, d.MessageId, d.Exchange, d.RoutingKey)
		}
	}
}

// TestNackOfOneQueueOfTwo: when one of two queues refuses, the broker nacks
// although the other one has its copy. That is in doubt, never undelivered.
func TestNackOfOneQueueOfTwo(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	r.declare("strict", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	r.declare("other", nil)
	r.publish("strict", amqp.Publishing{Body: []byte("full")})
	r.bind("shop", "fanout", "", "strict", "other")
	r.publish("orders.dlq", amqp.Publishing{MessageId: "m", Body: []byte("b")})
	s := newSite(t, r.config(everywhere))
	g := s.released(4, "--to-exchange", "shop", "--to-routing-key", "k")
	checkTally(t, g, 1, map[string]uint64{"ambiguous_publish": 1})
	if n := r.ready("other"); n != 1 {
		t.Errorf("%d copies in the other queue, want 1", n)
	}
	if g.State != "paused" {
		t.Errorf("the generation is %s", g.State)
	}
}

// TestFullQueuePauses: a full queue refuses every message, so the first refusal
// stops the release; what waits can go when there is room.
func TestFullQueuePauses(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	r.declare("strict", amqp.Table{"x-max-length": 5, "x-overflow": "reject-publish"})
	r.publish("orders.dlq", orders(0, 200, "unknown_sku")...)
	s := newSite(t, r.config(everywhere))
	g := s.released(4, "--to-queue", "strict", "--stages", "200", "--window", "4", "--burst", "2")
	if g.State != "paused" || g.Pauses[0].Reason != "nacked" || g.Tally["undelivered"] == 0 || g.Tally["undelivered"] > 4+2 {
		t.Errorf("it is %s for %v with %v", g.State, g.Pauses, g.Tally)
	}
	if n := r.ready("strict"); uint64(n) != g.Funnel.Moved || g.Tally["waiting"] != 200-g.Funnel.Moved-g.Tally["undelivered"] {
		t.Errorf("%d in the queue, %v", n, g.Tally)
	}
}

// TestExpirationEndsWithTheDeath: the time to live of a message that came with
// one would run again at the destination. A bad one cannot even be published.
func TestExpirationEndsWithTheDeath(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	r.declare("strict", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"})
	r.publish("orders.dlq", amqp.Publishing{MessageId: "m", Body: []byte("b"), Expiration: "3600000"})
	s := newSite(t, r.config(everywhere))
	s.released(5, "--to-queue", "strict")
	if d := r.take("strict"); d.Expiration != "" {
		t.Errorf("it has the expiration %q", d.Expiration)
	}
	r.publish("orders.dlq", amqp.Publishing{MessageId: "n", Body: []byte("b"), Expiration: "3600000"})
	s.released(5, "--to-queue", "strict", "--keep-expiration")
	if d := r.take("strict"); d.Expiration != "3600000" {
		t.Errorf("it has the expiration %q, and was to keep its own", d.Expiration)
	}
}

// TestNamesThatNoFrameHolds are refused where they are typed, before anything
// is connected or planned.
func TestNamesThatNoFrameHolds(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	r.publish("orders.dlq", amqp.Publishing{MessageId: "m", Body: []byte("b")})
	s := newSite(t, r.config(everywhere))
	s.ok("capture")
	long := strings.Repeat("k", 256)
	for _, flags := range [][]string{
		{"--to-queue", long}, {"--to-exchange", "shop", "--to-routing-key", long}, {"--to-exchange", long, "--to-routing-key", "k"},
		{"--to-queue", "orders", "--set-header", long + "=v"}, {"--to-queue", "orders", "--drop-header", long},
	} {
		p := s.run(append([]string{"generation", "plan", "--all"}, flags...)...)
		if p.code != 2 && p.code != 3 {
			t.Errorf("%.40v: exit %d\n%s", flags, p.code, p.err.String())
		}
	}
	if list := ask[api.GenerationPage](s, "generation", "list"); len(list.Generations) != 0 {
		t.Errorf("%d generations were planned", len(list.Generations))
	}
}
