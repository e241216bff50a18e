package strictyaml_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/strictyaml"
)

type file struct {
	Name  string                `yaml:"name"`
	Codes []strictyaml.Text     `yaml:"codes"`
	Tries *strictyaml.Int       `yaml:"tries"`
	After []strictyaml.Duration `yaml:"after"`
}

func TestDecode(t *testing.T) {
	var f file
	if err := strictyaml.Decode([]byte("name: a\ncodes: [404, 0100, 40P01, \"1e3\", 1.50]\ntries: 7\nafter: [1s, 14d]\n"), &f); err != nil {
		t.Fatal(err)
	}
	if want := []strictyaml.Text{"404", "0100", "40P01", "1e3", "1.50"}; !reflect.DeepEqual(f.Codes, want) {
		t.Errorf("codes %q, want %q: they are texts, whatever they look like", f.Codes, want)
	}
	if *f.Tries != 7 || time.Duration(f.After[0]) != time.Second || time.Duration(f.After[1]) != 14*24*time.Hour {
		t.Errorf("%d tries after %v", *f.Tries, f.After)
	}
}

func TestMistakesHaveAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\nnam: b\n":                   `[2:1] unknown field "nam"`,
		"name: a\nname: b\n":                  "[2:1]",
		"name: [a\n":                          "[1:7]",
		"tries: 1.5\n":                        "[1:8] want a whole number",
		"tries: \"3\"\n":                      "[1:8] want a whole number",
		"tries: 99999999999999999999\n":       "[1:8] want a whole number",
		"after: [1s, 5]\n":                    `[1:13] duration "5"`,
		"after:\n  - {a: b}\n":                "want a duration",
		"codes: [[a]]\n":                      "[1:9] want a text",
		"name: a\n---\nname: b\n":             "[3:",
		"codes: [{a: b}]\n":                   "want a text",
		"name: {a: b}\n":                      "quotes",
		"name: &x a\nafter: [*x]\ntries: 1\n": "",
	} {
		var f file
		err := strictyaml.Decode([]byte(text), &f)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	if err := strictyaml.Decode(nil, &file{}); !errors.Is(err, strictyaml.ErrEmpty) {
		t.Errorf("an empty file: %v", err)
	}
}

func TestPlace(t *testing.T) {
	text := []byte("# a comment\nm:\n  \"a.b\":\n    a: x\n  q: {r: [1, {s: 2}]}\n  k: &k\n    z: 1\n")
	for _, c := range []struct {
		path         []any
		line, column int
	}{
		{[]any{"m", "a.b", "a"}, 4, 8},
		{[]any{"m", "a.b"}, 4, 5},
		{[]any{"m", "q", "r", 1, "s"}, 5, 18},
		{[]any{"m", "q", "r", 2}, 5, 10}, // not there: what is around it
		{[]any{"m", "q", "missing"}, 5, 7},
		{[]any{"m", "k", "z"}, 7, 8},
		{nil, 2, 1},
	} {
		if line, column, ok := strictyaml.Place(text, c.path...); !ok || line != c.line || column != c.column {
			t.Errorf("%v is at %d:%d (%v), want %d:%d", c.path, line, column, ok, c.line, c.column)
		}
	}
	for _, text := range []string{"", "a: [", "# only a comment"} {
		if _, _, ok := strictyaml.Place([]byte(text), "a"); ok {
			t.Errorf("%q has a place", text)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "14d": 14 * 24 * time.Hour, "1.5s": 1500 * time.Millisecond, "20ms": 20 * time.Millisecond} {
		if d, err := strictyaml.ParseDuration(text); err != nil || d != want {
			t.Errorf("%q: %s, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "5", "-1s", "soon"} {
		if d, err := strictyaml.ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, d)
		}
	}
}
