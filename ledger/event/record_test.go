package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filled returns a body of every kind with every field set, so that the round
// trip covers each field.
func filled(t *testing.T, info KindInfo) Body {
	t.Helper()
	b := info.New()
	fill(reflect.ValueOf(b).Elem())
	return b
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("a \"b\"\n\x01é\u2028")
	case reflect.Slice:
		if r, ok := v.Addr().Interface().(*Ranges); ok {
			*r = Ranges{{0, 0}, {3, 7}, {9, 9}}
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	default:
		v.SetUint(7)
	}
}

func record(b Body) *Record {
	return &Record{Seq: 9, TS: 1700000000123, Mono: 5, Epoch: 2, Req: "r-1", Body: b,
		Actor: Actor{As: "x", Auth: "os", Role: "operator", Subject: "uid:0"},
		Subj:  Subject{Env: 4, Gen: 1}, Prev: HashLine([]byte("before"))}
}

func TestEveryKindRoundTrips(t *testing.T) {
	for _, info := range Kinds() {
		for _, body := range []Body{info.New(), filled(t, info)} {
			want := record(body)
			line, err := want.AppendLine(nil)
			if err != nil {
				t.Fatalf("%s: %v", info.Kind, err)
			}
			if !json.Valid(line) {
				t.Fatalf("%s: not JSON: %s", info.Kind, line)
			}
			if canon := sortedJSON(t, line); !bytes.Equal(canon, line) {
				t.Errorf("%s: not canonical\n got %s\nwant %s", info.Kind, line, canon)
			}
			got, err := ParseRecord(line)
			if err != nil {
				t.Fatalf("%s: %v", info.Kind, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s", info.Kind, d)
			}
		}
	}
}

// sortedJSON is an independent canonicalisation: encoding/json sorts map keys.
func sortedJSON(t *testing.T, line []byte) []byte {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	// encoding/json escapes the two line separators that RFC 8785 leaves alone.
	s := strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), `\u2028`, "\u2028")
	return []byte(s)
}

func TestParseRefuses(t *testing.T) {
	line, err := record(&EnvelopeSettled{Envs: RangesOf[uint64](1, 2, 3)}).AppendLine(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := string(line)
	_, afterActor, found := strings.Cut(good, `,"body"`)
	if !found {
		t.Fatalf("no body in %s", good)
	}
	for name, bad := range map[string]string{
		"empty":           "",
		"space":           strings.Replace(good, `,"epoch"`, `, "epoch"`, 1),
		"trailing":        good + " ",
		"unknown field":   strings.Replace(good, `{"envs"`, `{"aaa":1,"envs"`, 1),
		"zero":            strings.Replace(good, `"epoch":2`, `"epoch":0`, 1),
		"leading zero":    strings.Replace(good, `"epoch":2`, `"epoch":02`, 1),
		"float":           strings.Replace(good, `"epoch":2`, `"epoch":2.0`, 1),
		"long span":       strings.Replace(good, `1-3`, `1,2-3`, 1),
		"needless escape": strings.Replace(good, `r-1`, `r\u002d1`, 1),
		"empty actor":     `{"actor":{},"body"` + afterActor,
		"no version":      strings.Replace(good, `,"v":1`, ``, 1),
		"no seq":          strings.Replace(good, `"seq":9,`, ``, 1),
		"upper digest":    strings.Replace(good, `"prev":"`, `"prev":"A`, 1),
		"too large":       good + strings.Repeat(" ", MaxRecord),
	} {
		if r, err := ParseRecord([]byte(bad)); err == nil || r != nil {
			t.Errorf("%s: accepted %s", name, bad)
		}
	}
	for name, future := range map[string]string{
		"version": strings.Replace(good, `"v":1`, `"v":2`, 1),
		"kind":    strings.Replace(good, `envelope.settled`, `envelope.teleported`, 1),
	} {
		if _, err := ParseRecord([]byte(future)); !errors.Is(err, ErrFuture) {
			t.Errorf("%s: got %v, want ErrFuture", name, err)
		}
	}
}

func TestRecordLimit(t *testing.T) {
	_, err := record(&EnvelopeAnnotated{Note: strings.Repeat("n", MaxRecord)}).AppendLine(nil)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if _, err := record(&EnvelopeAnnotated{Note: "\xff"}).AppendLine(nil); err == nil {
		t.Error("invalid UTF-8 was written")
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, info := range Kinds() {
		line, err := record(info.New()).AppendLine(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseRecord(line)
		if err != nil {
			if r != nil {
				t.Fatal("a result beside an error")
			}
			return
		}
		again, err := r.AppendLine(nil)
		if err != nil || !bytes.Equal(again, line) {
			t.Fatalf("not the identity: %v\n in %s\nout %s", err, line, again)
		}
	})
}

func TestRanges(t *testing.T) {
	r := RangesOf[uint64](9, 3, 4, 5, 3, 7, 6)
	if got := r.String(); got != "3-7,9" {
		t.Errorf("got %q", got)
	}
	if r.Count() != 6 || !r.Contains(5) || r.Contains(8) || r.Contains(2) || r.Contains(10) {
		t.Errorf("wrong set: %v", r)
	}
	for _, bad := range []string{"3-3", "5,4", "1-2,3", "-1", "01", "1-", "a", "1,,2", "+1", "1-2-3"} {
		if _, err := ParseRanges(bad); err == nil {
			t.Errorf("ParseRanges(%q) succeeded", bad)
		}
	}
	var odd []uint64
	for n := uint64(1); n < 2000; n += 2 {
		odd = append(odd, n)
	}
	var back []uint64
	for _, part := range RangesOf(odd...).Split(100) {
		if len(part.String()) > 100 {
			t.Errorf("part of %d bytes", len(part.String()))
		}
		for n := range part.All() {
			back = append(back, n)
		}
	}
	if d := cmp.Diff(odd, back); d != "" {
		t.Error(d)
	}
}
