package management

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Errors of a Client.
var (
	// ErrNotFound is returned when there is no such thing, or no such vhost.
	ErrNotFound = errors.New("not found")
	// ErrDenied is returned when the user may not look. Its text says what is
	// missing.
	ErrDenied = errors.New("the management API denies access")
	// ErrUnreachable is returned when the address did not answer in time.
	ErrUnreachable = errors.New("the management API does not answer")
	// ErrAnswer is returned for an answer that cannot be used. Check that the
	// address is that of the management API.
	ErrAnswer = errors.New("the answer is not that of a management API")
)

const (
	// DefaultTimeout bounds one request with its answer.
	DefaultTimeout = 10 * time.Second
	// maxAnswer bounds an answer. 500 queues with all their policies are a tenth
	// of it.
	maxAnswer = 8 << 20
	// idle is how long a connection is kept for the next question.
	idle = 5 * time.Second
)

// Config says how to reach a management API. It is copied when it is used.
type Config struct {
	// URL is http[s]://HOST[:PORT][/PREFIX], without user, query and fragment.
	// The port defaults to 15672, with https to 15671.
	URL string
	// User and Password log in. Password is read anew for each request; its
	// errors must not hold the secret.
	User     string
	Password func() (string, error)
	// AllowPlaintext permits http to hosts that are not this machine. Defaults
	// to false.
	AllowPlaintext bool
	// TLS makes the configuration for one connection. Defaults to one that
	// trusts the certificates of the system.
	TLS func(host string) (*tls.Config, error)
	// Timeout bounds one request. Defaults to DefaultTimeout.
	Timeout time.Duration
	// Dial opens the network connection. Defaults to a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// String hides everything but the address.
func (c Config) String() string {
	base, err := parse(c)
	if err != nil {
		return "management API"
	}
	return base.Scheme + "://" + base.Host
}

// Validate reports the first thing that is wrong with c. Its errors quote no
// part of the address: a password can be anywhere in it.
func (c Config) Validate() error {
	_, err := parse(c)
	if err == nil && c.Password == nil {
		err = errors.New("no password is given")
	}
	return err
}

func parse(c Config) (*url.URL, error) {
	if strings.Contains(c.URL, "@") {
		return nil, errors.New("the address must not hold user and password; they have settings of their own")
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return nil, errors.New("the address is not http://HOST:PORT or https://HOST:PORT")
	case u.Hostname() == "":
		return nil, errors.New("the address names no host")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(c.URL, "#"):
		return nil, errors.New("the address must end with the host, the port or a path: no ? and no #")
	case u.Scheme == "http" && !c.AllowPlaintext && !loopback(u.Hostname()):
		return nil, errors.New("the address is that of another machine: use https, or allow plaintext")
	}
	if u.Port() == "" {
		port := "15672"
		if u.Scheme == "https" {
			port = "15671"
		}
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Client asks one management API. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base string // scheme, host, prefix
	http *http.Client
}

// New makes a Client. It asks nothing yet.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := parse(c)
	if err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.TLS == nil {
		c.TLS = func(host string) (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}, nil
		}
	}
	m := &Client{cfg: c, base: strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/")}
	m.http = &http.Client{
		Transport: &http.Transport{DialContext: c.Dial, DialTLSContext: m.dialTLS, IdleConnTimeout: idle, MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10},
		// The caller sees the redirect itself.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return m, nil
}

// Address is where the API is, for people.
func (m *Client) Address() string { return m.base }

// Close ends connections that are kept for the next question.
func (m *Client) Close() { m.http.CloseIdleConnections() }

// errTLS marks what went wrong before HTTP began.
type errTLS struct{ error }

func (e errTLS) Unwrap() error { return e.error }

func (m *Client) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	conf, err := m.cfg.TLS(host)
	if err != nil {
		return nil, errTLS{err}
	}
	conn, err := m.cfg.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, conf)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, errTLS{err}
	}
	return secure, nil
}

// segment encodes one name of a path.
func segment(name string) (string, error) {
	if name == "." || name == ".." {
		return "", fmt.Errorf("%w: an address cannot carry the name %q", ErrAnswer, name)
	}
	if name == "" {
		return "", fmt.Errorf("%w: an address cannot carry an empty name", ErrAnswer)
	}
	return url.PathEscape(name), nil
}

// get asks for a path of segments and reads the answer into out.
func (m *Client) get(ctx context.Context, out any, query string, segments ...string) error {
	body, err := m.send(ctx, http.MethodGet, nil, query, segments...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%w: it is not the JSON that was expected", ErrAnswer)
	}
	return nil
}

// put writes what is named by a path of segments.
func (m *Client) put(ctx context.Context, in any, segments ...string) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("%w: the request cannot be made", ErrAnswer)
	}
	_, err = m.send(ctx, http.MethodPut, body, "", segments...)
	return err
}

// send makes one request and returns the body of a good answer.
func (m *Client) send(ctx context.Context, method string, in []byte, query string, segments ...string) ([]byte, error) {
	path := m.base + "/api"
	for _, s := range segments {
		enc, err := segment(s)
		if err != nil {
			return nil, err
		}
		path += "/" + enc
	}
	if query != "" {
		path += "?" + query
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(in))
	if err != nil {
		return nil, fmt.Errorf("%w: the request cannot be made", ErrAnswer)
	}
	password, err := m.cfg.Password()
	if err != nil {
		return nil, fmt.Errorf("%w: password: %w", ErrDenied, err)
	}
	req.SetBasicAuth(m.cfg.User, password)
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	// A PUT twice is a PUT once, so package http may put it again when the broker
	// ended the waiting connection at that moment. An empty value is not sent.
	req.Header["Idempotency-Key"] = []string{}
	resp, err := m.http.Do(req)
	if err != nil {
		return nil, m.transportError(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, m.transportError(ctx, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrAnswer, maxAnswer)
	case method == http.MethodGet && resp.StatusCode == http.StatusOK,
		method == http.MethodPut && (resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusNoContent):
		return body, nil
	}
	return nil, m.refusal(resp.StatusCode, body)
}

// transportError says in our own words what went wrong on the way. The words of
// package http quote what the other side sent.
func (m *Client) transportError(ctx context.Context, err error) error {
	var secure errTLS
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", ErrUnreachable, context.Canceled)
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w within %v", ErrUnreachable, m.cfg.Timeout)
	case errors.As(err, &secure):
		return fmt.Errorf("%w: TLS: %s", ErrUnreachable, tlsWords(secure.error))
	case errors.As(err, &dns):
		return fmt.Errorf("%w: its host is not known", ErrUnreachable)
	case errors.As(err, &op):
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, op.Op, op.Err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the connection ended", ErrUnreachable)
	}
	return fmt.Errorf("%w: it is not HTTP", ErrAnswer)
}

func tlsWords(err error) string {
	var invalid *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		return "the other side does not speak it"
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &invalid):
		return "the certificate does not hold: " + invalid.Err.Error()
	}
	return err.Error()
}

// refusal turns a status into an error. Of the body only known words count.
func (m *Client) refusal(status int, body []byte) error {
	var said struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(body, &said) // what is no JSON says nothing
	switch {
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusUnauthorized && said.Reason == "Not management user":
		return fmt.Errorf("%w: the user %q has none of the tags management, monitoring, policymaker, administrator", ErrDenied, m.cfg.User)
	case status == http.StatusUnauthorized && strings.HasPrefix(said.Reason, "User not authorised to access"):
		return fmt.Errorf("%w: the user %q has no permissions in this vhost", ErrDenied, m.cfg.User)
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: the log-in of user %q was refused", ErrDenied, m.cfg.User)
	case status == http.StatusForbidden:
		return fmt.Errorf("%w to user %q (403)", ErrDenied, m.cfg.User)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: it is a redirect (%d), which is not followed", ErrAnswer, status)
	case status >= 500 || status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: status %d", ErrUnreachable, status)
	}
	return fmt.Errorf("%w: status %d", ErrAnswer, status)
}
