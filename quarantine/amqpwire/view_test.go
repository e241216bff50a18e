package amqpwire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestLookupsAreTolerantOfType(t *testing.T) {
	v := Parse(withHeaders(t,
		StringField("s", "text"), StringField("s", "second"), StringField("n", "-12"),
		Field{"x", Value{Bytes, []byte("raw")}}, Field{"t", Value{Bool, true}},
		Field{"b", Value{Int8, int8(-1)}}, Field{"B", Value{Uint8, uint8(255)}},
		Field{"i", Value{Uint32, uint32(math.MaxUint32)}}, LongField("l", math.MinInt64),
		TimeField("T", math.MaxUint64), Field{"d", Value{Float64, 0.5}}, Field{"f", Value{Float32, float32(0.1)}},
		Field{"D", Value{Dec, Decimal{2, 314}}}, Field{"V", Value{Void, nil}}, TableField("F"), ArrayField("A"),
	))
	for _, tt := range []struct {
		name, text string
		isText     bool
		n          int64
		isInt      bool
	}{
		{"s", "text", true, 0, false},
		{"n", "-12", true, -12, true},
		{"x", "raw", true, 0, false},
		{"t", "true", true, 0, false},
		{"b", "-1", true, -1, true},
		{"B", "255", true, 255, true},
		{"i", "4294967295", true, math.MaxUint32, true},
		{"l", "-9223372036854775808", true, math.MinInt64, true},
		{"T", "18446744073709551615", true, -1, false},
		{"d", "0.5", true, 0, false},
		{"f", "0.1", true, 0, false},
		{"D", "", false, 0, false},
		{"V", "", false, 0, false},
		{"F", "", false, 0, false},
		{"A", "", false, 0, false},
		{"absent", "", false, 0, false},
	} {
		if s, ok := v.Text(tt.name); s != tt.text || ok != tt.isText {
			t.Errorf("Text(%q) = %q, %v", tt.name, s, ok)
		}
		if n, ok := v.Int(tt.name); ok != tt.isInt || (ok && n != tt.n) {
			t.Errorf("Int(%q) = %d, %v", tt.name, n, ok)
		}
	}
}

func TestDeathHistory(t *testing.T) {
	last := Death{Queue: "q2", Reason: "expired", RoutingKeys: []string{"k", "cc"}, Count: 1, Time: 20, OriginalExpiration: "5000"}
	first := Death{Queue: "q1", Reason: "rejected", Exchange: "ex", RoutingKeys: []string{"k"}, Count: 3, Time: 10}
	odd := func(fields ...Field) Field { return ArrayField(HeaderDeath, Value{Table, fields}) }
	queue, reason := StringField("queue", "q"), StringField("reason", "r")
	for _, tt := range []struct {
		name    string
		headers []Field
		want    []Death
		problem string
	}{
		{"absent", nil, nil, ""},
		{"two hops, latest first", []Field{DeathField(last, first)}, []Death{last, first}, ""},
		{"empty array", []Field{ArrayField(HeaderDeath)}, nil, ""},
		{"a string", []Field{StringField(HeaderDeath, "rejected")}, nil, "x-death is of type S, not an array"},
		{"a table", []Field{TableField(HeaderDeath, queue)}, nil, "x-death is of type F, not an array"},
		{"an entry that is no table", []Field{ArrayField(HeaderDeath, Value{Void, nil}, DeathField(first).Data.([]Value)[0])},
			[]Death{first}, "x-death entry 0 is of type V, not a table"},
		{"no queue", []Field{odd(reason)}, []Death{{Reason: "r"}}, "x-death entry 0 has no queue"},
		{"no reason", []Field{odd(queue)}, []Death{{Queue: "q"}}, "x-death entry 0 has no reason"},
		{"queue is a table", []Field{odd(TableField("queue"), reason)}, []Death{{Reason: "r"}}, "x-death entry 0: queue is of type F"},
		{"narrow and textual numbers", []Field{odd(queue, reason, Field{"count", Value{Int32, int32(7)}}, StringField("time", "99"))},
			[]Death{{Queue: "q", Reason: "r", Count: 7, Time: 99}}, ""},
		{"negative count", []Field{odd(queue, reason, LongField("count", -1))},
			[]Death{{Queue: "q", Reason: "r"}}, "x-death entry 0: count is not a count"},
		{"time beyond 63 bits", []Field{odd(queue, reason, TimeField("time", math.MaxUint64))},
			[]Death{{Queue: "q", Reason: "r"}}, "x-death entry 0: time is not a count"},
		{"routing keys as a string", []Field{odd(queue, reason, StringField("routing-keys", "k"))},
			[]Death{{Queue: "q", Reason: "r"}}, "x-death entry 0: routing-keys is of type S"},
		{"a routing key that is void", []Field{odd(queue, reason, ArrayField("routing-keys", Value{Void, nil}, Value{Str, "k"}))},
			[]Death{{Queue: "q", Reason: "r", RoutingKeys: []string{"k"}}}, "x-death entry 0: a routing key is of type V"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Parse(withHeaders(t, append(tt.headers, StringField(HeaderFirstDeathQueue, "fq"))...))
			h := v.DeathHistory()
			if d := cmp.Diff(tt.want, h.Deaths); d != "" || h.Problem != tt.problem || h.FirstQueue != "fq" {
				t.Errorf("%s\nproblem %q, first queue %q", d, h.Problem, h.FirstQueue)
			}
		})
	}
	h := DeathHistory{Deaths: []Death{last, first}}
	if l, _ := h.Last(); l.Queue != "q2" {
		t.Errorf("last is %+v", l)
	}
	if f, _ := h.First(); f.Queue != "q1" {
		t.Errorf("first is %+v", f)
	}
}

func TestLimitsKeepTheRestRaw(t *testing.T) {
	deep := Value{Void, nil}
	for range MaxDepth - 1 {
		deep = Value{Array, []Value{deep}}
	}
	fits := withHeaders(t, Field{"deep", deep}, StringField("after", "x"))
	if v := Parse(fits); v.Problem != "" {
		t.Errorf("at the limit: %s", v.Problem)
	}
	if _, err := Build(View{Present: Headers, Headers: []Field{{"deep", Value{Array, []Value{deep}}}}}); err == nil {
		t.Error("Build made what Parse refuses")
	}
	// One level more, made by hand: an array of the array above.
	b := fits[6 : len(fits)-len("\x05afterS\x00\x00\x00\x01x")]
	inner := b[len("\x04deep"):]
	table := append([]byte("\x04deepA"), binary.BigEndian.AppendUint32(nil, uint32(len(inner)))...)
	table = append(append(table, inner...), "\x05afterS\x00\x00\x00\x01x"...)
	props := append([]byte{0x20, 0}, binary.BigEndian.AppendUint32(nil, uint32(len(table)))...)
	v := Parse(append(props, table...))
	if s, _ := v.Text("after"); s != "x" || !strings.Contains(v.Problem, "nested deeper") {
		t.Errorf("after = %q, problem %q", s, v.Problem)
	}

	many := make([]Value, MaxValues)
	for i := range many {
		many[i] = Value{Void, nil}
	}
	v = Parse(withHeaders(t, ArrayField("many", many...), StringField("after", "x")))
	if v.Problem == "" || len(v.Headers) != 2 {
		t.Errorf("%d headers, problem %q", len(v.Headers), v.Problem)
	}
}

func TestWireDigest(t *testing.T) {
	digest := func(props []byte) string {
		d := WireDigest("ex", "key", props, []byte("body"))
		return hex.EncodeToString(d[:])
	}
	plain := mustBuild(t, View{Present: MessageID, MessageID: "m"})
	// The golden value: SHA-256 of the domain string and four length-prefixed parts.
	if got := digest(plain); got != goldenDigest {
		t.Errorf("digest %s, want %s", got, goldenDigest)
	}
	counted := mustBuild(t, View{Present: MessageID | Headers, MessageID: "m", Headers: []Field{LongField(HeaderDeliveryCount, 3)}})
	twice := mustBuild(t, View{Present: MessageID | Headers, MessageID: "m",
		Headers: []Field{LongField(HeaderAcquiredCount, 1), LongField(HeaderDeliveryCount, 4)}})
	if digest(counted) != goldenDigest || digest(twice) != goldenDigest {
		t.Error("the broker's counters change the digest")
	}
	other := mustBuild(t, View{Present: MessageID | Headers, MessageID: "m", Headers: []Field{LongField("x-Delivery-count", 3)}})
	if digest(other) == goldenDigest {
		t.Error("a header of another name does not change the digest")
	}
	// Moving a byte from one part to the next is another message.
	if WireDigest("ab", "c", plain, nil) == WireDigest("a", "bc", plain, nil) {
		t.Error("parts run into each other")
	}
	// Properties that cannot be walked have a digest as well.
	if digest([]byte{0x20, 0, 0, 0}) == digest([]byte{0x20, 0, 0, 1}) {
		t.Error("broken properties all have one digest")
	}
}

const goldenDigest = "427cea51d8d7a6a9d69e98141ccdd7fad2b05a5c521f70cc8c9ed2042a9ee9d2"

// kinds draws a value of any kind, containers to a small depth.
func values(depth int) *rapid.Generator[Value] {
	return rapid.Custom(func(t *rapid.T) Value {
		k := rapid.SampledFrom([]Kind{Bool, Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Int64Old,
			Float32, Float64, Dec, Str, Bytes, Time, Void, Table, Array}).Draw(t, "kind")
		raw := rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "raw")
		switch k {
		case Table:
			if depth == 0 {
				return Value{k, []Field(nil)}
			}
			return Value{k, fields(depth-1).Draw(t, "table")}
		case Array:
			if depth == 0 {
				return Value{k, []Value(nil)}
			}
			return Value{k, rapid.SliceOfN(values(depth-1), 0, 4).Draw(t, "array")}
		case Str:
			return Value{k, string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "text"))}
		case Bytes:
			return Value{k, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")}
		case Bool:
			return Value{k, raw[0]&1 != 0}
		default:
			return Value{k, scalar(k, raw)}
		}
	})
}

func fields(depth int) *rapid.Generator[[]Field] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Field {
		name := rapid.SampledFrom([]string{"", "a", "b", "x-death", "x-delivery-count", strings.Repeat("n", 255)}).Draw(t, "name")
		return Field{name, values(depth).Draw(t, "value")}
	}), 0, 6)
}

func TestParseAndBuildAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := View{Present: Property(rapid.Uint16().Draw(t, "present")) &^ (flagMore | flagUnused)}
		if v.Has(Headers) {
			v.Headers = fields(3).Draw(t, "headers")
		}
		v.DeliveryMode, v.Priority = rapid.Byte().Draw(t, "mode"), rapid.Byte().Draw(t, "priority")
		v.Timestamp = rapid.Uint64().Draw(t, "timestamp")
		for i := range propertyCount {
			if p := ContentType >> i; shapeOf(p) == shapeShort {
				*v.short(p) = string(rapid.SliceOfN(rapid.Byte(), 0, 255).Draw(t, p.String()))
			}
		}
		b, err := Build(v)
		if err != nil {
			t.Fatal(err)
		}
		parsed := Parse(b)
		again, err := Build(parsed)
		if err != nil || parsed.Problem != "" || !bytes.Equal(b, again) {
			t.Fatalf("%v, problem %q, %x became %x", err, parsed.Problem, b, again)
		}
		checkStrip(t, b, parsed, "a", "x-death")
	})
}

// checkStrip compares Edit with the obvious: filter the decoded headers.
func checkStrip(t *rapid.T, b []byte, v View, names ...string) {
	e := Edit(b)
	e.Strip(names...)
	got, err := e.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	v.Headers = slices.DeleteFunc(slices.Clone(v.Headers), func(f Field) bool { return slices.Contains(names, f.Name) })
	want, err := Build(v)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v: got %x, want %x", err, got, want)
	}
}
