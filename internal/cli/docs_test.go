package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redrivehq/redrive/internal/api"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash("../../" + path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section is the part of a document under a heading of the second level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("there is no section %q", heading)
	}
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

// TestExitCodes holds the manual, the comments of package api, and the table of
// this package together.
func TestExitCodes(t *testing.T) {
	manual := map[int]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \|`).FindAllStringSubmatch(section(t, read(t, "docs/operating.md"), "Exit codes"), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		manual[n] = m[2]
	}
	codes := map[int]string{exitOK: "done", exitFailed: "failed", exitUsage: "usage", exitRefused: "refused", exitThreshold: "threshold",
		exitUnfinished: "finished, but", exitIntegrity: "contradicts itself", exitTemporary: "temporary"}
	if got, want := slices.Sorted(maps.Keys(manual)), slices.Sorted(maps.Keys(codes)); !slices.Equal(got, want) {
		t.Errorf("the manual lists %v, the program has %v", got, want)
	}
	help := newRoot(&command{}).Long
	for n, word := range codes {
		if !strings.Contains(manual[n], word) {
			t.Errorf("exit code %d is %q in the manual and %q here", n, manual[n], word)
		}
		if !strings.Contains(strings.ReplaceAll(help, "\n", " "), fmt.Sprintf("%d ", n)) {
			t.Errorf("the help does not mention exit code %d", n)
		}
	}

	documented := map[api.Code]int{}
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+\s+Code = "(\w+)"\s.*exit (\d+)`).FindAllStringSubmatch(read(t, "internal/api/api.go"), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		documented[api.Code(m[1])] = n
	}
	if n := strings.Count(read(t, "internal/api/api.go"), " Code = \""); n != len(documented) {
		t.Errorf("%d codes are declared, %d say their exit code", n, len(documented))
	}
	if !maps.Equal(documented, exitOf) {
		t.Errorf("package api says %v, the program maps %v", documented, exitOf)
	}
	for code, want := range documented {
		if got := exitCode(fmt.Errorf("wrapped: %w", &api.Error{Code: code})); got != want {
			t.Errorf("an error of code %s ends with %d, want %d", code, got, want)
		}
	}
}

// TestGenerationExit is the table of commands that stay with a generation.
func TestGenerationExit(t *testing.T) {
	tally := func(d string) map[string]uint64 { return map[string]uint64{d: 1} }
	pause := func(reasons ...string) (out []api.PauseState) {
		for _, r := range reasons {
			out = append(out, api.PauseState{Reason: r})
		}
		return out
	}
	for _, x := range []struct {
		g    api.Generation
		want int
	}{
		{api.Generation{State: "closed", Tally: tally("succeeded")}, exitOK},
		{api.Generation{State: "closed", Tally: tally("rejected")}, exitOK},
		{api.Generation{State: "closed", Tally: tally("deduplicated_plan")}, exitOK},
		{api.Generation{State: "closed", Tally: tally("deduplicated_consumer")}, exitOK},
		{api.Generation{State: "settling", Tally: tally("pending")}, exitUnfinished},
		{api.Generation{State: "settling", Tally: tally("missing")}, exitUnfinished},
		{api.Generation{State: "closed", Tally: tally("ambiguous_publish")}, exitUnfinished},
		{api.Generation{State: "closed", Tally: tally("ambiguous_effect")}, exitUnfinished},
		{api.Generation{State: "closed", Tally: tally("undelivered")}, exitUnfinished},
		{api.Generation{State: "closed", Tally: tally("requarantined")}, exitUnfinished},
		{api.Generation{State: "closed", Tally: tally("waiting")}, exitUnfinished},
		{api.Generation{State: "paused", Pauses: pause("operator")}, exitRefused},
		{api.Generation{State: "paused", Pauses: pause("operator", "stage_bad")}, exitThreshold},
		{api.Generation{State: "paused", Pauses: pause("kill_switch")}, exitThreshold},
		{api.Generation{State: "rejected"}, exitRefused},
		{api.Generation{State: "expired"}, exitRefused},
		{api.Generation{State: "aborted"}, exitRefused},
	} {
		if got := generationExit(&x.g); got != x.want {
			t.Errorf("%s %v %v ends with %d, want %d", x.g.State, x.g.Pauses, x.g.Tally, got, x.want)
		}
	}
}

// TestDocumentedCommands parses every line of the documents that runs the
// program: the command exists, its flags exist, and it takes so many arguments.
func TestDocumentedCommands(t *testing.T) {
	fenced := regexp.MustCompile("(?s)```(?:console|sh|bash)\n(.*?)```")
	inline := regexp.MustCompile("`(redrive [^`]+)`")
	n := 0
	for _, path := range []string{"README.md", "docs/operating.md", "docs/policy.md", "docs/topology.md", "docs/design.md"} {
		text := read(t, path)
		var lines []string
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			for line := range strings.SplitSeq(block[1], "\n") {
				if rest, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(line, "$ ")), "redrive "); ok {
					lines = append(lines, "redrive "+rest)
				}
			}
		}
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			lines = append(lines, strings.Join(strings.Fields(m[1]), " "))
		}
		for _, line := range lines {
			n++
			if err := parses(words(line)[1:]); err != nil {
				t.Errorf("%s: %s: %v", path, line, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d lines were found", n)
	}
}

// TestDocumentedFlags looks up each flag that a document names alone.
func TestDocumentedFlags(t *testing.T) {
	known := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
		}
	}
	walk(newRoot(&command{}))
	flag := regexp.MustCompile(`--[a-z][a-z-]*`)
	n := 0
	for _, path := range []string{"README.md", "docs/operating.md", "docs/policy.md", "docs/topology.md", "docs/design.md", "CHANGELOG.md"} {
		for _, m := range regexp.MustCompile("`[^`\n]+`").FindAllString(read(t, path), -1) {
			for _, name := range flag.FindAllString(m, -1) {
				if n++; !known[name] && !strings.HasSuffix(name, "-") {
					t.Errorf("%s: %s: there is no flag %s", path, m, name)
				}
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d flags were found", n)
	}
}

// TestEveryHelpTellsHowItEnds reads the help of every command that does
// something.
func TestEveryHelpTellsHowItEnds(t *testing.T) {
	n := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() {
			return
		}
		if n++; !strings.Contains(cmd.Long, "Exit") {
			t.Errorf("%s: the help does not tell how it ends: %q", cmd.CommandPath(), cmd.Long)
		}
	}
	walk(newRoot(&command{}))
	if n < 40 {
		t.Errorf("only %d commands were found", n)
	}
}

// words splits a line as a shell does, up to its comment or the next command.
func words(line string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|(#.*)|(\S+)`).FindAllStringSubmatch(line, -1) {
		if m[3] != "" {
			break
		}
		if m[4] == "&&" || m[4] == "||" {
			break
		}
		if last, ok := strings.CutSuffix(m[4], ";"); ok {
			out = append(out, last)
			break
		}
		// An ellipsis after a flag stands for its value, elsewhere for more words.
		if m[4] != "…" || strings.HasPrefix(out[len(out)-1], "--") {
			out = append(out, m[1]+m[2]+m[4])
		}
	}
	return out
}

func parses(args []string) error {
	root := newRoot(&command{out: io.Discard, err: io.Discard})
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if cmd.HasSubCommands() {
		// A text may speak of a noun, but not of a verb that is not there.
		for _, w := range rest {
			if !strings.HasPrefix(w, "-") {
				return fmt.Errorf("%s has no command %q", cmd.CommandPath(), w)
			}
		}
		return nil
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// TestParsesIsStrict keeps the test above from accepting everything.
func TestParsesIsStrict(t *testing.T) {
	for _, line := range []string{"redrive captur", "redrive capture --que x", "redrive generation begin 1", "redrive generation start", "redrive generation start 1 2"} {
		if parses(words(line)[1:]) == nil {
			t.Errorf("%s is accepted", line)
		}
	}
}
