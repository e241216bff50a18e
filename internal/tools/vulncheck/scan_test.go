package main

import (
	"strings"
	"testing"
)

// stream is what govulncheck prints, cut down: one advisory of the standard
// library that is reached, one of a dependency that is not.
const stream = `
{"config":{"go_version":"go1.26.8"}}
{"osv":{"id":"GO-2026-0001","summary":"first"}}
{"osv":{"id":"GO-2026-0002","summary":"second"}}
{"finding":{"osv":"GO-2026-0001","fixed_version":"v1.26.9","trace":[{"module":"stdlib"}]}}
{"finding":{"osv":"GO-2026-0001","fixed_version":"v1.26.9","trace":[{"module":"stdlib","function":"Mkdir"},{"module":"ours","function":"main"}]}}
{"finding":{"osv":"GO-2026-0002","trace":[{"module":"example.com/dep"}]}}
`

func TestReport(t *testing.T) {
	tests := []struct {
		name  string
		known string
		clean bool
		want  []string
	}{
		{
			name:  "all known",
			known: "# why\nstdlib GO-2026-0001 patched Go\n\nexample.com/dep GO-2026-0002 not reached\n",
			clean: true,
			want: []string{
				"known, and reached: GO-2026-0001 in stdlib (fixed in v1.26.9, reached by our code): first",
				"go1.26.8, 2 known advisories (1 of them in code that is reached), 0 new",
			},
		},
		{
			name:  "one new",
			known: "stdlib GO-2026-0001 patched Go\n",
			want:  []string{"NEW: GO-2026-0002 in example.com/dep (no fix yet): second", "1 new", "update what has a fix"},
		},
		{
			name:  "accepted for another module only",
			known: "stdlib GO-2026-0001 patched Go\nstdlib GO-2026-0002 not reached\n",
			want:  []string{"NEW: GO-2026-0002 in example.com/dep", "not found with go1.26.8: GO-2026-0002 in stdlib"},
		},
		{
			name:  "gone",
			known: "stdlib GO-2026-0001 x\nexample.com/dep GO-2026-0002 x\nstdlib GO-2026-0003 x\n",
			clean: true,
			want:  []string{"not found with go1.26.8: GO-2026-0003 in stdlib"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := parseScan(strings.NewReader(stream))
			if err != nil {
				t.Fatal(err)
			}
			known, err := parseKnown(strings.NewReader(test.known))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if clean := report(&out, s, known); clean != test.clean {
				t.Errorf("clean = %v, want %v", clean, test.clean)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("want %q in:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestParseScanRefuses(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "no config": "{}", "half a message": `{"config":`} {
		if _, err := parseScan(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken for a clean result", name)
		}
	}
}

func TestParseKnownRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no reason": "stdlib GO-2026-0001\n",
		"twice":     "stdlib GO-2026-0001 x\nstdlib GO-2026-0001 x\n",
	} {
		if _, err := parseKnown(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
