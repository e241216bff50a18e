package docs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/redrive"
)

var write = flag.Bool("write", false, "write the generated parts of the documents")

// TestTransitions holds the diagram of docs/design.md to the table in the code.
// Renew it with: go test ./internal/docs -write.
func TestTransitions(t *testing.T) {
	generated(t, "../../docs/design.md", "transitions", func(string) string { return diagram() })
}

// generated holds the part of a document between the marks of a name to what
// current says about the rest behind it, which it returns; or renews that part.
func generated(t *testing.T, path, name string, current func(tail string) string) (tail string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(b), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks of its %s", path, name)
	}
	want := head + begin + current(tail) + end + tail
	switch {
	case *write:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case string(b) != want:
		t.Errorf("%s does not show its %s as they are; renew it with: go test ./internal/docs -write", path, name)
	}
	return tail
}

func diagram() string {
	var b strings.Builder
	b.WriteString("\n| in state | record | leads to |\n|---|---|---|\n")
	for _, x := range redrive.Transitions() {
		from, to := string(x.From), string(x.To)
		if from == "" {
			from = "–"
		}
		if to == "" {
			to = "running when no reason is left, else paused"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", from, x.Kind, to)
	}
	b.WriteString("\nFacts about released members are taken in every state from running on.\n\n")
	return b.String()
}
