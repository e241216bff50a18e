package docs

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDrifts holds the table of docs/topology.md to the constants in the code.
func TestDrifts(t *testing.T) {
	b, err := os.ReadFile("../../docs/topology.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), "| code | what is so | what to do |\n")
	if !ok {
		t.Fatal("docs/topology.md has no table of drifts")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented[m[1]] = true
	}
	known := map[string]bool{}
	for _, file := range sources(t, "../../quarantine") {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && (strings.HasPrefix(v.Names[0].Name, "Drift") || strings.HasPrefix(v.Names[0].Name, "Note")) {
				if text, ok := literal(v.Values[0]); ok {
					known[text] = true
				}
			}
			return true
		})
	}
	if len(known) < 20 {
		t.Fatalf("only %d codes are in the code", len(known))
	}
	for code := range known {
		if !documented[code] {
			t.Errorf("docs/topology.md does not explain %s", code)
		}
	}
	for code := range documented {
		if !known[code] {
			t.Errorf("docs/topology.md explains %s, which is nowhere in the code", code)
		}
	}
}

// TestMetrics holds the tables of alerts and metrics to the constants in the
// code.
func TestMetrics(t *testing.T) {
	b, err := os.ReadFile("../../docs/topology.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range sources(t, "../metrics") {
		ast.Inspect(file, func(node ast.Node) bool {
			v, ok := node.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				return true
			}
			if text, ok := literal(v.Values[0]); ok && (strings.HasPrefix(text, "redrive_") || strings.HasPrefix(text, "Redrive")) {
				n++
				if !strings.Contains(string(b), "\n| `"+text+"` |") {
					t.Errorf("docs/topology.md does not explain %s", text)
				}
			}
			return true
		})
	}
	if n < 12 {
		t.Errorf("only %d alerts and metrics are in the code", n)
	}
}
