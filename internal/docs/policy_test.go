package docs

import (
	"encoding/json"
	"go/ast"
	"os"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/quarantine/policy"
)

// TestPolicyFile holds docs/policy.md to the format: every key, every default
// name, every note.
func TestPolicyFile(t *testing.T) {
	b, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	var schema struct {
		Properties map[string]any
		Defs       map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(policy.Schema()), &schema); err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, keys := range []map[string]any{schema.Properties, schema.Defs["meaning"].Properties, schema.Defs["queue"].Properties} {
		if len(keys) < 4 {
			t.Fatalf("the schema has only %v", keys)
		}
		for key := range keys {
			words[key] = true
		}
	}
	h, w := policy.DefaultHeaders(), policy.DefaultWords()
	for _, pairs := range []map[string]string{h.Keyed(), w.Keyed()} {
		for key, name := range pairs {
			words[key], words[name] = true, true
			if !strings.Contains(text, "| `"+key+"` | `"+name+"` |") {
				t.Errorf("docs/policy.md does not say that the default of %s is %s", key, name)
			}
		}
	}
	for _, file := range sources(t, "../../quarantine/policy") {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "Remark") {
				if code, ok := literal(v.Values[0]); ok {
					words[code] = true
				}
			}
			return true
		})
	}
	if !words[policy.RemarkHorizon] || len(words) < 50 {
		t.Fatalf("only %d words were found", len(words))
	}
	for word := range words {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("docs/policy.md does not mention %s", word)
		}
	}
}

// TestExamplePolicies reads the policies that stand in the tree as examples.
func TestExamplePolicies(t *testing.T) {
	entries, err := os.ReadDir("../../testdata/policies")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		n++
		text, err := os.ReadFile("../../testdata/policies/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Parse(e.Name(), text); err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile("../../docs/policy.md")
		if err != nil || !strings.Contains(string(b), e.Name()) {
			t.Errorf("docs/policy.md does not mention %s (%v)", e.Name(), err)
		}
	}
	if n < 2 {
		t.Errorf("%d policies", n)
	}
}
