package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mustPass are the pitfalls of RabbitMQ that a release has to pass, on every
// version that it speaks to. The list in testdata says which tests prove it,
// and make test-rabbitmq fails unless each of them passed on each version.
var mustPass = strings.Fields("P1 P2 P3 P4 P5 P7 P8 P9 P10 P11 P14 P20 P22 P23 P25 P26 P28 P29 P33 P37 P38")

// TestMustPassNamesTests: a test that was renamed or removed is missed here, not
// only when the long run is made.
func TestMustPassNamesTests(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "testdata", "mustpass.txt"))
	if err != nil {
		t.Fatal(err)
	}
	test := regexp.MustCompile(`^ {2}([a-z/0-9]+)\.(Test[A-Za-z0-9_]*)(/.*)?$`)
	functions := map[string]string{} // source of the tests by package
	var ids []string
	for _, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "P"), strings.HasPrefix(line, "X"):
			id, _, _ := strings.Cut(line, " ")
			ids = append(ids, id)
		case strings.HasPrefix(line, " "):
			m := test.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%q is no PACKAGE.TEST", line)
				continue
			}
			if functions[m[1]] == "" {
				functions[m[1]] = tests(t, filepath.Join(root, m[1]))
			}
			if !strings.Contains(functions[m[1]], "func "+m[2]+"(") {
				t.Errorf("%s: there is no %s in %s", ids[len(ids)-1], m[2], m[1])
			}
		}
	}
	if len(ids) < len(mustPass) || !slices.Equal(ids[:len(mustPass)], mustPass) {
		t.Errorf("listed are %v, want first of all %v", ids, mustPass)
	}
}

// tests is the source of all test files of a package.
func tests(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}
