package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReasonCodes holds the list of reason codes in the manual to the code: no
// code is used that the manual does not explain, and none is explained that is
// nowhere.
func TestReasonCodes(t *testing.T) {
	b, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(b), "\n## Reason codes\n")
	if !ok {
		t.Fatal("the manual has no reason codes")
	}
	list, _, _ = strings.Cut(list, "\n## ")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(list, -1) {
		documented[m[1]] = true
	}

	used, texts := map[string]string{}, map[string]bool{}
	for _, dir := range []string{"redrive", "quarantine", "ledger/event", "internal/control", "internal/broker/local", "internal/broker/rabbitmq"} {
		for path, file := range sources(t, filepath.Join("..", "..", filepath.FromSlash(dir))) {
			if filepath.Base(path) == "deadletter.go" {
				continue // the words of AMQP for why a message died, which are not ours
			}
			collect(file, path, used, texts)
		}
	}
	if len(used) < 25 {
		t.Fatalf("only %d codes were found in the code: %v", len(used), slices.Sorted(maps.Keys(used)))
	}
	for _, code := range slices.Sorted(maps.Keys(used)) {
		if !documented[code] {
			t.Errorf("%s uses the reason %q, which the manual does not list", used[code], code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(documented)) {
		if !texts[code] {
			t.Errorf("the manual lists %q, which is nowhere in the code", code)
		}
	}
}

// sources parses the files of a folder and its folders that are no tests.
func sources(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	out := map[string]*ast.File{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		out[path] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A reason is a constant whose name says so, the value of a field Reason, or
// the argument of a function that parks a queue or loses a channel.
var (
	constantName = regexp.MustCompile(`^([Rr]eason|Signal|Pause)[A-Z]`)
	code         = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
)

func collect(file *ast.File, path string, used map[string]string, texts map[string]bool) {
	use := func(e ast.Expr) {
		if text, ok := literal(e); ok && code.MatchString(text) {
			used[text] = path
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, ok := literal(n); ok {
				texts[text] = true
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if constantName.MatchString(name.Name) && i < len(n.Values) {
					use(n.Values[i])
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
				use(n.Value)
			}
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 0 && (sel.Sel.Name == "park" || sel.Sel.Name == "lose") {
				use(n.Args[0])
			}
		}
		return true
	})
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
