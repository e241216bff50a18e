package rabbitmq

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

const (
	// countEnv names the variable that says how many messages TestDifferential
	// generates. Without it there are 10,000.
	countEnv = "REDRIVE_TEST_MESSAGES"
	batch    = 200
	// enough messages have everything among them that is generated.
	enough = 2000
)

// TestDifferential generates messages of every shape that a broker takes, with
// a client that writes raw frames; captures them; releases them as they were
// captured; and compares every byte with what a client that reads raw frames
// gets of the same messages after as many passages past the driver. Classic
// queues until 3.12 hand messages on byte for byte, so that this is also what
// was published. Every other batch goes through quorum queues, which write L as
// l and every true as 1.
func TestDifferential(t *testing.T) {
	n := 10_000
	if s := os.Getenv(countEnv); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 {
			t.Fatalf("%s is not a number of messages", countEnv)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := newGenerator(seed, n)
	node := rabbittest.Shared(t)
	address := node.VHost(t)
	exact := exactBroker(t, node.Version())
	raw := rawamqp.Dial(t, address)
	src, rel := mustSource(t, mustParse(t, address)), mustReleaser(t, mustParse(t, address))
	ways := []*ways{newWays(t, raw, src, rel, "classic", exact), newWays(t, raw, src, rel, "quorum", false)}
	for done, turn := 0, 0; done < n; turn++ {
		w := ways[turn%len(ways)]
		ms := make([]generated, min(batch, n-done))
		for i := range ms {
			ms[i] = g.next(w.kind == "quorum")
		}
		w.pass(ms)
		done += len(ms)
		if t.Failed() {
			t.Fatalf("of messages %d to %d, through %s queues, seed %d", done-len(ms), done-1, w.kind, seed)
		}
	}
	t.Logf("%d messages, %d MiB of bodies, %d KiB of properties", n, g.volume>>20, g.props>>10)
	if n < enough {
		return
	}
	want := []string{"body big", "body empty", "more than 8192 elements", "deeper than 32", "long header", "name twice", "no name"}
	for p := amqpwire.ContentType; p >= amqpwire.ClusterID; p >>= 1 {
		want = append(want, p.String())
	}
	for _, p := range []amqpwire.Property{amqpwire.ContentType, amqpwire.Priority, amqpwire.MessageID, amqpwire.ClusterID} {
		want = append(want, p.String()+" empty")
	}
	for _, k := range kindLetters {
		want = append(want, "kind "+string(k))
	}
	for _, what := range want {
		if g.seen[what] == 0 {
			t.Errorf("no message had: %s", what)
		}
	}
}

// ways are two through the broker, from one exchange: one through the driver,
// into queue "again", and one past it, into "twin".
type ways struct {
	t     *testing.T
	kind  string
	exact bool
	raw   *rawamqp.Client
	s     quarantine.Session
	c     redrive.Channel
}

func newWays(t *testing.T, raw *rawamqp.Client, src *Source, rel *Releaser, kind string, exact bool) *ways {
	t.Helper()
	w := &ways{t: t, kind: kind, exact: exact, raw: raw}
	raw.DeclareExchange(w.name("in"), "fanout")
	for _, q := range []string{"dead", "twin", "again", "twin again"} {
		raw.Declare(w.name(q), amqpwire.StringField("x-queue-type", kind))
	}
	raw.Bind(w.name("dead"), w.name("in"), "")
	raw.Bind(w.name("twin"), w.name("in"), "")
	w.s = mustSession(t, src, w.name("dead"), batch)
	w.c = mustChannel(t, rel, redrive.ChannelOptions{Window: batch, ConfirmDeadline: patience})
	return w
}

func (w *ways) name(s string) string { return w.kind + " " + s }

// pass sends one batch on both ways.
func (w *ways) pass(ms []generated) {
	t := w.t
	t.Helper()
	w.raw.PublishAll(len(ms), func(i int) (exchange, key string, props, body []byte) {
		return w.name("in"), ms[i].key, ms[i].props, ms[i].body
	})
	twins := w.raw.Take(w.name("twin"), len(ms))
	ds := receive(t, w.s, len(ms))
	for i, d := range ds {
		m := ms[i]
		if w.exact && !bytes.Equal(twins[i].Properties, m.props) {
			w.differ("what a raw client gets, and what was published", i, m.props, twins[i].Properties)
		}
		w.differ("what was captured, and what a raw client gets", i, twins[i].Properties, d.Properties)
		if !bytes.Equal(d.Body, m.body) || !bytes.Equal(twins[i].Body, m.body) {
			t.Errorf("message %d: a body of %d bytes was captured with %d, a raw client gets %d", i, len(m.body), len(d.Body), len(twins[i].Body))
		}
		if d.Exchange != w.name("in") || d.RoutingKey != m.key || d.Redelivered {
			t.Errorf("message %d: from exchange %q with key %q, redelivered %v; want key %q", i, d.Exchange, d.RoutingKey, d.Redelivered, m.key)
		}
	}
	rs := publishAll(t, w.c, len(ds), func(i int) redrive.Message {
		return redrive.Message{Token: uint64(i), Dest: redrive.Destination{RoutingKey: w.name("again")}, Properties: ds[i].Properties, Body: ds[i].Body}
	})
	if got := tally(rs); got["confirmed"] != len(ms) {
		t.Fatalf("results: %v of %d", got, len(ms))
	}
	if err := w.s.Settle(within(t), receipts(ds)); err != nil {
		t.Fatal(err)
	}
	if !w.exact {
		w.raw.PublishAll(len(ms), func(i int) (exchange, key string, props, body []byte) {
			return "", w.name("twin again"), twins[i].Properties, twins[i].Body
		})
		twins = w.raw.Take(w.name("twin again"), len(ms))
	}
	for i, got := range w.raw.Take(w.name("again"), len(ms)) {
		w.differ("what was released, and what a raw client gets after as many passages", i, twins[i].Properties, got.Properties)
		if !bytes.Equal(got.Body, ms[i].body) {
			t.Errorf("message %d: a body of %d bytes was released with %d", i, len(ms[i].body), len(got.Body))
		}
	}
}

// differ compares property bytes, and shows where they begin to differ.
func (w *ways) differ(what string, i int, want, got []byte) {
	if bytes.Equal(want, got) {
		return
	}
	w.t.Helper()
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	from := max(0, at-20)
	w.t.Errorf("message %d: %s: %d and %d bytes of properties differ from byte %d on: want %.60x, got %.60x",
		i, what, len(want), len(got), at, want[from:], got[from:])
}
