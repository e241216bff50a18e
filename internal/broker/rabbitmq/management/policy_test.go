package management

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
)

func TestSetPolicy(t *testing.T) {
	status := http.StatusCreated
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		const want = `{"pattern":"^a/b$","apply-to":"queues","priority":0,"definition":{"delivery-limit":5}}`
		if at := r.Method + " " + r.URL.EscapedPath(); at != "PUT /api/policies/%2F/redrive-a%2Fb" || string(body) != want {
			t.Errorf("%s %s", at, body)
		}
		if r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the body is said to be %q", r.Header.Get("Content-Type"))
		}
		w.WriteHeader(status)
	})
	p := Policy{Pattern: "^a/b$", ApplyTo: "queues", Definition: map[string]any{"delivery-limit": 5}}
	for code, want := range map[int]error{201: nil, 204: nil, 200: ErrAnswer, 400: ErrAnswer, 401: ErrDenied, 503: ErrUnreachable} {
		status = code
		if err := m.SetPolicy(t.Context(), "/", "redrive-a/b", p); !errors.Is(err, want) {
			t.Errorf("status %d: %v, want %v", code, err, want)
		}
	}
}

func TestSetsPolicies(t *testing.T) {
	for answer, want := range map[string]bool{
		`{"name": "ops", "tags": ["monitoring", "policymaker"]}`: true, `{"tags": ["administrator"]}`: true, `{"tags": "administrator"}`: true,
		`{"tags": "management,policymaker"}`: true, `{"tags": ["management"]}`: false, `{"tags": "monitoring"}`: false, `{"tags": []}`: false, `{}`: false,
	} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
		if got, err := m.SetsPolicies(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v", answer, got, err)
		}
	}
}

func TestPrefetches(t *testing.T) {
	for answer, want := range map[string][]int{
		`{"name": "q", "vhost": "/", "consumer_details": [{"prefetch_count": 10}, {"prefetch_count": 0}]}`: {10, 0},
		`{"name": "q", "vhost": "/", "consumer_details": []}`:                                              {},
		`{"name": "q", "vhost": "/"}`:                                                                      nil,
	} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
		got, err := m.Prefetches(t.Context(), "/", "q")
		if err != nil || !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %v, %v", answer, got, err)
		}
	}
}
