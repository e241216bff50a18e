// Package stamp marks released messages, so that one that comes back, or an
// outcome that is reported for it, can be told from a forgery.
//
// # Format
//
// A stamp is four headers of kind S:
//
//	x-redrive-generation  ULID of the generation
//	x-redrive-envelope    ULID of the envelope
//	x-redrive-intent      "POSITION/TRY" in decimal without leading zeros,
//	                      position from 0, try from 1
//	x-redrive-mac         32 lower-case hex digits
//
// The MAC is the first 16 bytes of HMAC-SHA-256, under a 32-byte key that never
// leaves the store, over
//
//	"redrive stamp v1\n" generation envelope intent exchange routing-key
//
// where each of the five parts is preceded by its length in 32 bits, big
// endian, and intent is the text of its header. The destination is part of it:
// a stamp copied to a message for another queue does not verify there.
//
// # Invariants
//
// Read(Headers(s, mac)) yields s and mac. A message has no stamp (no header of
// a stamp's name), a well-formed one, or a malformed one; one with a missing,
// repeated, differently typed or differently spelled header is malformed, never
// absent. Whether a well-formed one is genuine only Verify says.
//
// # Compatibility
//
// Stamped messages outlive the program that stamped them: neither the headers
// nor the MAC's input ever change under these names. The vectors in testdata
// are append-only.
//
// # Example
//
//	s := stamp.Stamp{Generation: gen, Envelope: env, Position: 17, Try: 1}
//	edit.Set(s.Headers(key.Sign(s, exchange, routingKey))...)
package stamp

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Names of the headers. See Names for all of them.
const (
	HeaderGeneration = "x-redrive-generation"
	HeaderEnvelope   = "x-redrive-envelope"
	HeaderIntent     = "x-redrive-intent"
	HeaderMAC        = "x-redrive-mac"
)

// HeaderGap stands beside a stamp when messages before this one, in the order
// of its key, were not delivered: "N" for exactly N of them, "N+" for at least
// N, "unknown". It is a notice for consumers and proves nothing: it is not
// under the MAC, and Read does not look at it. A message that has only this
// header has no stamp.
const HeaderGap = "x-redrive-gap"

// Names returns the names of all headers of a stamp and of the notice beside
// it, which are stripped before a new stamp is put on.
func Names() []string { return append(parts(), HeaderGap) }

// parts are the headers that make a stamp.
func parts() []string {
	return []string{HeaderGeneration, HeaderEnvelope, HeaderIntent, HeaderMAC}
}

// domain separates these MACs from every other use of a key, and is their
// version.
const domain = "redrive stamp v1\n"

// idLen is the length of a ULID.
const idLen = 26

// ErrMalformed is returned by Read when a message has headers of a stamp that
// are not one. Treat the message as not released by us, and say so.
var ErrMalformed = errors.New("malformed stamp")

// Stamp names one try to release one envelope.
type Stamp struct {
	Generation string // ULID
	Envelope   string // ULID
	Position   uint32 // in the cohort, from 0
	Try        uint8  // from 1
}

// MAC authenticates a stamp together with a destination.
type MAC [16]byte

// String is the MAC as it stands in its header.
func (m MAC) String() string { return hex.EncodeToString(m[:]) }

// Key is the secret under which stamps are signed.
type Key [32]byte

// Format writes a fixed word for every verb: a key is never printed.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("stamp.Key(hidden)")) }

// MarshalText refuses, so that no encoder writes a key by accident.
func (Key) MarshalText() ([]byte, error) { return nil, errors.New("a stamp key is not for encoding") }

// Intent returns the text of the intent header.
func (s Stamp) Intent() string {
	var b [14]byte
	out := strconv.AppendUint(b[:0], uint64(s.Position), 10)
	out = append(out, '/')
	return string(strconv.AppendUint(out, uint64(s.Try), 10))
}

// Sign returns the MAC of s for a destination. It does not check s.
func (k Key) Sign(s Stamp, exchange, routingKey string) MAC {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(domain))
	for _, part := range [...]string{s.Generation, s.Envelope, s.Intent(), exchange, routingKey} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	var sum [sha256.Size]byte
	return MAC(h.Sum(sum[:0])[:len(MAC{})])
}

// Verify reports whether mac was made by Sign with this key, for this stamp and
// destination. The time it takes does not depend on how much of it is right.
func (k Key) Verify(s Stamp, exchange, routingKey string, mac MAC) bool {
	want := k.Sign(s, exchange, routingKey)
	return subtle.ConstantTimeCompare(want[:], mac[:]) == 1
}

// Headers returns the headers of a stamped message, in the order of Names and
// without the notice.
func (s Stamp) Headers(mac MAC) []amqpwire.Field {
	return []amqpwire.Field{
		amqpwire.StringField(HeaderGeneration, s.Generation),
		amqpwire.StringField(HeaderEnvelope, s.Envelope),
		amqpwire.StringField(HeaderIntent, s.Intent()),
		amqpwire.StringField(HeaderMAC, mac.String()),
	}
}

// Read takes the stamp off a view. present says whether any header of a stamp
// is there; with an error, which wraps ErrMalformed and quotes no content, the
// stamp and the MAC are zero.
func Read(v amqpwire.View) (s Stamp, mac MAC, present bool, err error) {
	var texts [4]string
	var seen [4]int
	names := parts()
	for _, f := range v.Headers {
		for i, name := range names {
			if f.Name != name {
				continue
			}
			present = true
			seen[i]++
			text, ok := f.Data.(string)
			if !ok && err == nil {
				err = fmt.Errorf("%s is of type %s: %w", name, f.Kind, ErrMalformed)
			}
			texts[i] = text
		}
	}
	if !present || err != nil {
		return Stamp{}, MAC{}, present, err
	}
	for i, n := range seen {
		if n != 1 {
			return Stamp{}, MAC{}, true, fmt.Errorf("%s occurs %d times: %w", names[i], n, ErrMalformed)
		}
	}
	s, mac, err = parse(texts)
	if err != nil {
		return Stamp{}, MAC{}, true, err
	}
	return s, mac, true, nil
}

// parse reads the texts of the four headers, in the order of Names.
func parse(texts [4]string) (Stamp, MAC, error) {
	s := Stamp{Generation: texts[0], Envelope: texts[1]}
	for i, id := range texts[:2] {
		if !isULID(id) {
			return s, MAC{}, fmt.Errorf("%s is not a ULID: %w", Names()[i], ErrMalformed)
		}
	}
	pos, try, _ := strings.Cut(texts[2], "/")
	p, err1 := strconv.ParseUint(pos, 10, 32)
	t, err2 := strconv.ParseUint(try, 10, 8)
	s.Position, s.Try = uint32(p), uint8(t)
	if err1 != nil || err2 != nil || t == 0 || s.Intent() != texts[2] {
		return s, MAC{}, fmt.Errorf("%s is not POSITION/TRY: %w", HeaderIntent, ErrMalformed)
	}
	var mac MAC
	n, err := hex.Decode(mac[:], []byte(texts[3][:min(len(texts[3]), 2*len(mac))]))
	if err != nil || n != len(mac) || mac.String() != texts[3] {
		return s, MAC{}, fmt.Errorf("%s is not 32 lower-case hex digits: %w", HeaderMAC, ErrMalformed)
	}
	return s, mac, nil
}

// isULID reports whether s is a ULID in canonical spelling.
func isULID(s string) bool {
	if len(s) != idLen || s[0] > '7' {
		return false
	}
	for i := range len(s) {
		if !strings.Contains("0123456789ABCDEFGHJKMNPQRSTVWXYZ", s[i:i+1]) {
			return false
		}
	}
	return true
}
