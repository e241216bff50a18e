package stamp

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

const (
	gen = "01J9ZK6V7Q8R9S0T1V2W3X4Y5Z"
	env = "01J9ZK6V7QABCDEFGHJKMNPQRS"
)

// vector reads "key: value" lines; values are Go-quoted.
func vector(t *testing.T, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if m[k], err = strconv.Unquote(v); err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
	}
	return m
}

func TestVectors(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 4 {
		t.Fatalf("found %d vectors: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m := vector(t, path)
			raw, err := hex.DecodeString(m["key"])
			if err != nil {
				t.Fatal(err)
			}
			v := amqpwire.View{Headers: []amqpwire.Field{
				amqpwire.StringField(HeaderGeneration, m["generation"]),
				amqpwire.StringField(HeaderEnvelope, m["envelope"]),
				amqpwire.StringField(HeaderIntent, m["intent"]),
				amqpwire.StringField(HeaderMAC, m["expect"]),
			}}
			s, mac, present, err := Read(v)
			if err != nil || !present {
				t.Fatalf("present %v, %v", present, err)
			}
			k := Key(raw)
			if got := k.Sign(s, m["exchange"], m["routing-key"]); got.String() != m["expect"] {
				t.Errorf("signed %s, want %s", got, m["expect"])
			}
			if !k.Verify(s, m["exchange"], m["routing-key"], mac) {
				t.Error("does not verify")
			}
		})
	}
}

// TestEveryBitCounts flips each bit of each part in turn: none may verify.
func TestEveryBitCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := Key(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		ex := rapid.StringN(1, 20, -1).Draw(t, "exchange")
		rk := rapid.StringN(1, 20, -1).Draw(t, "routing key")
		s := Stamp{gen, env, rapid.Uint32().Draw(t, "position"), rapid.Uint8().Draw(t, "try")}
		mac := k.Sign(s, ex, rk)
		if !k.Verify(s, ex, rk, mac) {
			t.Fatal("does not verify")
		}
		text := func(part *string) {
			whole := *part
			for i := range 8 * len(whole) {
				b := []byte(whole)
				b[i/8] ^= 1 << (i % 8)
				*part = string(b)
				if k.Verify(s, ex, rk, mac) {
					t.Fatalf("bit %d of %q may be flipped", i, whole)
				}
			}
			*part = whole
		}
		for _, part := range []*string{&s.Generation, &s.Envelope, &ex, &rk} {
			text(part)
		}
		for i := range 32 {
			other := s
			other.Position ^= 1 << i
			if k.Verify(other, ex, rk, mac) {
				t.Fatalf("bit %d of the position may be flipped", i)
			}
		}
		for i := range 8 {
			other := s
			other.Try ^= 1 << i
			if k.Verify(other, ex, rk, mac) {
				t.Fatalf("bit %d of the try may be flipped", i)
			}
		}
		for i := range 8 * len(mac) {
			m := mac
			m[i/8] ^= 1 << (i % 8)
			if k.Verify(s, ex, rk, m) {
				t.Fatalf("bit %d of the MAC may be flipped", i)
			}
		}
		for i := range 8 * len(k) {
			other := k
			other[i/8] ^= 1 << (i % 8)
			if other.Verify(s, ex, rk, mac) {
				t.Fatalf("bit %d of the key may be flipped", i)
			}
		}
	})
}

func TestPartsDoNotRunIntoEachOther(t *testing.T) {
	var k Key
	a := k.Sign(Stamp{gen, env, 1, 2}, "ab", "c")
	if a == k.Sign(Stamp{gen, env, 1, 2}, "a", "bc") || a == k.Sign(Stamp{gen, env, 12, 2}, "ab", "c") {
		t.Error("two destinations share a MAC")
	}
}

func TestRead(t *testing.T) {
	s := Stamp{gen, env, 4294967295, 255}
	mac := Key{1}.Sign(s, "", "q")
	good := s.Headers(mac)
	with := func(i int, f amqpwire.Field) []amqpwire.Field {
		h := append([]amqpwire.Field(nil), good...)
		h[i] = f
		return h
	}
	text := func(i int, v string) []amqpwire.Field { return with(i, amqpwire.StringField(good[i].Name, v)) }
	for _, tt := range []struct {
		name    string
		headers []amqpwire.Field
		present bool
		want    string // part of the error, "" for none
	}{
		{"none", []amqpwire.Field{amqpwire.StringField("x-other", "1")}, false, ""},
		{"another spelling is another header", []amqpwire.Field{amqpwire.StringField("X-Redrive-Mac", "1")}, false, ""},
		{"good", good, true, ""},
		{"one missing", good[:3], true, "x-redrive-mac occurs 0 times"},
		{"only the MAC", good[3:], true, "x-redrive-generation occurs 0 times"},
		{"repeated", append(good[:4:4], good[0]), true, "x-redrive-generation occurs 2 times"},
		{"another type", with(2, amqpwire.LongField(HeaderIntent, 1)), true, "x-redrive-intent is of type l"},
		{"generation too short", text(0, gen[1:]), true, "x-redrive-generation is not a ULID"},
		{"generation with a letter ULIDs lack", text(0, gen[:25]+"U"), true, "x-redrive-generation is not a ULID"},
		{"envelope in lower case", text(1, strings.ToLower(env)), true, "x-redrive-envelope is not a ULID"},
		{"envelope beyond 128 bits", text(1, "8"+env[1:]), true, "x-redrive-envelope is not a ULID"},
		{"no slash", text(2, "1"), true, "x-redrive-intent is not"},
		{"three parts", text(2, "1/1/1"), true, "x-redrive-intent is not"},
		{"leading zero", text(2, "01/1"), true, "x-redrive-intent is not"},
		{"plus sign", text(2, "+1/1"), true, "x-redrive-intent is not"},
		{"position too large", text(2, "4294967296/1"), true, "x-redrive-intent is not"},
		{"try 0", text(2, "1/0"), true, "x-redrive-intent is not"},
		{"try too large", text(2, "1/256"), true, "x-redrive-intent is not"},
		{"MAC too short", text(3, mac.String()[2:]), true, "x-redrive-mac is not"},
		{"MAC too long", text(3, mac.String()+"00"), true, "x-redrive-mac is not"},
		{"MAC in upper case", text(3, strings.Repeat("AB", 16)), true, "x-redrive-mac is not"},
		{"MAC empty", text(3, ""), true, "x-redrive-mac is not"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, gotMAC, present, err := Read(amqpwire.View{Headers: tt.headers})
			if present != tt.present {
				t.Errorf("present = %v", present)
			}
			if tt.want != "" {
				if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tt.want) || got != (Stamp{}) || gotMAC != (MAC{}) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil || (present && (got != s || gotMAC != mac)) {
				t.Errorf("got %+v, %v, %v", got, gotMAC, err)
			}
		})
	}
}

func TestKeyIsNeverPrinted(t *testing.T) {
	k := Key{0xde, 0xad}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%X", "%d", "%s", "%q", "%b"} {
		for _, arg := range []any{k, &k, struct{ K Key }{k}, []Key{k}} {
			if s := fmt.Sprintf(verb, arg); !strings.Contains(s, "hidden") {
				t.Errorf("%s of %T prints %s", verb, arg, s)
			}
		}
	}
	if b, err := json.Marshal(k); err == nil {
		t.Errorf("encoded as %s", b)
	}
}

// FuzzRead holds Read to its laws on any four texts: no panic, and what it
// accepts is written back exactly so.
func FuzzRead(f *testing.F) {
	f.Add(gen, env, "17/1", strings.Repeat("0f", 16), byte('S'))
	f.Add("", "", "/", "", byte('x'))
	f.Fuzz(func(t *testing.T, g, e, intent, mac string, kind byte) {
		in := []amqpwire.Field{
			amqpwire.StringField(HeaderGeneration, g), amqpwire.StringField(HeaderEnvelope, e),
			amqpwire.StringField(HeaderIntent, intent), amqpwire.StringField(HeaderMAC, mac),
		}
		if kind != 'S' {
			in[kind%4] = amqpwire.Field{Name: in[kind%4].Name, Value: amqpwire.Value{Kind: amqpwire.Kind(kind)}}
		}
		s, m, present, err := Read(amqpwire.View{Headers: in})
		if !present {
			t.Fatal("absent")
		}
		if err != nil {
			if !errors.Is(err, ErrMalformed) || s != (Stamp{}) || m != (MAC{}) {
				t.Fatalf("%+v, %v", s, err)
			}
			return
		}
		for i, h := range s.Headers(m) {
			if h != in[i] {
				t.Fatalf("read %v, wrote %v", in[i], h)
			}
		}
	})
}
