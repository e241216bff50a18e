package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// withPlain is wire with an ordinary message behind the odd ones.
func (c *caseRun) withPlain() []message {
	c.t.Helper()
	ms := append(c.messages(), c.plain("plain"))
	c.wire(ms...)
	return ms
}

// Every command is a process of its own, so that what is released here always
// comes from the store.
func caseR10(c *caseRun) {
	c.wire(c.messages()...)
	c.undead(c.messages()...)
}

func caseR11(c *caseRun) { c.undead(c.withPlain()...) }

func caseR13(c *caseRun) {
	ms := c.withPlain()
	c.selects(1, `"eta" in headers && headers.eta == null`)
	c.selects(1, `!("eta" in headers)`)
	c.selects(0, `"eta" in headers && headers.eta == ""`)
	c.selects(1, `"timelimit" in headers && headers.timelimit == [null, null]`)
	c.undead(ms...)
}

// undead sends messages once more, straight into the dead-letter queue: a
// broker before version 4 then leaves every byte of their headers alone, also
// the letters that client libraries do not know.
func (c *caseRun) undead(ms ...message) {
	c.t.Helper()
	known := len(c.s.envelopes())
	var args []string
	for i := range ms {
		ms[i] = ms[i].with(c.t, func(v *amqpwire.View) {
			if v.MessageID != "" { // another message, not another copy of the same
				v.MessageID += " again"
			}
		})
		ms[i].direct, ms[i].exchange, ms[i].key = true, "", deadQueue
		args = append(args, "--id", nth(known+i+1))
	}
	c.seed(ms...)
	c.capture(len(ms))
	for i, m := range ms {
		c.stored(nth(known+i+1), m)
	}
	c.release(len(ms), append(args, "--to-queue", workQueue)...)
	c.unchanged(workQueue, ms...)
}

func caseR14(c *caseRun) {
	c.wire(c.messages()...)
	shown := map[string]api.Header{}
	for _, h := range c.look("h-11").Payload.Headers {
		shown[h.Name] = h
	}
	for name, want := range map[string]api.Header{
		"traceparent": {Type: "S", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"sig":         {Type: "x", Base64: "AAEC/w=="},
		"raw":         {Type: "S", Base64: "/wD+"},
	} {
		h := shown[name]
		if h.Type != want.Type || h.Base64 != want.Base64 || want.Value != "" && h.Value != want.Value {
			c.t.Errorf("header %s is shown as %+v, want %+v", name, h, want)
		}
	}
	if e := c.peek(deadQueue, 1).Envelopes[0]; e.Identity.TraceID != shown["traceparent"].Value {
		c.t.Errorf("peek says that the trace is %q", e.Identity.TraceID)
	}
}

func caseR16(c *caseRun) {
	ms := c.messages()
	c.on(c.ownNode())
	c.declare()
	c.s = newSite(c.t, c.r.config(""))
	c.seed(ms...)
	c.capture(len(ms))
	c.release(len(ms), "--all")
	// What was persistent is still there when the broker comes back, so its
	// mode was more than a byte in the properties.
	c.r.node.Restart(c.t)
	c.r.conn = c.r.dial()
	c.raw = rawamqp.Dial(c.t, c.r.url)
	c.unchanged(workQueue, ms[0])

	for i := range ms {
		ms[i] = ms[i].with(c.t, func(v *amqpwire.View) { v.MessageID += " again" })
	}
	c.seed(ms...)
	c.capture(len(ms))
	c.release(len(ms), "--all")
	c.unchanged(workQueue, ms...)
}

func caseR17(c *caseRun) {
	ms := c.messages()
	c.open("", amqpwire.Field{Name: "x-max-priority", Value: amqpwire.Value{Kind: amqpwire.Int32, Data: int32(10)}})
	c.seed(ms...)
	c.capture(len(ms))
	c.release(len(ms), "--all")
	got := c.raw.Drain(workQueue)
	if have := ids(got); !slices.Equal(have, []string{"p-255", "p-9", "p-0", "p-none"}) {
		c.t.Fatalf("a consumer gets %q", have)
	}
	for _, g := range got {
		v := view(g)
		for _, m := range ms {
			if m.id() == v.MessageID {
				c.same(m, g)
			}
		}
	}
}

func caseR18(c *caseRun) {
	ms := c.withPlain()
	page := ask[api.EnvelopePage](c.s, "envelope", "list")
	if len(page.Envelopes) != len(ms) {
		c.t.Fatalf("the list has %d envelopes", len(page.Envelopes))
	}
	// A number that is no sensible date is no date, and never another one.
	for _, e := range append(page.Envelopes, c.peek(deadQueue, len(ms)).Envelopes...) {
		if e.Times.FirstSeen != nil {
			c.t.Errorf("%s was first seen at %v", e.Identity.MessageID, e.Times.FirstSeen)
		}
	}
	c.selects(0, `has(env.published)`)
	c.selects(0, `has(env.published) && env.published < timestamp("2020-01-01T00:00:00Z")`)
	c.selects(1, `has(properties.timestamp) && properties.timestamp == timestamp("1970-01-01T00:00:00Z")`)
	c.selects(1, `has(properties.timestamp) && properties.timestamp == 1700000000123u`)
}

func caseR21(c *caseRun) {
	m := c.messages()[0]
	c.open("destinations: [{exchange: orders}]")
	c.seed(m)
	c.capture(1)
	c.stored(nth(1), m)
	long := strings.Repeat("n", 256)
	c.s.fails(2, `1 to 255 bytes`, "generation", "plan", "--all", "--set-header", long+"=v")
	c.s.fails(2, `1 to 255 bytes`, "generation", "plan", "--all", "--drop-header", long)
	c.s.fails(2, `255 bytes`, "generation", "plan", "--all", "--to-exchange", "orders", "--to-routing-key", long)
	c.release(1, "--all", "--to-original")
	got, ok := c.raw.Get(workQueue)
	if !ok || got.Exchange != m.exchange || got.RoutingKey != m.key {
		c.t.Fatalf("it arrived (%v) by exchange %q with key %q", ok, got.Exchange, got.RoutingKey)
	}
	c.same(m, got)
}

func caseR22(c *caseRun) {
	ms := c.messages()
	for i := range ms {
		ms[i].body = []byte("the body of " + ms[i].id())
	}
	c.open("")
	c.seed(ms...)
	c.capture(len(ms))
	for i, m := range ms {
		e := c.stored(m.id(), m)
		if e.Number != uint64(i+1) || e.Identity.MessageID != m.id() {
			c.t.Errorf("%q is envelope %d with message id %q", m.id(), e.Number, e.Identity.MessageID)
		}
		c.release(1, "--id", m.id())
		c.unchanged(workQueue, m)
	}
	var around []string
	entries, err := os.ReadDir(filepath.Dir(c.s.data))
	must(c.t, err)
	for _, e := range entries {
		around = append(around, e.Name())
	}
	if !slices.Equal(around, []string{filepath.Base(c.s.data)}) {
		c.t.Errorf("beside the data directory there is now %q", around)
	}
	for _, name := range c.s.filesWith([]byte("the body of ")) {
		c.t.Errorf("a body stands in %s", name)
	}
}

// headerRoom is what a broker with the default frame size takes of a content
// header: the frame without its own eight bytes.
const headerRoom = 131072 - 8

func caseR24(c *caseRun) {
	ms := c.messages()
	// One more whose headers fit only as long as nothing is added.
	full := c.plain("big-h-3").with(c.t, func(v *amqpwire.View) {
		v.Present |= amqpwire.Headers
		v.Headers = []amqpwire.Field{amqpwire.StringField("x-exception-stacktrace", strings.Repeat("s", headerRoom-100))}
	})
	ms = append(ms, full)
	c.open("")
	c.seed(ms...)
	c.capture(len(ms))
	for i, m := range ms {
		c.stored(nth(i+1), m)
	}
	id, _ := c.plan("--all")
	g := c.through(id)
	checkTally(c.t, g, 4, map[string]uint64{"missing": 3, "undelivered": 1})
	c.unchanged(workQueue, ms[:3]...)
	c.undelivered(id, "header_too_large", full)
	// Nothing is cut without consent. With it, it goes.
	c.release(1, "--all", "--drop-header", "x-exception-stacktrace")
	c.unchanged(workQueue, c.plain(full.id()))
	c.quietLog()
}

// undelivered checks that these and no others were not delivered, for that
// reason, and that they are there for another plan.
func (c *caseRun) undelivered(generation, reason string, ms ...message) {
	c.t.Helper()
	last := map[uint64]record{} // resolution of each member
	for _, r := range of(c.s.tail("--generation", generation), "member.resolved") {
		for pos := range r.positions().All() {
			last[pos] = r
		}
	}
	n := 0
	for pos, r := range last {
		if r.Body.Resolution != "confirmed" {
			if n++; r.Body.Reason != reason {
				c.t.Errorf("member %s/%d: %s for %s, want %s", generation, pos, r.Body.Resolution, r.Body.Reason, reason)
			}
		}
	}
	free := map[string]bool{}
	for _, e := range c.s.envelopes("--custody", "quarantined") {
		free[e.Identity.MessageID] = e.Reserved == 0
	}
	for _, m := range ms {
		if !free[m.id()] {
			c.t.Errorf("%q was not delivered and cannot be planned again", m.id())
		}
	}
	if n != len(ms) || len(free) != len(ms) {
		c.t.Errorf("generation %s: %d were not delivered and %d are quarantined, want %d", generation, n, len(free), len(ms))
	}
}

// quietLog checks that the broker has closed no connection of the program for
// an error, and no channel for what it published, and that no queue of this
// vhost crashed. A channel that asks for what may not be there ends so by
// design, and takes nothing with it.
func (c *caseRun) quietLog() {
	c.t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.r.node.Dir(), "log", "*.log"))
	must(c.t, err)
	var lines []string
	for _, name := range logs {
		b, err := os.ReadFile(name)
		must(c.t, err)
		lines = slices.AppendSeq(lines, strings.Lines(string(b)))
	}
	for i, line := range lines {
		ours := strings.Contains(line, "vhost: '"+c.r.vhost+"'") && strings.Contains(line, "user: '"+brokerUser+"'")
		what := ""
		if i+1 < len(lines) {
			what = lines[i+1]
		}
		closed := strings.Contains(line, "rror on AMQP connection") ||
			strings.Contains(line, "Channel error") && strings.Contains(what, "operation basic.publish")
		if ours && closed || strings.Contains(line, "Restarting crashed queue") && strings.Contains(line, "'"+c.r.vhost+"'") {
			c.t.Errorf("the broker's log says %s%s", line, what)
		}
	}
	if len(lines) == 0 {
		c.t.Errorf("the broker's log is not where it was looked for: %q", logs)
	}
}
