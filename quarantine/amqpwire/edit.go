package amqpwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ErrUnwalkable is returned when an edit would have to guess where a property
// or header ends. The message can still be released without that edit.
var ErrUnwalkable = errors.New("properties cannot be edited without guessing")

// Editor collects changes to property bytes. Its methods may be called in any
// order; the result is: strip, then drop, then set in the order of the calls.
// An Editor belongs to one goroutine.
type Editor struct {
	props []byte
	strip []string
	drop  Property
	set   []Field
	mode  int                 // delivery mode to set, -1 for none
	short map[Property]string // short strings to set
}

// Edit starts changes to props, which is never modified.
func Edit(props []byte) *Editor { return &Editor{props: props, mode: -1, short: map[Property]string{}} }

// Strip removes all headers of these exact names. When the last header goes,
// the empty table stays: whether the property is present is never changed by
// removing headers.
func (e *Editor) Strip(names ...string) { e.strip = append(e.strip, names...) }

// Drop removes the properties of the set p. Dropping Headers removes the whole
// table, and headers that are set go to a new one.
func (e *Editor) Drop(p Property) { e.drop |= p }

// Set removes all headers of the names of fields and puts fields at the end of
// the table, which is created when there is none. Of several fields of one
// name, all are put there.
func (e *Editor) Set(fields ...Field) {
	for _, f := range fields {
		e.strip = append(e.strip, f.Name)
	}
	e.set = append(e.set, fields...)
}

// SetDeliveryMode sets the delivery mode, for messages that were transient and
// are to survive from now on.
func (e *Editor) SetDeliveryMode(m uint8) { e.mode = int(m) }

// SetContentType sets the content type, which has at most 255 bytes.
func (e *Editor) SetContentType(s string) { e.short[ContentType] = s }

// SetExpiration sets the time-to-live, milliseconds in decimal.
func (e *Editor) SetExpiration(ms uint32) {
	e.short[Expiration] = strconv.FormatUint(uint64(ms), 10)
}

// Bytes returns the edited properties. It returns ErrUnwalkable when a change
// was asked for and the bytes cannot be understood far enough to make it,
// ErrTooLong or ErrValue for a header that no frame can hold, and nil bytes
// with every error. The result may alias the input when nothing changed.
func (e *Editor) Bytes() ([]byte, error) {
	if len(e.strip) == 0 && len(e.set) == 0 && e.drop == 0 && e.mode < 0 && len(e.short) == 0 {
		return e.props, nil
	}
	l := scan(e.props)
	if l.problem != "" {
		return nil, fmt.Errorf("%s: %w", l.problem, ErrUnwalkable)
	}
	if n := len(e.short[ContentType]); n > 255 {
		return nil, fmt.Errorf("a content type of %d bytes: %w", n, ErrTooLong)
	}
	flags := e.flags(l.flags)
	out := make([]byte, 0, len(e.props)+64*len(e.set)+8)
	out = append(out, e.props[:l.list]...)
	kept := binary.BigEndian.Uint16(out) & (flagMore | flagUnused)
	binary.BigEndian.PutUint16(out, uint16(flags)|kept)
	var err error
	for i := range propertyCount {
		p := ContentType >> i
		if flags&p == 0 {
			continue
		}
		value := e.props[l.spans[i].from:l.spans[i].to]
		text, short := e.short[p]
		switch {
		case p == Headers:
			if l.flags&e.drop&p != 0 {
				value = nil
			}
			out, err = e.appendHeaders(out, value)
			if err != nil {
				return nil, err
			}
		case short:
			out = append(append(out, byte(len(text))), text...)
		case p == DeliveryMode && e.mode >= 0:
			out = append(out, byte(e.mode))
		default:
			out = append(out, value...)
		}
	}
	return out, nil
}

// flags are the properties that are there afterwards.
func (e *Editor) flags(before Property) Property {
	flags := before &^ e.drop
	if len(e.set) > 0 {
		flags |= Headers
	}
	if e.mode >= 0 {
		flags |= DeliveryMode
	}
	for p := range e.short {
		flags |= p
	}
	return flags
}

// appendHeaders appends the edited table. The value is the old one with its
// length, or nil when there was none.
func (e *Editor) appendHeaders(out, value []byte) ([]byte, error) {
	start := len(out)
	out = append(out, 0, 0, 0, 0)
	var err error
	if len(value) > 4 {
		out, err = appendWithout(out, value[4:], e.strip)
		if err != nil {
			return nil, err
		}
	}
	for _, f := range e.set {
		if out, err = appendField(out, f, 1); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-4))
	return out, nil
}

// appendWithout appends the fields of a table but those of the given names.
func appendWithout(out, table []byte, names []string) ([]byte, error) {
	if len(names) == 0 {
		return append(out, table...), nil
	}
	for off := 0; off < len(table); {
		size, name, err := fieldSize(table[off:])
		if err != nil {
			return nil, fmt.Errorf("headers: byte %d: %w: %w", off, err, ErrUnwalkable)
		}
		field := table[off : off+size]
		if !slices.Contains(names, string(field[1:1+name])) {
			out = append(out, field...)
		}
		off += size
	}
	return out, nil
}
