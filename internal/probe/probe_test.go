package probe_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/probe"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// serve answers every request with a status and a text.
func serve(t *testing.T, status int, text string) probe.Target {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return probe.Target{URL: s.URL, Allow: loopback}
}

func TestHealth(t *testing.T) {
	for status, want := range map[int]probe.Verdict{200: probe.OK, 204: probe.OK, 301: probe.Failed, 404: probe.Breach, 503: probe.Breach} {
		h, err := probe.NewHealth(serve(t, status, ""))
		if err != nil {
			t.Fatal(err)
		}
		if l := h.Look(t.Context()); l.Verdict != want || l.Detail == "" {
			t.Errorf("status %d: %+v, want %s", status, l, want)
		}
	}
}

// No data is never a good answer, and nothing of the answer is repeated.
func TestMetric(t *testing.T) {
	vector := func(values ...string) string {
		var list []string
		for _, v := range values {
			list = append(list, fmt.Sprintf(`{"metric":{"SECRET":"SECRET"},"value":[1,%q]}`, v))
		}
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(list, ",") + `]}}`
	}
	scalar := `{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`
	for _, c := range []struct {
		name, answer string
		below        bool
		want         probe.Verdict
	}{
		{"under", vector("4.9999"), false, probe.OK},
		{"at", vector("5"), false, probe.Breach},
		{"over", scalar, false, probe.Breach},
		{"above a floor", scalar, true, probe.OK},
		{"at a floor", vector("5"), true, probe.Breach},
		{"NaN", vector("NaN"), false, probe.Inconclusive},
		{"Inf", vector("+Inf"), false, probe.Inconclusive},
		{"empty", vector(), false, probe.Inconclusive},
		{"two", vector("1", "2"), false, probe.Inconclusive},
		{"matrix", `{"status":"success","data":{"resultType":"matrix","result":[]}}`, false, probe.Inconclusive},
		{"failed", `{"status":"error","error":"SECRET"}`, false, probe.Inconclusive},
		{"garbage", "SECRET", false, probe.Inconclusive},
		{"word", vector("SECRET"), false, probe.Inconclusive},
		{"huge", strings.Repeat("SECRET", 20_000), false, probe.Failed},
	} {
		m, err := probe.NewMetric(serve(t, 200, c.answer), "up", 5, c.below)
		if err != nil {
			t.Fatal(err)
		}
		l := m.Look(t.Context())
		if l.Verdict != c.want || strings.Contains(l.Detail, "SECRET") {
			t.Errorf("%s: %+v, want %s", c.name, l, c.want)
		}
	}
	if m, err := probe.NewMetric(serve(t, 500, "SECRET"), "up", 5, false); err != nil || m.Look(t.Context()).Verdict != probe.Failed {
		t.Errorf("status 500 is not an error (%v)", err)
	}
}

func TestVersion(t *testing.T) {
	for answer, want := range map[string]probe.Verdict{
		`{"app":{"a/b":"2.4.1"}}`: probe.OK, `{"app":{"a/b":"2.4.0"}}`: probe.Breach,
		`{"app":{}}`: probe.Inconclusive, `{"app":"2.4.1"}`: probe.Inconclusive, `{"app":{"a/b":2}}`: probe.Inconclusive, `2.4.1`: probe.Failed,
	} {
		v, err := probe.NewVersion(serve(t, 200, answer), "/app/a~1b")
		if err != nil {
			t.Fatal(err)
		}
		if l := v.Is(t.Context(), "2.4.1"); l.Verdict != want {
			t.Errorf("%s: %+v, want %s", answer, l, want)
		}
	}
}

func TestOperationsAreAskedInTheContract(t *testing.T) {
	var asked struct{ Operations []probe.Operation }
	answer := `{"listed":["E1"]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer token" || json.NewDecoder(r.Body).Decode(&asked) != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	p, err := probe.NewOperations(probe.Target{URL: s.URL, Allow: loopback, Token: func() (string, error) { return "token", nil }})
	if err != nil {
		t.Fatal(err)
	}
	ops := []probe.Operation{{Envelope: "E1", Operation: "op-1", Type: "A"}, {Envelope: "E2", Operation: "op-2", Type: "A"}}
	got, err := p.Listed(t.Context(), ops)
	if err != nil || len(got) != 1 || !got["E1"] || len(asked.Operations) != 2 || asked.Operations[1] != ops[1] {
		t.Fatalf("%v, %v after the question %+v", got, err, asked)
	}
	for _, bad := range []string{`{}`, `{"listed":null}`, `{"listed":["E3"]}`, `[]`, `garbage`, ``} {
		answer = bad
		if got, err := p.Listed(t.Context(), ops); err == nil || got != nil {
			t.Errorf("the answer %s was taken: %v", bad, got)
		}
	}
}

// What is reachable from here and not from the world is reached only when it is
// allowed, however it is written.
func TestSpecialAddressesAreNotReached(t *testing.T) {
	reached := false
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1.2.3",
		"10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "[fe80::1]", "100.64.0.1", "[fd00::1]", "224.0.0.1", "240.0.0.1",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::7f00:1]", "255.255.255.255"} {
		h, err := probe.NewHealth(probe.Target{URL: "http://" + host + ":" + port, Plaintext: true})
		if err != nil {
			t.Fatal(err)
		}
		l := h.Look(t.Context())
		if l.Verdict != probe.Failed || reached {
			t.Errorf("%s: %+v, reached %v", host, l, reached)
		}
		if !strings.Contains(l.Detail, "address is not allowed") && host != "localhost" {
			t.Errorf("%s: %s", host, l.Detail)
		}
	}
}

// A redirect leads nowhere, and a proxy of the environment is not asked.
func TestNoRedirectAndNoProxy(t *testing.T) {
	reached := false
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(inner.Close)
	outer := httptest.NewServer(http.RedirectHandler(inner.URL, http.StatusFound))
	t.Cleanup(outer.Close)
	t.Setenv("HTTP_PROXY", inner.URL)
	t.Setenv("http_proxy", inner.URL)
	h, err := probe.NewHealth(probe.Target{URL: outer.URL, Allow: loopback})
	if err != nil {
		t.Fatal(err)
	}
	if l := h.Look(t.Context()); l.Verdict != probe.Failed || reached {
		t.Errorf("%+v, reached %v", l, reached)
	}
}

func TestTargetsThatAreRefused(t *testing.T) {
	for _, url := range []string{"ftp://a/", "//a", "https://", "https://user:SECRET@a/", "http://a.example/", "https://a\x7f/", "file:///etc/passwd", "https://a/#SECRET"} {
		_, err := probe.NewHealth(probe.Target{URL: url})
		if !errors.Is(err, probe.ErrTarget) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := probe.NewMetric(probe.Target{URL: "https://a"}, "", 1, false); !errors.Is(err, probe.ErrTarget) {
		t.Errorf("no expression: %v", err)
	}
	if _, err := probe.NewMetric(probe.Target{URL: "https://a/?tenant=SECRET"}, "up", 1, false); !errors.Is(err, probe.ErrTarget) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("a query before the path: %v", err)
	}
	if _, err := probe.NewVersion(probe.Target{URL: "https://a"}, "version"); !errors.Is(err, probe.ErrTarget) {
		t.Errorf("no pointer: %v", err)
	}
}

// A target that does not answer is an error when the caller's time is up.
func TestSilenceIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	h, err := probe.NewHealth(probe.Target{URL: "http://" + l.Addr().String() + "/?key=SECRET", Allow: loopback})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			defer func() { _ = c.Close() }()
			cancel() // it is connected, and hears nothing
			<-t.Context().Done()
		}
	}()
	if look := h.Look(ctx); look.Verdict != probe.Failed || strings.Contains(look.Detail, "SECRET") {
		t.Errorf("%+v", look)
	}
}

// A certificate that proves nothing is named by its kind.
func TestCertificates(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	plain := serve(t, 200, "")
	for url, want := range map[string]string{
		s.URL: "an authority that this machine does not know",
		strings.Replace(plain.URL, "http:", "https:", 1): "does not speak TLS",
	} {
		h, err := probe.NewHealth(probe.Target{URL: url, Allow: loopback})
		if err != nil {
			t.Fatal(err)
		}
		if l := h.Look(t.Context()); l.Verdict != probe.Failed || !strings.Contains(l.Detail, want) {
			t.Errorf("%+v, want %s", l, want)
		}
	}
}

// What an answer that is none says stays where it is, also when the library
// quotes it: checks and records hold only what went wrong.
func TestBrokenAnswersAreNotRepeated(t *testing.T) {
	const secret = "SECRET\x1b]0;SECRET\x07"
	for name, answer := range map[string]string{
		"no HTTP":          secret + "\r\n\r\n",
		"status":           "HTTP/1.1 SECRET fine\r\n\r\n",
		"protocol":         "HTTP/SECRET 200 fine\r\n\r\n",
		"header":           "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"length":           "HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n",
		"transfer":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
		"chunk":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n",
		"place":            "HTTP/1.1 302 Found\r\nLocation: http://SECRET%zz\r\nContent-Length: 0\r\n\r\n",
		"encoding":         "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nSECRET",
		"cut":              "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nSECRET",
		"nothing":          "",
		"endless headers":  "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("SECRET", 20_000) + "\r\n\r\n",
		"other protocol":   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SECRET\r\nConnection: upgrade\r\n\r\nSECRET",
		"announcing twice": "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nContent-Length: 99\r\n\r\nSECRET",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, answer)
				_ = c.Close()
			}
		}()
		target := probe.Target{URL: "http://" + l.Addr().String() + "/?key=SECRET", Allow: loopback}
		h, err := probe.NewHealth(target)
		if err != nil {
			t.Fatal(err)
		}
		look := h.Look(t.Context())
		if look.Verdict == probe.OK || look.Detail == "" || len(look.Detail) > 200 || strings.Contains(look.Detail, "SECRET") {
			t.Errorf("%s: %q %.300s", name, look.Verdict, look.Detail)
		}
	}
}
