package brokertest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

func exactChecks() []check {
	return []check{
		{"what is captured is what the broker sent", nil, captureExact},
		{"what is released is what was given", nil, releaseExact},
		{"a message passes both ways unchanged", nil, passExact},
		{"a dead letter tells where it died", nil, deathTold},
	}
}

// samples are messages whose bytes are easily lost on the way.
func samples(t testing.TB) map[string]Raw {
	build := func(v amqpwire.View) []byte {
		b, err := amqpwire.Build(v)
		if err != nil {
			t.Fatalf("build properties: %v", err)
		}
		return b
	}
	const everyText = amqpwire.ContentType | amqpwire.ContentEncoding | amqpwire.CorrelationID |
		amqpwire.ReplyTo | amqpwire.MessageID | amqpwire.Type | amqpwire.AppID
	value := func(k amqpwire.Kind, data any) amqpwire.Value { return amqpwire.Value{Kind: k, Data: data} }
	return map[string]Raw{
		"no properties":         {Properties: []byte{0, 0}, Body: []byte("x")},
		"empty body":            {Properties: persistent(), Body: []byte{}},
		"1 MiB body":            {Properties: persistent(), Body: bytes.Repeat([]byte("0123456789abcdef"), 1<<16)},
		"every type of header":  {Properties: allProperties(t), Body: []byte{0, 0xff, 0xfe}},
		"empty but there":       {Properties: build(amqpwire.View{Present: everyText | amqpwire.Headers})},
		"priority and time 0":   {Properties: build(amqpwire.View{Present: amqpwire.Priority | amqpwire.Timestamp})},
		"text that is not UTF8": {Properties: build(amqpwire.View{Present: everyText, MessageID: "\xff\x00\x80", CorrelationID: "\xc3("})},
		"longest texts":         {Properties: build(amqpwire.View{Present: everyText, MessageID: string(bytes.Repeat([]byte{'m'}, 255))})},
		"milliseconds as seconds": {Properties: build(amqpwire.View{
			Present: amqpwire.Timestamp, Timestamp: 1_700_000_000_000,
		})},
		"8 KiB of headers": {Properties: build(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{
			amqpwire.StringField("long", string(bytes.Repeat([]byte("h"), 8<<10))),
		}})},
		"duplicate names and order": {Body: []byte("d"), Properties: build(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{
			amqpwire.StringField("z", "first"), amqpwire.StringField("a", "second"), amqpwire.StringField("z", "third"),
		}})},
		"type L, no name, true as 2": {Body: []byte("d"), Properties: []byte("\x20\x00" + "\x00\x00\x00\x13" +
			"\x03old" + "L\xff\xff\xff\xff\xff\xff\xff\xf9" + "\x00V" + "\x01b" + "t\x02")},
		"names in and out of order inside": {Body: []byte("d"), Properties: build(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{
			amqpwire.TableField("t", amqpwire.LongField("b", 1), amqpwire.LongField("a", 2), amqpwire.LongField("b", 3)),
			amqpwire.ArrayField("l", value(amqpwire.Int64Old, int64(1)), value(amqpwire.Table, []amqpwire.Field{})),
		}})},
	}
}

// allProperties has each property and each type of header but those that a
// broker checks or rewrites.
func allProperties(t testing.TB) []byte {
	value := func(k amqpwire.Kind, data any) amqpwire.Value { return amqpwire.Value{Kind: k, Data: data} }
	field := func(name string, v amqpwire.Value) amqpwire.Field { return amqpwire.Field{Name: name, Value: v} }
	deep := value(amqpwire.Table, []amqpwire.Field{
		field("list", value(amqpwire.Array, []amqpwire.Value{
			value(amqpwire.Str, "a"), value(amqpwire.Void, nil), value(amqpwire.Int32, int32(-1)),
			value(amqpwire.Table, []amqpwire.Field{field("k", value(amqpwire.Int64, int64(1)<<62))}),
		})),
		field("nothing", value(amqpwire.Array, []amqpwire.Value{})),
	})
	headers := []amqpwire.Field{
		field("A.bool", value(amqpwire.Bool, true)),
		field("B.int8", value(amqpwire.Int8, int8(-128))),
		field("C.uint8", value(amqpwire.Uint8, uint8(255))),
		field("D.int16", value(amqpwire.Int16, int16(-32768))),
		field("E.uint16", value(amqpwire.Uint16, uint16(65535))),
		field("F.int32", value(amqpwire.Int32, int32(-2147483648))),
		field("G.uint32", value(amqpwire.Uint32, uint32(4294967295))),
		field("H.int64", value(amqpwire.Int64, int64(-9223372036854775808))),
		field("I.float32", value(amqpwire.Float32, float32(1.5))),
		field("J.float64", value(amqpwire.Float64, 0.1)),
		field("K.decimal", value(amqpwire.Dec, amqpwire.Decimal{Scale: 2, Unscaled: 12345})),
		field("L.text", value(amqpwire.Str, "überall \xff")),
		field("M.bytes", value(amqpwire.Bytes, []byte{0, 1, 2})),
		field("N.time", value(amqpwire.Time, uint64(1_700_000_000))),
		field("O.void", value(amqpwire.Void, nil)),
		field("P.table", deep),
	}
	slices.Reverse(headers)
	b, err := amqpwire.Build(amqpwire.View{
		Present: amqpwire.ContentType | amqpwire.ContentEncoding | amqpwire.Headers | amqpwire.DeliveryMode |
			amqpwire.Priority | amqpwire.CorrelationID | amqpwire.ReplyTo | amqpwire.Expiration |
			amqpwire.MessageID | amqpwire.Timestamp | amqpwire.Type | amqpwire.AppID | amqpwire.ClusterID,
		ContentType: "application/json", ContentEncoding: "identity", Headers: headers, DeliveryMode: 2, Priority: 3,
		CorrelationID: "c-1", ReplyTo: "replies", Expiration: "3600000", MessageID: "m-1", Timestamp: 1_700_000_000,
		Type: "order.created", AppID: "shop", ClusterID: "reserved",
	})
	if err != nil {
		t.Fatalf("build properties: %v", err)
	}
	return b
}

// passed is what a message looks like that came through the broker past the
// driver. The broker may write properties in its own way; it never does so
// because of who publishes or consumes.
func (e *env) passed(m Raw) Raw {
	e.Helper()
	m.Exchange, m.RoutingKey = "", e.h.NewQueue(e.TB)
	e.h.Publish(e.TB, m)
	got := e.h.Drain(e.TB, m.RoutingKey)
	if len(got) != 1 || !bytes.Equal(got[0].Body, m.Body) {
		e.Fatalf("past the driver, the queue holds %d messages, or another body", len(got))
	}
	if e.h.Exact && !bytes.Equal(got[0].Properties, m.Properties) {
		e.Fatalf("past the driver, properties\n%x became\n%x, on a broker that is said to be exact", m.Properties, got[0].Properties)
	}
	return got[0]
}

// same fails unless properties and body are the same bytes.
func same(t testing.TB, what string, want Raw, properties, body []byte) {
	t.Helper()
	if !bytes.Equal(want.Properties, properties) {
		t.Errorf("%s: properties\n%.4000x, want\n%.4000x", what, properties, want.Properties)
	}
	if properties == nil || !bytes.Equal(want.Body, body) {
		t.Errorf("%s: a body of %d bytes, want %d; properties %v nil", what, len(body), len(want.Body), properties == nil)
	}
}

func captureExact(e *env) {
	s := e.source()
	for name, m := range samples(e.TB) {
		want := e.passed(m)
		m.RoutingKey = e.h.NewQueue(e.TB)
		e.h.Publish(e.TB, m)
		session := e.open(s, m.RoutingKey, 1)
		d := e.receive(session, 1)[0]
		same(e.TB, name, want, d.Properties, d.Body)
		e.settle(session, d.Receipt)
	}
}

func releaseExact(e *env) {
	c := e.channel(e.releaser(), 10)
	for name, m := range samples(e.TB) {
		want := e.passed(m)
		m.RoutingKey = e.h.NewQueue(e.TB)
		e.publish(c, 1, m)
		e.wantConfirmed(e.results(c, 1)...)
		got := e.h.Drain(e.TB, m.RoutingKey)
		if len(got) != 1 || got[0].Exchange != "" || got[0].RoutingKey != m.RoutingKey {
			e.Errorf("%s: the queue holds %d messages", name, len(got))
			continue
		}
		same(e.TB, name, want, got[0].Properties, got[0].Body)
	}
}

// passExact captures and releases what was captured: two passages through the
// broker.
func passExact(e *env) {
	s, c := e.source(), e.channel(e.releaser(), 10)
	from, to := e.h.NewQueue(e.TB), e.h.NewQueue(e.TB)
	session := e.open(s, from, 1)
	for name, m := range samples(e.TB) {
		want := e.passed(e.passed(m))
		m.RoutingKey = from
		e.h.Publish(e.TB, m)
		d := e.receive(session, 1)[0]
		e.publish(c, 1, Raw{RoutingKey: to, Properties: d.Properties, Body: d.Body})
		e.wantConfirmed(e.results(c, 1)...)
		e.settle(session, d.Receipt)
		got := e.h.Drain(e.TB, to)
		if len(got) != 1 {
			e.Errorf("%s: the queue holds %d messages", name, len(got))
			continue
		}
		same(e.TB, name, want, got[0].Properties, got[0].Body)
	}
}

func deathTold(e *env) {
	props := allProperties(e.TB)
	died, holds := e.h.DeadLetter(e.TB, props, []byte("poison"))
	session := e.open(e.source(), holds, 1)
	d := e.receive(session, 1)[0]
	v := amqpwire.Parse(d.Properties)
	h := v.DeathHistory()
	last, ok := h.Last()
	if !ok || h.Problem != "" {
		e.Fatalf("no death told: %+v", h)
	}
	if last.Queue != died || last.Reason != "rejected" || last.Count != 1 || last.Time == 0 {
		e.Errorf("death %+v, want one rejection in %q", last, died)
	}
	if len(last.RoutingKeys) != 1 || last.RoutingKeys[0] != died || last.OriginalExpiration != "3600000" {
		e.Errorf("keys %q, original expiration %q", last.RoutingKeys, last.OriginalExpiration)
	}
	if h.FirstQueue != died || h.FirstReason != "rejected" {
		e.Errorf("first death in %q, %q", h.FirstQueue, h.FirstReason)
	}
	if v.Has(amqpwire.Expiration) || string(d.Body) != "poison" {
		e.Errorf("expiration %q, body %q", v.Expiration, d.Body)
	}
	e.settle(session, d.Receipt)
}
