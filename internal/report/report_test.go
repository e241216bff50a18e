package report_test

import (
	"bytes"
	"encoding/csv"
	"regexp"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/report"
)

func html(t *testing.T, r api.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, r, began); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Whatever people and messages say, the page has the elements that it has
// without it.
func TestHostileTextIsText(t *testing.T) {
	elements := regexp.MustCompile(`<[a-zA-Z!/][^>]*>`)
	want := elements.FindAllString(html(t, sample("plain")), -1)
	if len(want) < 300 {
		t.Fatalf("the page has only %d tags", len(want))
	}
	for _, text := range hostile {
		page := html(t, sample(text))
		got := elements.FindAllString(page, -1)
		if len(got) != len(want) {
			t.Errorf("%q: %d tags, without it %d", text, len(got), len(want))
		}
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("%q: %s, without it %s", text, got[i], want[i])
				break
			}
		}
		if strings.ContainsAny(page, "\x07\x1b\u202e") {
			t.Errorf("%q: a control character is in the page", text)
		}
	}
}

func TestPageAsksForNothing(t *testing.T) {
	page := html(t, sample("plain"))
	if !strings.Contains(page, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">`) {
		t.Error("the page forbids nothing")
	}
	for _, bad := range []string{"<script", "http://", "https://", "@import", "url(", "src="} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, id := range []string{"funnel", "rate", "outcomes"} {
		if !regexp.MustCompile(`<svg [^>]*role="img" aria-labelledby="` + id + `-t ` + id + `-d"><title id="` + id + `-t">[^<]+</title><desc id="` + id + `-d">[^<]+</desc>`).MatchString(page) {
			t.Errorf("the plot %s says nothing to those who do not see it", id)
		}
	}
}

// What remains is named with who owns it, also when nobody does.
func TestPageNamesOwners(t *testing.T) {
	page := html(t, sample("plain"))
	for _, want := range []string{"who owns its business resolution", `<td class="owner" data-name="owner">Catalog team</td><td data-name="reason">unknown_sku</td>`,
		`<td class="owner" data-name="owner">nobody: no owner is configured</td><td data-name="reason">no reason given</td>`, "3 more match the same selection"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	r := api.Report{Generation: api.Generation{Number: 1, State: "planned", Status: "planned", LawsHold: true}}
	empty := html(t, r)
	for _, want := range []string{"Nothing of it remains open.", "Nothing was released.", "Nobody has approved it."} {
		if !strings.Contains(empty, want) {
			t.Errorf("the page of a plan lacks %q", want)
		}
	}
	r.Generation.LawsHold = false
	if !strings.Contains(html(t, r), "a sum is broken") {
		t.Error("a broken sum is not shown")
	}
}

// Whoever reads the page learns what was overruled, and what went out changed.
func TestPageTellsWhatIsUnusual(t *testing.T) {
	page := html(t, sample("the customer waits"))
	for _, want := range []string{"12 with another content than was captured", "duplicate, beyond horizon: the customer waits", "per-key, park on failure; hold what is in doubt"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	r := sample("plain")
	r.Generation.Forced, r.Generation.Repaired = nil, 0
	for _, bad := range []string{"<dt>forced", "<dt>repaired"} {
		if page := html(t, r); strings.Contains(page, bad) {
			t.Errorf("the page has %s of a plan without", bad)
		}
	}
}

func TestFieldsAreNoFormulas(t *testing.T) {
	for in, want := range map[string]string{
		"Catalog team": "Catalog team", "": "", "a=b": "a=b", "-1": "'-1", "+1": "'+1", "=1+1": "'=1+1", "@SUM(1)": "'@SUM(1)",
		" =1": "' =1", `"=1`: `'"=1`, "'=1": "''=1", "a;=1": "a;'=1", "a; \"-1;b": "a;' \"-1;b", "a; b": "a; b", "\uff1d1": "'\uff1d1", "|calc": "'|calc",
	} {
		if got := report.Field(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	for _, text := range append([]string{"\t=1", "\r=1", "\n=1"}, hostile...) {
		got := report.Field(text)
		if strings.ContainsAny(got[:1], "=+-@|\t\r\n") || strings.ContainsAny(got, "\x07\x1b\u202e\r\n\t") {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestCSVHoldsEveryMember(t *testing.T) {
	var b bytes.Buffer
	c := report.NewCSV(&b, true)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Header())
	for i, text := range hostile {
		must(c.Row(&api.MemberRow{Position: uint64(i), Envelope: "01M8", Disposition: "missing", Reason: text, Owner: text, Captured: began, Operation: text, MessageID: text}))
	}
	must(c.Flush())
	rows, err := csv.NewReader(&b).ReadAll()
	must(err)
	if len(rows) != len(hostile)+1 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		if len(row) != 15 {
			t.Errorf("%d fields: %q", len(row), row)
		}
	}
	if rows[0][13] != "operation" || rows[1][5] != hostile[0] || rows[6][5] != "'"+hostile[5] {
		t.Errorf("%q", rows)
	}
}
