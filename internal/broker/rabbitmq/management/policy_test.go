package management

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
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

// A server may end a connection that waits for the next request at the moment
// at which that request is sent; RabbitMQ does after some time and some
// requests. What was asked is then asked again.
func TestConnectionThatEndsBetweenRequests(t *testing.T) {
	var asked, answered atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if n, ok := r.Context().Value(requestsKey{}).(*atomic.Int32); !ok || n.Add(1) > 1 {
			panic(http.ErrAbortHandler) // the second request on a connection finds it closed
		}
		answered.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, requestsKey{}, new(atomic.Int32))
	}
	s.Start()
	t.Cleanup(s.Close)
	c := client(t, s.URL)
	for range 3 {
		if err := c.SetPolicy(t.Context(), "/", "p", Policy{Pattern: "^q$", ApplyTo: "queues"}); err != nil {
			t.Fatal(err)
		}
	}
	if asked.Load() != 5 || answered.Load() != 3 {
		t.Errorf("asked %d times, answered %d: want 5 and 3, each later request on a connection that ends and on a new one", asked.Load(), answered.Load())
	}
}

// requestsKey is where a connection has the number of its requests.
type requestsKey struct{}
