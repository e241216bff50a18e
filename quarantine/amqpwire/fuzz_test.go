package amqpwire

import (
	"bytes"
	"path/filepath"
	"testing"
)

// FuzzWire feeds arbitrary bytes to every entry point that takes bytes from a
// broker, and holds them to the laws of the package comment.
func FuzzWire(f *testing.F) {
	paths, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		props, _ := readVector(f, path)
		f.Add(props, "h")
	}
	f.Fuzz(func(t *testing.T, props []byte, name string) {
		before := bytes.Clone(props)
		v := Parse(props)
		v.DeathHistory()
		for _, h := range v.Headers {
			h.Text()
			h.Int()
		}
		if got, err := Edit(props).Bytes(); err != nil || !bytes.Equal(got, props) {
			t.Fatalf("an edit without changes: %x, %v", got, err)
		}
		WireDigest("", name, props, nil)
		checkWalk(t, props)
		fuzzStrip(t, props, name)
		fuzzRebuild(t, v)
		if !bytes.Equal(props, before) {
			t.Fatal("the input was modified")
		}
	})
}

func fuzzStrip(t *testing.T, props []byte, name string) {
	e := Edit(props)
	e.Strip(name)
	got, err := e.Bytes()
	if err != nil {
		if got != nil {
			t.Fatal("bytes with an error")
		}
		return
	}
	v := Parse(got)
	if f, ok := v.Header(name); ok {
		t.Fatalf("header of type %s is still there", f.Kind)
	}
	if len(got) == len(props) && !bytes.Equal(got, props) {
		t.Fatal("nothing was stripped, but bytes changed")
	}
	if len(name) > 255 {
		return
	}
	e = Edit(got)
	e.Set(StringField(name, "set"))
	if got, err = e.Bytes(); err != nil {
		t.Fatal(err)
	}
	v = Parse(got)
	if s, _ := v.Text(name); s != "set" && v.Problem == "" {
		t.Fatalf("header is %q", s)
	}
}

// fuzzRebuild checks that what was understood completely survives a round trip.
func fuzzRebuild(t *testing.T, v View) {
	if v.Problem != "" {
		return
	}
	b, err := Build(v)
	if err != nil {
		t.Fatal(err)
	}
	if again := Parse(b); dump(again) != dump(v) {
		t.Fatalf("got\n%swant\n%s", dump(again), dump(v))
	}
}
