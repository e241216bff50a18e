package predicate

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

var noEntries = object(nil)

func object(entries map[string]any) ref.Val {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, entries)
}

func array(elements []ref.Val) ref.Val {
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}

// maxDepth is how many objects and lists of a body may stand in each other.
const maxDepth = 256

var bom = []byte("\ufeff")

// parseBody is a body as an expression sees it: null when it is no JSON. Whole
// numbers are exact; one that needs more than 64 bits is the text of its digits.
func parseBody(body []byte) (ref.Val, error) {
	if len(body) > MaxBody {
		return nil, reasonError(fmt.Sprintf("its body has more than %d bytes, which is the largest that is looked into", MaxBody))
	}
	body = bytes.TrimPrefix(body, bom)
	if !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true)) {
		return types.NullValue, nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true))
	return parse(d, 0)
}

func parse(d *jsontext.Decoder, depth int) (ref.Val, error) {
	if depth > maxDepth {
		return nil, reasonError(fmt.Sprintf("its body is nested deeper than %d", maxDepth))
	}
	tok, err := d.ReadToken()
	if err != nil {
		return nil, reasonError("its body cannot be read")
	}
	switch tok.Kind() {
	case 't', 'f':
		return types.Bool(tok.Bool()), nil
	case '"':
		return types.String(tok.String()), nil
	case '0':
		return digits(tok.String()), nil
	case '[':
		return parseArray(d, depth)
	case '{':
		return parseObject(d, depth)
	}
	return types.NullValue, nil
}

func parseArray(d *jsontext.Decoder, depth int) (ref.Val, error) {
	elements := []ref.Val{}
	for d.PeekKind() != ']' {
		v, err := parse(d, depth+1)
		if err != nil {
			return nil, err
		}
		elements = append(elements, v)
	}
	_, _ = d.ReadToken() // the bracket that was just seen
	return array(elements), nil
}

// parseObject keeps a name that stands there twice as an error: readers differ
// on which of the two counts.
func parseObject(d *jsontext.Decoder, depth int) (ref.Val, error) {
	entries := map[string]any{}
	for d.PeekKind() != '}' {
		tok, err := d.ReadToken()
		if err != nil {
			return nil, reasonError("its body cannot be read")
		}
		name := tok.String()
		v, err := parse(d, depth+1)
		if err != nil {
			return nil, err
		}
		if _, twice := entries[name]; twice {
			v = types.WrapErr(reasonError("a name that it asks for stands twice in an object of the body"))
		}
		entries[name] = v
	}
	_, _ = d.ReadToken() // the bracket that was just seen
	return object(entries), nil
}

// digits is a number of JSON. What is written as a whole number is one.
func digits(s string) ref.Val {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return types.Int(n)
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return types.Uint(n)
	}
	if bytes.ContainsAny([]byte(s), ".eE") {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return types.Double(f)
		}
	}
	return types.String(s)
}

// properties are those that are present.
func properties(v *amqpwire.View) ref.Val {
	out := map[string]any{}
	for _, x := range []struct {
		p     amqpwire.Property
		value func() ref.Val
	}{
		{amqpwire.ContentType, func() ref.Val { return chars(v.ContentType) }},
		{amqpwire.ContentEncoding, func() ref.Val { return chars(v.ContentEncoding) }},
		{amqpwire.DeliveryMode, func() ref.Val { return types.Int(v.DeliveryMode) }},
		{amqpwire.Priority, func() ref.Val { return types.Int(v.Priority) }},
		{amqpwire.CorrelationID, func() ref.Val { return chars(v.CorrelationID) }},
		{amqpwire.ReplyTo, func() ref.Val { return chars(v.ReplyTo) }},
		{amqpwire.Expiration, func() ref.Val { return chars(v.Expiration) }},
		{amqpwire.MessageID, func() ref.Val { return chars(v.MessageID) }},
		{amqpwire.Timestamp, func() ref.Val { return seconds(v.Timestamp) }},
		{amqpwire.Type, func() ref.Val { return chars(v.Type) }},
		{amqpwire.UserID, func() ref.Val { return chars(v.UserID) }},
		{amqpwire.AppID, func() ref.Val { return chars(v.AppID) }},
		{amqpwire.ClusterID, func() ref.Val { return chars(v.ClusterID) }},
	} {
		if v.Has(x.p) {
			out[x.p.String()] = x.value()
		}
	}
	return object(out)
}

// fields are the entries of a table. Of several with one name the first counts,
// as it does for the broker.
func fields(fs []amqpwire.Field) ref.Val {
	out := make(map[string]any, len(fs))
	for _, f := range fs {
		if _, twice := out[f.Name]; !twice {
			out[f.Name] = value(f.Value)
		}
	}
	return object(out)
}

// value is a header value. Bytes that were not understood are bytes.
func value(v amqpwire.Value) ref.Val {
	switch d := v.Data.(type) {
	case nil:
		return types.NullValue
	case bool:
		return types.Bool(d)
	case int8:
		return types.Int(d)
	case uint8:
		return types.Int(d)
	case int16:
		return types.Int(d)
	case uint16:
		return types.Int(d)
	case int32:
		return types.Int(d)
	case uint32:
		return types.Int(d)
	case int64:
		return types.Int(d)
	case uint64:
		return seconds(d)
	case float32:
		return types.Double(d)
	case float64:
		return types.Double(d)
	case amqpwire.Decimal:
		return types.Double(float64(d.Unscaled) / math.Pow10(int(d.Scale)))
	case string:
		return chars(d)
	case []byte:
		return types.Bytes(d)
	case amqpwire.Raw:
		return types.Bytes(d)
	case []amqpwire.Field:
		return fields(d)
	case []amqpwire.Value:
		out := make([]ref.Val, 0, len(d))
		for _, e := range d {
			out = append(out, value(e))
		}
		return array(out)
	}
	return types.NullValue
}

// chars is text, or bytes when it is none.
func chars(s string) ref.Val {
	if utf8.ValidString(s) {
		return types.String(s)
	}
	return types.Bytes(s)
}

// seconds is a time, or the number when it is no sensible date: some producers
// write milliseconds where seconds belong.
func seconds(n uint64) ref.Val {
	const endOf9999 = 253402300800
	if n >= endOf9999 {
		return types.Uint(n)
	}
	return types.Timestamp{Time: time.Unix(int64(n), 0).UTC()}
}
