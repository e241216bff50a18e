package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
)

// A scenario is a story on a real RabbitMQ: given, act, and the tally and the
// closing line that have to come out. It is told twice. The second time one
// thing about the product is changed, in its configuration or its code, and the
// story has to fail: a story that no change can turn red proves nothing.
type scenario struct {
	name   string
	tell   func(t testing.TB)
	broken change
}

// change is what turns a scenario red: a line of the configuration, or with file
// a line of the code.
type change struct {
	what     string
	file     string // from the root of the module; "" is the configuration
	old, new string // old occurs exactly once
	says     string // a pattern of what a failure says then
}

var scenarios = []scenario{
	retentionExpiry, identityChanges, newTraffic, poisonRecurrence, partialCancellation, sensitiveData,
	orderGaps, inboxExpired, downstreamOverload,
}

func TestScenario(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // each has a virtual host and a store of its own
			s.tell(t)
		})
	}
}

// TestScenarioTurnsRed tells every scenario with its change.
func TestScenarioTurnsRed(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // as above
			w := &witness{TB: t, change: s.broken}
			if s.broken.file != "" {
				w.program = mutant(t, s.broken)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.tell(w)
			}()
			<-done
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = true
			if all := strings.Join(w.said, "\n"); !regexp.MustCompile(s.broken.says).MatchString(all) {
				t.Fatalf("that %s is noticed by nobody who says %q, but by:\n%s", s.broken.what, s.broken.says, all)
			}
		})
	}
}

// witness is a test that may fail without anybody's harm.
type witness struct {
	testing.TB
	change  change
	program string

	mu   sync.Mutex
	said []string
	told bool // the story is over, and only cleans up
}

// note takes a failure. The story ends with it: it has turned red, and what it
// would still wait for may never come.
func (w *witness) note(text string) {
	w.mu.Lock()
	w.said = append(w.said, text)
	told := w.told
	w.mu.Unlock()
	if !told {
		runtime.Goexit()
	}
}

// Failed implements testing.TB.
func (w *witness) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.said) > 0
}

// Errorf implements testing.TB.
func (w *witness) Errorf(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

// Error implements testing.TB.
func (w *witness) Error(args ...any) { w.note(fmt.Sprint(args...)) }

// Fatalf implements testing.TB.
func (w *witness) Fatalf(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

// Fatal implements testing.TB.
func (w *witness) Fatal(args ...any) { w.note(fmt.Sprint(args...)) }

// Logf implements testing.TB: what a failure would explain is of no interest.
func (w *witness) Logf(string, ...any) {}

// programOf is the program that a test runs.
func programOf(t testing.TB) string {
	if w, ok := t.(*witness); ok && w.program != "" {
		return w.program
	}
	return program
}

// configOf is a configuration as a test uses it.
func configOf(t testing.TB, text string) string {
	w, ok := t.(*witness)
	if !ok || w.change.file != "" {
		return text
	}
	return w.change.in(w.TB, text)
}

// in makes the change in a text.
func (c *change) in(t testing.TB, text string) string {
	t.Helper()
	if n := strings.Count(text, c.old); n != 1 {
		t.Fatalf("%q occurs %d times where it should be changed", c.old, n)
	}
	return strings.Replace(text, c.old, c.new, 1)
}

// mutant builds the program with a change of its code.
func mutant(t testing.TB, c change) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	file := filepath.Join(root, c.file)
	text, err := os.ReadFile(file)
	must(t, err)
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(changed, []byte(c.in(t, string(text))), 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	must(t, err)
	must(t, os.WriteFile(overlay, replace, 0o600))
	out := filepath.Join(dir, "redrive")
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", out, "./cmd/redrive")
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build with the change: %v\n%s", err, said)
	}
	return out
}

// plannedAll plans and approves everything that is quarantined, and returns the
// number of the generation.
func (s *site) plannedAll(flags ...string) string {
	s.t.Helper()
	plan := ask[api.Plan](s, append([]string{"generation", "plan", "--all", "--bake", "1ms", "--rate", "10000"}, flags...)...)
	id := utoa(uint64(plan.Generation.Number))
	s.ok("generation", "approve", id, "--digest", plan.Generation.Manifest)
	return id
}
