package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// poison is a message that costs a channel or a connection when it is sent.
type poison struct {
	name   string
	m      redrive.Message
	reason string // of the refusal
	// unsendable ones cannot even be written as frames: there is no proof that
	// the broker dislikes them.
	unsendable bool
}

const mib = 1 << 20

// poisons has one of each kind. The broker's limit is 1 MiB; its queue "stream"
// is one, its exchange "internal" is, and "forbidden" may not be written to.
func poisons(t *testing.T, caps redrive.ReleaserCaps) []poison {
	t.Helper()
	build := func(v amqpwire.View) []byte {
		props, err := amqpwire.Build(v)
		if err != nil {
			t.Fatal(err)
		}
		return props
	}
	to := func(exchange, key string, props []byte) redrive.Message {
		return redrive.Message{Dest: redrive.Destination{Exchange: exchange, RoutingKey: key}, Properties: props, Body: []byte("b")}
	}
	here := func(v amqpwire.View) redrive.Message { return to("", "here", build(v)) }
	header := func(f amqpwire.Field) redrive.Message {
		return here(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{f}})
	}
	kind := func(k amqpwire.Kind, data any) amqpwire.Value { return amqpwire.Value{Kind: k, Data: data} }
	const bad = "invalid_property"
	all := []poison{
		{"a foreign user id", here(amqpwire.View{Present: amqpwire.UserID, UserID: "someone"}), bad, false},
		{"an empty user id", here(amqpwire.View{Present: amqpwire.UserID}), bad, false},
		{"a body over the limit", redrive.Message{Dest: redrive.Destination{RoutingKey: "here"}, Properties: []byte{0, 0}, Body: make([]byte, mib+1)}, "body_too_large", false},
		{"a header over a frame", to("", "here", long(131072-12+1)), "header_too_large", false}, // the broker allows 8 bytes too many
		{"direct reply-to", here(amqpwire.View{Present: amqpwire.ReplyTo, ReplyTo: "amq.rabbitmq.reply-to"}), bad, false},
		{"NaN of 64 bits", header(amqpwire.Field{Name: "h", Value: kind(amqpwire.Float64, math.NaN())}), bad, false},
		{"infinity of 32 bits", header(amqpwire.Field{Name: "h", Value: kind(amqpwire.Float32, float32(math.Inf(-1)))}), bad, false},
		{"NaN in a list", header(amqpwire.ArrayField("l", kind(amqpwire.Float64, math.NaN()))), bad, false},
		{"an unknown kind of header", to("", "here", []byte{0x20, 0, 0, 0, 0, 3, 1, 'h', 'U'}), bad, false},
		{"a header that is cut off", to("", "here", []byte{0x20, 0, 0, 0, 0, 4, 1, 'h', 'I', 0}), bad, false},
		{"a list that is cut off", to("", "here", []byte{0x20, 0, 0, 0, 0, 7, 1, 'h', 'A', 0, 0, 0, 9}), bad, false},
		{"a table longer than the frame", to("", "here", []byte{0x20, 0, 0, 0, 0, 200, 1, 'h', 'V'}), bad, false},
		{"a property that is cut off", to("", "here", []byte{0x80, 0, 200, 'x'}), bad, false},
		{"bytes after the properties", to("", "here", []byte{0x80, 0, 1, 'x', 9}), bad, false},
		{"no property flags", to("", "here", nil), bad, false},
		{"half of the property flags", to("", "here", []byte{0}), bad, false},
		{"property flags that go on", to("", "here", []byte{0, 1, 0, 0}), bad, false},
		{"a property of 256 bytes", to("", "here", append([]byte{0x80, 0, 255}, make([]byte, 256)...)), bad, false},
		{"a header name of 256 bytes", to("", "here", headerTable(append([]byte{255}, make([]byte, 257)...))), bad, false},
		{"a routing key of 256 bytes", to("", strings.Repeat("k", 256), []byte{0, 0}), bad, true},
		{"an exchange of 256 bytes", to(strings.Repeat("e", 256), "k", []byte{0, 0}), bad, true},
		{"a missing exchange", to("absent", "k", []byte{0, 0}), "no_exchange", false},
		{"an internal exchange", to("internal", "k", []byte{0, 0}), "no_permission", false},
		{"an exchange without permission", to("forbidden", "k", []byte{0, 0}), "no_permission", false},
		{"a decimal to a stream", to("", "stream", header(amqpwire.Field{Name: "h", Value: kind(amqpwire.Dec, amqpwire.Decimal{})}).Properties), bad, false},
	}
	for _, v := range []string{"", "abc", "-1", "1.5", " 5", "5 ", "+-5", "1e3", "0x5", "315360000001", strings.Repeat("9", 255)} {
		all = append(all, poison{"expiration " + v, here(amqpwire.View{Present: amqpwire.Expiration, Expiration: v}), bad, false})
	}
	for _, name := range []string{"CC", "BCC"} {
		for _, v := range []amqpwire.Value{kind(amqpwire.Str, "here"), kind(amqpwire.Void, nil), kind(amqpwire.Table, []amqpwire.Field{})} {
			all = append(all, poison{name + " of kind " + v.Kind.String(), header(amqpwire.Field{Name: name, Value: v}), bad, false})
		}
	}
	if majorVersion(caps) == 3 {
		for _, mode := range []uint8{0, 3, 255} {
			all = append(all, poison{fmt.Sprint("delivery mode ", mode), here(amqpwire.View{Present: amqpwire.DeliveryMode, DeliveryMode: mode}), bad, false})
		}
	}
	if of(caps).atLeast(13) {
		stream := func(v amqpwire.View) redrive.Message { return to("", "stream", build(v)) }
		all = append(all,
			poison{"a number as filter value of a stream", to("", "stream", header(amqpwire.LongField("x-stream-filter-value", 1)).Properties), bad, false},
			poison{"AMQP 1.0 that is none to a stream", stream(amqpwire.View{Present: amqpwire.Type, Type: "amqp-1.0"}), bad, false})
	}
	return all
}

// TestWindowOfPoison: 64 publishes are in flight when one of each kind of
// message comes that would cost the channel or the connection. Each of those is
// refused with its reason, and the 64 are confirmed. The broker is asked for
// proof that it would have, and its log for what it has closed.
func TestWindowOfPoison(t *testing.T) {
	node := rabbittest.Shared(t)
	tuneMessageSize(t, node, mib)
	vhost := node.VHost(t)
	admin := rawamqp.Dial(t, vhost)
	admin.Declare("here")
	admin.Declare("stream", amqpwire.StringField("x-queue-type", "stream"))
	admin.DeclareExchange("forbidden", "fanout")
	admin.DeclareInternal("internal", "fanout")
	address := userWith(t, node, vhost, "^$", "^(?!forbidden)", ".*", "", "")
	since := brokerLog(t, node)
	conf := mustParse(t, address)
	conf.MaxMessage = mib
	gates := &gates{}
	conf.Dial = gates.dial
	rel := mustReleaser(t, conf)
	const window = 64
	c := mustChannel(t, rel, redrive.ChannelOptions{Window: window, ConfirmDeadline: patience})
	bad := poisons(t, rel.Caps())

	wire := gates.last()
	wire.hold.Lock() // nothing is confirmed for now
	good := 0
	publish := func() {
		if err := c.Publish(within(t), toQueue("here")(good)); err != nil {
			t.Fatalf("good message %d: %v", good, err)
		}
		good++
	}
	for i, p := range bad {
		publish()
		err := c.Publish(within(t), p.m)
		var refused *redrive.RefusedError
		if !errors.Is(err, redrive.ErrNotSent) || !errors.As(err, &refused) || refused.Reason != p.reason || refused.Detail == "" {
			t.Errorf("%d, %s: %v, want a refusal for %s", i, p.name, err, p.reason)
		}
	}
	for good < window {
		publish()
	}
	wire.hold.Unlock()
	rs := results(t, c, good)
	if got := tally(rs); got["confirmed"] != good {
		t.Errorf("results: %v of %d", got, good)
	}
	publishAndConfirm(t, c)
	if got := len(admin.Drain("here")); got != good+1 {
		t.Errorf("%d messages arrived, want %d", got, good+1)
	}

	raw := rawamqp.Dial(t, address)
	for _, p := range bad {
		if p.unsendable {
			continue
		}
		if v := raw.Try(p.m.Dest.Exchange, p.m.Dest.RoutingKey, p.m.Properties, p.m.Body); !v.Closed() {
			t.Errorf("%s: the broker says %s", p.name, v.Answer)
		}
	}
	// What the broker writes about the last one is behind all that it would have
	// written about us.
	if v := raw.Try("absent", "k", []byte{0, 0}, nil); v.Code != 404 {
		t.Fatalf("a missing exchange: %+v", v)
	}
	var log string
	eventually(t, "the broker's log tells of the proof", func() bool {
		log = since()
		return len(errorsOf(log, raw.LocalAddr())) > 0
	})
	for _, line := range errorsOf(log, wire.LocalAddr().String()) {
		t.Errorf("the broker's log says of the channel: %s", line)
	}
	for _, g := range gates.all {
		for _, line := range errorsOf(log, g.LocalAddr().String()) {
			if !strings.Contains(line, "Channel error on connection") {
				t.Errorf("the broker's log says of a connection: %s", line)
			}
		}
	}
}

func publishAndConfirm(t *testing.T, c redrive.Channel) {
	t.Helper()
	if err := c.Publish(within(t), toQueue("here")(0)); err != nil {
		t.Fatalf("the channel takes no more: %v", err)
	}
	if got := tally(results(t, c, 1)); got["confirmed"] != 1 {
		t.Errorf("results: %v", got)
	}
}

// gates dials connections whose answers can be held back.
type gates struct {
	mu  sync.Mutex
	all []*gated
}

type gated struct {
	net.Conn
	hold sync.RWMutex
}

func (g *gated) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.hold.RLock()
	defer g.hold.RUnlock()
	return n, err
}

func (g *gates) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, &gated{Conn: conn})
	return g.all[len(g.all)-1], nil
}

func (g *gates) last() *gated {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[len(g.all)-1]
}

// brokerLog returns what reads the broker's log from here on: ports are used
// again, and what is there already may be about a connection of another test.
func brokerLog(t *testing.T, node *rabbittest.Node) (since func() string) {
	t.Helper()
	read := func() map[string]string {
		files, err := filepath.Glob(filepath.Join(node.Dir(), "log", "*.log"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no log: %v", err)
		}
		text := map[string]string{}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text[f] = string(b)
		}
		return text
	}
	before := read()
	return func() string {
		var all strings.Builder
		for f, text := range read() {
			all.WriteString(strings.TrimPrefix(text, before[f]))
		}
		return all.String()
	}
}

// errorsOf are the lines of a broker's log that tell of an error on the
// connection from a client's address.
func errorsOf(log, address string) (out []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "[error]") && strings.Contains(line, address+" -> ") {
			out = append(out, line)
		}
	}
	return out
}
