package amqpwire

import (
	"encoding/binary"
	"fmt"
)

// span is a half-open range of bytes.
type span struct{ from, to int }

// layout says where each property lies. It is what Parse and Edit share, so
// that they can never disagree about it.
type layout struct {
	flags   Property // of the first word, without flagMore and flagUnused
	list    int      // where the property list begins
	spans   [propertyCount]span
	end     int    // where the last understood property ends
	problem string // "" when every byte is accounted for
}

// scan never fails: it goes as far as it can and says in problem what stopped it.
func scan(b []byte) layout {
	var l layout
	more := true
	for more {
		if len(b)-l.list < 2 {
			l.list, l.end = len(b), len(b)
			l.flags = 0
			l.problem = "property flags are cut off"
			return l
		}
		w := binary.BigEndian.Uint16(b[l.list:])
		if l.list == 0 {
			l.flags = Property(w &^ (flagMore | flagUnused))
			w &= flagMore | flagUnused
		}
		if w&^flagMore != 0 && l.problem == "" {
			l.problem = fmt.Sprintf("property flags set unknown bits in word %d", l.list/2)
		}
		more = w&flagMore != 0
		l.list += 2
	}
	l.end = l.list
	for i := range l.spans {
		p := ContentType >> i
		if l.flags&p == 0 {
			continue
		}
		n := propertySize(b[l.end:], shapeOf(p))
		if n < 0 {
			l.flags &= ^(p<<1 - 1) // this one and those after it are unknown
			if l.problem == "" {
				l.problem = fmt.Sprintf("property %s is cut off at byte %d", p, l.end)
			}
			return l
		}
		l.spans[i] = span{l.end, l.end + n}
		l.end += n
	}
	if l.end < len(b) && l.problem == "" {
		l.problem = fmt.Sprintf("%d bytes follow the last property", len(b)-l.end)
	}
	return l
}

// of returns where property p lies; it is empty when p is absent.
func (l *layout) of(p Property) span {
	for i := range l.spans {
		if ContentType>>i == p {
			return l.spans[i]
		}
	}
	return span{}
}

// propertySize returns the size of a property at the start of b, or -1 when b
// is too short.
func propertySize(b []byte, s shape) int {
	var n int
	switch s {
	case shapeOctet:
		n = 1
	case shapeLong:
		n = 8
	case shapeTable:
		return lengthPrefixed(b)
	case shapeShort:
		if len(b) == 0 {
			return -1
		}
		n = 1 + int(b[0])
	}
	if n > len(b) {
		return -1
	}
	return n
}

// lengthPrefixed returns the size of a 32-bit length and the bytes it counts,
// or -1 when b is too short.
func lengthPrefixed(b []byte) int {
	if len(b) < 4 {
		return -1
	}
	n := 4 + uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)) {
		return -1
	}
	return int(n)
}

// valueSize returns the size of a value of kind k at the start of b, without
// its type byte: -1 when b is too short, -2 when the kind is unknown.
func valueSize(b []byte, k Kind) int {
	var n int
	switch k {
	case Void:
		return 0
	case Bool, Int8, Uint8:
		n = 1
	case Int16, Uint16:
		n = 2
	case Int32, Uint32, Float32:
		n = 4
	case Dec:
		n = 5
	case Int64, Int64Old, Float64, Time:
		n = 8
	case Str, Bytes, Table, Array:
		return lengthPrefixed(b)
	default:
		return -2
	}
	if n > len(b) {
		return -1
	}
	return n
}

// fieldSize returns the size of the field at the start of b and of its name,
// or an error without content when it cannot be told.
func fieldSize(b []byte) (size, name int, err error) {
	if len(b) == 0 || len(b) < 2+int(b[0]) {
		return 0, 0, fmt.Errorf("field name is cut off")
	}
	name = int(b[0])
	k := Kind(b[1+name])
	switch n := valueSize(b[2+name:], k); n {
	case -1:
		return 0, 0, fmt.Errorf("value of type %s is cut off", k)
	case -2:
		return 0, 0, fmt.Errorf("unknown type %s", k)
	default:
		return 2 + name + n, name, nil
	}
}
