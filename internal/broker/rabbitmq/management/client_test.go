package management

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// planted is a password that looks like a part of an address.
const planted = "S3cr/et@p%w!"

func secret() (string, error) { return planted, nil }

// forms are the ways in which a password can stand in a text.
func forms(password string) []string {
	return []string{
		password, url.QueryEscape(password), url.PathEscape(password), url.UserPassword("ops", password).String(),
		base64.StdEncoding.EncodeToString([]byte("ops:" + password)), base64.StdEncoding.EncodeToString([]byte(password)),
		base64.StdEncoding.EncodeToString([]byte("\x00ops\x00" + password)), fmt.Sprintf("%q", password),
	}
}

func holdsNoSecret(t *testing.T, what, text string) {
	t.Helper()
	for _, form := range forms(planted) {
		if strings.Contains(text, form) {
			t.Errorf("%s holds the password as %q: %s", what, form, text)
		}
	}
}

func client(t *testing.T, address string) *Client {
	t.Helper()
	m, err := New(Config{URL: address, User: "ops", Password: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return client(t, s.URL)
}

func TestAnswers(t *testing.T) {
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
		says   string
	}{
		"not there":        {say(404, `{"error":"Object Not Found","reason":"Not Found"}`), ErrNotFound, ""},
		"wrong password":   {say(401, `{"error":"not_authorized","reason":"Login failed"}`), ErrDenied, `the log-in of user "ops" was refused`},
		"wrong password 4": {say(401, `{"error":"not_authorized","reason":"Not_Authorized"}`), ErrDenied, "the log-in"},
		"no tag":           {say(401, `{"error":"not_authorised","reason":"Not management user"}`), ErrDenied, "tags management"},
		"no permission":    {say(401, `{"error":"not_authorised","reason":"User not authorised to access virtual host"}`), ErrDenied, "no permissions in this vhost"},
		"forbidden":        {say(403, "no"), ErrDenied, "403"},
		"method":           {say(405, ""), ErrAnswer, "405"},
		"broken":           {say(500, "stack trace"), ErrUnreachable, "500"},
		"busy":             {say(503, ""), ErrUnreachable, "503"},
		"no JSON":          {say(200, "<html>"), ErrAnswer, "JSON"},
		"a list":           {say(200, "[]"), ErrAnswer, "JSON"},
		"another queue":    {say(200, `{"name": "other", "vhost": "/"}`), ErrAnswer, "another queue"},
		"another vhost":    {say(200, `{"name": "q", "vhost": "other"}`), ErrAnswer, "another queue"},
		"too much":         {say(200, `{"name": "q", "vhost": "/", "x": "`+strings.Repeat("x", maxAnswer)+`"}`), ErrAnswer, "more than 8388608 bytes"},
		"half": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}, ErrUnreachable, "ended"},
		"nothing": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnreachable, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, c.answer).Queue(t.Context(), "/", "q")
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "stack trace") {
				t.Errorf("%v, want %v that says %q", err, c.want, c.says)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	var got []string
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		got = append(got, r.Method+" "+r.URL.EscapedPath())
		if !ok || user != "ops" || password != planted || r.ContentLength != 0 {
			t.Errorf("log-in %v %q, a body of %d bytes", ok, user, r.ContentLength)
		}
		_, _ = w.Write([]byte(`{"name": "a/b", "vhost": "/", "arguments": [], "effective_policy_definition": [], "state": {"x": 1}, "exclusive": null, "consumers": null}`))
	})
	q, err := m.Queue(t.Context(), "/", "a/b")
	if err != nil || !q.Statistics() || q.Consumers != nil || q.State != "" {
		t.Errorf("queue %+v, %v", q, err)
	}
	if len(got) != 1 || got[0] != "GET /api/queues/%2F/a%2Fb" {
		t.Errorf("requests %q", got)
	}
	for _, name := range []string{".", "..", ""} {
		if _, err := m.Queue(t.Context(), "/", name); !errors.Is(err, ErrAnswer) {
			t.Errorf("queue %q: %v", name, err)
		}
		if _, err := m.Queue(t.Context(), name, "q"); !errors.Is(err, ErrAnswer) {
			t.Errorf("vhost %q: %v", name, err)
		}
	}
	if len(got) != 1 {
		t.Errorf("it was asked about names that an address cannot carry: %q", got)
	}
}

// Redirects are not followed: credentials would go where nobody sent them.
func TestRedirect(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	for _, to := range []string{other.URL + "/api/queues/%2F/q", "/elsewhere"} {
		m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				asked.Add(1)
			}
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		})
		if _, err := m.Queue(t.Context(), "/", "q"); !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), "redirect") {
			t.Errorf("redirect to %s: %v", to, err)
		}
	}
	if asked.Load() > 0 {
		t.Errorf("a redirect was followed %d times", asked.Load())
	}
}

// A proxy of the environment would see the credentials.
func TestNoProxy(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	m, err := New(Config{URL: "http://management.invalid", User: "ops", Password: secret, AllowPlaintext: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Overview(t.Context()); !errors.Is(err, ErrUnreachable) || asked.Load() > 0 {
		t.Errorf("%v, and the proxy was asked %d times", err, asked.Load())
	}
}

func TestTimeLimit(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer s.Close()
	defer close(hang)
	m, err := New(Config{URL: s.URL, User: "ops", Password: secret, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Overview(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "50ms") {
		t.Errorf("silence: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Overview(ctx); !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up by the caller: %v", err)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"cluster_name": "c"}`)) }))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	conf := Config{URL: s.URL, User: "ops", Password: secret}
	conf.TLS = func(host string) (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: host}, nil
	}
	m, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if o, err := m.Overview(t.Context()); err != nil || o.Cluster != "c" {
		t.Errorf("overview %+v, %v", o, err)
	}
	for name, c := range map[string]struct {
		tls  func(string) (*tls.Config, error)
		says string
	}{
		"stranger": {nil, "unknown authority"},
		"other name": {func(string) (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "other"}, nil
		}, "does not hold"},
		"no file": {func(string) (*tls.Config, error) { return nil, fmt.Errorf("certificate authority: %w", os.ErrNotExist) }, "certificate authority"},
	} {
		conf.TLS = c.tls
		m, err := New(conf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Overview(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:15672":          "http://127.0.0.1:15672",
		"http://localhost":                "http://localhost:15672",
		"https://broker.example":          "https://broker.example:15671",
		"https://broker.example/rabbit/":  "https://broker.example:15671/rabbit",
		"http://[::1]":                    "http://[::1]:15672",
		"HTTPS://broker.example:443/a%2F": "https://broker.example:443/a%2F",
	} {
		m, err := New(Config{URL: address, User: "ops", Password: secret})
		if err != nil || m.Address() != want {
			t.Errorf("%s is %v, %v; want %s", address, m, err, want)
		}
	}
	for _, address := range []string{
		"", "127.0.0.1:15672", "amqp://127.0.0.1", "http://", "http://:15672", "http://ops:" + url.PathEscape(planted) + "@127.0.0.1:15672",
		"http://ops:" + planted + "@127.0.0.1", "http://broker.example", "http://127.0.0.1/?a=b", "http://127.0.0.1/#", "http://127.0.0.1:x/" + planted,
		"http:127.0.0.1", "http://127.0.0.1/%zz",
	} {
		m, err := New(Config{URL: address, User: "ops", Password: secret})
		if err == nil {
			t.Errorf("%s was taken for %s", address, m.Address())
			continue
		}
		holdsNoSecret(t, "error of an address", err.Error())
	}
	if _, err := New(Config{URL: "http://127.0.0.1"}); err == nil {
		t.Error("no password is needed")
	}
	conf := Config{URL: "http://127.0.0.1", User: "ops", Password: secret}
	holdsNoSecret(t, "a printed configuration", fmt.Sprintf("%v %+v", conf, conf))
}

// TestSecret lets everything go wrong that can, also a server that gives back
// whatever it gets.
func TestSecret(t *testing.T) {
	echo := func(t *testing.T, greeting string) string {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					b := make([]byte, 64<<10)
					n, err := conn.Read(b)
					if err == nil {
						_, _ = conn.Write(append([]byte(greeting), b[:n]...))
					}
				}()
			}
		}()
		return l.Addr().String()
	}
	mirror := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			said := r.Header.Get("Authorization") + " " + planted + " " + url.QueryEscape(planted)
			w.Header().Set("Location", "http://ops:"+url.PathEscape(planted)+"@127.0.0.1:1/")
			w.Header().Set("WWW-Authenticate", said)
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"name": %q, "vhost": "/", "error": %q, "reason": %q, "arguments": %q}`, said, said, said, said)
		}
	}
	clients := map[string]*Client{
		"nobody there":      client(t, "http://127.0.0.1:1"),
		"echo":              client(t, "http://"+echo(t, "")),
		"echo as header":    client(t, "http://"+echo(t, "HTTP/1.1 200 OK\r\n")),
		"echo as status":    client(t, "http://"+echo(t, "HTTP/1.1 ")),
		"echo as body":      client(t, "http://"+echo(t, "HTTP/1.1 401 no\r\n\r\n")),
		"TLS to plain":      client(t, "https://"+echo(t, "")),
		"unknown host":      client(t, "https://management.invalid"),
		"password in a log": serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	}
	for _, status := range []int{200, 204, 301, 302, 307, 400, 401, 403, 404, 407, 429, 500, 503} {
		clients[fmt.Sprint("mirror ", status)] = serve(t, mirror(status))
	}
	for name, m := range clients {
		for what, ask := range map[string]func() error{
			"queue":    func() error { _, err := m.Queue(t.Context(), "/", "q"); return err },
			"queues":   func() error { _, _, err := m.Queues(t.Context(), "/", 10); return err },
			"exchange": func() error { _, err := m.Exchange(t.Context(), "/", "q"); return err },
			"bindings": func() error { _, err := m.BindingsFrom(t.Context(), "/", "q"); return err },
			"policies": func() error { _, err := m.Policies(t.Context(), "/"); return err },
			"overview": func() error { _, err := m.Overview(t.Context()); return err },
		} {
			err := ask()
			if err == nil {
				t.Errorf("%s: %s was answered", name, what)
				continue
			}
			holdsNoSecret(t, name, fmt.Sprintf("%v %+v %#v", err, err, err))
			for e := err; e != nil; e = errors.Unwrap(e) {
				holdsNoSecret(t, name, fmt.Sprintf("%v %#v", e, e))
			}
		}
	}
}
