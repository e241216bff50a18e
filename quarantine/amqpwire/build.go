package amqpwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrTooLong is returned when a name or short string has more than 255 bytes,
// which no AMQP frame can hold. Shorten it or leave it out.
var ErrTooLong = errors.New("longer than 255 bytes")

// ErrValue is returned when the Go type of a value is not the one of its Kind.
var ErrValue = errors.New("value does not fit its kind")

// Build makes property bytes out of the properties that v.Present names. It is
// the way to make messages; to change one, use Edit, which keeps what it is not
// told to change. RawHeaders, Rest and Problem are not looked at.
func Build(v View) ([]byte, error) {
	b := binary.BigEndian.AppendUint16(nil, uint16(v.Present&^(flagMore|flagUnused)))
	for i := range propertyCount {
		p := ContentType >> i
		if v.Present&p == 0 {
			continue
		}
		var err error
		switch p {
		case Headers:
			b, err = appendTable(b, v.Headers, 1)
		case DeliveryMode:
			b = append(b, v.DeliveryMode)
		case Priority:
			b = append(b, v.Priority)
		case Timestamp:
			b = binary.BigEndian.AppendUint64(b, v.Timestamp)
		default:
			b, err = appendShort(b, *v.short(p))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	return b, nil
}

func appendShort(b []byte, s string) ([]byte, error) {
	if len(s) > math.MaxUint8 {
		return nil, fmt.Errorf("%d bytes: %w", len(s), ErrTooLong)
	}
	return append(append(b, byte(len(s))), s...), nil
}

func appendTable(b []byte, fields []Field, depth int) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, f := range fields {
		var err error
		if b, err = appendField(b, f, depth); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b, nil
}

func appendField(b []byte, f Field, depth int) ([]byte, error) {
	b, err := appendShort(b, f.Name)
	if err != nil {
		return nil, fmt.Errorf("header name: %w", err)
	}
	return appendValue(b, f.Value, depth)
}

func appendArray(b []byte, items []Value, depth int) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, it := range items {
		var err error
		if b, err = appendValue(b, it, depth); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b, nil
}

// appendValue appends the type byte and the value.
func appendValue(b []byte, v Value, depth int) ([]byte, error) {
	b = append(b, byte(v.Kind))
	switch d := v.Data.(type) {
	case []Field:
		if v.Kind != Table || depth >= MaxDepth {
			return nil, fmt.Errorf("table at depth %d as %s: %w", depth, v.Kind, ErrValue)
		}
		return appendTable(b, d, depth+1)
	case []Value:
		if v.Kind != Array || depth >= MaxDepth {
			return nil, fmt.Errorf("array at depth %d as %s: %w", depth, v.Kind, ErrValue)
		}
		return appendArray(b, d, depth+1)
	default:
		return appendScalar(b, v)
	}
}

func appendScalar(b []byte, v Value) ([]byte, error) {
	be := binary.BigEndian
	switch d := v.Data.(type) {
	case nil:
		return b, wantKind(v, Void)
	case bool:
		if d {
			return append(b, 1), wantKind(v, Bool)
		}
		return append(b, 0), wantKind(v, Bool)
	case int8:
		return append(b, byte(d)), wantKind(v, Int8)
	case uint8:
		return append(b, d), wantKind(v, Uint8)
	case int16:
		return be.AppendUint16(b, uint16(d)), wantKind(v, Int16)
	case uint16:
		return be.AppendUint16(b, d), wantKind(v, Uint16)
	case int32:
		return be.AppendUint32(b, uint32(d)), wantKind(v, Int32)
	case uint32:
		return be.AppendUint32(b, d), wantKind(v, Uint32)
	case int64:
		return be.AppendUint64(b, uint64(d)), wantKind(v, Int64, Int64Old)
	case uint64:
		return be.AppendUint64(b, d), wantKind(v, Time)
	case float32:
		return be.AppendUint32(b, math.Float32bits(d)), wantKind(v, Float32)
	case float64:
		return be.AppendUint64(b, math.Float64bits(d)), wantKind(v, Float64)
	case Decimal:
		return be.AppendUint32(append(b, d.Scale), d.Unscaled), wantKind(v, Dec)
	case string:
		return append(be.AppendUint32(b, uint32(len(d))), d...), wantKind(v, Str)
	case []byte:
		return append(be.AppendUint32(b, uint32(len(d))), d...), wantKind(v, Bytes)
	default:
		return nil, fmt.Errorf("%T as %s: %w", v.Data, v.Kind, ErrValue)
	}
}

func wantKind(v Value, kinds ...Kind) error {
	for _, k := range kinds {
		if v.Kind == k {
			return nil
		}
	}
	return fmt.Errorf("%T as %s: %w", v.Data, v.Kind, ErrValue)
}
