package schema_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/schema"
	"github.com/redrivehq/redrive/quarantine"
)

var _ quarantine.Schema = (*schema.Set)(nil)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const order = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"required":["sku","amount"],"additionalProperties":false,
"properties":{"sku":{"type":"string","pattern":"^[A-Z]{2}-\\d+$"},"amount":{"type":"integer","minimum":1},
"tags":{"type":"array","prefixItems":[{"type":"string"}],"items":false}}}`

// A violation names the rule in the words of the schema. What the message says
// is in none of them.
func TestViolationsSayNothingOfTheMessage(t *testing.T) {
	s, err := schema.Load([]schema.File{{Type: "OrderPlaced", Path: write(t, "order.json", order)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, body, want string }{
		{"good", `{"sku":"AB-1","amount":9007199254740993}`, ""},
		{"missing", `{"sku":"AB-1"}`, "#/required"},
		{"kind", `{"sku":"AB-1","amount":"SECRET"}`, "#/properties/amount/type"},
		{"pattern", `{"sku":"SECRET","amount":1}`, "#/properties/sku/pattern"},
		{"range", `{"sku":"AB-1","amount":0}`, "#/properties/amount/minimum"},
		{"name", `{"sku":"AB-1","amount":1,"SECRET":1}`, "#/additionalProperties"},
		{"2020-12", `{"sku":"AB-1","amount":1,"tags":["a","SECRET"]}`, "#/properties/tags/items"},
		{"not json", `SECRET`, "json"},
		{"two values", `{"sku":"AB-1","amount":1} {}`, "json"},
		{"empty", ``, "json"},
		{"huge", `{"sku":"AB-1","amount":1e2000000}`, "number"},
		{"tiny", `{"sku":"AB-1","amount":1e-2000000}`, "number"},
		{"costly", `{"sku":"AB-1","amount":1,"tags":[[{"a":1E+999999}]]}`, "number"},
		{"long", `{"sku":"AB-1","amount":` + strings.Repeat("9", 1001) + `}`, "number"},
		{"long enough", `{"sku":"AB-1","amount":` + strings.Repeat("9", 1000) + `}`, ""},
		{"spelled", `{"sku":"AB-1","amount":1.5e+0001}`, ""},
		{"large", `"` + strings.Repeat("a", 17<<20) + `"`, "size"},
	} {
		got, known := s.Check("OrderPlaced", "7", []byte(c.body))
		if !known || got != c.want {
			t.Errorf("%s: %q (known %v), want %q", c.name, got, known, c.want)
		}
		if strings.Contains(got, "SECRET") {
			t.Errorf("%s: %q repeats the message", c.name, got)
		}
	}
	if v, known := s.Check("OrderShipped", "", []byte(`{}`)); known || v != "" {
		t.Errorf("a type without a schema: %q, known %v", v, known)
	}
}

func TestTheVersionDecides(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := []schema.File{
		{Type: "A", Path: file("any.json", `{"type":"object"}`)},
		{Type: "A", Version: "2", Path: file("two.json", `{"$ref":"shared.json#/$defs/n"}`)},
		{Type: "shared", Path: file("shared.json", `{"$defs":{"n":{"type":"number"}}}`)},
	}
	s, err := schema.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := s.Check("A", "1", []byte(`{}`)); v != "" {
		t.Errorf("version 1: %q", v)
	}
	if v, _ := s.Check("A", "2", []byte(`{}`)); v != "#/$defs/n/type" {
		t.Errorf("version 2: %q", v)
	}
	before := s.Digest()
	file("two.json", `{"$ref":"shared.json#/$defs/n", "title": "numbers"}`)
	if s, err = schema.Load(files); err != nil || s.Digest() == before || len(before) != 64 {
		t.Errorf("a changed schema keeps digest %s (%v)", before, err)
	}
	if empty, err := schema.Load(nil); err != nil || empty.Digest() != "" {
		t.Errorf("an empty set: %v, %v", empty, err)
	}
}

// A schema reads what is configured and nothing else.
func TestReferencesStayInside(t *testing.T) {
	secret := write(t, "secret.json", `{"type":"object"}`)
	for name, text := range map[string]string{
		"file":     `{"$ref":"file://` + secret + `"}`,
		"network":  `{"$ref":"http://127.0.0.1:1/schema.json"}`,
		"unlisted": `{"$ref":"secret.json"}`,
		"broken":   `{"type":"objekt"}`,
		"no json":  `type: object`,
		"regexp":   `{"pattern":"(?<=a)b"}`,
	} {
		path := write(t, "main.json", text)
		_, err := schema.Load([]schema.File{{Type: "A", Path: path}})
		if !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), "main.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
	one, other := write(t, "a.json", `{}`), write(t, "a.json", `{}`)
	for name, files := range map[string][]schema.File{
		"gone":      {{Type: "A", Path: "/nowhere/a.json"}},
		"same name": {{Type: "A", Path: one}, {Type: "B", Path: other}},
		"twice":     {{Type: "A", Path: one}, {Type: "A", Path: one}},
		"large":     {{Type: "A", Path: write(t, "l.json", `"`+strings.Repeat("a", schema.MaxFile)+`"`)}},
	} {
		if _, err := schema.Load(files); !errors.Is(err, schema.ErrSchema) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
