package amqpwire

import "strconv"

// Property is one basic property, as its bit in the first flags word. Several
// may be or-ed together to a set.
type Property uint16

// The properties of class basic, in the order in which they are on the wire.
const (
	ContentType     Property = 1 << (15 - iota) // content_type
	ContentEncoding                             // content_encoding
	Headers                                     // headers
	DeliveryMode                                // delivery_mode
	Priority                                    // priority
	CorrelationID                               // correlation_id
	ReplyTo                                     // reply_to
	Expiration                                  // expiration
	MessageID                                   // message_id
	Timestamp                                   // timestamp
	Type                                        // type
	UserID                                      // user_id
	AppID                                       // app_id
	ClusterID                                   // cluster_id
)

// flagMore is the bit that says that another flags word follows, flagUnused
// the one that class basic gives no meaning.
const (
	flagMore   = 1 << 0
	flagUnused = 1 << 1
)

// propertyCount is how many properties class basic defines.
const propertyCount = 14

var propertyNames = [propertyCount]string{
	"content_type", "content_encoding", "headers", "delivery_mode", "priority",
	"correlation_id", "reply_to", "expiration", "message_id", "timestamp",
	"type", "user_id", "app_id", "cluster_id",
}

// String names the lowest-numbered property of the set as the specification
// does, and "none" for the empty set.
func (p Property) String() string {
	for i, name := range propertyNames {
		if p&(ContentType>>i) != 0 {
			return name
		}
	}
	return "none"
}

// shape is how the value of a property is laid out.
type shape byte

const (
	shapeShort shape = iota // short string
	shapeTable
	shapeOctet
	shapeLong // 64 bits
)

// shapeOf returns the layout of a single property.
func shapeOf(p Property) shape {
	switch p {
	case Headers:
		return shapeTable
	case DeliveryMode, Priority:
		return shapeOctet
	case Timestamp:
		return shapeLong
	default:
		return shapeShort
	}
}

// Kind is the type byte of a header value.
type Kind byte

// The kinds that RabbitMQ knows, and the Go type of Value.Data for each.
const (
	Bool     Kind = 't' // bool; every byte but 0 is true
	Int8     Kind = 'b' // int8
	Uint8    Kind = 'B' // uint8
	Int16    Kind = 's' // int16
	Uint16   Kind = 'u' // uint16
	Int32    Kind = 'I' // int32
	Uint32   Kind = 'i' // uint32
	Int64    Kind = 'l' // int64
	Int64Old Kind = 'L' // int64; accepted by RabbitMQ, handed on as it is by old versions
	Float32  Kind = 'f' // float32
	Float64  Kind = 'd' // float64
	Dec      Kind = 'D' // Decimal
	Str      Kind = 'S' // string, of any bytes
	Bytes    Kind = 'x' // []byte
	Time     Kind = 'T' // uint64, seconds since 1970
	Void     Kind = 'V' // nil
	Table    Kind = 'F' // []Field
	Array    Kind = 'A' // []Value
)

// String is the type byte as a character, or in hex when it is not printable.
func (k Kind) String() string {
	if k > ' ' && k < 0x7f {
		return string(rune(k))
	}
	return "0x" + strconv.FormatUint(uint64(k), 16)
}

// Value is one typed value of a table or array. The dynamic type of Data is
// the one listed at its Kind, or Raw when the value was not understood.
type Value struct {
	Kind Kind
	Data any
}

// Field is a named Value of a table.
type Field struct {
	Name string
	Value
}

// Decimal is the number Unscaled × 10^-Scale. The specification calls it
// unsigned, some clients read it as signed: the bits are kept.
type Decimal struct {
	Scale    uint8
	Unscaled uint32
}

// Raw is what stands in Value.Data for bytes that were not understood: all
// bytes after the type byte up to the end of the innermost container.
type Raw []byte

// StringField is a header of kind S.
func StringField(name, value string) Field { return Field{name, Value{Str, value}} }

// LongField is a header of kind l.
func LongField(name string, value int64) Field { return Field{name, Value{Int64, value}} }

// TimeField is a header of kind T.
func TimeField(name string, seconds uint64) Field { return Field{name, Value{Time, seconds}} }

// TableField is a header of kind F.
func TableField(name string, fields ...Field) Field { return Field{name, Value{Table, fields}} }

// ArrayField is a header of kind A.
func ArrayField(name string, items ...Value) Field { return Field{name, Value{Array, items}} }

// Text returns the value as text when it is a scalar that has an obvious one:
// strings and byte arrays as they are, numbers in decimal, booleans as "true"
// and "false".
func (v Value) Text() (string, bool) {
	switch d := v.Data.(type) {
	case string:
		return d, true
	case []byte:
		return string(d), true
	case bool:
		return strconv.FormatBool(d), true
	case float32:
		return strconv.FormatFloat(float64(d), 'g', -1, 32), true
	case float64:
		return strconv.FormatFloat(d, 'g', -1, 64), true
	case uint64:
		return strconv.FormatUint(d, 10), true
	}
	if n, ok := v.integer(); ok {
		return strconv.FormatInt(n, 10), true
	}
	return "", false
}

// Int returns the value as an integer when it is one of any width, or text in
// decimal. It reports false for what does not fit into 64 signed bits.
func (v Value) Int() (int64, bool) {
	if n, ok := v.integer(); ok {
		return n, true
	}
	switch d := v.Data.(type) {
	case uint64:
		return int64(d), d < 1<<63
	case string:
		n, err := strconv.ParseInt(d, 10, 64)
		return n, err == nil
	}
	return 0, false
}

func (v Value) integer() (int64, bool) {
	switch d := v.Data.(type) {
	case int8:
		return int64(d), true
	case uint8:
		return int64(d), true
	case int16:
		return int64(d), true
	case uint16:
		return int64(d), true
	case int32:
		return int64(d), true
	case uint32:
		return int64(d), true
	case int64:
		return d, true
	}
	return 0, false
}
