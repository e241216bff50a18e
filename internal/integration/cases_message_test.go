package integration

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// handed is a line of the catalogue of cases: see testdata/cases.
type handed struct {
	ID    string  `json:"id"`
	Kind  string  `json:"kind"`
	Title string  `json:"title"`
	Input []input `json:"input"`
}

// input is one object of a case: a message, or messages with what happens to
// them, or the values that a case goes through. What is written for people
// (Ops, Note and the like) is read only so that nothing else can hide.
type input struct {
	form
	PublishDirect bool                       `json:"publish_direct"`
	Messages      json.RawMessage            `json:"messages"` // a list, or count and template
	Topology      map[string]json.RawMessage `json:"topology"`
	Queue         string                     `json:"queue"`
	BadForms      [][]json.RawMessage        `json:"bad_forms"` // headers
	Special       map[string]string          `json:"special"`
	Rates         []any                      `json:"rates"`
	Concurrency   []int                      `json:"concurrency"`
	QueueName     string                     `json:"queue_name"`
	Queues        []string                   `json:"queues"`
	VHosts        []string                   `json:"vhosts"`
	URL           string                     `json:"url"`
	URL2          string                     `json:"url2"`
	Variants      []string                   `json:"variants"`
	States        []string                   `json:"states"`
	Settings      []map[string]any           `json:"settings"`
	Ops           []string                   `json:"ops"`
	Note          string                     `json:"note"`
	Consumer      string                     `json:"consumer"`
	BeforeReplay  string                     `json:"before_replay"`
	Fault         string                     `json:"fault"`
}

// form is the message form of the catalogue.
type form struct {
	Exchange   string                     `json:"exchange"`
	RoutingKey json.RawMessage            `json:"routing_key"`
	Properties map[string]json.RawMessage `json:"properties"`
	Headers    [][]json.RawMessage        `json:"headers"`
	Body       json.RawMessage            `json:"body"`
}

// message is a message of a case, as the bytes that go to the broker.
type message struct {
	direct        bool // published to the dead-letter queue itself
	exchange, key string
	props, body   []byte
}

func (m *message) id() string {
	v := amqpwire.Parse(m.props)
	return v.MessageID
}

// with returns the message with further properties and headers.
func (m message) with(t testing.TB, change func(v *amqpwire.View)) message {
	t.Helper()
	v := amqpwire.Parse(m.props)
	change(&v)
	props, err := amqpwire.Build(v)
	must(t, err)
	m.props = props
	return m
}

// handedCases reads the catalogue.
func handedCases(t testing.TB) []*handed {
	t.Helper()
	b, err := os.ReadFile("../../testdata/cases/cases.jsonl")
	must(t, err)
	var out []*handed
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		h := &handed{}
		strictly(t, lines.Bytes(), h)
		out = append(out, h)
	}
	must(t, lines.Err())
	return out
}

// strictly decodes JSON whose every field has its place, numbers as they are
// written.
func strictly(t testing.TB, b []byte, to any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		t.Fatalf("%v in %.200s", err, b)
	}
}

// messages are all messages of an input.
func (in *input) messages(t testing.TB) []message {
	t.Helper()
	var forms []form
	switch {
	case len(in.Messages) == 0:
		forms = []form{in.form}
	case in.Messages[0] == '[':
		strictly(t, in.Messages, &forms)
	default:
		return in.first(t, in.count(t))
	}
	var out []message
	for _, f := range forms {
		m := f.message(t)
		m.direct = in.PublishDirect || m.exchange == ""
		out = append(out, m)
	}
	return out
}

// many are the messages that a template stands for.
type many struct {
	Count    int             `json:"count"`
	Template json.RawMessage `json:"template"`
}

// count is how many messages a template stands for.
func (in *input) count(t testing.TB) int {
	t.Helper()
	var x many
	strictly(t, in.Messages, &x)
	return x.Count
}

// first are the first n of the messages that a template stands for.
func (in *input) first(t testing.TB, n int) []message {
	t.Helper()
	var x many
	strictly(t, in.Messages, &x)
	return repeated(t, x.Template, n)
}

// index is where a template has the number of the message, or what is left of
// it by a division.
var index = regexp.MustCompile(`\{i(?:%(\d+))?\}`)

// repeated makes n messages out of a template.
func repeated(t testing.TB, template []byte, n int) []message {
	t.Helper()
	out := make([]message, n)
	for i := range out {
		text := index.ReplaceAllFunc(template, func(mark []byte) []byte {
			k := i
			if mod := index.FindSubmatch(mark)[1]; len(mod) > 0 {
				m, err := strconv.Atoi(string(mod))
				must(t, err)
				k %= m
			}
			return strconv.AppendInt(nil, int64(k), 10)
		})
		var f form
		strictly(t, text, &f)
		out[i] = f.message(t)
		out[i].direct = f.Exchange == ""
	}
	return out
}

func (f *form) message(t testing.TB) message {
	t.Helper()
	m := message{exchange: f.Exchange, key: string(expand(t, f.RoutingKey)), body: expand(t, f.Body)}
	v := amqpwire.View{}
	for name, raw := range f.Properties {
		setProperty(t, &v, name, raw)
	}
	if f.Headers != nil {
		v.Present |= amqpwire.Headers
		v.Headers = fields(t, f.Headers)
	}
	props, err := amqpwire.Build(v)
	must(t, err)
	m.props = props
	return m
}

func setProperty(t testing.TB, v *amqpwire.View, name string, raw json.RawMessage) {
	t.Helper()
	texts := map[string]struct {
		p  amqpwire.Property
		to *string
	}{
		"content_type": {amqpwire.ContentType, &v.ContentType}, "content_encoding": {amqpwire.ContentEncoding, &v.ContentEncoding},
		"correlation_id": {amqpwire.CorrelationID, &v.CorrelationID}, "reply_to": {amqpwire.ReplyTo, &v.ReplyTo},
		"expiration": {amqpwire.Expiration, &v.Expiration}, "message_id": {amqpwire.MessageID, &v.MessageID},
		"type": {amqpwire.Type, &v.Type}, "user_id": {amqpwire.UserID, &v.UserID}, "app_id": {amqpwire.AppID, &v.AppID},
	}
	if x, ok := texts[name]; ok {
		v.Present |= x.p
		*x.to = string(expand(t, raw))
		return
	}
	n := whole(t, raw)
	switch name {
	case "delivery_mode":
		v.Present |= amqpwire.DeliveryMode
		v.DeliveryMode = uint8(n)
	case "priority":
		v.Present |= amqpwire.Priority
		v.Priority = uint8(n)
	case "timestamp":
		v.Present |= amqpwire.Timestamp
		v.Timestamp = uint64(n)
	default:
		t.Fatalf("property %q", name)
	}
}

// expand reads a text or bytes in any of the catalogue's spellings.
func expand(t testing.TB, raw json.RawMessage) []byte {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	if raw[0] == '"' {
		var s string
		must(t, json.Unmarshal(raw, &s))
		return []byte(s)
	}
	var x struct {
		Text   *string           `json:"text"`
		B64    *string           `json:"b64"`
		Repeat []json.RawMessage `json:"repeat"`
		Random *int              `json:"random_bytes"`
		Zeros  *int              `json:"gzip_of_zeros"`
	}
	strictly(t, raw, &x)
	switch {
	case x.Text != nil:
		return []byte(*x.Text)
	case x.B64 != nil:
		b, err := base64.StdEncoding.DecodeString(*x.B64)
		must(t, err)
		return b
	case len(x.Repeat) == 2:
		return bytes.Repeat(expand(t, x.Repeat[0]), int(whole(t, x.Repeat[1])))
	case x.Random != nil:
		b := make([]byte, *x.Random)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		return b
	case x.Zeros != nil:
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(make([]byte, *x.Zeros)); err != nil {
			t.Fatal(err)
		}
		must(t, w.Close())
		return b.Bytes()
	}
	t.Fatalf("no text and no bytes: %s", raw)
	return nil
}

// whole reads an integer, also one that a template has left as text.
func whole(t testing.TB, raw json.RawMessage) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	must(t, err)
	return n
}

// fields reads triples of name, type and value.
func fields(t testing.TB, triples [][]json.RawMessage) []amqpwire.Field {
	t.Helper()
	out := []amqpwire.Field{}
	for _, x := range triples {
		if len(x) != 3 {
			t.Fatalf("a header of %d parts", len(x))
		}
		out = append(out, amqpwire.Field{Name: string(expand(t, x[0])), Value: value(t, x[1], x[2])})
	}
	return out
}

// value reads a type letter and a value.
func value(t testing.TB, letter, raw json.RawMessage) amqpwire.Value {
	t.Helper()
	kind := amqpwire.Kind(expand(t, letter)[0])
	return amqpwire.Value{Kind: kind, Data: content(t, kind, raw)}
}

func content(t testing.TB, kind amqpwire.Kind, raw json.RawMessage) any {
	t.Helper()
	list := func(to any) { must(t, json.Unmarshal(raw, to)) }
	switch kind {
	case amqpwire.Void:
		return nil
	case amqpwire.Bool:
		return string(raw) == "true"
	case amqpwire.Int8:
		return int8(whole(t, raw))
	case amqpwire.Uint8:
		return uint8(whole(t, raw))
	case amqpwire.Int16:
		return int16(whole(t, raw))
	case amqpwire.Uint16:
		return uint16(whole(t, raw))
	case amqpwire.Int32:
		return int32(whole(t, raw))
	case amqpwire.Uint32:
		return uint32(whole(t, raw))
	case amqpwire.Int64, amqpwire.Int64Old:
		return whole(t, raw)
	case amqpwire.Time:
		return uint64(whole(t, raw))
	case amqpwire.Float32, amqpwire.Float64:
		f, err := strconv.ParseFloat(string(raw), 64)
		must(t, err)
		if kind == amqpwire.Float32 {
			return float32(f)
		}
		return f
	case amqpwire.Dec:
		var d []int64
		list(&d)
		return amqpwire.Decimal{Scale: uint8(d[0]), Unscaled: uint32(d[1])}
	case amqpwire.Str:
		return string(expand(t, raw))
	case amqpwire.Bytes:
		return expand(t, raw)
	case amqpwire.Table:
		var triples [][]json.RawMessage
		list(&triples)
		return fields(t, triples)
	case amqpwire.Array:
		var pairs [][]json.RawMessage
		list(&pairs)
		items := []amqpwire.Value{}
		for _, p := range pairs {
			if len(p) == 1 { // a void without its value
				p = append(p, json.RawMessage("null"))
			}
			items = append(items, value(t, p[0], p[1]))
		}
		return items
	}
	t.Fatalf("header of type %s", kind)
	return nil
}

// spell writes a value out with its type letters, so that two of them are equal
// exactly when their texts are. A broker that has rewritten them turns the old
// letter of a 64-bit integer into the usual one.
func spell(v amqpwire.Value, rewritten bool) string {
	kind := v.Kind
	if rewritten && kind == amqpwire.Int64Old {
		kind = amqpwire.Int64
	}
	switch d := v.Data.(type) {
	case []amqpwire.Field:
		var parts []string
		for _, f := range d {
			parts = append(parts, fmt.Sprintf("%q=%s", f.Name, spell(f.Value, rewritten)))
		}
		return kind.String() + "{" + strings.Join(parts, " ") + "}"
	case []amqpwire.Value:
		var parts []string
		for _, x := range d {
			parts = append(parts, spell(x, rewritten))
		}
		return kind.String() + "[" + strings.Join(parts, " ") + "]"
	case string:
		return fmt.Sprintf("%s:%q", kind, d)
	case []byte:
		return fmt.Sprintf("%s:%x", kind, d)
	}
	return fmt.Sprintf("%s:%v", kind, v.Data)
}
