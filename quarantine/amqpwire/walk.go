package amqpwire

import (
	"encoding/binary"
	"fmt"
)

// Lookup decodes the first header of that name and no other, for those who
// need one value of many messages. It is false when there is none, or when the
// table cannot be walked as far as that.
func Lookup(props []byte, name string) (Value, bool) {
	l := scan(props)
	s := l.of(Headers)
	if s.to == s.from {
		return Value{}, false
	}
	table := props[s.from+4 : s.to]
	for off := 0; off < len(table); {
		size, n, err := fieldSize(table[off:])
		if err != nil {
			return Value{}, false
		}
		field := table[off : off+size]
		if string(field[1:1+n]) == name {
			d := decoder{budget: MaxValues}
			return d.value(Kind(field[1+n]), field[2+n:], 1), true
		}
		off += size
	}
	return Value{}, false
}

// container is a table or array that Walk is inside of.
type container struct {
	kind Kind
	end  int // where it ends, as an offset into the header table
}

// Walk visits every header value at every depth, in wire order, containers
// before what they hold. It has no limit of depth or number, and returns
// ErrUnwalkable when not every byte of the properties can be accounted for:
// then no broker would take them either. An error of visit ends the walk and
// is returned. The value given to visit is without its type byte, and aliases
// props.
func Walk(props []byte, visit func(k Kind, value []byte) error) error {
	l := scan(props)
	if l.problem != "" {
		return fmt.Errorf("%s: %w", l.problem, ErrUnwalkable)
	}
	s := l.of(Headers)
	if s.to == s.from {
		return nil
	}
	table := props[s.from+4 : s.to]
	open := []container{{Table, len(table)}}
	for off := 0; len(open) > 0; {
		in := open[len(open)-1]
		if off == in.end {
			open = open[:len(open)-1]
			continue
		}
		k, at, n, err := next(table[off:in.end], in.kind)
		if err != nil {
			return fmt.Errorf("headers: byte %d: %w: %w", off, err, ErrUnwalkable)
		}
		value := table[off+at : off+at+n]
		if err := visit(k, value); err != nil {
			return err
		}
		off += at + n
		if k == Table || k == Array {
			off -= n - 4
			open = append(open, container{k, off + int(binary.BigEndian.Uint32(value))})
		}
	}
	return nil
}

// next finds the value at the start of b, which lies in a container of the
// given kind: its kind, where it begins, and its size.
func next(b []byte, in Kind) (k Kind, at, n int, err error) {
	if in == Table {
		size, name, err := fieldSize(b)
		if err != nil {
			return 0, 0, 0, err
		}
		return Kind(b[1+name]), 2 + name, size - 2 - name, nil
	}
	k = Kind(b[0])
	if n = valueSize(b[1:], k); n < 0 {
		return 0, 0, 0, fmt.Errorf("item of type %s is unknown or cut off", k)
	}
	return k, 1, n, nil
}

// Short returns a short-string property without decoding anything else. It is
// false when the property is absent or p is not one short-string property.
func Short(props []byte, p Property) (string, bool) {
	l := scan(props)
	s := l.of(p)
	if s.to == s.from || shapeOf(p) != shapeShort {
		return "", false
	}
	return string(props[s.from+1 : s.to]), true
}

// Octet returns a property of 8 bits without decoding anything else. It is
// false when the property is absent or p is not delivery_mode or priority.
func Octet(props []byte, p Property) (byte, bool) {
	l := scan(props)
	s := l.of(p)
	if s.to == s.from || shapeOf(p) != shapeOctet {
		return 0, false
	}
	return props[s.from], true
}
