package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// caseRun is one case against one broker: a vhost with the topology that the
// catalogue calls its base, and one store.
type caseRun struct {
	t      *testing.T
	group  *caseGroup
	input  []input
	r      *rabbit
	raw    *rawamqp.Client
	s      *site
	modern bool // version 4
}

// caseGroup is what the cases of one run share: a node with the management API,
// which some of them also restart and pause, one after the other.
type caseGroup struct {
	t    *testing.T
	mu   sync.Mutex
	node *rabbittest.Node
}

// ownNode is a vhost of a node that is all for this case until it ends.
func (c *caseRun) ownNode() *rabbit {
	c.t.Helper()
	g := c.group
	g.mu.Lock()
	c.t.Cleanup(g.mu.Unlock)
	if g.node == nil {
		g.node = newManagedNode(g.t)
	}
	name := g.node.VHost(c.t)
	r := managed(c.t, g.node, name[strings.LastIndexByte(name, '/')+1:])
	g.node.Ctl(c.t, "set_permissions", "--vhost", r.vhost, brokerUser, ".*", ".*", ".*")
	return r
}

// The queues of the base topology.
const (
	workQueue = "orders.work"
	deadQueue = "orders.dlq"
)

// toWork allows the work queue as a destination also of messages that do not
// say where they died.
const toWork = "destinations: [{queue: " + workQueue + "}]"

// open makes the base topology, the work queue with more arguments, and a store
// with more configuration.
func (c *caseRun) open(config string, args ...amqpwire.Field) {
	c.t.Helper()
	c.on(newRabbit(c.t))
	c.declare(args...)
	c.s = newSite(c.t, c.r.config(config))
}

func (c *caseRun) on(r *rabbit) {
	c.t.Helper()
	c.r, c.raw = r, rawamqp.Dial(c.t, r.url)
	c.modern = !strings.HasPrefix(r.node.Version(), "3.")
}

func (c *caseRun) declare(args ...amqpwire.Field) {
	c.t.Helper()
	c.raw.DeclareExchange("orders", "topic")
	c.raw.DeclareExchange("orders.dlx", "fanout")
	c.raw.Declare(workQueue, append(args, amqpwire.StringField("x-dead-letter-exchange", "orders.dlx"))...)
	c.raw.Declare(deadQueue)
	c.raw.Bind(workQueue, "orders", "#")
	c.raw.Bind(deadQueue, "orders.dlx", "")
}

// messages are those of all inputs.
func (c *caseRun) messages() []message {
	c.t.Helper()
	var out []message
	for i := range c.input {
		out = append(out, c.input[i].messages(c.t)...)
	}
	return out
}

// plain is an ordinary message beside the odd ones.
func (c *caseRun) plain(id string) message {
	c.t.Helper()
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.MessageID, MessageID: id})
	must(c.t, err)
	return message{exchange: "orders", key: "order.created", props: props, body: []byte(`{"order":1}`)}
}

// seed publishes messages one by one, and a consumer rejects each.
func (c *caseRun) seed(ms ...message) {
	c.t.Helper()
	before := c.r.ready(deadQueue)
	for _, m := range ms {
		if m.direct {
			c.raw.Publish("", m.key, m.props, m.body)
			continue
		}
		c.raw.Publish(m.exchange, m.key, m.props, m.body)
		c.raw.Reject(workQueue)
	}
	eventually(c.t, "the dead letters", func() bool { return c.r.ready(deadQueue) == before+len(ms) })
}

// seedMany is seed for messages that a client library can read, all at once.
func (c *caseRun) seedMany(ms ...message) {
	c.t.Helper()
	before := c.r.ready(deadQueue)
	w := c.r.work(workQueue, func(*amqp.Channel, amqp.Delivery) verdict { return refuse })
	c.send(ms...)
	eventually(c.t, "the dead letters", func() bool { return c.r.ready(deadQueue) == before+len(ms) })
	w.stop()
}

// send publishes without waiting for anything.
func (c *caseRun) send(ms ...message) {
	c.t.Helper()
	raw := rawamqp.Dial(c.t, c.r.url) // its confirms are never read
	for _, m := range ms {
		if m.direct {
			raw.Send("", m.key, m.props, m.body)
		} else {
			raw.Send(m.exchange, m.key, m.props, m.body)
		}
	}
}

// capture takes in n messages, and the queue is empty then.
func (c *caseRun) capture(n int) {
	c.t.Helper()
	sum := ask[api.CaptureSummary](c.s, "capture")
	if sum.Captured != uint64(n) || sum.Merged != 0 || c.r.ready(deadQueue) != 0 {
		c.t.Fatalf("captured %+v and left %d, want %d captured", sum, c.r.ready(deadQueue), n)
	}
}

// depth is what waits in a queue, -1 when that is unknown, and what of it is
// open in the store.
func (c *caseRun) depth(queue string) (ready int, open uint64) {
	c.t.Helper()
	d := ask[api.DepthInfo](c.s, "dlq", "depth", "--queue", queue)
	if d.Queue != queue {
		c.t.Errorf("asked for the depth of %q, told that of %q", queue, d.Queue)
	}
	if d.BrokerReady == nil {
		return -1, d.StoreOpen
	}
	return *d.BrokerReady, d.StoreOpen
}

// peek looks at n open envelopes of a queue, as programs and as people do.
func (c *caseRun) peek(queue string, n int) api.Peek {
	c.t.Helper()
	p := ask[api.Peek](c.s, "dlq", "peek", "--queue", queue)
	if p.Queue != queue || p.Total != uint64(n) || len(p.Envelopes) != n {
		c.t.Fatalf("peek at %q shows %d of %d of %q, want %d", queue, len(p.Envelopes), p.Total, p.Queue, n)
	}
	people := c.s.ok("dlq", "peek", "--queue", queue).out.String()
	for _, e := range p.Envelopes {
		if !strings.Contains(people, e.ID) {
			c.t.Errorf("people do not see %s:\n%s", e.ID, people)
		}
	}
	return p
}

// look reads an envelope with its content.
func (c *caseRun) look(id string) api.Envelope {
	c.t.Helper()
	return ask[api.Envelope](c.s, "envelope", "show", id, "--payload", "--raw", "--why", "case "+c.t.Name())
}

// selects holds how many of all envelopes an expression selects, in a list.
func (c *caseRun) selects(n int, where string) {
	c.t.Helper()
	page := ask[api.EnvelopePage](c.s, "envelope", "list", "--where", where)
	if len(page.Envelopes) != n {
		c.t.Errorf("%s selects %d, want %d", where, len(page.Envelopes), n)
	}
}

// stored compares what the store says about a message with the message.
func (c *caseRun) stored(id string, m message) api.Envelope {
	c.t.Helper()
	e := c.look(id)
	if sum := sha256.Sum256(m.body); e.Size != uint64(len(m.body)) || e.Identity.BodySHA256 != hex.EncodeToString(sum[:]) {
		c.t.Errorf("%s: %d bytes of digest %s, want %d of %x", id, e.Size, e.Identity.BodySHA256, len(m.body), sum)
	}
	if e.Payload.Base64 != base64.StdEncoding.EncodeToString(m.body) || e.Payload.Masked || e.Payload.Problem != "" {
		c.t.Errorf("%s: the content is shown as %.200q, problem %q", id, e.Payload.Base64, e.Payload.Problem)
	}
	var have, want []string
	for _, h := range e.Payload.Headers {
		if !slices.Contains(brokerHeaders, h.Name) {
			have = append(have, h.Name+" "+h.Type)
		}
	}
	v := amqpwire.Parse(m.props)
	for _, f := range v.Headers {
		if slices.Contains(brokerHeaders, f.Name) {
			continue
		}
		if c.rewritten(m) && f.Kind == amqpwire.Int64Old {
			f.Kind = amqpwire.Int64
		}
		want = append(want, f.Name+" "+f.Kind.String())
	}
	if slices.Sort(have); !slices.Equal(have, slices.Sorted(slices.Values(want))) {
		c.t.Errorf("%s: headers %q, want %q", id, have, want)
	}
	return e
}

// quick are the terms of a release that has nobody to wait for.
var quick = []string{"--fix", "mended", "--bake", "1ms", "--rate", "5000", "--stages", "100000", "--outcome-deadline", "10ms"}

// plan plans and approves, and returns the number of the generation.
func (c *caseRun) plan(args ...string) (string, api.Plan) {
	c.t.Helper()
	plan := ask[api.Plan](c.s, slices.Concat([]string{"generation", "plan"}, quick, args)...)
	id := utoa(uint64(plan.Generation.Number))
	c.s.ok("generation", "approve", id, "--digest", plan.Generation.Manifest, "--why", "no-stages")
	return id, plan
}

// release plans, approves and starts, and waits for the end. All n that were
// selected have to move; where nobody reports, they end as missing.
func (c *caseRun) release(n int, args ...string) api.Generation {
	c.t.Helper()
	id, plan := c.plan(args...)
	if plan.Members != uint64(n) || plan.Selected != uint64(n) {
		c.t.Fatalf("%d of %d would move, want %d: %+v", plan.Members, plan.Selected, n, plan.Excluded)
	}
	g := answer[api.Generation](c.s.want(5, "generation", "start", id, "--json"))
	checkTally(c.t, g, uint64(n), map[string]uint64{"missing": uint64(n)})
	return g
}

// through starts a generation, or goes on with it, and resumes it whenever a
// threshold has paused it, until it has ended.
func (c *caseRun) through(id string) api.Generation {
	c.t.Helper()
	g := c.s.show(id)
	again := []string{"generation", "resume", id, "--why", "looked at", "--digest", g.Manifest, "--json"}
	words := again
	if g.State == "approved" {
		words = []string{"generation", "start", id, "--why", "looked at", "--json"}
	}
	for ; ; words = again {
		p := c.s.run(words...)
		if p.code == 5 {
			return answer[api.Generation](p)
		}
		if p.code != 4 {
			p.exits(5)
		}
	}
}

// ruled settles what a generation has in doubt by what a test found at the
// destination, and returns how many of them were not there.
func (c *caseRun) ruled(g api.Generation, found []rawamqp.Message) (absent uint64) {
	c.t.Helper()
	if int(g.Tally["ambiguous_publish"]) != len(g.Ambiguous) {
		c.t.Fatalf("%d are in doubt, %d are named", g.Tally["ambiguous_publish"], len(g.Ambiguous))
	}
	there := map[string]bool{}
	for _, m := range found {
		v := view(m)
		intent, _ := v.Text(stamp.HeaderIntent)
		there[strconv.Itoa(int(g.Number))+"/"+intent] = true
	}
	for _, intent := range g.Ambiguous {
		word := "--delivered"
		if !there[intent] {
			word = "--not-delivered"
			absent++
		}
		c.s.ok("generation", "rule", "--intent", intent, word, "--why", "looked into the queue")
	}
	return absent
}

// once checks that these and no other messages were found, each once.
func (c *caseRun) once(ms []message, found []string) {
	c.t.Helper()
	times := map[string]int{}
	for _, id := range found {
		times[id]++
	}
	for _, m := range ms {
		if times[m.id()] != 1 {
			c.t.Errorf("%s was found %d times", m.id(), times[m.id()])
		}
		delete(times, m.id())
	}
	if len(times) > 0 {
		c.t.Errorf("found, and nobody sent them: %v", times)
	}
}

// replay releases everything to where it died, and compares.
func (c *caseRun) replay(ms ...message) {
	c.t.Helper()
	c.release(len(ms), "--all")
	c.unchanged(workQueue, ms...)
}

// brokerHeaders are the ones that no comparison looks at: the broker writes
// them.
var brokerHeaders = []string{amqpwire.HeaderDeath, amqpwire.HeaderFirstDeathExchange, amqpwire.HeaderFirstDeathQueue,
	amqpwire.HeaderFirstDeathReason, amqpwire.HeaderLastDeathExchange, amqpwire.HeaderLastDeathQueue,
	amqpwire.HeaderLastDeathReason, amqpwire.HeaderDeliveryCount, amqpwire.HeaderAcquiredCount}

// unchanged takes everything out of a queue and compares it, in order, with
// the messages that were seeded: bodies and properties byte by byte, headers as
// far as the broker leaves them alone.
func (c *caseRun) unchanged(queue string, ms ...message) {
	c.t.Helper()
	got := c.raw.Drain(queue)
	if len(got) != len(ms) {
		c.t.Fatalf("%d messages arrived in %s, want %d", len(got), queue, len(ms))
	}
	for i, m := range ms {
		c.same(m, got[i])
		if got[i].Exchange != "" || got[i].RoutingKey != queue {
			c.t.Errorf("message %d came by exchange %q with key %q, want the default exchange and the queue", i, got[i].Exchange, got[i].RoutingKey)
		}
	}
}

// rewritten tells whether the broker itself writes the headers of a message
// anew on the way to its target: in an order of its own, each name once, and
// the old letter of a 64-bit integer as the usual one. A broker of version 4
// always does, one before it when it dead-letters.
func (c *caseRun) rewritten(m message) bool { return c.modern || !m.direct }

// same compares a message at its target with the one that was seeded.
func (c *caseRun) same(m message, got rawamqp.Message) {
	c.t.Helper()
	if !bytes.Equal(got.Body, m.body) {
		c.t.Errorf("%q: the body is %.100q, want %.100q", m.id(), got.Body, m.body)
	}
	v := amqpwire.Parse(got.Properties)
	for _, name := range stamp.Names() {
		if _, ok := v.Header(name); !ok && name != stamp.HeaderGap { // which only tells of a gap
			c.t.Errorf("%q: no header %s", m.id(), name)
		}
	}
	want, have := bare(c.t, m.props, brokerHeaders), bare(c.t, got.Properties, append(stamp.Names(), brokerHeaders...))
	if c.rewritten(m) {
		if w, h := sortedHeaders(want, true), sortedHeaders(have, true); w != h {
			c.t.Errorf("%q: headers\n%s\nwant\n%s", m.id(), h, w)
		}
		want, have = bare(c.t, want, nil, amqpwire.Headers), bare(c.t, have, nil, amqpwire.Headers)
	}
	if !bytes.Equal(want, have) {
		c.t.Errorf("%q: properties\n%x %s\nwant\n%x %s", m.id(), clip(have), sortedHeaders(have, false), clip(want), sortedHeaders(want, false))
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 200)] }

// bare takes headers off, and the table when nothing is left in it: the broker
// adds one to a message that has none.
func bare(t testing.TB, props []byte, without []string, drop ...amqpwire.Property) []byte {
	t.Helper()
	e := amqpwire.Edit(props)
	e.Strip(without...)
	for _, p := range drop {
		e.Drop(p)
	}
	b, err := e.Bytes()
	must(t, err)
	if v := amqpwire.Parse(b); v.Has(amqpwire.Headers) && len(v.RawHeaders) == 0 {
		e := amqpwire.Edit(b)
		e.Drop(amqpwire.Headers)
		b, err = e.Bytes()
		must(t, err)
	}
	return b
}

// sortedHeaders spells the headers out, one on a line.
func sortedHeaders(props []byte, rewritten bool) string {
	v := amqpwire.Parse(props)
	var out []string
	for _, f := range v.Headers {
		out = append(out, fmt.Sprintf("%.300q=%.1000s", f.Name, spell(f.Value, rewritten)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// view reads the properties of a message that a test took out of a queue.
func view(m rawamqp.Message) amqpwire.View { return amqpwire.Parse(m.Properties) }

// ids are the message ids in the order in which they were taken out.
func ids(got []rawamqp.Message) []string {
	var out []string
	for _, m := range got {
		v := view(m)
		out = append(out, v.MessageID)
	}
	return out
}

// nth is how an envelope is named by its number.
func nth(i int) string { return "#" + strconv.Itoa(i) }
