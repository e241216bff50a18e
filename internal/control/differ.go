package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/wI2L/jsondiff"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// maxDiffBody bounds the bodies that are compared place by place, in bytes. It
// is the size of the largest repair.
const maxDiffBody = quarantine.MaxRepairBody

// maxDifferences bounds the places of a body that are listed. Bodies that differ
// in more are told to differ as a whole.
const maxDifferences = 1000

// differences lists where message b differs from message a, with the values
// when raw is set, else with their kinds only.
func differences(a, b *quarantine.Original, raw bool) []api.Difference {
	out := headerDifferences(a.Properties, b.Properties, raw)
	if bytes.Equal(a.Body, b.Body) {
		return out
	}
	whole := api.Difference{What: "body", How: "changed", From: kindOfBody(a.Body), To: kindOfBody(b.Body)}
	if max(len(a.Body), len(b.Body)) > maxDiffBody || !json.Valid(a.Body) || !json.Valid(b.Body) {
		return append(out, whole)
	}
	patch, err := jsondiff.CompareJSON(a.Body, b.Body, jsondiff.UnmarshalFunc(unmarshalExact))
	if err != nil || len(patch) == 0 || len(patch) > maxDifferences {
		return append(out, whole) // other spaces, another order, or another body altogether
	}
	for _, op := range patch {
		d := api.Difference{What: "body", Path: op.Path, How: "changed", From: spell(op.OldValue, raw), To: spell(op.Value, raw)}
		switch op.Type {
		case jsondiff.OperationAdd:
			d.How, d.From = "added", ""
		case jsondiff.OperationRemove:
			d.How, d.To = "removed", ""
		}
		out = append(out, d)
	}
	return out
}

// unmarshalExact keeps numbers as they are spelled.
func unmarshalExact(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

func kindOfBody(b []byte) string {
	kind := "bytes"
	switch {
	case json.Valid(b):
		kind = "bytes of JSON"
	case utf8.Valid(b):
		kind = "bytes of text"
	}
	return fmt.Sprintf("%d %s", len(b), kind)
}

// maxSpelled is how many bytes of a value are shown.
const maxSpelled = 1024

// spell is a value of JSON, or what kind of value it is.
func spell(v any, raw bool) string {
	if raw {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return "?"
		}
		s := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
		return text(string(s[:min(len(s), maxSpelled)]))
	}
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return fmt.Sprintf("text of %d characters", utf8.RuneCountInString(v))
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return fmt.Sprintf("an object of %d", len(v))
	}
	return "a value"
}

// headerDifferences lists headers and properties in which b differs from a.
func headerDifferences(a, b []byte, raw bool) []api.Difference {
	before, after := amqpwire.Parse(a), amqpwire.Parse(b)
	var out []api.Difference
	for _, c := range redrive.Changes(a, b) {
		d := api.Difference{What: "property", Path: text(c.Name), How: c.How}
		if c.Header {
			d.What = "header"
			if raw {
				d.From, d.To = headerText(&before, c.Name), headerText(&after, c.Name)
			}
		}
		out = append(out, d)
	}
	for _, p := range []struct {
		p    amqpwire.Property
		a, b string
	}{
		{amqpwire.ContentType, before.ContentType, after.ContentType}, {amqpwire.ContentEncoding, before.ContentEncoding, after.ContentEncoding},
		{amqpwire.CorrelationID, before.CorrelationID, after.CorrelationID}, {amqpwire.ReplyTo, before.ReplyTo, after.ReplyTo},
		{amqpwire.Expiration, before.Expiration, after.Expiration}, {amqpwire.MessageID, before.MessageID, after.MessageID},
		{amqpwire.Timestamp, fmt.Sprint(before.Timestamp), fmt.Sprint(after.Timestamp)}, {amqpwire.Type, before.Type, after.Type},
		{amqpwire.Priority, fmt.Sprint(before.Priority), fmt.Sprint(after.Priority)}, {amqpwire.AppID, before.AppID, after.AppID},
	} {
		if !before.Has(p.p) || !after.Has(p.p) || p.a == p.b {
			continue
		}
		d := api.Difference{What: "property", Path: p.p.String(), How: "changed"}
		if raw {
			d.From, d.To = text(p.a), text(p.b)
		}
		if !slices.ContainsFunc(out, func(x api.Difference) bool { return x.What == d.What && x.Path == d.Path }) {
			out = append(out, d)
		}
	}
	return out
}

func headerText(v *amqpwire.View, name string) string {
	f, ok := v.Header(name)
	if !ok {
		return ""
	}
	if s, ok := f.Text(); ok {
		return text(s[:min(len(s), maxSpelled)])
	}
	return fmt.Sprintf("of kind %s", f.Kind)
}
