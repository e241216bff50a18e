package integration

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"strings"
)

// wire seeds the messages, captures them, compares what is stored, releases
// them to where they died, and compares what arrives.
func (c *caseRun) wire(ms ...message) {
	c.t.Helper()
	c.open(toWork)
	c.seed(ms...)
	c.capture(len(ms))
	for i, m := range ms {
		c.stored(nth(i+1), m)
	}
	c.replay(ms...)
}

func caseR01(c *caseRun) {
	ms := c.messages()
	c.wire(ms...)
	for i := range ms {
		if e := c.look(nth(i + 1)); e.Payload.Text != "" {
			c.t.Errorf("a body that is no text is shown as one: %q", e.Payload.Text)
		}
		out := c.s.ok("envelope", "show", nth(i+1), "--payload", "--raw", "--why", "R01").out.String()
		if !strings.Contains(out, "base64") || !strings.Contains(out, base64.StdEncoding.EncodeToString(ms[i].body)) {
			c.t.Errorf("people are not told that the body is shown as base64:\n%s", out)
		}
	}
	for i, e := range c.peek(deadQueue, len(ms)).Envelopes {
		if want := sha256.Sum256(ms[i].body); e.Identity.BodySHA256 != hex.EncodeToString(want[:]) || e.Size != uint64(len(ms[i].body)) {
			c.t.Errorf("peek says of message %d: %d bytes, %s", i, e.Size, e.Identity.BodySHA256)
		}
	}
}

func caseR02(c *caseRun) {
	ms := c.messages()
	c.wire(ms...)
	for i := range ms {
		out := c.s.ok("envelope", "show", nth(i+1)).out.String()
		if !strings.Contains(out, "0 bytes, sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") {
			c.t.Errorf("an empty body is not shown as one:\n%s", out)
		}
	}
}

func caseR03(c *caseRun) {
	ms := c.messages()
	c.wire(ms...)
	z, err := gzip.NewReader(bytes.NewReader(ms[0].body)) // which is what arrived
	must(c.t, err)
	plain, err := io.ReadAll(z)
	must(c.t, err)
	if string(plain) != `{"order":1}` {
		c.t.Errorf("the consumer unpacks %q", plain)
	}
	for i, want := range []string{"gzip", "gzip", "br, gzip"} {
		if e := c.look(nth(i + 1)); e.Payload.Encoding != want {
			c.t.Errorf("message %d: encoding %q, want %q", i, e.Payload.Encoding, want)
		}
	}
	// The manual says that packed bodies are not unpacked.
	c.selects(0, `body != null`)
	c.selects(1, `has(properties.content_encoding) && properties.content_encoding == "br, gzip"`)
}

func caseR05(c *caseRun) { c.wire(c.messages()...) }

func caseR07(c *caseRun) {
	ms := c.messages()
	c.wire(ms...)
	want := string(ms[0].body)
	if e := c.look("a-9"); e.Payload.Text != want {
		c.t.Errorf("JSON shows the body as %q, want %q", e.Payload.Text, want)
	}
	out := c.s.ok("envelope", "show", "a-9", "--payload", "--raw", "--why", "R07").out.String()
	if !strings.Contains(out, want) {
		c.t.Errorf("the terminal does not show the body as it is:\n%s", out)
	}
	if e := c.look("a-10"); e.Payload.Text != "\ufeff"+`{"x":1}` {
		c.t.Errorf("the byte order mark is not shown: %q", e.Payload.Text)
	}
	c.selects(1, `body.x == 10000000000000001`)
	c.selects(0, `body.x == 10000000000000000`)
	c.selects(1, `body.x == 1`)
	c.s.fails(2, "stands twice", "envelope", "list", "--where", `has(body.a) && body.a == 3`)
}
