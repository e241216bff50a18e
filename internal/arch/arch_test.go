package arch

import (
	"slices"
	"strings"
	"testing"
)

// TestTree is the check of this tree. Everything else in this package proves
// that the check can fail.
func TestTree(t *testing.T) {
	files := readTree(t)
	if len(files) == 0 {
		t.Fatal("found no Go file: the check would pass whatever the tree holds")
	}
	for _, breach := range check(files) {
		t.Error(breach)
	}
}

// lines returns a Go file of n lines.
func lines(n int) string {
	return "// Package ledger is long.\npackage ledger\n" + strings.Repeat("\n", n-2)
}

// skip is spelled apart from its callers in the examples below: whoever searches
// the tree for skipped tests finds none, because there are none.
const skip = "Skip"

// ruleTests gives the files of a small tree by name, and what the only breach
// must say. An empty want means that there is no breach.
var ruleTests = []struct {
	name  string
	files map[string]string
	want  string
}{
	{
		name:  "a package without a floor",
		files: map[string]string{"attic/attic.go": "// Package attic is new.\npackage attic\nimport \"net\""},
		want:  "attic/attic.go: package attic has no floor: add it to the table places",
	},
	{
		name:  "upwards",
		files: importing("quarantine", "redrive"),
		want:  "arrows point down: floor 1 may not see floor 2",
	},
	{
		name:  "upwards in a test",
		files: importingInTest("quarantine", "redrive"),
		want:  "arrows point down",
	},
	{
		name:  "downwards",
		files: importing("redrive", "quarantine"),
	},
	{
		name:  "a neighbour that is not listed",
		files: importing("internal/httpapi", "internal/ui"),
		want:  "both stand on floor 5",
	},
	{
		name:  "a leaf of floor 1 that sees the noun",
		files: importing("quarantine/policy", "quarantine"),
		want:  "both stand on floor 1",
	},
	{
		name:  "a listed neighbour",
		files: importing("internal/control", "internal/api"),
	},
	{
		name:  "a listed neighbour the wrong way round",
		files: importing("internal/api", "internal/control"),
		want:  "both stand on floor 4",
	},
	{
		name:  "a package of the tree that nobody knows",
		files: importing("redrive", "attic"),
		want:  "that package has no floor",
	},
	{
		name:  "the verifier and the code it verifies",
		files: importing("ledger/verify", "ledger"),
		want:  `of this tree ledger/verify may see only ["ledger/event"]`,
	},
	{
		name:  "the verifier and the vocabulary",
		files: importing("ledger/verify", "ledger/event"),
	},
	{
		name:  "the verifier and somebody else's code",
		files: map[string]string{"ledger/verify/a.go": "// Package verify checks.\npackage verify\nimport _ \"embed\"\nimport \"golang.org/x/mod/sumdb/tlog\""},
		want:  "uses the standard library only",
	},
	{
		name:  "a test of the verifier builds its input with the ledger",
		files: importingInTest("ledger/verify", "ledger"),
	},
	{
		name:  "a test helper in shipped code",
		files: importing("internal/app", "internal/broker/brokertest"),
		want:  "is for tests: shipped code must not depend on it",
	},
	{
		name:  "a test helper in a test",
		files: importingInTest("ledger", "internal/store/storetest"),
	},
	{
		name:  "a real store in a test of a lower floor",
		files: importingInTest("ledger", "internal/store/bolt"),
	},
	{
		name:  "a driver outside the wiring",
		files: importing("internal/control", "internal/store/bolt"),
		want:  "only internal/app names drivers",
	},
	{
		name:  "a driver in the wiring",
		files: importing("internal/app", "internal/store/bolt"),
	},
	{
		name:  "the network in the domain",
		files: map[string]string{"redrive/a.go": "// Package redrive is pure.\npackage redrive\nimport \"net/http\""},
		want:  "imports net/http: floors 0 to 2 take the outside world as an argument",
	},
	{
		name:  "the broker's client in the domain",
		files: map[string]string{"quarantine/a.go": "// Package quarantine is pure.\npackage quarantine\nimport amqp \"github.com/rabbitmq/amqp091-go\""},
		want:  "imports github.com/rabbitmq/amqp091-go",
	},
	{
		name:  "the store's library in the domain",
		files: map[string]string{"ledger/a.go": "// Package ledger is pure.\npackage ledger\nimport \"go.etcd.io/bbolt\""},
		want:  "imports go.etcd.io/bbolt",
	},
	{
		name:  "randomness in the domain",
		files: map[string]string{"ledger/a.go": "// Package ledger is pure.\npackage ledger\nimport \"crypto/rand\""},
		want:  "imports crypto/rand",
	},
	{
		name:  "the network in a test of the domain",
		files: map[string]string{"redrive/doc.go": "// Package redrive is pure.\npackage redrive", "redrive/a_test.go": "package redrive\nimport \"net\""},
	},
	{
		name:  "the clock in the domain",
		files: map[string]string{"ledger/a.go": "// Package ledger is pure.\npackage ledger\nimport \"time\"\nvar now = time.Now"},
		want:  "line 4 reads the clock",
	},
	{
		name:  "the clock in the domain under another name",
		files: map[string]string{"ledger/a.go": "// Package ledger is pure.\npackage ledger\nimport clock \"time\"\nvar d = clock.Since(x)"},
		want:  "line 4 reads the clock",
	},
	{
		name:  "the clock above the domain",
		files: map[string]string{"internal/app/a.go": "// Package app wires.\npackage app\nimport \"time\"\nvar now = time.Now"},
	},
	{
		name:  "func init",
		files: map[string]string{"internal/app/a.go": "// Package app wires.\npackage app\nfunc init() {}"},
		want:  "line 3 has a func init",
	},
	{
		name:  "a method called init",
		files: map[string]string{"internal/app/a.go": "// Package app wires.\npackage app\ntype a int\nfunc (a) init() {}"},
	},
	{
		name:  "os.Exit outside cmd",
		files: map[string]string{"internal/cli/a.go": "// Package cli speaks.\npackage cli\nimport \"os\"\nfunc f() { os.Exit(1) }"},
		want:  "line 4 ends the process",
	},
	{
		name:  "log.Fatal outside cmd",
		files: map[string]string{"internal/cli/a.go": "// Package cli speaks.\npackage cli\nimport \"log\"\nfunc f() { log.Fatal(1) }"},
		want:  "line 4 ends the process",
	},
	{
		name:  "os.Exit in cmd",
		files: map[string]string{"cmd/redrive/main.go": "// Command redrive runs.\npackage main\nimport \"os\"\nfunc main() { os.Exit(1) }"},
	},
	{
		name:  "os.Exit twice in cmd",
		files: map[string]string{"cmd/redrive/main.go": "// Command redrive runs.\npackage main\nimport \"os\"\nfunc main() { os.Exit(1); os.Exit(2) }"},
		want:  "cmd/redrive: ends the process in 2 places",
	},
	{
		name:  "a main of 21 lines",
		files: map[string]string{"cmd/redrive/main.go": "// Command redrive runs.\npackage main" + strings.Repeat("\n", 20)},
		want:  "has 21 lines, more than 20",
	},
	{
		name:  "a file of 700 lines",
		files: map[string]string{"ledger/a.go": lines(700)},
	},
	{
		name:  "a file of 701 lines",
		files: map[string]string{"ledger/a.go": lines(701)},
		want:  "has 701 lines, more than 700",
	},
	{
		name:  "no package comment",
		files: map[string]string{"ledger/a.go": "package ledger", "ledger/a_test.go": "// Package ledger is not documented by its tests.\npackage ledger"},
		want:  `ledger: no package comment: start one with "Package ledger"`,
	},
	{
		name:  "a package comment that godoc would not open with",
		files: map[string]string{"ledger/a.go": "// The book.\npackage ledger"},
		want:  "no package comment",
	},
	{
		name:  "a vague name",
		files: map[string]string{"ledger/a.go": "// Package util has everything.\npackage util"},
		want:  "package util: name it after what it holds",
	},
	{
		name:  "a skipped test",
		files: map[string]string{"ledger/doc.go": "// Package ledger is pure.\npackage ledger", "ledger/a_test.go": "package ledger\nimport \"testing\"\nfunc TestA(tt *testing.T) {\n tt." + skip + "(1) }"},
		want:  "line 4 skips a test",
	},
	{
		name:  "something else that skips",
		files: map[string]string{"ledger/doc.go": "// Package ledger is pure.\npackage ledger", "ledger/a_test.go": "package ledger\nimport \"testing\"\nfunc TestA(t *testing.T) { d." + skip + "(1) }"},
	},
	{
		name:  "a dot import",
		files: map[string]string{"ledger/a.go": "// Package ledger is pure.\npackage ledger\nimport . \"strings\""},
		want:  "dot import of strings",
	},
	{
		name:  "a blank import",
		files: map[string]string{"internal/app/a.go": "// Package app wires.\npackage app\nimport _ \"" + module + "/internal/store/bolt\""},
		want:  "nothing registers itself here",
	},
	{
		name:  "a blank import of embed",
		files: map[string]string{"internal/app/a.go": "// Package app wires.\npackage app\nimport _ \"embed\""},
	},
}

// importing returns a file of package from that imports package to.
func importing(from, to string) map[string]string {
	name := from[strings.LastIndex(from, "/")+1:]
	return map[string]string{from + "/a.go": "// Package " + name + " imports.\npackage " + name + "\nimport \"" + module + "/" + to + "\""}
}

// importingInTest returns a documented package from whose test imports package to.
func importingInTest(from, to string) map[string]string {
	name := from[strings.LastIndex(from, "/")+1:]
	return map[string]string{
		from + "/doc.go":    "// Package " + name + " imports in a test.\npackage " + name,
		from + "/a_test.go": "package " + name + "_test\nimport \"" + module + "/" + to + "\"\nimport \"" + module + "/" + from + "\"",
	}
}

func TestRules(t *testing.T) {
	for _, test := range ruleTests {
		t.Run(test.name, func(t *testing.T) {
			var files []*source
			for name, text := range test.files {
				f, err := parse(name, []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			got := check(files)
			switch {
			case test.want == "" && len(got) > 0:
				t.Errorf("want no breach, got %q", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("want one breach with %q, got %q", test.want, got)
			}
		})
	}
}

// TestPlaces guards the table itself: a permission for a package that does not
// stand where the permission expects it would be dead letter.
func TestPlaces(t *testing.T) {
	for name, p := range places {
		for _, seen := range p.sees {
			other, ok := places[seen]
			if !ok || other.floor != p.floor {
				t.Errorf("%s sees %s, which does not stand on floor %d", name, seen, p.floor)
			}
			if slices.Contains(other.sees, name) {
				t.Errorf("%s and %s see each other: Go refuses such a cycle", name, seen)
			}
		}
		for _, seen := range p.only {
			if _, ok := places[seen]; !ok {
				t.Errorf("%s may see %s, which has no floor", name, seen)
			}
		}
	}
}
