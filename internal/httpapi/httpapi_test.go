package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/redrivehq/redrive/internal/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type uidKey struct{}

// fake is a holder of a store that says what it was asked.
type fake struct {
	began chan string   // names of calls that have begun
	end   chan struct{} // closed to let "long" end
}

func (f *fake) Call(ctx context.Context, name string, req json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	switch name {
	case "echo":
		if !json.Valid(req) {
			return nil, &api.Error{Code: api.CodeUsage, Message: "malformed"}
		}
		progress(json.RawMessage(`{"stage":"note","message":"one"}`))
		progress(json.RawMessage(`{"stage":"note","message":"two"}`))
		return req, nil
	case "who":
		uid, _ := ctx.Value(uidKey{}).(uint32)
		return json.Marshal(uid)
	case "null":
		return json.RawMessage("null"), nil
	case "long":
		f.began <- name
		select {
		case <-f.end:
			return json.RawMessage(`"done"`), nil
		case <-ctx.Done():
			f.began <- "gone"
			return nil, &api.Error{Code: api.CodeCancelled, Message: "the caller went"}
		}
	case "plain":
		return nil, errors.New("something else")
	}
	return nil, &api.Error{Code: api.CodeUsage, Message: "unknown operation"}
}

type rig struct {
	fake   *fake
	server *Server
	client *Client
	path   string
	served chan error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{fake: &fake{began: make(chan string, 8), end: make(chan struct{})}, path: filepath.Join(t.TempDir(), "s"), served: make(chan error, 1)}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	r.server = NewServer(r.fake, func(ctx context.Context, uid uint32) context.Context { return context.WithValue(ctx, uidKey{}, uid) })
	go func() { r.served <- r.server.Serve(l) }()
	r.client = NewClient(func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", r.path) })
	t.Cleanup(func() {
		r.client.http.CloseIdleConnections()
		_ = r.server.Shutdown(context.WithoutCancel(t.Context()))
	})
	return r
}

func (r *rig) call(ctx context.Context, name, req string) (string, error) {
	b, err := r.client.Call(ctx, name, json.RawMessage(req), nil)
	return string(b), err
}

func codeOf(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestCall(t *testing.T) {
	r := newRig(t)
	var notes []string
	b, err := r.client.Call(t.Context(), "echo", json.RawMessage(`{"a":1}`), func(p json.RawMessage) { notes = append(notes, string(p)) })
	if err != nil || string(b) != `{"a":1}` || len(notes) != 2 || !strings.Contains(notes[1], "two") {
		t.Errorf("got %s, %v, progress %v", b, err, notes)
	}
	if got, err := r.call(t.Context(), "null", "{}"); got != "null" || err != nil {
		t.Errorf("an empty answer became %q, %v", got, err)
	}
	// The kernel says who asks, whatever the client says.
	want, err := json.Marshal(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.call(t.Context(), "who", `{"as":"somebody"}`); got != string(want) || err != nil {
		t.Errorf("the peer is %s, %v, want %s", got, err, want)
	}
	for name, want := range map[string]api.Code{"nothing": api.CodeUsage, "plain": api.CodeFailed, "no/such": api.CodeFailed} {
		if _, err := r.call(t.Context(), name, "{}"); codeOf(err) != want {
			t.Errorf("%s: %v, want code %s", name, err, want)
		}
	}
	if _, err := r.call(t.Context(), "echo", "{no json"); codeOf(err) != api.CodeUsage {
		t.Errorf("malformed JSON: %v", err)
	}
}

func TestRequestTooLarge(t *testing.T) {
	r := newRig(t)
	big := `"` + strings.Repeat("x", maxRequest) + `"`
	if _, err := r.call(t.Context(), "echo", big); err == nil {
		t.Error("a request beyond the limit was served")
	}
	// One of exactly the limit is served.
	if _, err := r.call(t.Context(), "echo", `"`+big[3:]); err != nil {
		t.Errorf("a request of the limit: %v", err)
	}
}

func TestOtherRequests(t *testing.T) {
	r := newRig(t)
	for _, x := range []struct {
		method, path string
		want         int
	}{{http.MethodGet, "/op/echo", http.StatusMethodNotAllowed}, {http.MethodPost, "/", http.StatusNotFound}, {http.MethodPost, "/op/", http.StatusNotFound}} {
		req, err := http.NewRequestWithContext(t.Context(), x.method, "http://control"+x.path, bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		_ = resp.Body.Close()
		if resp.StatusCode != x.want {
			t.Errorf("%s %s: %s, want %d", x.method, x.path, resp.Status, x.want)
		}
	}
}

// TestClientGoes ends the call of a client that is interrupted, and no other.
func TestClientGoes(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.call(ctx, "long", "{}")
		failed <- err
	}()
	<-r.fake.began
	cancel()
	if err := <-failed; err == nil {
		t.Error("an interrupted call succeeded")
	}
	if got := <-r.fake.began; got != "gone" {
		t.Errorf("got %s", got)
	}
	if _, err := r.call(t.Context(), "echo", "{}"); err != nil {
		t.Errorf("another call: %v", err)
	}
}

// TestShutdown lets a call that runs end and takes no new one.
func TestShutdown(t *testing.T) {
	r := newRig(t)
	answer := make(chan string, 1)
	go func() {
		got, err := r.call(t.Context(), "long", "{}")
		if err != nil {
			got = err.Error()
		}
		answer <- got
	}()
	<-r.fake.began
	down := make(chan error, 1)
	go func() { down <- r.server.Shutdown(t.Context()) }()
	if err := <-r.served; err != nil {
		t.Fatal(err)
	}
	if _, err := r.call(t.Context(), "echo", "{}"); codeOf(err) != api.CodeHeld && codeOf(err) != api.CodeTemporary {
		t.Errorf("a new call while the server ends: %v", err)
	}
	select {
	case err := <-down:
		t.Fatalf("the server was down (%v) before its last call ended", err)
	default:
	}
	close(r.fake.end)
	if got := <-answer; got != `"done"` {
		t.Errorf("the running call got %s", got)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// TestShutdownThatIsCutOff ends what does not end by itself.
func TestShutdownThatIsCutOff(t *testing.T) {
	r := newRig(t)
	failed := make(chan error, 1)
	go func() {
		_, err := r.call(t.Context(), "long", "{}")
		failed <- err
	}()
	<-r.fake.began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.server.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-failed; codeOf(err) != api.CodeTemporary {
		t.Errorf("the call that was cut off: %v", err)
	}
	if got := <-r.fake.began; got != "gone" {
		t.Errorf("got %s", got)
	}
}
