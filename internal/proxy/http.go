package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/worker"
)

// ErrHandler is returned for a handler that can never be asked. The message
// says what to change.
var ErrHandler = errors.New("not a handler")

// HTTP makes a handler of a service. Address is http:// or https://, without a
// password; now tells the time, for a Retry-After that is a date.
func HTTP(address string, now func() time.Time) (worker.Handler, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the address cannot be read: %w", ErrHandler) // its text may hold a password
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("want http://HOST:PORT/PATH or https://…: %w", ErrHandler)
	case u.User != nil:
		return nil, fmt.Errorf("%s: a password does not belong into an address: %w", u.Host, ErrHandler)
	}
	// Common servers end connections that wait for five seconds or longer. One
	// that ends at the moment of the next question would cost the message a try.
	const idle = time.Second
	c := &http.Client{
		// A redirect would send the body to a place that nobody named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{MaxIdleConnsPerHost: 1000, IdleConnTimeout: idle, MaxResponseHeaderBytes: maxAnswer,
			DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true},
	}
	return func(ctx context.Context, m *worker.Message) error { return ask(ctx, c, address, now, m) }, nil
}

// ask is one message.
func ask(ctx context.Context, c *http.Client, address string, now func() time.Time, m *worker.Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(m.Body))
	if err != nil {
		return worker.Systemic("", 0, fmt.Errorf("the handler cannot be asked: %w", ErrHandler))
	}
	// A question is never put twice behind the worker's back: a connection that
	// ends in the middle leaves open what was done.
	req.GetBody = nil
	req.Header.Set("User-Agent", "redrive")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/octet-stream")
	if m.View.Has(amqpwire.ContentType) && printable(m.View.ContentType) {
		req.Header.Set("Content-Type", m.View.ContentType)
	}
	for _, f := range facts(m) {
		req.Header.Set(headerName(f.name), f.value)
		if f.name == "operation" {
			req.Header.Set("Idempotency-Key", f.value)
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		return unanswered(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	answer, err := readUpTo(resp.Body)
	if err != nil && ctx.Err() != nil {
		return unanswered(ctx, err)
	}
	return judge(resp, answer, now(), m)
}

func printable(s string) bool { return s != "" && s == encode(s) }

// judge reads the table of the package comment. An answer that breaks off has
// its status still.
func judge(resp *http.Response, answer []byte, now time.Time, m *worker.Message) error {
	s, status := read(answer), resp.StatusCode
	if status >= 200 && status < 300 {
		m.Effect = s.Reference
		return nil
	}
	after := retryAfter(resp.Header.Get("Retry-After"), now)
	class := event.Permanent.String()
	switch {
	case status < 400:
		class = event.Systemic.String()
	case status == http.StatusConflict:
		class = duplicate
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		class = event.Systemic.String()
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500:
		class = event.Transient.String()
	}
	return s.failure(class, strconv.Itoa(status), after, fmt.Sprintf("the handler answered %d %s", status, http.StatusText(status)))
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32); err == nil {
		return seconds(float64(n))
	}
	if at, err := http.ParseTime(text); err == nil {
		return seconds(at.Sub(now).Seconds())
	}
	return 0
}

// unanswered is the failure of a question without an answer. Only a handler
// that cannot be reached says nothing about the message; any other end leaves
// open what was done with it. The library's own words quote the address.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return worker.Systemic("", 0, fmt.Errorf("the handler cannot be reached: %w", op)).WithCode("unreachable")
	}
	return &worker.Failure{Class: event.Unclassified, Code: "no_answer", Err: errors.New("the connection to the handler ended before its answer did, or the answer is not HTTP")}
}
