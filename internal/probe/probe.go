package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Verdict is what one look at a target gave.
type Verdict string

// Verdicts.
const (
	OK           Verdict = "ok"
	Breach       Verdict = "breach"       // it answered, and the answer says stop
	Inconclusive Verdict = "inconclusive" // it answered, and the answer says nothing
	Failed       Verdict = "error"        // it did not answer in a way that can be read
)

// Look is one answer.
type Look struct {
	Verdict Verdict
	// Milli is the value that was measured times 1000, rounded towards the
	// breach; 0 when there is none.
	Milli int64
	// Detail says what was wrong, for people and for records. It holds nothing
	// of the answer but a status or a number.
	Detail string
}

// Health asks a URL that answers 2xx when all is well.
type Health struct{ c *client }

// NewHealth checks the target; errors wrap ErrTarget.
func NewHealth(t Target) (*Health, error) {
	c, err := newClient(t)
	return &Health{c}, err
}

// Look asks once.
func (h *Health) Look(ctx context.Context) Look {
	status, _, err := h.c.ask(ctx, http.MethodGet, h.c.target.URL, nil)
	switch {
	case err != nil:
		return Look{Verdict: Failed, Detail: err.Error()}
	case status >= 200 && status < 300:
		return Look{Verdict: OK, Detail: fmt.Sprintf("status %d", status)}
	case status >= 300 && status < 400:
		return Look{Verdict: Failed, Detail: fmt.Sprintf("status %d: redirects are not followed", status)}
	}
	return Look{Verdict: Breach, Detail: fmt.Sprintf("status %d", status)}
}

// Metric asks a Prometheus server for one number.
type Metric struct {
	c     *client
	query string
	limit float64
	below bool
}

// NewMetric makes a probe that is a breach while the value of query is at least
// limit, or, with below, at most limit. The target's URL is the server's, without
// /api/v1/query. Errors wrap ErrTarget.
func NewMetric(t Target, query string, limit float64, below bool) (*Metric, error) {
	if query == "" || math.IsNaN(limit) || math.IsInf(limit, 0) {
		return nil, fmt.Errorf("want an expression and a limit that is a number: %w", ErrTarget)
	}
	if strings.Contains(t.URL, "?") {
		// The path of the API would become a part of it.
		return nil, fmt.Errorf("want the URL of the server alone, without a query: %w", ErrTarget)
	}
	c, err := newClient(t)
	return &Metric{c, query, limit, below}, err
}

// Look asks once.
func (m *Metric) Look(ctx context.Context) Look {
	to := strings.TrimSuffix(m.c.target.URL, "/") + "/api/v1/query?" + url.Values{"query": {m.query}}.Encode()
	status, answer, err := m.c.ask(ctx, http.MethodGet, to, nil)
	if err != nil {
		return Look{Verdict: Failed, Detail: err.Error()}
	}
	if status != http.StatusOK {
		return Look{Verdict: Failed, Detail: fmt.Sprintf("status %d", status)}
	}
	v, why := scalar(answer)
	if why != "" {
		return Look{Verdict: Inconclusive, Detail: why}
	}
	l := Look{Verdict: OK, Milli: milli(v, m.below), Detail: fmt.Sprintf("value %g, limit %g", v, m.limit)}
	if m.below && v <= m.limit || !m.below && v >= m.limit {
		l.Verdict = Breach
	}
	return l
}

// milli rounds towards the breach and stays within what a record holds.
func milli(v float64, below bool) int64 {
	const most = 1 << 53
	v = math.Ceil(v * 1000)
	if below {
		v = math.Floor(v)
	}
	return int64(min(max(v, -most), most))
}

// scalar takes the one number out of an answer of the query API. Why says what
// it was instead.
func scalar(answer []byte) (v float64, why string) {
	var a struct {
		Status string `json:"status"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(answer, &a) != nil || a.Status != "success" {
		return 0, "not an answer of a Prometheus server"
	}
	var sample [2]json.RawMessage
	switch a.Data.Type {
	case "scalar":
		if json.Unmarshal(a.Data.Result, &sample) != nil {
			return 0, "a scalar that cannot be read"
		}
	case "vector":
		var vector []struct {
			Value [2]json.RawMessage `json:"value"`
		}
		if json.Unmarshal(a.Data.Result, &vector) != nil {
			return 0, "a vector that cannot be read"
		}
		if len(vector) != 1 {
			return 0, fmt.Sprintf("%d values, want one", len(vector))
		}
		sample = vector[0].Value
	default:
		return 0, "neither a scalar nor a vector"
	}
	var text string
	if json.Unmarshal(sample[1], &text) != nil {
		return 0, "a value that is no number"
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, "a value that is no number"
	}
	return v, ""
}

// Version asks a URL for the version that runs there.
type Version struct {
	c       *client
	pointer []string
}

// NewVersion makes a probe for the text at a JSON pointer, such as /version.
// Errors wrap ErrTarget.
func NewVersion(t Target, pointer string) (*Version, error) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, fmt.Errorf("pointer %q: want a JSON pointer such as /version: %w", pointer, ErrTarget)
	}
	c, err := newClient(t)
	return &Version{c, strings.Split(pointer[1:], "/")}, err
}

// Is reports whether the version is the wanted one. The version that was found
// instead is not repeated.
func (p *Version) Is(ctx context.Context, want string) Look {
	status, answer, err := p.c.ask(ctx, http.MethodGet, p.c.target.URL, nil)
	if err != nil {
		return Look{Verdict: Failed, Detail: err.Error()}
	}
	if status != http.StatusOK {
		return Look{Verdict: Failed, Detail: fmt.Sprintf("status %d", status)}
	}
	var doc any
	if json.Unmarshal(answer, &doc) != nil {
		return Look{Verdict: Failed, Detail: "not JSON"}
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, name := range p.pointer {
		m, ok := doc.(map[string]any)
		if !ok {
			return Look{Verdict: Inconclusive, Detail: "no version in the answer"}
		}
		doc = m[unescape.Replace(name)]
	}
	switch have, ok := doc.(string); {
	case !ok || have == "":
		return Look{Verdict: Inconclusive, Detail: "no version in the answer"}
	case have == want:
		return Look{Verdict: OK, Detail: "it runs the version of the plan"}
	}
	return Look{Verdict: Breach, Detail: "it runs another version than the plan says"}
}

// Operations asks a URL about business operations, in batches: which of them are
// not authorized, or which an inbox has seen.
//
// The request is POST {"operations":[{"envelope","operation","type"}, …]}, the
// answer 200 {"listed":["ENVELOPE", …]}: the envelopes of which it is true.
type Operations struct{ c *client }

// NewOperations checks the target; errors wrap ErrTarget.
func NewOperations(t Target) (*Operations, error) {
	c, err := newClient(t)
	return &Operations{c}, err
}

// MaxBatch is how many operations one question may have.
const MaxBatch = 500

// Operation is one that is asked about.
type Operation struct {
	Envelope  string `json:"envelope"` // ULID
	Operation string `json:"operation"`
	Type      string `json:"type"`
}

// errAnswer is returned for an answer that does not follow the contract.
var errAnswer = errors.New("the answer does not follow the contract")

// Listed returns the envelopes of ops that the answer lists. An answer that
// lists anything else is an error: it is not about this question.
func (p *Operations) Listed(ctx context.Context, ops []Operation) (map[string]bool, error) {
	question, err := json.Marshal(map[string]any{"operations": ops})
	if err != nil {
		return nil, err
	}
	status, answer, err := p.c.ask(ctx, http.MethodPost, p.c.target.URL, bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d", status)
	}
	var a struct {
		Listed *[]string `json:"listed"`
	}
	if json.Unmarshal(answer, &a) != nil || a.Listed == nil {
		return nil, fmt.Errorf("%w: want {\"listed\": [envelope, …]}", errAnswer)
	}
	asked := map[string]bool{}
	for _, o := range ops {
		asked[o.Envelope] = true
	}
	out := map[string]bool{}
	for _, id := range *a.Listed {
		if !asked[id] {
			return nil, fmt.Errorf("%w: it lists what was not asked about", errAnswer)
		}
		out[id] = true
	}
	return out, nil
}
