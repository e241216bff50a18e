package amqpwire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the expectations of new vectors; existing ones are never changed")

// A vector is a file of "key: value" lines: hex (spaces allowed, may repeat),
// then after "expect:" the dump of the parsed view.
func readVector(t testing.TB, path string) (props []byte, expect string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, expect, _ := strings.Cut(string(b), "expect:\n")
	for line := range strings.Lines(head) {
		h, ok := strings.CutPrefix(line, "hex:")
		if !ok {
			continue
		}
		raw, err := hex.DecodeString(strings.Join(strings.Fields(h), ""))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		props = append(props, raw...)
	}
	return props, expect
}

func TestVectors(t *testing.T) {
	paths, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil || len(paths) < 30 {
		t.Fatalf("found %d vectors: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			props, expect := readVector(t, path)
			v := Parse(props)
			got := dump(v)
			if expect == "" && *update {
				appendFile(t, path, "expect:\n"+got)
				return
			}
			if d := cmp.Diff(expect, got); d != "" {
				t.Errorf("view (-want +got):\n%s", d)
			}
			if v.Problem != "" {
				return
			}
			rebuilt, err := Build(v)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(rebuilt, props) && !strings.Contains(path, "noncanonical") {
				t.Errorf("rebuilt as %x", rebuilt)
			}
		})
	}
}

func appendFile(t *testing.T, path, s string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, s...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dump writes a view as text, one property or header per line.
func dump(v View) string {
	var b strings.Builder
	for i := range propertyCount {
		p := ContentType >> i
		if !v.Has(p) {
			continue
		}
		switch p {
		case Headers:
			fmt.Fprintf(&b, "headers %d\n", len(v.Headers))
			dumpFields(&b, "  ", v.Headers)
		case DeliveryMode:
			fmt.Fprintf(&b, "delivery_mode %d\n", v.DeliveryMode)
		case Priority:
			fmt.Fprintf(&b, "priority %d\n", v.Priority)
		case Timestamp:
			fmt.Fprintf(&b, "timestamp %d\n", v.Timestamp)
		default:
			fmt.Fprintf(&b, "%s %s\n", p, strconv.QuoteToASCII(*v.short(p)))
		}
	}
	if len(v.Rest) > 0 {
		fmt.Fprintf(&b, "rest %x\n", v.Rest)
	}
	if v.Problem != "" {
		fmt.Fprintf(&b, "problem %s\n", v.Problem)
	}
	return b.String()
}

func dumpFields(b *strings.Builder, indent string, fields []Field) {
	for _, f := range fields {
		fmt.Fprintf(b, "%s%s ", indent, strconv.QuoteToASCII(f.Name))
		dumpValue(b, indent, f.Value)
	}
}

func dumpValue(b *strings.Builder, indent string, v Value) {
	fmt.Fprintf(b, "%s ", v.Kind)
	switch d := v.Data.(type) {
	case []Field:
		fmt.Fprintf(b, "%d\n", len(d))
		dumpFields(b, indent+"  ", d)
	case []Value:
		fmt.Fprintf(b, "%d\n", len(d))
		for _, it := range d {
			b.WriteString(indent + "  ")
			dumpValue(b, indent+"  ", it)
		}
	case string:
		fmt.Fprintf(b, "%s\n", strconv.QuoteToASCII(d))
	case []byte, Raw:
		fmt.Fprintf(b, "%T %x\n", d, d)
	default:
		fmt.Fprintf(b, "%T %v\n", d, d)
	}
}

// mustBuild makes properties with the given headers and nothing else.
func mustBuild(t testing.TB, v View) []byte {
	t.Helper()
	b, err := Build(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func withHeaders(t testing.TB, fields ...Field) []byte {
	t.Helper()
	return mustBuild(t, View{Present: Headers, Headers: fields})
}

func TestEdit(t *testing.T) {
	one := StringField("one", "1")
	two := LongField("two", 2)
	odd := Field{"odd", Value{Bool, true}}
	full := View{
		Present:     ContentType | Headers | Priority | Expiration | UserID,
		ContentType: "", Priority: 0, Expiration: "5000", UserID: "guest",
		Headers: []Field{one, two, one, odd},
	}
	for _, tt := range []struct {
		name string
		in   View
		edit func(*Editor)
		want View
	}{
		{"strip removes every duplicate", full, func(e *Editor) { e.Strip("one") },
			View{Present: full.Present, Expiration: "5000", UserID: "guest", Headers: []Field{two, odd}}},
		{"strip matches exact names only", full, func(e *Editor) { e.Strip("on", "One", "one ", "") }, full},
		{"the last header leaves an empty table", View{Present: Headers, Headers: []Field{one}},
			func(e *Editor) { e.Strip("one") }, View{Present: Headers}},
		{"strip makes no table", View{Present: Priority, Priority: 3},
			func(e *Editor) { e.Strip("one") }, View{Present: Priority, Priority: 3}},
		{"drop", full, func(e *Editor) { e.Drop(Expiration | UserID | MessageID) },
			View{Present: ContentType | Headers | Priority, Headers: full.Headers}},
		{"drop headers and set one", full, func(e *Editor) { e.Drop(Headers | Expiration | UserID); e.Set(two) },
			View{Present: ContentType | Headers | Priority, Headers: []Field{two}}},
		{"set replaces at the end", full, func(e *Editor) { e.Set(StringField("one", "new")) },
			View{Present: full.Present, Expiration: "5000", UserID: "guest", Headers: []Field{two, odd, StringField("one", "new")}}},
		{"set makes a table", View{}, func(e *Editor) { e.Set(one, two) },
			View{Present: Headers, Headers: []Field{one, two}}},
		{"delivery mode replaced", View{Present: DeliveryMode | AppID, DeliveryMode: 1, AppID: "a"},
			func(e *Editor) { e.SetDeliveryMode(2) }, View{Present: DeliveryMode | AppID, DeliveryMode: 2, AppID: "a"}},
		{"delivery mode added", View{Present: ContentType | AppID, AppID: "a"},
			func(e *Editor) { e.SetDeliveryMode(2) }, View{Present: ContentType | DeliveryMode | AppID, DeliveryMode: 2, AppID: "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := mustBuild(t, tt.in)
			before := bytes.Clone(in)
			e := Edit(in)
			tt.edit(e)
			got, err := e.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			if want := mustBuild(t, tt.want); !bytes.Equal(got, want) {
				t.Errorf("got\n%swant\n%s", dump(Parse(got)), dump(tt.want))
			}
			if !bytes.Equal(in, before) {
				t.Error("the input was modified")
			}
		})
	}
}

func TestEditRefuses(t *testing.T) {
	unknown := []byte{0x20, 0, 0, 0, 0, 4, 1, 'a', 'U', 0}
	long := strings.Repeat("n", 256)
	for _, tt := range []struct {
		name  string
		props []byte
		edit  func(*Editor)
		want  error
	}{
		{"strip behind an unknown type", unknown, func(e *Editor) { e.Strip("b") }, ErrUnwalkable},
		{"list cut off", []byte{0x80, 0, 9, 'x'}, func(e *Editor) { e.Strip("b") }, ErrUnwalkable},
		{"flags cut off", []byte{0x80}, func(e *Editor) { e.Drop(UserID) }, ErrUnwalkable},
		{"trailing bytes", []byte{0, 0, 1}, func(e *Editor) { e.SetDeliveryMode(2) }, ErrUnwalkable},
		{"unknown second word", []byte{0, 1, 0x80, 0, 0}, func(e *Editor) { e.Drop(UserID) }, ErrUnwalkable},
		{"name too long", []byte{0, 0}, func(e *Editor) { e.Set(StringField(long, "")) }, ErrTooLong},
		{"value of another type", []byte{0, 0}, func(e *Editor) { e.Set(Field{"n", Value{Str, 1}}) }, ErrValue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := Edit(tt.props)
			tt.edit(e)
			got, err := e.Bytes()
			if !errors.Is(err, tt.want) || got != nil {
				t.Errorf("got %x, %v; want %v", got, err, tt.want)
			}
		})
	}
	// What needs no walk is done all the same, and an unknown type inside a
	// nested table is no obstacle: its length is known.
	e := Edit(unknown)
	e.Drop(UserID)
	if got, err := e.Bytes(); err != nil || !bytes.Equal(got, unknown) {
		t.Errorf("got %x, %v", got, err)
	}
	nested := []byte{0x20, 0, 0, 0, 0, 14, 1, 'a', 'F', 0, 0, 0, 3, 1, 'x', 'U', 1, 'b', 'V', 0}
	nested = nested[:len(nested)-1]
	nested[5] = byte(len(nested) - 6)
	e = Edit(nested)
	e.Strip("b")
	got, err := e.Bytes()
	if want := append([]byte{0x20, 0, 0, 0, 0, 10}, nested[6:16]...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v; want %x", got, err, want)
	}
}

// A content type is set where there was one and where there was none, and
// nothing else changes.
func TestSetExpiration(t *testing.T) {
	for name, v := range map[string]View{
		"none before": {Present: MessageID | Priority, MessageID: "m", Priority: 3},
		"another":     {Present: MessageID | Priority | Expiration, MessageID: "m", Priority: 3, Expiration: "60000"},
	} {
		before, err := Build(v)
		if err != nil {
			t.Fatal(err)
		}
		e := Edit(before)
		e.Drop(Expiration) // what is set stays
		e.SetExpiration(1250)
		after, err := e.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		v.Present |= Expiration
		v.Expiration = "1250"
		want, err := Build(v)
		if err != nil || !bytes.Equal(after, want) {
			t.Errorf("%s: %x, want %x (%v)", name, after, want, err)
		}
	}
}

func TestSetContentType(t *testing.T) {
	for _, had := range []View{{}, {Present: ContentType, ContentType: "text/plain"}, {Present: Priority | MessageID | Headers, Priority: 3, MessageID: "m",
		Headers: []Field{StringField("a", "b")}}} {
		props, err := Build(had)
		if err != nil {
			t.Fatal(err)
		}
		e := Edit(props)
		e.SetContentType("application/json")
		got, err := e.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		had.Present |= ContentType
		had.ContentType = "application/json"
		want, err := Build(had)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%x, want %x (%v)", got, want, err)
		}
	}
	e := Edit([]byte{0, 0})
	e.SetContentType(strings.Repeat("x", 256))
	if b, err := e.Bytes(); !errors.Is(err, ErrTooLong) || b != nil {
		t.Errorf("256 bytes: %v", err)
	}
}
