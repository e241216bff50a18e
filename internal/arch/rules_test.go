package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// Limits of size. A file beyond maxLines has two subjects; a main beyond
// maxMain has logic that no test can reach.
const (
	maxLines = 700
	maxMain  = 20
)

// outside lists what the domain floors get as arguments instead: clocks are
// covered by checkClock, the rest is imports.
var outside = []string{
	"crypto/rand",
	"database/sql",
	"github.com/jackc/pgx/v5",
	"github.com/rabbitmq/amqp091-go",
	"go.etcd.io/bbolt",
	"math/rand",
	"math/rand/v2",
	"net",
	"net/http",
}

// vague lists package names that say nothing about what is inside.
var vague = []string{"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}

// fileRules are applied to every file by itself.
var fileRules = []func(*source) []string{
	checkFloors, checkOutside, checkClock, checkInit, checkExit, checkSize, checkPackageName, checkImportNames, checkSkip,
}

// treeRules need all files of the tree.
var treeRules = []func([]*source) []string{checkPackageComments, checkSingleExit}

// check applies every rule and returns one line per breach.
func check(files []*source) []string {
	var out []string
	for _, f := range files {
		for _, rule := range fileRules {
			for _, breach := range rule(f) {
				out = append(out, f.name+": "+breach)
			}
		}
	}
	for _, rule := range treeRules {
		out = append(out, rule(files)...)
	}
	return out
}

func checkOutside(f *source) []string {
	if f.test || !domain(f.pkg) {
		return nil
	}
	var out []string
	for _, p := range f.imports() {
		if slices.Contains(outside, p) {
			out = append(out, fmt.Sprintf("imports %s: floors 0 to 2 take the outside world as an argument", p))
		}
	}
	return out
}

func checkClock(f *source) []string {
	if f.test || !domain(f.pkg) {
		return nil
	}
	var out []string
	for _, pos := range f.uses("time", "Now", "Since", "Until") {
		out = append(out, fmt.Sprintf("line %d reads the clock: floors 0 to 2 take the time as an argument", f.line(pos)))
	}
	return out
}

func checkInit(f *source) []string {
	for _, decl := range f.ast.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			return []string{fmt.Sprintf("line %d has a func init: wire it where it is used instead", f.line(fn.Pos()))}
		}
	}
	return nil
}

// exits returns where f ends the process.
func exits(f *source) []token.Pos {
	return append(f.uses("os", "Exit"), f.uses("log", "Fatal", "Fatalf", "Fatalln")...)
}

// checkExit leaves tests alone: a test that kills its own child is a fault test.
func checkExit(f *source) []string {
	if f.test || places[f.pkg].command {
		return nil
	}
	var out []string
	for _, pos := range exits(f) {
		out = append(out, fmt.Sprintf("line %d ends the process: return an error, only cmd exits", f.line(pos)))
	}
	return out
}

// checkSingleExit makes sure that one place decides the exit status.
func checkSingleExit(files []*source) []string {
	count := map[string]int{}
	for _, f := range files {
		if !f.test && places[f.pkg].command {
			count[f.pkg] += len(exits(f))
		}
	}
	var out []string
	for pkg, n := range count {
		if n > 1 {
			out = append(out, fmt.Sprintf("%s: ends the process in %d places: exit once, with the status that run returns", pkg, n))
		}
	}
	slices.Sort(out)
	return out
}

func checkSize(f *source) []string {
	switch {
	case f.lines > maxLines:
		return []string{fmt.Sprintf("has %d lines, more than %d: split it by subject", f.lines, maxLines)}
	case path.Base(f.name) == "main.go" && f.lines > maxMain:
		return []string{fmt.Sprintf("has %d lines, more than %d: main only calls and exits", f.lines, maxMain)}
	}
	return nil
}

func checkPackageName(f *source) []string {
	if slices.Contains(vague, f.ast.Name.Name) {
		return []string{fmt.Sprintf("package %s: name it after what it holds", f.ast.Name.Name)}
	}
	return nil
}

func checkImportNames(f *source) []string {
	var out []string
	for _, spec := range f.ast.Imports {
		switch p := importPath(spec); {
		case spec.Name == nil:
		case spec.Name.Name == ".":
			out = append(out, fmt.Sprintf("dot import of %s: a reader must see where a name comes from", p))
		case spec.Name.Name == "_" && p != "embed":
			out = append(out, fmt.Sprintf("blank import of %s: nothing registers itself here, wire it in %s", p, wiring))
		}
	}
	return out
}

// checkSkip refuses skipping: a check that may not run is none. What a test
// needs, make test installs.
func checkSkip(f *source) []string {
	subjects := testSubjects(f)
	var out []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && subjects[x.Name] && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
			out = append(out, fmt.Sprintf("line %d skips a test: install or start what it needs instead", f.line(sel.Pos())))
		}
		return true
	})
	return out
}

// testSubjects returns the parameters of f that have a type of package testing.
func testSubjects(f *source) map[string]bool {
	as := f.importedAs("testing")
	out := map[string]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		typ := field.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		sel, ok := typ.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && as != "" && x.Name == as {
			for _, name := range field.Names {
				out[name.Name] = true
			}
		}
		return true
	})
	return out
}

// checkPackageComments wants one comment per package that starts as godoc
// expects. Test files do not count: they are not in the documentation.
func checkPackageComments(files []*source) []string {
	opening := map[string]string{} // by package, "" once a file has it
	for _, f := range files {
		want := "Package " + strings.TrimSuffix(f.ast.Name.Name, "_test")
		if f.ast.Name.Name == "main" {
			want = "Command " + path.Base(f.pkg)
		}
		if !f.test && strings.HasPrefix(f.ast.Doc.Text(), want+" ") {
			want = ""
		}
		if had, seen := opening[f.pkg]; !seen || had != "" {
			opening[f.pkg] = want
		}
	}
	var out []string
	for pkg, want := range opening {
		if want != "" {
			out = append(out, fmt.Sprintf("%s: no package comment: start one with %q in doc.go", pkg, want))
		}
	}
	slices.Sort(out)
	return out
}
