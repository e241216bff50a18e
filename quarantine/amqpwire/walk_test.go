package amqpwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestWalkAndLookupAgreeWithParse(t *testing.T) {
	paths, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		props, _ := readVector(t, path)
		checkWalk(t, props)
	}
}

// checkWalk holds Walk and Lookup to what Parse says.
func checkWalk(t *testing.T, props []byte) {
	t.Helper()
	v := Parse(props)
	var walked []Kind
	err := Walk(props, func(k Kind, value []byte) error {
		walked = append(walked, k)
		if n := valueSize(value, k); n != len(value) {
			return fmt.Errorf("%d bytes for a value of %d", len(value), n)
		}
		return nil
	})
	if v.Problem == "" {
		want := kindsOf(nil, v.Headers)
		if err != nil || string(kindBytes(walked)) != string(kindBytes(want)) {
			t.Errorf("%x: walked %v, want %v: %v", props, walked, want, err)
		}
	} else if err != nil && !errors.Is(err, ErrUnwalkable) {
		t.Errorf("%x: %v", props, err)
	}
	for _, f := range v.Headers {
		first, _ := v.Header(f.Name)
		got, ok := Lookup(props, f.Name)
		if _, raw := first.Data.(Raw); !raw && (!ok || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", first.Value)) {
			t.Errorf("%x: lookup %#v, want %#v", props, got, first.Value)
		}
	}
	for i := range propertyCount {
		p := ContentType >> i
		if got, ok := Octet(props, p); ok != (v.Has(p) && shapeOf(p) == shapeOctet) || ok && got != octet(v, p) {
			t.Errorf("%x: %s is %d, %v", props, p, got, ok)
		}
		if shapeOf(p) != shapeShort {
			continue
		}
		if got, ok := Short(props, p); ok != v.Has(p) || got != *v.short(p) {
			t.Errorf("%x: %s is %q, %v", props, p, got, ok)
		}
	}
	if _, ok := Lookup(props, strings.Repeat("no such", 40)); ok {
		t.Errorf("%x: found what is not there", props)
	}
}

func octet(v View, p Property) byte {
	if p == Priority {
		return v.Priority
	}
	return v.DeliveryMode
}

func kindBytes(ks []Kind) []byte {
	b := make([]byte, len(ks))
	for i, k := range ks {
		b[i] = byte(k)
	}
	return b
}

func kindsOf(ks []Kind, fields []Field) []Kind {
	for _, f := range fields {
		ks = kindsOfValue(ks, f.Value)
	}
	return ks
}

func kindsOfValue(ks []Kind, v Value) []Kind {
	ks = append(ks, v.Kind)
	switch d := v.Data.(type) {
	case []Field:
		return kindsOf(ks, d)
	case []Value:
		for _, it := range d {
			ks = kindsOfValue(ks, it)
		}
	}
	return ks
}

func TestWalkHasNoDepthLimit(t *testing.T) {
	const depth = 20000
	value := []byte{'V'}
	// Arrays around arrays; built from the inside, so the lengths are known.
	nested := make([]byte, 0, 5*depth+1)
	for i := range depth {
		nested = append(nested, 'A')
		nested = binary.BigEndian.AppendUint32(nested, uint32(5*(depth-1-i)+len(value)))
	}
	nested = append(nested, value...)
	table := append([]byte{1, 'n'}, nested...)
	props := append([]byte{0x20, 0}, binary.BigEndian.AppendUint32(nil, uint32(len(table)))...)
	props = append(props, table...)
	n := 0
	if err := Walk(props, func(Kind, []byte) error { n++; return nil }); err != nil || n != depth+1 {
		t.Errorf("visited %d, %v", n, err)
	}
	if v := Parse(props); v.Problem == "" {
		t.Error("Parse has no limit")
	}
	stop := errors.New("stop")
	if err := Walk(props, func(Kind, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}
