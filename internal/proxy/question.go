package proxy

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/worker"
)

// maxHeaders bounds the headers of a message that a handler is told, in encoded
// bytes: common servers take 16 KiB for all headers of a request.
const maxHeaders = 4 << 10

// fact is one thing that is known about a message, by its name in words.
type fact struct{ name, value string }

// facts lists what a handler is told besides the body.
func facts(m *worker.Message) []fact {
	headers, leftOut := headersOf(&m.View)
	all := []fact{
		{"queue", m.Queue}, {"exchange", m.Exchange}, {"routing key", m.RoutingKey}, {"message id", m.ID}, {"type", m.Type},
		{"schema version", m.SchemaVersion}, {"operation", m.Operation}, {"key", m.Key}, {"sequence", m.Sequence}, {"trace id", m.TraceID},
		{"run", strconv.Itoa(m.Run)}, {"redelivered", strconv.FormatBool(m.Redelivered)}, {"resumed", strconv.FormatBool(m.Resumed)},
		{"headers", headers}, {"headers left out", leftOut},
	}
	var out []fact
	for _, f := range all {
		if f.value != "" {
			out = append(out, fact{f.name, encode(f.value)})
		}
	}
	return out
}

// headersOf is the JSON object of the headers that have a text, and how many
// of them did not fit.
func headersOf(v *amqpwire.View) (object, leftOut string) {
	var b strings.Builder
	size, missing, seen := 1, 0, map[string]bool{}
	for _, f := range v.Headers {
		text, ok := v.Text(f.Name)
		if !ok || seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		name, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(f.Name, "\ufffd"))
		value, err2 := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\ufffd"))
		more := len(encode(string(name))) + len(encode(string(value))) + 2
		if err != nil || err2 != nil || size+more > maxHeaders {
			missing++
			continue
		}
		size += more
		b.WriteString(map[bool]string{true: "{", false: ","}[b.Len() == 0])
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	if b.Len() > 0 {
		b.WriteByte('}')
	}
	if missing > 0 {
		leftOut = strconv.Itoa(missing)
	}
	return b.String(), leftOut
}

// encode makes a value fit for a header or a variable: bytes that are not
// printable ASCII, and the percent sign itself, become %XX.
func encode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// headerName is the request header of a fact: "message id" is
// X-Redrive-Message-Id.
func headerName(fact string) string {
	words := strings.Fields(fact)
	for i, w := range words {
		words[i] = string(unicode.ToUpper(rune(w[0]))) + w[1:]
	}
	return "X-Redrive-" + strings.Join(words, "-")
}

// variableName is the environment variable of a fact: "message id" is
// REDRIVE_MESSAGE_ID.
func variableName(fact string) string {
	return "REDRIVE_" + strings.ToUpper(strings.ReplaceAll(fact, " ", "_"))
}
