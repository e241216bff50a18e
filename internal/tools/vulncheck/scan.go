package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// advisory identifies a finding: the same advisory in another module is another
// risk.
type advisory struct{ module, id string }

// finding is what a scan says about one advisory.
type finding struct {
	summary string
	fixed   string // version that fixes it, "" when none does
	reached bool   // our code reaches what is vulnerable
}

// scan is the result of one run of govulncheck.
type scan struct {
	goVersion string
	findings  map[advisory]finding
}

// message is the part of govulncheck's JSON stream that is read here.
type message struct {
	Config *struct {
		GoVersion string `json:"go_version"`
	} `json:"config"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV          string `json:"osv"`
		FixedVersion string `json:"fixed_version"`
		Trace        []struct {
			Module   string `json:"module"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

// parseScan reads the JSON stream of govulncheck. It fails on a stream without
// the opening config message, so that an empty answer is never taken for a clean
// one.
func parseScan(r io.Reader) (scan, error) {
	out := scan{findings: map[advisory]finding{}}
	summaries := map[string]string{}
	for dec := json.NewDecoder(r); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return scan{}, fmt.Errorf("cannot read what govulncheck printed: %w", err)
		}
		switch {
		case m.Config != nil:
			out.goVersion = m.Config.GoVersion
		case m.OSV != nil:
			summaries[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && len(m.Finding.Trace) > 0:
			// The first frame is the vulnerable code; a function there means
			// that a call to it was found.
			frame := m.Finding.Trace[0]
			key := advisory{frame.Module, m.Finding.OSV}
			f := out.findings[key]
			f.fixed = m.Finding.FixedVersion
			f.reached = f.reached || frame.Function != ""
			out.findings[key] = f
		}
	}
	if out.goVersion == "" {
		return scan{}, errors.New("govulncheck printed no result: run it by hand to see why")
	}
	for key, f := range out.findings {
		f.summary = summaries[key.id]
		out.findings[key] = f
	}
	return out, nil
}

// parseKnown reads the list of accepted advisories: one a line, module and id,
// then anything; lines that start with # are comments.
func parseKnown(r io.Reader) (map[advisory]bool, error) {
	out := map[advisory]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %d: want a module, an id and the reason for accepting it", n)
		}
		key := advisory{fields[0], fields[1]}
		if out[key] {
			return nil, fmt.Errorf("line %d: %s is listed twice", n, key.id)
		}
		out[key] = true
	}
	return out, lines.Err()
}

// report prints the findings, new ones last, and returns whether all of them
// are accepted.
func report(w io.Writer, s scan, accepted map[advisory]bool) (clean bool) {
	var fresh []advisory
	known, reached := 0, 0
	for _, key := range sorted(s.findings) {
		if !accepted[key] {
			fresh = append(fresh, key)
			continue
		}
		known++
		if s.findings[key].reached {
			reached++
			fmt.Fprintln(w, "known, and reached:", describe(key, s.findings[key]))
		}
	}
	for _, key := range sorted(accepted) {
		if _, found := s.findings[key]; !found {
			fmt.Fprintf(w, "known, but not found with %s: %s in %s; remove it from known.txt if that is the Go version the project builds with\n",
				s.goVersion, key.id, key.module)
		}
	}
	for _, key := range fresh {
		fmt.Fprintln(w, "NEW:", describe(key, s.findings[key]))
	}
	fmt.Fprintf(w, "vulncheck: %s, %d known advisories (%d of them in code that is reached), %d new\n", s.goVersion, known, reached, len(fresh))
	if len(fresh) > 0 {
		fmt.Fprintln(w, "vulncheck: update what has a fix; accept the rest in internal/tools/vulncheck/known.txt, each with its reason")
	}
	return len(fresh) == 0
}

// describe is one finding on one line.
func describe(key advisory, f finding) string {
	fix := "no fix yet"
	if f.fixed != "" {
		fix = "fixed in " + f.fixed
	}
	reach := ""
	if f.reached {
		reach = ", reached by our code"
	}
	return fmt.Sprintf("%s in %s (%s%s): %s", key.id, key.module, fix, reach, f.summary)
}

// sorted returns the keys by module, then by id.
func sorted[V any](m map[advisory]V) []advisory {
	return slices.SortedFunc(maps.Keys(m), func(a, b advisory) int {
		return strings.Compare(a.module+" "+a.id, b.module+" "+b.id)
	})
}
