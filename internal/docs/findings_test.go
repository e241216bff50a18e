package docs

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFindings holds the table of findings in the manual to the constants in
// the code.
func TestFindings(t *testing.T) {
	b, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), "| code | severity | meaning |\n")
	if !ok {
		t.Fatal("the manual has no table of findings")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented[m[1]] = true
	}
	found := map[string]bool{}
	for _, file := range sources(t, "../../quarantine") {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "Found") {
				if text, ok := literal(v.Values[0]); ok {
					found[text] = true
				}
			}
			return true
		})
	}
	if len(found) < 20 {
		t.Fatalf("only %d codes of findings are in the code", len(found))
	}
	for code := range found {
		if !documented[code] {
			t.Errorf("the manual does not explain the finding %s", code)
		}
	}
	for code := range documented {
		if !found[code] {
			t.Errorf("the manual explains %s, which is nowhere in the code", code)
		}
	}
}
