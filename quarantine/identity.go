package quarantine

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Expression finds a value in a message: "header:NAME", "property:NAME" or
// "body:POINTER" with a JSON pointer (RFC 6901) into a JSON body.
type Expression struct{ kind, name string }

// String is the form that ParseExpression reads.
func (e Expression) String() string { return e.kind + ":" + e.name }

// ParseExpression reads an expression of a configuration.
func ParseExpression(s string) (Expression, error) {
	kind, name, ok := strings.Cut(s, ":")
	if ok && name != "" {
		switch kind {
		case "header":
			return Expression{kind, name}, nil
		case "property":
			if _, known := properties[name]; known {
				return Expression{kind, name}, nil
			}
		case "body":
			if p := jsontext.Pointer(name); name[0] == '/' && p.IsValid() {
				return Expression{kind, name}, nil
			}
		}
	}
	return Expression{}, fmt.Errorf("expression %q: want header:NAME, property:NAME or body:/JSON/POINTER", s)
}

// properties are the ones whose text can be an identity.
var properties = map[string]func(*amqpwire.View) string{
	"message_id":     func(v *amqpwire.View) string { return v.MessageID },
	"correlation_id": func(v *amqpwire.View) string { return v.CorrelationID },
	"type":           func(v *amqpwire.View) string { return v.Type },
	"app_id":         func(v *amqpwire.View) string { return v.AppID },
}

// maxValue bounds a value that is taken from a message into Facts.
const maxValue = 512

// find returns the first value that one of the expressions yields.
func find(es []Expression, v *amqpwire.View, body []byte) (value, from string) {
	for _, e := range es {
		switch e.kind {
		case "header":
			value, _ = v.Text(e.name)
		case "property":
			value = properties[e.name](v)
		case "body":
			value = bodyValue(body, jsontext.Pointer(e.name))
		}
		if value != "" {
			return clean(value, maxValue), e.String()
		}
	}
	return "", ""
}

// clean makes text from a message fit for a field: valid UTF-8, bounded.
func clean(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	for len(s) > limit {
		s = s[:limit]
		s = strings.ToValidUTF8(s, "")
	}
	return s
}

// bodyValue returns the scalar at a JSON pointer, with numbers spelled as they
// stand; "" when the body is no JSON or has no scalar there. It reads no
// further than it must, and what lies beside the way is skipped, not looked at:
// bodies are made by strangers.
func bodyValue(body []byte, p jsontext.Pointer) string {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for name := range p.Tokens() {
		if !descend(d, name) {
			return ""
		}
	}
	switch d.PeekKind() {
	case '"', '0', 't', 'f':
		if tok, err := d.ReadToken(); err == nil {
			return tok.String()
		}
	}
	return ""
}

// descend goes to the member or element of that name in the value that comes
// next.
func descend(d *jsontext.Decoder, name string) bool {
	kind := d.PeekKind()
	if kind != '{' && kind != '[' {
		return false
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	for i := 0; d.PeekKind() != kind+2; i++ { // the closing bracket of either kind
		at := strconv.Itoa(i)
		if kind == '{' {
			tok, err := d.ReadToken()
			if err != nil {
				return false
			}
			at = tok.String()
		}
		if at == name {
			return true
		}
		if d.SkipValue() != nil {
			return false
		}
	}
	return false
}

// fingerprint is the digest of the meaning of a message: its type and its
// body, canonical when that is JSON. Integers keep their digits.
func fingerprint(eventType string, body []byte) [16]byte {
	canonical := jsontext.Value(append([]byte(nil), body...))
	if canonical.Canonicalize(jsontext.CanonicalizeRawInts(false)) != nil {
		canonical = body
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "redrive fingerprint v1\n%d\n%s\n", len(eventType), eventType) // a hash never fails
	h.Write(canonical)
	return [16]byte(h.Sum(nil))
}

// Rules say where to find what in a message. Each list is tried in order.
type Rules struct {
	Operation   []Expression
	Type        []Expression
	Schema      []Expression
	OrderingKey []Expression
	Sequence    []Expression
	Producer    []Expression
	Consumer    []Expression
	TraceID     []Expression
	Reason      []Expression
	LastReason  []Expression
	ErrorCode   []Expression
	Attempts    []Expression
	FirstFailed []Expression
	LastError   []Expression
}

func mustExpressions(list ...string) []Expression {
	out := make([]Expression, len(list))
	for i, s := range list {
		e, err := ParseExpression(s)
		if err != nil {
			panic(err) // only constants of this package come here
		}
		out[i] = e
	}
	return out
}

// fromMessageID is the expression of the message id.
const fromMessageID = "property:message_id"

// DefaultRules serve the headers that the worker writes, CloudEvents headers,
// and the standard properties.
func DefaultRules() Rules {
	return Rules{
		Operation: mustExpressions("header:x-operation-id", "header:x-idempotency-key", "header:idempotency-key",
			"header:cloudEvents:id", fromMessageID),
		Type:        mustExpressions("property:type", "header:cloudEvents:type", "header:x-event-type"),
		Schema:      mustExpressions("header:x-schema-version", "header:cloudEvents:dataschema"),
		OrderingKey: mustExpressions("header:x-ordering-key", "header:cloudEvents:partitionkey"),
		Sequence:    mustExpressions("header:x-sequence", "header:cloudEvents:sequence"),
		Producer:    mustExpressions("header:x-producer-version", "property:app_id"),
		Consumer:    mustExpressions("header:x-consumer-version"),
		TraceID:     mustExpressions("header:x-trace-id", "header:traceparent"),
		Reason:      mustExpressions("header:x-death-reason"),
		LastReason:  mustExpressions("header:x-last-reason"),
		ErrorCode:   mustExpressions("header:x-error-code"),
		Attempts:    mustExpressions("header:x-retry-count"),
		FirstFailed: mustExpressions("header:x-first-failed-at"),
		LastError:   mustExpressions("header:x-last-error"),
	}
}

// identify fills the Facts that come from the message itself. Broker is the
// reason for which the broker moved it, as the broker spells it.
func (ru *Rules) identify(f *Facts, v *amqpwire.View, body []byte) (broker string) {
	get := func(es []Expression) string {
		s, _ := find(es, v, body)
		return s
	}
	f.Operation, f.OperationFrom = find(ru.Operation, v, body)
	f.MessageID = clean(v.MessageID, maxValue)
	f.Type, f.Schema = get(ru.Type), get(ru.Schema)
	f.OrderingKey, f.Sequence = get(ru.OrderingKey), get(ru.Sequence)
	f.Producer, f.Consumer, f.TraceID = get(ru.Producer), get(ru.Consumer), get(ru.TraceID)
	f.ErrorCode = get(ru.ErrorCode)
	f.FirstSeen = instant(v.Timestamp, v.Has(amqpwire.Timestamp))
	f.Attempts = -1
	if n, err := strconv.ParseInt(get(ru.Attempts), 10, 32); err == nil && n >= 0 {
		f.Attempts = n + 1 // a retry count of n means n+1 runs of the handler
	}
	return ru.deaths(f, v, body)
}

// lastFailure is the latest death at the hands of a consumer: one that expired
// on its way through a retry queue tells nothing about where it belongs. When
// all of them are expiries it is the latest of those.
func lastFailure(h *amqpwire.DeathHistory) (amqpwire.Death, bool) {
	for _, d := range h.Deaths {
		if d.Reason != "expired" {
			return d, true
		}
	}
	return h.Last()
}

// deaths fills in where, when and why the message died.
func (ru *Rules) deaths(f *Facts, v *amqpwire.View, body []byte) (broker string) {
	h := v.DeathHistory()
	if last, ok := lastFailure(&h); ok {
		f.DiedQueue = clean(last.Queue, maxValue)
		f.Died = instant(last.Time, last.Time > 0)
		broker = last.Reason
	}
	if first, ok := h.First(); ok {
		f.FirstDied = instant(first.Time, first.Time > 0)
	}
	f.origin(&h)
	f.told(v)
	f.Reason, _ = find(ru.Reason, v, body)
	f.LastReason, _ = find(ru.LastReason, v, body)
	if f.LastReason == f.Reason {
		f.LastReason = ""
	}
	if at, _ := find(ru.FirstFailed, v, body); at != "" {
		if t, ok := parseTime(at); ok && (f.FirstDied == 0 || t < f.FirstDied) {
			f.FirstDied = t
		}
	}
	return broker
}

// origin finds how the message had been published before its first death. The
// entry of that death need not be the last one: a queue in which the message
// dies again moves to the front. Of several routing keys the first is the one
// of the publish, the others come from its CC.
func (f *Facts) origin(h *amqpwire.DeathHistory) {
	first, ok := h.First()
	for _, d := range h.Deaths {
		if h.FirstQueue != "" && d.Queue == h.FirstQueue && d.Reason == h.FirstReason {
			first = d
		}
	}
	f.OriginQueue = clean(first.Queue, maxValue)
	if !ok || len(first.RoutingKeys) == 0 || len(first.RoutingKeys[0]) > maxName || len(first.Exchange) > maxName || !utf8.ValidString(first.Exchange) {
		return
	}
	f.OriginExchange, f.OriginRoutingKey, f.OriginKnown = first.Exchange, first.RoutingKeys[0], 1
}

// told takes what a worker has written into its copy, whose history the broker
// does not know. About a death, a broker that has seen one knows better; about
// the first publish it does not, since the worker has published since.
func (f *Facts) told(v *amqpwire.View) {
	if queue, _ := v.Text(HeaderDiedQueue); f.DiedQueue == "" && queue != "" {
		f.DiedQueue = clean(queue, maxValue)
		at, _ := v.Text(HeaderDiedAt)
		f.Died, _ = parseTime(at)
	}
	exchange, has := v.Text(HeaderOriginExchange)
	key, both := v.Text(HeaderOriginRoutingKey)
	if has && both && len(exchange) <= maxName && len(key) <= maxName && utf8.ValidString(exchange) {
		f.OriginExchange, f.OriginRoutingKey, f.OriginKnown = exchange, key, 1
	}
}

// maxName bounds names of exchanges and routing keys, in bytes.
const maxName = 255

// parseTime reads RFC 3339 or seconds or milliseconds since 1970.
func parseTime(s string) (ms uint64, ok bool) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil && t.UnixMilli() > 0 {
		return uint64(t.UnixMilli()), true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, false
	}
	if n >= 1e11 { // seconds of the year 5138: these are milliseconds
		return n, n < maxInstant
	}
	return n * 1000, n > 0
}

// maxInstant is the end of the year 9999 in milliseconds.
const maxInstant = 253402300800000

// instant turns seconds of a message into milliseconds, 0 when they are no
// sensible date: some producers write milliseconds where seconds belong.
func instant(seconds uint64, present bool) uint64 {
	if !present || seconds >= maxInstant/1000 {
		return 0
	}
	return seconds * 1000
}

// Diagnostic is the sanitized error text of a message: at most 512 bytes, with
// what looks like a secret masked.
func (ru *Rules) Diagnostic(o *Original, masks []Mask) string {
	v := amqpwire.Parse(o.Properties)
	return clean(ApplyMasks(ru.errorText(&v, o.Body), masks), 512)
}

func (ru *Rules) errorText(v *amqpwire.View, body []byte) string {
	text, _ := find(ru.LastError, v, body)
	return text
}
