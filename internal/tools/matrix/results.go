package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line that "go test -json" prints.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// module is left out of the names of packages.
const module = "github.com/redrivehq/redrive/"

// test names in the report are PACKAGE.TEST, the package from the root of the
// tree: internal/integration.TestCases/R01.
func (e *event) name() string { return strings.TrimPrefix(e.Package, module) + "." + e.Test }

// results are what became of the tests on one version.
type results struct {
	version string
	out     io.Writer
	ended   map[string]string   // by test: pass, fail or skip
	output  map[string][]string // of tests that run or have failed
	later   map[string]string   // by case: which part of it comes later
	cases   int
}

func newResults(version string, out io.Writer) *results {
	return &results{version: version, out: out, ended: map[string]string{}, output: map[string][]string{}, later: map[string]string{}}
}

var (
	caseTest = regexp.MustCompile(`\.TestCases/(R\d+)$`)
	laterLog = regexp.MustCompile(`later: (.*)`)
)

// read takes the events of a run, and says of each case and each failure what
// became of it when it has.
func (r *results) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintf(r.out, "%s\n", lines.Bytes()) // a build failure says so in plain text
			continue
		}
		r.take(&e)
	}
	return lines.Err()
}

func (r *results) take(e *event) {
	name := e.name()
	switch e.Action {
	case "output":
		r.output[name] = append(r.output[name], e.Output)
		if m := laterLog.FindStringSubmatch(e.Output); m != nil {
			r.later[name] = strings.TrimSpace(m[1])
		}
	case "pass", "fail", "skip":
		r.ended[name] = e.Action
		took := time.Duration(e.Elapsed * float64(time.Second)).Round(100 * time.Millisecond)
		if m := caseTest.FindStringSubmatch(name); m != nil {
			r.cases++
			line := fmt.Sprintf("%-5s %s  %s  %v", r.version, m[1], e.Action, took)
			if l := r.later[name]; l != "" {
				line += "  (later: " + l + ")"
			}
			fmt.Fprintln(r.out, line)
		}
		if e.Test == "" {
			fmt.Fprintf(r.out, "%-5s %s  %s  %v\n", r.version, strings.TrimSuffix(name, "."), e.Action, took)
		}
		if e.Action == "fail" {
			fmt.Fprintf(r.out, "--- %s on RabbitMQ %s:\n%s", name, r.version, strings.Join(r.output[name], ""))
		}
		delete(r.output, name)
	}
}

// failed is how many tests and packages failed.
func (r *results) failed() (n int) {
	for _, end := range r.ended {
		if end == "fail" {
			n++
		}
	}
	return n
}

// pitfall is one entry of the list that a release has to pass.
type pitfall struct {
	id    string
	title string
	tests []string
}

// parsePitfalls reads the list: a line "ID TITLE", then its tests, one per line
// and indented. Empty lines, and those that begin with #, are for people.
func parsePitfalls(text string) (list []pitfall, err error) {
	for i, line := range strings.Split(text, "\n") {
		bare := strings.TrimSpace(line)
		switch {
		case bare == "" || bare[0] == '#':
		case line[0] != ' ':
			id, title, ok := strings.Cut(bare, " ")
			if !ok {
				return nil, fmt.Errorf("line %d: want ID TITLE", i+1)
			}
			list = append(list, pitfall{id: id, title: strings.TrimSpace(title)})
		case len(list) == 0:
			return nil, fmt.Errorf("line %d: a test before the first pitfall", i+1)
		default:
			p := &list[len(list)-1]
			p.tests = append(p.tests, bare)
		}
	}
	for _, p := range list {
		if len(p.tests) == 0 {
			return nil, fmt.Errorf("%s has no test", p.id)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the list is empty")
	}
	return list, nil
}

// report prints the table and says whether everything passed.
func report(out io.Writer, pitfalls []pitfall, columns []*results) error {
	bad := 0
	fmt.Fprintln(out, "\nPitfalls:")
	for _, p := range pitfalls {
		line := fmt.Sprintf("%-8s", p.id)
		for _, c := range columns {
			end := "pass"
			for _, t := range p.tests {
				if got := c.ended[t]; got != "pass" {
					end = "FAIL"
					if got == "" {
						end = "DID NOT RUN"
					}
					bad++
					fmt.Fprintf(out, "  %s on %s: %s\n", t, c.version, strings.ToLower(end))
				}
			}
			line += fmt.Sprintf("%s %-5s ", c.version, end)
		}
		fmt.Fprintln(out, line+p.title)
		for _, t := range p.tests {
			fmt.Fprintf(out, "           %s\n", t)
		}
	}
	for _, c := range columns {
		ends := map[string]int{}
		for name, end := range c.ended {
			if !strings.HasSuffix(name, ".") { // packages
				ends[end]++
			}
		}
		fmt.Fprintf(out, "\nRabbitMQ %s: %d cases, %d tests passed, %d failed, %d skipped\n", c.version, c.cases, ends["pass"], ends["fail"], ends["skip"])
		if c.cases == 0 || ends["skip"] > 0 {
			bad++
		}
		bad += c.failed()
	}
	if !slices.ContainsFunc(columns, func(c *results) bool { return c.cases != columns[0].cases }) && bad == 0 {
		return nil
	}
	return fmt.Errorf("not everything passed on every version")
}
