package rabbitmq

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// The messages that a client library would change, or not survive. On a broker
// that rewrites headers itself (3.13 and later sort them and drop duplicates)
// the captured bytes are the broker's; what is checked throughout is that they
// are the bytes on the wire.

// goldenProps returns the property bytes of all golden vectors that a broker
// takes.
func goldenProps(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../../../quarantine/amqpwire/testdata/vectors/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	m := map[string][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var props []byte
		for line := range strings.Lines(string(b)) {
			if h, ok := strings.CutPrefix(line, "hex: "); ok {
				raw, err := hex.DecodeString(strings.TrimSpace(h))
				if err != nil {
					t.Fatal(err)
				}
				props = append(props, raw...)
			}
		}
		v := amqpwire.Parse(props)
		nan := strings.Contains(path, "nan")
		if v.Problem != "" || nan || strings.Contains(path, "continued") {
			continue // no broker takes these
		}
		if v.Has(amqpwire.UserID) || v.Has(amqpwire.Expiration) {
			e := amqpwire.Edit(props) // validated by the broker; the other tests have them
			e.Drop(amqpwire.UserID | amqpwire.Expiration)
			if props, err = e.Bytes(); err != nil {
				t.Fatal(err)
			}
		}
		if v.Has(amqpwire.DeliveryMode) && v.DeliveryMode == 0 {
			e := amqpwire.Edit(props) // RabbitMQ 3 refuses this one
			e.SetDeliveryMode(1)
			if props, err = e.Bytes(); err != nil {
				t.Fatal(err)
			}
		}
		m[filepath.Base(path)] = props
	}
	return m
}

// nested makes a header table with n arrays inside each other.
func nested(n int) []byte {
	inner := []byte{'V'}
	for range n {
		inner = append(binary.BigEndian.AppendUint32([]byte{'A'}, uint32(len(inner))), inner...)
	}
	return headerTable(append([]byte("\x06nested"), inner...))
}

// wide makes a header table with an array of n items.
func wide(n int) []byte {
	items := bytes.Repeat([]byte{'V'}, n)
	return headerTable(append(binary.BigEndian.AppendUint32([]byte("\x04wideA"), uint32(n)), items...))
}

// long makes a header table of exactly n bytes of properties.
func long(n int) []byte {
	n -= 2 + 4 + len("\x05stackS") + 4
	return headerTable(append(binary.BigEndian.AppendUint32([]byte("\x05stackS"), uint32(n)), bytes.Repeat([]byte{'x'}, n)...))
}

func headerTable(fields []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0x20, 0}, uint32(len(fields))), fields...)
}

func TestCaptureAndReleaseAreExact(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	raw.Declare("again")
	raw.Declare("twin")
	cases := goldenProps(t)
	cases["nested beyond the library"] = nested(100)
	cases["wide beyond the library"] = wide(20000)
	cases["as large as a frame"] = long(131072 - 8 - 12)
	src, rel := mustSource(t, mustParse(t, url)), mustReleaser(t, mustParse(t, url))
	s := mustSession(t, src, "dead", 10)
	c := mustChannel(t, rel, redrive.ChannelOptions{Window: 8, ConfirmDeadline: 20 * time.Second})
	for name, props := range cases {
		// What an independent reader sees on the wire is the truth.
		raw.Publish("", "twin", props, []byte(name))
		want, ok := raw.Get("twin")
		if !ok {
			t.Fatal("the twin is missing")
		}
		raw.Publish("", "dead", props, []byte(name))
		d := receive(t, s, 1)[0]
		if !bytes.Equal(d.Properties, want.Properties) || string(d.Body) != name {
			t.Errorf("%s: captured %.80x, want %.80x", name, d.Properties, want.Properties)
		}
		if err := s.Settle(within(t), []quarantine.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(within(t), redrive.Message{Dest: redrive.Destination{RoutingKey: "again"}, Properties: d.Properties, Body: d.Body}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r := results(t, c, 1)[0]; r.Resolution != "confirmed" {
			t.Errorf("%s: %+v", name, r)
		}
		got, ok := raw.Get("again")
		if !ok || !bytes.Equal(got.Properties, want.Properties) || string(got.Body) != name {
			t.Errorf("%s: released %.80x, want %.80x", name, got.Properties, want.Properties)
		}
	}
}

func TestBodiesAreExact(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	const frame = 131072 - 8
	c := mustChannel(t, mustReleaser(t, mustParse(t, url)), redrive.ChannelOptions{Window: 16, ConfirmDeadline: 20 * time.Second})
	s := mustSession(t, mustSource(t, mustParse(t, url)), "dead", 16)
	for _, n := range []int{0, 1, byReference - 1, byReference, frame - 1, frame, frame + 1, 2 * frame, 10 << 20} {
		b := bytes.Repeat([]byte{0xce, 0, 1, 2, 3, 0xff, byte(n)}, n/7+1)[:n]
		if err := c.Publish(within(t), redrive.Message{Dest: redrive.Destination{RoutingKey: "dead"}, Properties: []byte{0, 0}, Body: b}); err != nil {
			t.Fatal(err)
		}
		if d := receive(t, s, 1)[0]; !bytes.Equal(d.Body, b) || d.Body == nil {
			t.Errorf("%d bytes became %d", n, len(d.Body))
		}
		if r := results(t, c, 1)[0]; r.Resolution != "confirmed" {
			t.Errorf("%d bytes: %+v", n, r)
		}
	}
}

// TestP8DeadLetterLargerThanAFrame: the broker adds x-death to a header that
// already fills a frame.
func TestP8DeadLetterLargerThanAFrame(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	raw.Declare("live", amqpwire.StringField("x-dead-letter-exchange", ""),
		amqpwire.StringField("x-dead-letter-routing-key", "dead"), amqpwire.LongField("x-message-ttl", 1))
	raw.Publish("", "live", long(131000), []byte("b"))
	s := mustSession(t, mustSource(t, mustParse(t, url)), "dead", 10)
	d := receive(t, s, 1)[0]
	if len(d.Properties) < 131072 {
		t.Fatalf("only %d bytes of properties", len(d.Properties))
	}
	v := amqpwire.Parse(d.Properties)
	h := v.DeathHistory()
	if last, ok := h.Last(); !ok || last.Queue != "live" || last.Reason != "expired" || last.Count != 1 {
		t.Errorf("%+v, problem %q", last, h.Problem)
	}
	c := mustChannel(t, mustReleaser(t, mustParse(t, url)), redrive.ChannelOptions{Window: 4, ConfirmDeadline: 20 * time.Second})
	m := redrive.Message{Dest: redrive.Destination{RoutingKey: "dead"}, Properties: d.Properties, Body: d.Body}
	refusedFor(t, c, m, "header_too_large")
	e := amqpwire.Edit(d.Properties)
	e.Strip("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
		"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason")
	var err error
	if m.Properties, err = e.Bytes(); err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(within(t), m); err != nil {
		t.Fatalf("stripped: %v", err)
	}
	if r := results(t, c, 1)[0]; r.Resolution != "confirmed" {
		t.Errorf("stripped: %+v", r)
	}
}

// hostile are properties over which client libraries give up the connection, or
// which they change.
func hostile() map[string][]byte {
	return map[string][]byte{
		"an L":                    headerTable([]byte("\x03oldL\xff\xff\xff\xff\xff\xff\xff\xf9")),
		"33 levels":               nested(33),
		"120 levels":              nested(120),
		"8193 elements":           wide(8193),
		"20000 elements":          wide(20000),
		"a name twice":            headerTable([]byte("\x01kS\x00\x00\x00\x05first\x01aV\x01kS\x00\x00\x00\x06second")),
		"an empty name":           headerTable([]byte("\x00S\x00\x00\x00\x01v\x01aV")),
		"text that is not UTF-8":  headerTable([]byte("\x01\xffS\x00\x00\x00\x02\xff\x00")),
		"the unused flag":         {0, 2},
		"a frame full of headers": long(131072 - 8 - 12),
		"a time after year 9999":  headerTable([]byte("\x01tT\xff\xff\xff\xff\xff\xff\xff\xff")),
	}
}

// TestP4HostileHeadersAreCaptured: among a thousand ordinary messages there are
// those that end the connections of others. One session gets them all, in
// order, as a client gets them that reads raw frames.
func TestP4HostileHeadersAreCaptured(t *testing.T) {
	node := rabbittest.Shared(t)
	for _, kind := range []string{quarantine.QueueClassic, quarantine.QueueQuorum} {
		t.Run(kind, func(t *testing.T) {
			w := &world{node: node, url: node.VHost(t)}
			raw := rawamqp.Dial(t, w.url)
			q, twin := w.queueOf(kind)(t), w.queueOf(kind)(t)
			// Dead letters of "live" come the same way; the broker adds x-death to a
			// header that fills a frame.
			raw.DeclareExchange("dead letters", "fanout")
			raw.Bind(q, "dead letters", "")
			raw.Bind(twin, "dead letters", "")
			live := w.declare(t, "live", amqpwire.StringField("x-dead-letter-exchange", "dead letters"))
			const ordinary = 1000
			bad := hostile()
			names := slices.Sorted(maps.Keys(bad))
			n := 0
			publish := func(props []byte) {
				raw.Publish("dead letters", "k", props, body(n))
				n++
			}
			for i := range ordinary {
				if at := i - ordinary/2; at >= 0 && at < len(names) {
					publish(bad[names[at]])
				}
				if i == ordinary/2 {
					raw.Publish("", live, long(131000), body(n))
					raw.Reject(live)
					n++
				}
				publish([]byte{0, 0})
			}
			// The dead letter comes when the broker gets round to it, in both queues.
			want := raw.Take(twin, n)
			missing := map[string]bool{}
			for i := range n {
				missing[string(body(i))] = true
			}
			for _, m := range want {
				delete(missing, string(m.Body))
			}
			if len(missing) > 0 {
				t.Fatalf("%d messages did not arrive: %v", len(missing), missing)
			}
			s := mustSession(t, mustSource(t, w.config(t)), q, 100)
			grown := 0
			for i := 0; i < n; {
				ds := receive(t, s, min(100, n-i))
				for _, d := range ds {
					if !bytes.Equal(d.Properties, want[i].Properties) || !bytes.Equal(d.Body, want[i].Body) {
						t.Errorf("message %d: %.80x with body %q, want %.80x with %q", i, d.Properties, d.Body, want[i].Properties, want[i].Body)
					}
					if d.Redelivered {
						t.Errorf("message %d was delivered before", i)
					}
					if len(d.Properties) > 131072 {
						grown++
					}
					i++
				}
				if err := s.Settle(within(t), receipts(ds)); err != nil {
					t.Fatal(err)
				}
			}
			if grown != 1 {
				t.Errorf("%d headers are larger than a frame, want the one with x-death", grown)
			}
			if s.Err() != nil {
				t.Errorf("the session is over: %v", s.Err())
			}
			if len(w.conns) != 2 {
				t.Errorf("%d connections for one session, want 2", len(w.conns))
			}
		})
	}
}
