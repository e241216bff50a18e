package event

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Version is the format version that this code writes.
const Version = 1

// MaxRecord is the most bytes of a record's line.
const MaxRecord = 4096

// Errors of reading and writing records.
var (
	// ErrTooLarge is returned when a record would exceed MaxRecord. Split the
	// batch, or store the large part as an Object and keep its digest.
	ErrTooLarge = errors.New("record exceeds 4096 bytes")
	// ErrFuture is returned for a record of a newer format or of an unknown
	// kind. Use the redrive version that wrote it, or a newer one.
	ErrFuture = errors.New("record was written by a newer version of redrive")
)

// Digest is a SHA-256 hash.
type Digest [sha256.Size]byte

// String is the hexadecimal form, 64 digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest is the inverse of Digest.String.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) {
		return d, fmt.Errorf("digest %q: want 64 hexadecimal digits", clip(s))
	}
	b, err := hex.DecodeString(s)
	if err != nil || hex.EncodeToString(b) != s {
		return d, fmt.Errorf("digest %q: want 64 lower-case hexadecimal digits", clip(s))
	}
	return Digest(b), nil
}

// Body is the part of a record that depends on its kind. The set of bodies is
// closed: they are listed in Kinds.
type Body interface {
	Kind() Kind
	visit(c *Coder)
}

// Event is what a decision asks the ledger to record.
type Event struct {
	Subj    Subject
	Body    Body
	Actor   *Actor   // nil: the actor of the request
	Objects []Object // stored in the same transaction, before the record is applied
}

// Bucket names a key space of the store. Append promises that new keys are
// larger than all keys before, so that a driver can fill its pages.
type Bucket struct {
	Name   string
	Append bool
}

// Object is data too large or too private for a record, stored beside it. A
// nil Value removes the key.
type Object struct {
	Bucket Bucket
	Key    []byte
	Value  []byte
}

// Record is one entry of the ledger.
type Record struct {
	Seq   uint64
	TS    uint64 // wall clock, ms since 1970 UTC
	Mono  uint64 // ms since the epoch began
	Epoch uint64
	Actor Actor
	Req   string
	Subj  Subject
	Prev  Digest // zero in the first record
	Body  Body
}

// AppendLine appends the canonical line of r, without a line feed.
func (r *Record) AppendLine(dst []byte) ([]byte, error) {
	if r.Seq == 0 || r.Body == nil {
		return nil, errors.New("record without seq or body")
	}
	start := len(dst)
	out, err := AppendObject(dst, func(c *Coder) { r.visit(c, r.Body.Kind()) })
	if err != nil {
		return nil, fmt.Errorf("record %d (%s): %w", r.Seq, r.Body.Kind(), err)
	}
	if len(out)-start > MaxRecord {
		return nil, fmt.Errorf("record %d (%s, %d bytes): %w", r.Seq, r.Body.Kind(), len(out)-start, ErrTooLarge)
	}
	return out, nil
}

func (r *Record) visit(c *Coder, kind Kind) {
	Nested(c, "actor", r.Actor == Actor{}, r.Actor.visit)
	// The body stands before the kind in the line, so a reader learns the kind
	// first from the caller, see ParseRecord.
	if c.key("body") {
		c.object(func() { r.Body.visit(c) })
	} else {
		c.fail("record without body")
	}
	Num(c, "epoch", &r.Epoch)
	Text(c, "kind", &kind)
	Num(c, "mono", &r.Mono)
	visitDigest(c, "prev", &r.Prev)
	Text(c, "req", &r.Req)
	Num(c, "seq", &r.Seq)
	Nested(c, "subj", r.Subj == Subject{}, r.Subj.visit)
	Num(c, "ts", &r.TS)
	var v uint8
	if !c.reading {
		v = Version
	}
	Num(c, "v", &v)
	if c.reading && c.err == nil && v == 0 {
		c.fail("record without a format version")
	}
	if c.reading && c.err == nil && v != Version {
		c.err = fmt.Errorf("format version %d: %w", v, ErrFuture)
	}
}

func visitDigest(c *Coder, name string, d *Digest) {
	if !c.reading {
		if *d != (Digest{}) {
			s := d.String()
			Text(c, name, &s)
		}
		return
	}
	var s string
	Text(c, name, &s)
	if s == "" || c.err != nil {
		return
	}
	v, err := ParseDigest(s)
	if err != nil || v == (Digest{}) {
		c.fail("field %q: not a digest", name)
		return
	}
	*d = v
}

// ParseRecord reads the line of a record. It accepts exactly what AppendLine
// writes; on error the record is nil.
func ParseRecord(line []byte) (*Record, error) {
	if len(line) > MaxRecord {
		return nil, ErrTooLarge
	}
	kind, err := peekKind(line)
	if err != nil {
		return nil, err
	}
	body := newBody(kind)
	if body == nil {
		return nil, fmt.Errorf("kind %q: %w", clip(string(kind)), ErrFuture)
	}
	r := &Record{Body: body}
	if err := ReadObject(line, func(c *Coder) { r.visit(c, kind) }); err != nil {
		return nil, fmt.Errorf("record of kind %s: %w", kind, err)
	}
	if r.Seq == 0 {
		return nil, errors.New("record without seq")
	}
	return r, nil
}

// peekKind finds the kind of a record without understanding its body, by
// skipping over the values of the top-level object.
func peekKind(line []byte) (Kind, error) {
	depth := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			s, rest, err := readString(line[i:])
			if err != nil {
				return "", fmt.Errorf("record: %w", err)
			}
			if depth == 1 && s == "kind" && len(rest) > 0 && rest[0] == ':' {
				k, _, err := readString(rest[1:])
				return Kind(k), err
			}
			i = len(line) - len(rest) - 1
		}
	}
	return "", errors.New("record without kind")
}

// HashLine is the RFC 6962 leaf hash of a record's line.
func HashLine(line []byte) Digest {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(line)
	return Digest(h.Sum(nil))
}
