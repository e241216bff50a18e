package amqpwire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Limits of the decoded view. What lies beyond is kept raw, with a Problem.
const (
	// MaxDepth is how deep tables and arrays may nest; the header table itself
	// is depth 1.
	MaxDepth = 64
	// MaxValues is how many values one header table may hold in all.
	MaxValues = 1 << 16
)

// View is what properties say, for people and predicates. It is derived, never
// stored in place of the bytes, and aliases them: they must not be modified
// while it is in use.
type View struct {
	// Present is the set of properties that are there. A property that is not
	// in it has its zero value below.
	Present Property

	ContentType     string
	ContentEncoding string
	Headers         []Field // in wire order, duplicates kept
	DeliveryMode    uint8
	Priority        uint8
	CorrelationID   string
	ReplyTo         string
	Expiration      string
	MessageID       string
	Timestamp       uint64 // as on the wire: seconds, though some producers write milliseconds
	Type            string
	UserID          string
	AppID           string
	ClusterID       string

	// RawHeaders is the header table without its length, as on the wire.
	RawHeaders []byte
	// Rest holds the bytes of the property list that were not understood.
	Rest []byte
	// Problem says what the first thing was that was not understood, "" when
	// everything was. It never holds content of the message.
	Problem string
}

// Has reports whether all properties of the set p are present.
func (v *View) Has(p Property) bool { return v.Present&p == p }

// Header returns the first header of that exact name, which is the one that
// RabbitMQ keeps when it removes duplicates.
func (v *View) Header(name string) (Field, bool) { return find(v.Headers, name) }

// Text returns the first header of that name as text. It is false when there
// is none, or when it has no obvious text (see Value.Text).
func (v *View) Text(name string) (string, bool) {
	f, ok := v.Header(name)
	if !ok {
		return "", false
	}
	return f.Text()
}

// Int returns the first header of that name as an integer, see Value.Int.
func (v *View) Int(name string) (int64, bool) {
	f, ok := v.Header(name)
	if !ok {
		return 0, false
	}
	return f.Int()
}

func find(fields []Field, name string) (Field, bool) {
	for _, f := range fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// Parse reads property flags and list. It takes every input: what it does not
// understand is kept raw and named in View.Problem.
func Parse(props []byte) View {
	l := scan(props)
	v := View{Present: l.flags, Problem: l.problem, Rest: props[l.end:]}
	for i := range l.spans {
		p := ContentType >> i
		if l.flags&p != 0 {
			v.set(p, props[l.spans[i].from:l.spans[i].to])
		}
	}
	return v
}

// set decodes the value of one property; b is exactly as long as it has to be.
func (v *View) set(p Property, b []byte) {
	switch p {
	case Headers:
		v.RawHeaders = b[4:]
		d := decoder{budget: MaxValues}
		v.Headers = d.table(v.RawHeaders, 1)
		if v.Problem == "" {
			v.Problem = d.problem
		}
	case DeliveryMode:
		v.DeliveryMode = b[0]
	case Priority:
		v.Priority = b[0]
	case Timestamp:
		v.Timestamp = binary.BigEndian.Uint64(b)
	default:
		*v.short(p) = string(b[1:])
	}
}

// short returns the field that holds a short-string property.
func (v *View) short(p Property) *string {
	switch p {
	case ContentType:
		return &v.ContentType
	case ContentEncoding:
		return &v.ContentEncoding
	case CorrelationID:
		return &v.CorrelationID
	case ReplyTo:
		return &v.ReplyTo
	case Expiration:
		return &v.Expiration
	case MessageID:
		return &v.MessageID
	case Type:
		return &v.Type
	case UserID:
		return &v.UserID
	case AppID:
		return &v.AppID
	default:
		return &v.ClusterID
	}
}

// decoder turns tables into values. Its recursion is bounded by MaxDepth and
// its work by budget.
type decoder struct {
	budget  int
	problem string
}

func (d *decoder) note(format string, args ...any) {
	if d.problem == "" {
		d.problem = "headers: " + fmt.Sprintf(format, args...)
	}
}

// table decodes fields until b is used up. When a field cannot be told apart
// from its successors, it is the last one and holds the rest as Raw.
func (d *decoder) table(b []byte, depth int) []Field {
	var fields []Field
	for off := 0; off < len(b); {
		size, name, err := fieldSize(b[off:])
		if err == nil && d.budget <= 0 {
			err = fmt.Errorf("more than %d values", MaxValues)
		}
		if err != nil {
			d.note("depth %d, byte %d: %v", depth, off, err)
			return append(fields, rawField(b[off:]))
		}
		field := b[off : off+size]
		fields = append(fields, Field{string(field[1 : 1+name]), d.value(Kind(field[1+name]), field[2+name:], depth)})
		off += size
	}
	return fields
}

// rawField names what can still be named of a field that cannot be decoded.
func rawField(b []byte) Field {
	if name := int(b[0]); len(b) >= 2+name {
		return Field{string(b[1 : 1+name]), Value{Kind(b[1+name]), Raw(b[2+name:])}}
	}
	return Field{"", Value{0, Raw(b)}}
}

func (d *decoder) array(b []byte, depth int) []Value {
	var items []Value
	for off := 0; off < len(b); {
		k := Kind(b[off])
		n := valueSize(b[off+1:], k)
		if n < 0 || d.budget <= 0 {
			d.note("depth %d, byte %d: item of type %s is unknown, cut off, or one of too many", depth, off, k)
			return append(items, Value{k, Raw(b[off+1:])})
		}
		items = append(items, d.value(k, b[off+1:off+1+n], depth))
		off += 1 + n
	}
	return items
}

// value decodes one value whose bytes are exactly b.
func (d *decoder) value(k Kind, b []byte, depth int) Value {
	d.budget--
	if (k == Table || k == Array) && depth >= MaxDepth {
		d.note("nested deeper than %d", MaxDepth)
		return Value{k, Raw(b)}
	}
	switch k {
	case Table:
		return Value{k, d.table(b[4:], depth+1)}
	case Array:
		return Value{k, d.array(b[4:], depth+1)}
	default:
		return Value{k, scalar(k, b)}
	}
}

// scalar decodes a value that holds no others. valueSize has vouched for b.
func scalar(k Kind, b []byte) any {
	switch k {
	case Bool:
		return b[0] != 0
	case Int8:
		return int8(b[0])
	case Uint8:
		return b[0]
	case Int16:
		return int16(binary.BigEndian.Uint16(b))
	case Uint16:
		return binary.BigEndian.Uint16(b)
	case Int32:
		return int32(binary.BigEndian.Uint32(b))
	case Uint32:
		return binary.BigEndian.Uint32(b)
	case Int64, Int64Old:
		return int64(binary.BigEndian.Uint64(b))
	case Float32:
		return math.Float32frombits(binary.BigEndian.Uint32(b))
	case Float64:
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	case Dec:
		return Decimal{Scale: b[0], Unscaled: binary.BigEndian.Uint32(b[1:])}
	case Str:
		return string(b[4:])
	case Bytes:
		return b[4:]
	case Time:
		return binary.BigEndian.Uint64(b)
	default: // Void
		return nil
	}
}
