package event

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Coder walks the fields of a value in canonical order and either writes or
// reads them. One visit method per type serves both directions, so that they
// cannot drift apart.
type Coder struct {
	buf     []byte // written so far, or still to be read
	reading bool
	last    string // last key of the current object, to hold the order
	begun   bool   // a field of the current object was written or read
	err     error
}

func (c *Coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// key writes a key, or reports whether it is the next one to read.
func (c *Coder) key(name string) bool {
	if c.err != nil {
		return false
	}
	if name <= c.last {
		c.fail("field %q out of order after %q", name, c.last)
		return false
	}
	if !c.reading {
		c.last = name
		if c.begun {
			c.buf = append(c.buf, ',')
		}
		c.begun = true
		c.buf = append(c.buf, '"')
		c.buf = append(c.buf, name...)
		c.buf = append(c.buf, '"', ':')
		return true
	}
	want := `"` + name + `":`
	if c.begun {
		want = "," + want
	}
	if len(c.buf) < len(want) || string(c.buf[:len(want)]) != want {
		return false
	}
	c.last, c.begun = name, true
	c.buf = c.buf[len(want):]
	return true
}

// Num visits an unsigned integer. Zero is left out.
func Num[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Coder, name string, p *T) {
	if !c.reading {
		if *p != 0 && c.key(name) {
			c.buf = strconv.AppendUint(c.buf, uint64(*p), 10)
		}
		return
	}
	if !c.key(name) {
		return
	}
	n := 0
	for n < len(c.buf) && c.buf[n] >= '0' && c.buf[n] <= '9' {
		n++
	}
	v, err := strconv.ParseUint(string(c.buf[:n]), 10, 64)
	if err != nil || v == 0 || c.buf[0] == '0' || uint64(T(v)) != v {
		c.fail("field %q: not a canonical number in range", name)
		return
	}
	*p = T(v)
	c.buf = c.buf[n:]
}

// Text visits a string. The empty one is left out.
func Text[T ~string](c *Coder, name string, p *T) {
	if !c.reading {
		if *p != "" && c.key(name) {
			if !utf8.ValidString(string(*p)) {
				c.fail("field %q: not valid UTF-8", name)
				return
			}
			c.buf = AppendString(c.buf, string(*p))
		}
		return
	}
	if !c.key(name) {
		return
	}
	s, rest, err := readString(c.buf)
	if err != nil || s == "" {
		c.fail("field %q: not a canonical string", name)
		return
	}
	*p, c.buf = T(s), rest
}

// Set visits a set of numbers as the string of Ranges.String.
func Set(c *Coder, name string, p *Ranges) {
	if !c.reading {
		s := p.String()
		Text(c, name, &s)
		return
	}
	var s string
	Text(c, name, &s)
	r, err := ParseRanges(s)
	if err != nil {
		c.fail("field %q: %w", name, err)
		return
	}
	*p = r
}

// Texts visits a list of strings. The empty list is left out.
func Texts(c *Coder, name string, p *[]string) {
	list(c, name, p, func(s *string) {
		if !c.reading {
			c.buf = AppendString(c.buf, *s)
			return
		}
		v, rest, err := readString(c.buf)
		if err != nil {
			c.fail("field %q: %w", name, err)
			return
		}
		*s, c.buf = v, rest
	})
}

// Nums visits a list of numbers, zeros included. The empty list is left out.
func Nums[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Coder, name string, p *[]T) {
	list(c, name, p, func(v *T) {
		if !c.reading {
			c.buf = strconv.AppendUint(c.buf, uint64(*v), 10)
			return
		}
		n := 0
		for n < len(c.buf) && c.buf[n] >= '0' && c.buf[n] <= '9' {
			n++
		}
		u, err := parseUint(string(c.buf[:n]))
		if n == 0 || err != nil || uint64(T(u)) != u {
			c.fail("field %q: not a canonical number in range", name)
			return
		}
		*v, c.buf = T(u), c.buf[n:]
	})
}

func list[T any](c *Coder, name string, p *[]T, item func(*T)) {
	if !c.reading {
		if len(*p) == 0 || !c.key(name) {
			return
		}
		for i := range *p {
			c.buf = append(c.buf, "[,"[min(i, 1)])
			item(&(*p)[i])
		}
		c.buf = append(c.buf, ']')
		return
	}
	if !c.key(name) {
		return
	}
	for c.err == nil {
		if !c.take("[,"[min(len(*p), 1)]) {
			c.fail("field %q: not a canonical list", name)
			return
		}
		var v T
		item(&v)
		*p = append(*p, v)
		if c.take(']') {
			return
		}
	}
}

// Nested visits a nested object. An object without fields is left out.
func Nested(c *Coder, name string, empty bool, visit func(*Coder)) {
	if !c.reading && empty {
		return
	}
	if !c.key(name) {
		return
	}
	if c.reading && len(c.buf) > 1 && c.buf[0] == '{' && c.buf[1] == '}' {
		c.fail("field %q: an empty object has a shorter spelling: none", name)
		return
	}
	c.object(func() { visit(c) })
}

func (c *Coder) object(visit func()) {
	last, begun := c.last, c.begun
	c.last, c.begun = "", false
	if !c.reading {
		c.buf = append(c.buf, '{')
		visit()
		c.buf = append(c.buf, '}')
	} else if c.take('{') {
		visit()
		if c.err == nil && !c.take('}') {
			c.fail("unknown or misplaced field at %q", clip(string(c.buf)))
		}
	} else {
		c.fail("not an object at %q", clip(string(c.buf)))
	}
	c.last, c.begun = last, begun
}

func (c *Coder) take(b byte) bool {
	if len(c.buf) == 0 || c.buf[0] != b {
		return false
	}
	c.buf = c.buf[1:]
	return true
}

// AppendObject appends the canonical JSON object that visit describes.
func AppendObject(dst []byte, visit func(*Coder)) ([]byte, error) {
	c := Coder{buf: dst}
	c.object(func() { visit(&c) })
	if c.err != nil {
		return nil, c.err
	}
	return c.buf, nil
}

// ReadObject fills a value from the canonical JSON object that AppendObject
// would write for it, and refuses every other spelling.
func ReadObject(src []byte, visit func(*Coder)) error {
	c := Coder{buf: src, reading: true}
	c.object(func() { visit(&c) })
	if c.err == nil && len(c.buf) > 0 {
		c.fail("%d bytes after the object", len(c.buf))
	}
	return c.err
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string in the one spelling of RFC 8785.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		b := s[i]
		switch {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b >= 0x20:
			dst = append(dst, b)
		case shortEscape[b] != 0:
			dst = append(dst, '\\', shortEscape[b])
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
	}
	return append(dst, '"')
}

var shortEscape = [0x20]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}

// readString reads the JSON string at the start of src and refuses spellings
// that AppendString would not produce.
func readString(src []byte) (s string, rest []byte, err error) {
	bad := func() (string, []byte, error) {
		return "", nil, fmt.Errorf("not a canonical string at %q", clip(string(src)))
	}
	if len(src) == 0 || src[0] != '"' {
		return bad()
	}
	var out []byte
	i := 1
	for i < len(src) && src[i] != '"' {
		switch {
		case src[i] < 0x20:
			return bad()
		case src[i] != '\\':
			out = append(out, src[i])
			i++
		default:
			b, n := unescape(src[i:])
			if n == 0 {
				return bad()
			}
			out = append(out, b)
			i += n
		}
	}
	if i >= len(src) || !utf8.Valid(out) {
		return bad()
	}
	return string(out), src[i+1:], nil
}

// unescape reads one escape sequence and returns its byte and length, or 0 for
// a sequence that is not canonical.
func unescape(src []byte) (byte, int) {
	if len(src) < 2 {
		return 0, 0
	}
	switch e := src[1]; e {
	case '"', '\\':
		return e, 2
	case 'u':
		if len(src) < 6 || src[2] != '0' || src[3] != '0' {
			return 0, 0
		}
		v, err := strconv.ParseUint(string(src[4:6]), 16, 8)
		if err != nil || v >= 0x20 || shortEscape[v] != 0 || string(src[4:6]) != string([]byte{hexDigits[v>>4], hexDigits[v&15]}) {
			return 0, 0
		}
		return byte(v), 6
	default:
		for b, short := range shortEscape {
			if short == e && short != 0 {
				return byte(b), 2
			}
		}
	}
	return 0, 0
}
