package integration

import (
	"bufio"
	"encoding/json"
	"strings"

	"github.com/redrivehq/redrive/ledger/event"
)

// record is what these tests read of a record, from its text.
type record struct {
	Seq  uint64 `json:"seq"`
	Kind string `json:"kind"`
	Subj struct {
		Gen uint32 `json:"gen"`
		Env uint64 `json:"env"`
	} `json:"subj"`
	Body struct {
		Pos        json.RawMessage `json:"pos"` // a set as text, or one position
		Try        uint8           `json:"try"`
		Resolution string          `json:"resolution"`
		Reason     string          `json:"reason"`
		Count      uint64          `json:"count"`
	} `json:"body"`
}

// tail reads all records of the ledger, or of one generation, with "ledger
// tail".
func (s *site) tail(more ...string) []record {
	s.t.Helper()
	var out []record
	for from := uint64(1); ; from = out[len(out)-1].Seq + 1 {
		p := s.ok(append([]string{"ledger", "tail", "--limit", "500", "--from", utoa(from)}, more...)...)
		n := 0
		for lines := bufio.NewScanner(strings.NewReader(p.out.String())); lines.Scan(); n++ {
			var r record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				s.t.Fatalf("%s: %v in %s", p.description, err, lines.Text())
			}
			out = append(out, r)
		}
		if n == 0 || n < 500 {
			return out
		}
	}
}

// of keeps the records of some kinds.
func of(rs []record, kinds ...string) []record {
	var out []record
	for _, r := range rs {
		for _, k := range kinds {
			if r.Kind == k {
				out = append(out, r)
			}
		}
	}
	return out
}

// positions lists the members that a record speaks of.
func (r record) positions() event.Ranges {
	text := strings.Trim(string(r.Body.Pos), `"`)
	set, err := event.ParseRanges(text)
	if err != nil {
		panic(err) // the verifier has read it
	}
	return set
}
