package integration

import (
	"strings"
	"testing"
)

// What a part of a case waits for.
const (
	workerSide = "worker side"
	server     = "server"
)

// later is a part of a case that cannot be tried yet, and what it comes with.
type later struct{ what, with string }

type parts []later

// String is one line, which "make test-rabbitmq" prints behind its case.
func (ps parts) String() string {
	var out []string
	for _, l := range ps {
		out = append(out, l.what+" ("+l.with+")")
	}
	return "later: " + strings.Join(out, "; ")
}

// caseTest is how a case is tried today.
type caseTest struct {
	run   func(c *caseRun)
	later parts
}

var caseTests = map[string]caseTest{
	"R01": {caseR01, parts{{"raw download of a body", server}}},
	"R02": {caseR02, nil},
	"R03": {caseR03, nil},
	"R05": {caseR05, nil},
	"R07": {caseR07, parts{{"the digits in API and page", server}}},
	"R10": {caseR10, nil},
	"R11": {caseR11, nil},
	"R13": {caseR13, nil},
	"R14": {caseR14, nil},
	"R16": {caseR16, nil},
	"R17": {caseR17, nil},
	"R18": {caseR18, parts{{"the list in the API", server}}},
	"R21": {caseR21, nil},
	"R22": {caseR22, parts{{"lookup by percent-encoded id, and the links of the page", server}}},
	"R24": {caseR24, nil},
	"R27": {caseR27, nil},
	"R29": {caseR29, nil},
	"R31": {caseR31, nil},
	"R32": {caseR32, nil},
	"R33": {caseR33, nil},
	"R34": {caseR34, nil},
	"R35": {caseR35, nil},
	"R37": {caseR37, nil},
	"R39": {caseR39, nil},
	"R40": {caseR40, nil},
	"R42": {caseR42, nil},
	"R45": {caseR45, nil},
	"R46": {caseR46, nil},
	"R49": {caseR49, nil},
	"R51": {caseR51, parts{{"the answer 409", server}}},
	"R52": {caseR52, parts{{"idempotency keys", server}}},
	"R53": {caseR53, nil},
	"R55": {caseR55, nil},
	"R57": {caseR57, nil},
	"R58": {caseR58, nil},
	"R60": {caseR60, nil},
	"R63": {caseR63, nil},
	"R64": {caseR64, parts{{"the history in the API", server}}},
	"R65": {caseR65, parts{{"every view of the page, and the download of a body", server}}},
	"R66": {caseR66, nil},
	"R67": {caseR67, parts{{"API and page", server}}},
	"R69": {caseR69, parts{{"the same counts in API, page and metrics", server}}},
	"R71": {caseR71, nil},
	"R73": {caseR73, nil},
	"R74": {caseR74, nil},
	"R77": {caseR77, parts{{"a client that gives up after two seconds", server}}},
	"R78": {caseR78, parts{{"a cap on envelopes, as a policy", workerSide}}},
	"R80": {caseR80, nil},
	"R81": {caseR81, nil},
}

// TestCases tries every case of the catalogue, each under its id.
func TestCases(t *testing.T) {
	known := map[string]bool{}
	group := &caseGroup{t: t}
	for _, h := range handedCases(t) {
		known[h.ID] = true
		t.Run(h.ID, func(t *testing.T) {
			try, ok := caseTests[h.ID]
			if !ok {
				t.Fatalf("%s (%s) has no test", h.ID, h.Title)
			}
			t.Parallel()
			if len(try.later) > 0 {
				t.Log(try.later)
			}
			try.run(&caseRun{t: t, group: group, input: h.Input})
		})
	}
	for id := range caseTests {
		if !known[id] {
			t.Errorf("%s is no case of the catalogue", id)
		}
	}
}
