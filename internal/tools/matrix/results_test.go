package main

import (
	"strings"
	"testing"
)

const passing = `{"Action":"run","Package":"github.com/redrivehq/redrive/internal/integration","Test":"TestCases/R01"}
{"Action":"output","Package":"github.com/redrivehq/redrive/internal/integration","Test":"TestCases/R01","Output":"    cases_test.go:1: later: the page\n"}
{"Action":"pass","Package":"github.com/redrivehq/redrive/internal/integration","Test":"TestCases/R01","Elapsed":1.25}
{"Action":"pass","Package":"github.com/redrivehq/redrive/internal/broker/rabbitmq","Test":"TestCut","Elapsed":0.5}
{"Action":"pass","Package":"github.com/redrivehq/redrive/internal/integration","Elapsed":2}
`

const list = "# what a release has to pass\nP1 receipts\n  internal/broker/rabbitmq.TestCut\n\nP2 peeking\n  internal/integration.TestCases/R01\n"

func TestReport(t *testing.T) {
	skipped := strings.Replace(passing, `"pass","Package":"github.com/redrivehq/redrive/internal/broker/rabbitmq"`, `"skip","Package":"github.com/redrivehq/redrive/internal/broker/rabbitmq"`, 1)
	for name, c := range map[string]struct {
		list, events string
		ok           bool
		says         []string
	}{
		"passes": {list, passing, true, []string{"4.0   R01  pass  1.3s  (later: the page)", "P1      4.0 pass  receipts", "1 cases, 2 tests passed, 0 failed"}},
		"failed": {list, strings.Replace(passing, `{"Action":"pass","Package":"github.com/redrivehq/redrive/internal/integration","Test"`, `{"Action":"fail","Package":"github.com/redrivehq/redrive/internal/integration","Test"`, 1),
			false, []string{"R01  fail", "P2      4.0 FAIL  peeking", "later: the page"}},
		"missing":  {list + "  internal/integration.TestGone\n", passing, false, []string{"internal/integration.TestGone on 4.0: did not run"}},
		"skipped":  {list, skipped, false, []string{"1 skipped"}},
		"no cases": {"P1 a\n  internal/broker/rabbitmq.TestCut\n", strings.Join(strings.Split(passing, "\n")[3:], "\n"), false, []string{"0 cases"}},
		"build":    {list, "./x.go:1: undefined: y\n" + passing, true, []string{"./x.go:1: undefined: y"}},
	} {
		var out strings.Builder
		pitfalls, err := parsePitfalls(c.list)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := newResults("4.0", &out)
		if err := r.read(strings.NewReader(c.events)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := report(&out, pitfalls, []*results{r}); (err == nil) != c.ok {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
		for _, s := range c.says {
			if !strings.Contains(out.String(), s) {
				t.Errorf("%s: it does not say %q:\n%s", name, s, out.String())
			}
		}
	}
	for _, bad := range []string{"", "P1\n  x.T\n", "  x.T\n", "P1 title\nP2 title\n  x.T\n"} {
		if got, err := parsePitfalls(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
