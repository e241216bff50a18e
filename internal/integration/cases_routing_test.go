package integration

import (
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

func caseR27(c *caseRun) {
	c.open(toWork)
	m := c.plain("M1")
	c.seed(m)
	// What lies beside it in the queue: a broker that crashes on a bad header
	// loses the transient half of that.
	for i, mode := range []uint8{1, 1, 1, 2, 2, 2} {
		beside := c.plain(fmt.Sprint("beside-", i)).with(c.t, func(v *amqpwire.View) {
			v.Present |= amqpwire.DeliveryMode
			v.DeliveryMode = mode
		})
		c.raw.Publish(beside.exchange, beside.key, beside.props, beside.body)
	}
	c.capture(1)
	c.release(1, "--all")
	c.diesAgain(m.id(), 6)

	for i := range c.input[0].BadForms {
		bad := c.plain(fmt.Sprint("bad-", i)).with(c.t, func(v *amqpwire.View) {
			v.Present |= amqpwire.Headers
			v.Headers = fields(c.t, c.input[0].BadForms[i:i+1])
		})
		bad.direct, bad.key = true, deadQueue
		c.seed(bad)
		c.capture(1)
		c.release(1, "--id", bad.id(), "--to-queue", workQueue)
		c.diesAgain(bad.id(), 6)
	}
	c.quietLog()
}

// diesAgain lets a consumer of the work queue reject one message and give back
// the others, and reads its dead letter with the client library.
func (c *caseRun) diesAgain(id string, others int) {
	c.t.Helper()
	ch := c.r.channel()
	for range others + 1 {
		d, ok, err := ch.Get(workQueue, false)
		if err != nil || !ok {
			c.t.Fatalf("a message of the work queue is gone, or cannot be read: %v", err)
		}
		if d.MessageId == id {
			must(c.t, d.Reject(false))
		}
	}
	must(c.t, ch.Close())
	eventually(c.t, "the dead letter, and the others back in the queue", func() bool {
		return c.r.ready(deadQueue) == 1 && c.r.ready(workQueue) == others
	})
	ch = c.r.channel()
	defer ch.Close()
	d, ok, err := ch.Get(deadQueue, true)
	if err != nil || !ok || d.MessageId != id {
		c.t.Fatalf("the second death of %s: %v, %q", id, err, d.MessageId)
	}
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 {
		c.t.Errorf("%s: x-death is %v", id, d.Headers["x-death"])
	}
}

func caseR29(c *caseRun) {
	c.open("")
	c.seed(c.messages()...)
	first := ""
	for round := uint64(1); round <= 5; round++ {
		c.capture(1)
		all := c.s.envelopes("--custody", "quarantined")
		if len(all) != 1 {
			c.t.Fatalf("round %d: %d envelopes are quarantined", round, len(all))
		}
		e := all[0]
		if first == "" {
			first = e.ID
		}
		if e.Lineage.Attempt != round || e.Lineage.Root != first || e.Broker.DiedIn != workQueue || e.Reason != "rejected" {
			c.t.Errorf("round %d: attempt %d of %s, died in %s of %s", round, e.Lineage.Attempt, e.Lineage.Root, e.Broker.DiedIn, e.Reason)
		}
		if round < 5 {
			c.release(1, "--all")
			c.raw.Reject(workQueue)
		}
	}
	// The same with the broker's own count left on.
	c.release(1, "--all", "--keep-header", "x-death")
	c.raw.Reject(workQueue)
	c.capture(1)
	if all := c.s.envelopes("--custody", "quarantined"); len(all) != 1 || all[0].Lineage.Attempt != 6 || all[0].Lineage.Root != first {
		c.t.Errorf("with x-death kept: %+v", all)
	}
	if e := c.look(first); e.Broker.DiedIn != workQueue || e.Custody != "returned" {
		c.t.Errorf("the first: died in %s, custody %s", e.Broker.DiedIn, e.Custody)
	}
	// It has failed more often than the limit of attempts allows, which counts
	// the tool's own lineage and not what a broker makes of x-death.
	c.s.fails(3, "attempt_limit_reached", "generation", "plan", "--all")
}

// openThrough is open with a proxy before the broker that counts publishes.
func (c *caseRun) openThrough(config string, args ...amqpwire.Field) *proxy {
	c.t.Helper()
	c.on(newRabbit(c.t))
	c.declare(args...)
	p := newProxy(c.t, c.r.node.Addr())
	c.s = newSite(c.t, c.r.configAt(p.addr(), config))
	return p
}

func caseR31(c *caseRun) {
	ms := c.messages()
	n := uint64(len(ms))
	wire := c.openThrough("")
	c.seedMany(ms...)
	c.capture(len(ms))
	w := c.r.work(workQueue, func(*amqp.Channel, amqp.Delivery) verdict { return refuse })
	id, _ := c.plan("--all", "--outcome-deadline", "1h")
	g := answer[api.Generation](c.s.want(5, "generation", "start", id, "--json"))
	checkTally(c.t, g, n, map[string]uint64{"requarantined": n})
	if g.State != "closed" || wire.published.Load() != int64(n) {
		c.t.Errorf("it is %s after %d publishes, want closed after %d", g.State, wire.published.Load(), n)
	}
	if _, refused := w.counts(); refused != len(ms) || c.r.ready(workQueue)+c.r.ready(deadQueue) != 0 {
		c.t.Errorf("the consumer refused %d, and %d wait at the broker", refused, c.r.ready(workQueue)+c.r.ready(deadQueue))
	}
	open := c.s.envelopes("--custody", "quarantined")
	for _, e := range open {
		if e.Lineage.Attempt != 2 || e.Lineage.Parent == "" {
			c.t.Errorf("%s is no return of anything: %+v", e.Identity.MessageID, e.Lineage)
		}
	}
	if len(open) != len(ms) || len(c.s.envelopes()) != 2*len(ms) {
		c.t.Errorf("%d are open of %d, want %d of twice as many", len(open), len(c.s.envelopes()), len(ms))
	}
}

func caseR32(c *caseRun) {
	m := c.messages()[0]
	c.open("")
	c.seed(m)
	c.capture(1)
	drop := []string{"rascal", "MT-Redelivery-Count", "rbs2-delivery-count", "x-retries", "retries"}
	var args []string
	for _, name := range drop {
		args = append(args, "--drop-header", name)
	}
	dry := ask[api.Plan](c.s, append([]string{"generation", "plan", "--all", "--dry-run"}, args...)...)
	for _, name := range append(drop, "x-delivery-count") {
		if i := slices.Index(dry.Changes.List, api.Change{What: "header", Name: name, How: "removed", Count: 1}); i < 0 {
			c.t.Errorf("the plan does not say that %s is taken off: %+v", name, dry.Changes.List)
		}
	}
	if dry.Generation != nil {
		c.t.Errorf("a dry run made a generation")
	}
	for _, name := range []string{"MT-Redelivery-Count", "rbs2-delivery-count", "x-retries", "retries"} { // I, S, S and l
		c.selects(1, `double(headers["`+name+`"]) >= 5.0`)
		c.selects(0, `double(headers["`+name+`"]) > 5.0`)
	}
	c.release(1, append(args, "--all")...)
	left := m.with(c.t, func(v *amqpwire.View) {
		v.Headers = slices.DeleteFunc(v.Headers, func(f amqpwire.Field) bool { return f.Name != "business-key" })
	})
	c.unchanged(workQueue, left)
	c.stored(nth(1), m)
}

func caseR33(c *caseRun) {
	// One that never died still has its own: nothing took it off.
	ms := append(c.messages(), c.plain("e-3").with(c.t, func(v *amqpwire.View) {
		v.Present |= amqpwire.Expiration
		v.Expiration = "60000"
	}))
	ms[2].direct, ms[2].exchange, ms[2].key = true, "", deadQueue
	c.open(toWork)
	c.seed(ms[0])
	c.raw.Publish(ms[1].exchange, ms[1].key, ms[1].props, ms[1].body)
	eventually(c.t, "the second to expire", func() bool { return c.r.ready(deadQueue) == 2 })
	c.seed(ms[2])
	c.capture(len(ms))
	for i, reason := range []string{"rejected", "expired", ""} {
		v := amqpwire.Parse(ms[i].props)
		e := c.look(ms[i].id())
		if e.Reason != reason || e.Expiration != v.Expiration {
			c.t.Errorf("%s: reason %s and expiration %q, want %s and %q", ms[i].id(), e.Reason, e.Expiration, reason, v.Expiration)
		}
		ms[i] = ms[i].with(c.t, func(v *amqpwire.View) { v.Present &^= amqpwire.Expiration })
	}
	c.release(len(ms), "--all", "--to-queue", workQueue)
	c.unchanged(workQueue, ms...) // without an expiration, so that they stay
}

func caseR34(c *caseRun) {
	ms := c.messages()
	c.open("")
	for _, q := range []string{"jobs", "orders.retry.30s"} {
		c.raw.Declare(q)
	}
	c.seed(ms...)
	c.capture(len(ms))
	died := map[string][]message{}
	for i, want := range []string{workQueue, "jobs", workQueue} {
		e := c.look(ms[i].id())
		if e.Broker.DiedIn != want {
			c.t.Errorf("%s died in %q, want %q", ms[i].id(), e.Broker.DiedIn, want)
		}
		died[want] = append(died[want], ms[i])
		for _, h := range e.Payload.Headers {
			if i == 0 && h.Name == "x-death" && !strings.Contains(h.Value, "orders.retry.30s") {
				c.t.Errorf("the hop through the retry queue is not visible: %s", h.Value)
			}
		}
	}
	c.s.fails(2, `2 different queues`, "generation", "plan", "--all", "--fix", "none")
	for queue, want := range died {
		id, plan := c.plan("--died", queue)
		if plan.Destination != "queue "+queue {
			c.t.Errorf("the plan for what died in %s goes to %s", queue, plan.Destination)
		}
		c.s.want(5, "generation", "start", id)
		c.unchanged(queue, want...)
	}
	if n := c.r.ready("orders.retry.30s"); n != 0 {
		c.t.Errorf("%d went to the retry queue", n)
	}
}

func caseR35(c *caseRun) {
	ms := c.messages()
	c.on(c.ownNode())
	c.declare()
	c.s = newSite(c.t, c.r.looking(managementOf(c.t, c.r.node), "destinations: [{exchange: orders}]"))
	c.raw.Declare("reports.work")
	c.raw.Bind("reports.work", "orders", "#")
	healthy := c.r.work("reports.work", func(*amqp.Channel, amqp.Delivery) verdict { return take })
	c.seed(ms...)
	c.capture(1)
	c.replay(ms...)
	healthy.stop()
	if taken, _ := healthy.counts(); taken != 1 || c.r.ready("reports.work") != 0 {
		c.t.Errorf("the healthy consumer got %d, and %d more wait for it", taken, c.r.ready("reports.work"))
	}

	// The exchange is a choice, and the plan says what it means.
	again := c.plain("fan-2")
	c.seed(again)
	c.capture(1)
	c.raw.Drain("reports.work")
	id, plan := c.plan("--all", "--to-original")
	both := "reaches 2 queues, each gets a copy, also if it had the message before: orders.work, reports.work"
	if i := slices.IndexFunc(plan.Warnings, func(w string) bool { return strings.Contains(w, both) }); i < 0 {
		c.t.Errorf("the plan does not say which other queues get a copy: %q", plan.Warnings)
	}
	c.s.want(5, "generation", "start", id)
	for _, queue := range []string{workQueue, "reports.work"} {
		got := c.raw.Drain(queue)
		if len(got) != 1 || got[0].Exchange != again.exchange || got[0].RoutingKey != again.key {
			c.t.Fatalf("%s has %+v", queue, got)
		}
		c.same(again, got[0])
	}
}

func caseR37(c *caseRun) {
	ms := append(c.messages(), c.plain("neighbour-1"), c.plain("neighbour-2"))
	c.open("")
	c.seed(ms...)
	c.capture(len(ms))
	plan := ask[api.Plan](c.s, "generation", "plan", "--all", "--dry-run")
	if i := slices.Index(plan.Changes.List, api.Change{What: "property", Name: "user_id", How: "removed", Count: 1}); i < 0 {
		c.t.Errorf("the plan does not say what becomes of the user id: %+v", plan.Changes)
	}
	ms[0] = ms[0].with(c.t, func(v *amqpwire.View) { v.Present &^= amqpwire.UserID })
	c.replay(ms...)
	c.quietLog()
}

func caseR39(c *caseRun) {
	ms := c.messages()
	c.open(toWork)
	c.seed(ms...)
	c.capture(len(ms))
	for i, m := range ms {
		e := c.stored(nth(i+1), m)
		if e.Broker.DiedIn != "" || e.Identity.MessageID != m.id() || e.Custody != "quarantined" {
			c.t.Errorf("message %d: %+v", i, e)
		}
	}
	c.s.fails(2, `do not say in which queue they died.*--to-queue`, "generation", "plan", "--id", "#1", "--fix", "none")
	c.release(len(ms), "--all", "--to-queue", workQueue)
	c.unchanged(workQueue, ms...)
}

func caseR40(c *caseRun) {
	ms := c.messages()
	wire := c.openThrough("destinations: [{queue: orders.spare}, {exchange: nope}, {exchange: orders.in}]")
	c.raw.Declare("orders.spare")
	c.seed(ms...)
	c.capture(len(ms))
	c.raw.Delete(workQueue)

	c.release(1, "--id", "g-1", "--to-queue", "orders.spare")
	nowhere, _ := c.plan("--id", "g-2", "--to-exchange", "nope", "--to-routing-key", "order.created")
	c.s.fails(3, `nope.*does not exist`, "generation", "start", nowhere)
	gone, _ := c.plan("--id", "g-3")
	c.s.fails(3, `orders\.work does not exist`, "generation", "start", gone)
	c.unchanged("orders.spare", ms[0])
	if out, err := c.r.node.TryCtl("list_queues", "--vhost", c.r.vhost, "name"); err != nil || strings.Contains(out, workQueue) {
		c.t.Errorf("the queue is there again, and nobody made it: %v %s", err, out)
	}
	if left := c.s.envelopes("--custody", "quarantined"); len(left) != 2 {
		c.t.Errorf("%d are quarantined, want the two that could not go", len(left))
	}

	c.raw.Declare(workQueue, amqpwire.StringField("x-dead-letter-exchange", "orders.dlx"))
	c.raw.Bind(workQueue, "orders", "#")
	c.s.ok("generation", "reject", nowhere, "--why", "there is no such exchange")
	c.s.want(5, "generation", "start", gone)
	c.release(1, "--id", "g-2")
	c.unchanged(workQueue, ms[2], ms[1])
	c.loseRoute(wire)
}

// loseRoute takes binding and exchange away while a release to them is under
// way, and gives them back: every message has its own true outcome.
func (c *caseRun) loseRoute(wire *proxy) {
	c.t.Helper()
	const n = 12
	var ms []message
	for i := range n {
		ms = append(ms, c.plain(fmt.Sprint("midway-", i)))
	}
	c.seed(ms...)
	c.capture(n)
	c.raw.DeclareExchange("orders.in", "direct")
	c.raw.Bind(workQueue, "orders.in", "k")
	ch := c.r.channel()
	defer ch.Close()
	id, _ := c.plan("--all", "--to-exchange", "orders.in", "--to-routing-key", "k", "--rate", "20", "--burst", "1")
	before := wire.published.Load()

	first := c.s.hold("generation", "start", id)
	wire.sent(before + 3)
	must(c.t, ch.QueueUnbind(workQueue, "k", "orders.in", nil))
	first.exits(4)
	g := c.s.show(id)
	if g.Tally["undelivered"] == 0 || g.Tally["ambiguous_publish"] != 0 || int(g.Funnel.Moved) != c.r.ready(workQueue) {
		c.t.Errorf("without a binding: %v, %d in the queue", g.Tally, c.r.ready(workQueue))
	}
	must(c.t, ch.QueueBind(workQueue, "k", "orders.in", false, nil))
	again := c.s.hold("generation", "resume", id, "--why", "bound again", "--digest", g.Manifest)
	wire.sent(wire.published.Load() + 2)
	must(c.t, ch.ExchangeDelete("orders.in", false, false))
	again.exits(4)
	c.raw.DeclareExchange("orders.in", "direct")
	c.raw.Bind(workQueue, "orders.in", "k")
	g = c.through(id)
	checkSums(c.t, g, n)
	// What was on its way when the exchange went may have arrived: somebody looks.
	got := c.raw.Drain(workQueue)
	lost := g.Tally["undelivered"] + c.ruled(g, got)
	c.release(int(lost), "--all")
	got = append(got, c.raw.Drain(workQueue)...)
	c.once(ms, ids(got))
}

func caseR42(c *caseRun) {
	var limits []amqpwire.Field
	var spec struct {
		MaxLength int32  `json:"x-max-length"`
		Overflow  string `json:"x-overflow"`
	}
	strictly(c.t, c.input[0].Topology[workQueue], &spec)
	limits = append(limits, amqpwire.Field{Name: "x-max-length", Value: amqpwire.Value{Kind: amqpwire.Int32, Data: spec.MaxLength}},
		amqpwire.StringField("x-overflow", spec.Overflow))
	ms := c.messages()
	wire := c.openThrough("", limits...)
	c.seed(ms...)
	c.capture(len(ms))
	// Eight are refused; with two more places, the next two go.
	for range 2 {
		left := len(ms)
		sent := wire.published.Load()
		id, plan := c.plan("--all")
		if plan.Members != uint64(left) {
			c.t.Fatalf("%d would move, want %d: %+v", plan.Members, left, plan.Excluded)
		}
		c.s.want(4, "generation", "start", id) // a threshold stops it
		g := c.through(id)
		checkTally(c.t, g, uint64(left), map[string]uint64{"missing": 2, "undelivered": uint64(left - 2)})
		if n := wire.published.Load() - sent; n != int64(left) {
			c.t.Errorf("%d publishes for %d messages", n, left)
		}
		c.unchanged(workQueue, ms[:2]...)
		ms = ms[2:]
		c.undelivered(id, "nacked", ms...)
	}
}
