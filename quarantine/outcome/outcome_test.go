package outcome_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

var valid = outcome.Report{
	Stamp:   stamp.Stamp{Generation: "01J9ZK6V7Q8R9S0T1V2W3X4Y5Z", Envelope: "01J9ZK6V7QABCDEFGHJKMNPQRS", Position: 17, Try: 2},
	MAC:     stamp.MAC{1, 2, 3, 15: 0xff},
	Outcome: event.OutcomeSucceeded, Operation: "op", Effect: "order 7", ConsumerVersion: "2.4.1", Detail: "fine", At: "2026-01-02T03:04:05Z",
}

// The contract as a consumer in another language writes it. It never changes
// under these names.
const contract = `{"generation":"01J9ZK6V7Q8R9S0T1V2W3X4Y5Z","envelope":"01J9ZK6V7QABCDEFGHJKMNPQRS","intent":"17/2",` +
	`"mac":"010203000000000000000000000000ff","outcome":"succeeded","operation":"op","effect":"order 7","consumer_version":"2.4.1","detail":"fine","at":"2026-01-02T03:04:05Z"}`

func TestContract(t *testing.T) {
	b, err := valid.Encode()
	if err != nil || string(b) != contract {
		t.Errorf("%s %v", b, err)
	}
	got, err := outcome.Parse([]byte(contract))
	if d := cmp.Diff(valid, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}

// edited is the contract with one field changed; nil removes it.
func edited(t *testing.T, field string, value any) []byte {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(contract), &m); err != nil {
		t.Fatal(err)
	}
	if m[field] = value; value == nil {
		delete(m, field)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReportsThatAreTaken(t *testing.T) {
	for _, o := range event.Outcomes {
		if r, err := outcome.Parse(edited(t, "outcome", o)); err != nil || r.Outcome != o {
			t.Errorf("%s: %v", o, err)
		}
	}
	for field, value := range map[string]any{"operation": nil, "effect": nil, "consumer_version": nil, "detail": nil, "at": nil,
		"a field of a later contract": []int{1}, "mac": strings.Repeat("0", 32), "intent": "0/1"} {
		if _, err := outcome.Parse(edited(t, field, value)); err != nil {
			t.Errorf("%s as %v: %v", field, value, err)
		}
	}
}

func TestReportsThatAreMalformed(t *testing.T) {
	cases := [][]byte{nil, []byte("null"), []byte("[]"), []byte("x"), []byte(`{}`), []byte(contract + "x"), []byte(strings.Repeat(" ", outcome.MaxReport) + contract)}
	for field, values := range map[string][]any{
		"outcome": {nil, "", "done", "SUCCEEDED", 1}, "generation": {nil, "", "01J9ZK6V7Q8R9S0T1V2W3X4Y5", 7}, "envelope": {nil, "zz"},
		"intent": {nil, "", "17", "17/0", "017/2", "17/2 ", "-1/1", "4294967296/1", "1/256"}, "mac": {nil, "", "01", strings.Repeat("G", 32), strings.Repeat("AB", 16)},
		"operation": {strings.Repeat("x", 1025), []string{}}, "effect": {strings.Repeat("x", 1025)}, "detail": {strings.Repeat("x", 1025)},
		"consumer_version": {strings.Repeat("x", 1025)}, "at": {strings.Repeat("x", 1025)},
	} {
		for _, v := range values {
			cases = append(cases, edited(t, field, v))
		}
	}
	for _, b := range cases {
		if r, err := outcome.Parse(b); !errors.Is(err, outcome.ErrMalformed) || r != (outcome.Report{}) {
			t.Errorf("%.80s: %+v, %v", b, r, err)
		}
	}
}

// What a consumer says in its own words is sealed, and an error never quotes it.
func TestWhatIsPrivate(t *testing.T) {
	for _, field := range []string{"Operation", "Effect", "Detail", "At"} {
		r := outcome.Report{Outcome: event.OutcomeRejected}
		switch field {
		case "Operation":
			r.Operation = "secret"
		case "Effect":
			r.Effect = "secret"
		case "Detail":
			r.Detail = "secret"
		case "At":
			r.At = "secret"
		}
		if !strings.Contains(string(r.Private()), "secret") {
			t.Errorf("%s is not sealed: %s", field, r.Private())
		}
	}
	if r := (outcome.Report{Stamp: valid.Stamp, Outcome: event.OutcomeRejected}); r.Private() != nil {
		t.Errorf("nothing was said, and %s is sealed", r.Private())
	}
	_, err := outcome.Parse(edited(t, "mac", "planted"))
	if err == nil || strings.Contains(fmt.Sprint(err), "planted") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(contract))
	f.Add([]byte(`{"outcome":"admitted","intent":"0/1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := outcome.Parse(b)
		if err != nil {
			if r != (outcome.Report{}) {
				t.Error("an error and a report")
			}
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := outcome.Parse(again); err != nil && len(again) <= outcome.MaxReport || err == nil && got != r {
			t.Errorf("%s: %+v became %+v, %v", b, r, got, err)
		}
	})
}
