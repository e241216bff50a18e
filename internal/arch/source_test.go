package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// source is one parsed Go file.
type source struct {
	name  string // slash-separated, from the root of the tree
	pkg   string // folder of name, which is the import path below module
	test  bool
	lines int
	fset  *token.FileSet
	ast   *ast.File
}

// parse reads one file. name is slash-separated, from the root of the tree.
func parse(name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s as Go: %w", name, err)
	}
	lines := strings.Count(string(text), "\n")
	if !strings.HasSuffix(string(text), "\n") {
		lines++
	}
	return &source{
		name: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		lines: lines, fset: fset, ast: tree,
	}, nil
}

// imports returns the unquoted import paths in the order of the file.
func (f *source) imports() []string {
	out := make([]string, 0, len(f.ast.Imports))
	for _, spec := range f.ast.Imports {
		out = append(out, importPath(spec))
	}
	return out
}

// importPath returns the path of spec, which the parser has already validated.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// importedAs returns the name by which f refers to the package path, or "".
func (f *source) importedAs(pkgPath string) string {
	for _, spec := range f.ast.Imports {
		if importPath(spec) != pkgPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkgPath)
	}
	return ""
}

// uses returns the position of every mention of a function among names from the
// package path, called or passed on.
func (f *source) uses(pkgPath string, names ...string) []token.Pos {
	as := f.importedAs(pkgPath)
	if as == "" {
		return nil
	}
	var out []token.Pos
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); !ok || x.Name != as {
			return true
		}
		for _, name := range names {
			if sel.Sel.Name == name {
				out = append(out, sel.Pos())
			}
		}
		return true
	})
	return out
}

// line returns the line of pos.
func (f *source) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// readTree parses every Go file under the root of the tree, except those that
// the go command ignores.
func readTree(t *testing.T) []*source {
	t.Helper()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the tests of internal/arch run in their own folder, two below go.mod: %v", err)
	}
	var out []*source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if rel != "." && ignoredFolder(filepath.ToSlash(rel)) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parse(filepath.ToSlash(rel), text)
		out = append(out, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ignoredFolder reports whether the folder holds no code of this tree.
func ignoredFolder(rel string) bool {
	base := path.Base(rel)
	return rel == "bin" || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}
