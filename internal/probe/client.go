package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Timeout bounds one question from the connection to the last byte.
const Timeout = 3 * time.Second

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 10

// Errors of a target that can never be asked. Everything else that goes wrong
// is worth another try.
var (
	// ErrTarget is returned for a URL that no probe may use. The message says
	// what to change in the configuration.
	ErrTarget = errors.New("not a target for a probe")
	// ErrAddress is returned when a name leads to an address that is not allowed.
	// Allow its network for this target when that is meant.
	ErrAddress = errors.New("address is not allowed")
)

// Target is one place that is asked.
type Target struct {
	URL string
	// Allow lists networks that may be reached although they are private,
	// loopback or otherwise special.
	Allow []netip.Prefix
	// Plaintext permits http:// to other machines. To loopback it needs nobody.
	Plaintext bool
	// Token yields a bearer token; nil for none. It is asked for anew each time,
	// so that a changed file is taken.
	Token func() (string, error)
}

// client asks one target.
type client struct {
	target Target
	http   *http.Client
}

// special lists networks that netip has no word for and that are nobody's
// public address.
var special = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2002::/16", "fec0::/10")

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func newClient(t Target) (*client, error) {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the URL cannot be read: %w", ErrTarget) // its text may hold a password
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return nil, fmt.Errorf("want https://HOST/…: %w", ErrTarget)
	case u.User != nil:
		return nil, fmt.Errorf("%s: a password does not belong into a URL, use token_file: %w", u.Host, ErrTarget)
	case u.Fragment != "":
		return nil, fmt.Errorf("%s: a fragment is not sent: %w", u.Host, ErrTarget)
	case u.Scheme == "http" && !t.Plaintext && !loopback(u.Hostname()):
		return nil, fmt.Errorf("%s: plain http to another machine needs allow_plaintext: %w", u.Host, ErrTarget)
	}
	d := &net.Dialer{Timeout: Timeout, Control: t.control}
	return &client{target: t, http: &http.Client{
		Timeout: Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
		Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 32 << 10,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}},
	}}, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// control looks at the address that is about to be connected to.
func (t *Target) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w", address, ErrAddress)
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, p := range t.Allow {
		if p.Contains(ip) {
			return nil
		}
	}
	if !public(ip) {
		return fmt.Errorf("%s: %w; list its network under allow when that is meant", ip, ErrAddress)
	}
	return nil
}

func public(ip netip.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// ask sends one request and returns the status and the answer.
func (c *client) ask(ctx context.Context, method, to string, body io.Reader) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return 0, nil, fmt.Errorf("the URL cannot be asked: %w", ErrTarget)
	}
	req.Header.Set("User-Agent", "redrive")
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.target.Token != nil {
		token, err := c.target.Token()
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, plain(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return resp.StatusCode, nil, plain(err)
	case len(answer) > maxAnswer:
		return resp.StatusCode, nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return resp.StatusCode, answer, nil
}

// plain says what went wrong in words of ours. The library's own quote the URL,
// whose query may say too much, and the answer, which may say anything.
func plain(err error) error {
	var late interface{ Timeout() bool }
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("no answer within %s", Timeout)
	case errors.As(err, &op):
		return errors.New(op.Error()) // of addresses and system calls
	case errors.As(err, &cert):
		return errors.New(mistrust(cert.Err))
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("it does not speak TLS")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection ended before the answer did")
	}
	return errors.New("the answer is not HTTP")
}

// mistrust says what is wrong with a certificate, whose own words are those of
// whoever made it.
func mistrust(err error) string {
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &name):
		return "its certificate is for another name"
	case errors.As(err, &authority):
		return "its certificate is from an authority that this machine does not know"
	}
	return "its certificate has expired or is not valid"
}
