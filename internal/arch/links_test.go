package arch

import (
	"slices"
	"strings"
	"testing"
)

// TestWorkerLinks keeps the library for consumers small: whoever runs a worker
// gets no store, no controller and no commands into the binary, and a database
// only with the inbox that uses it.
func TestWorkerLinks(t *testing.T) {
	imports := map[string][]string{}
	for _, f := range readTree(t) {
		if !f.test {
			imports[f.pkg] = append(imports[f.pkg], f.imports()...)
		}
	}
	for _, c := range []struct {
		from string
		not  []string
	}{
		{"quarantine/worker", []string{module + "/internal/store", module + "/internal/control", module + "/internal/cli", module + "/internal/app",
			module + "/internal/broker", "github.com/rabbitmq/amqp091-go", "go.etcd.io/bbolt", "github.com/jackc/pgx"}},
		{"quarantine/worker/rabbitmq", []string{module + "/internal/store", module + "/internal/control", module + "/internal/cli",
			module + "/internal/app", module + "/internal/broker/local", "go.etcd.io/bbolt", "github.com/jackc/pgx"}},
	} {
		seen := links(imports, c.from)
		if !slices.Contains(seen, module+"/quarantine") {
			t.Fatalf("%s links %d packages and not the one it is about: the check would pass whatever it links", c.from, len(seen))
		}
		for _, path := range seen {
			for _, not := range c.not {
				if strings.HasPrefix(path, not) {
					t.Errorf("%s links %s", c.from, path)
				}
			}
		}
	}
}

// links lists what a package of this tree imports, by way of others too.
func links(imports map[string][]string, from string) []string {
	var seen []string
	todo := slices.Clone(imports[from])
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		if slices.Contains(seen, path) {
			continue
		}
		seen = append(seen, path)
		if pkg, ok := strings.CutPrefix(path, module+"/"); ok {
			todo = append(todo, imports[pkg]...)
		}
	}
	return seen
}
