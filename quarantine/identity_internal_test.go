package quarantine

import (
	"testing"
	"unicode/utf8"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Expressions of a configuration meet bodies and properties of strangers.
func FuzzExpression(f *testing.F) {
	f.Add("body:/customer/id", []byte(`{"customer":{"id":9007199254740993}}`), []byte{0, 0})
	f.Add("body:/a~1b/1", []byte(`{"a/b":[1,"x"`), []byte{0, 0})
	f.Add("header:x", []byte(``), []byte{0x20, 0, 0, 0, 0, 7, 1, 'x', 'S', 0, 0, 0, 0})
	f.Add("property:message_id", []byte(``), []byte{0, 0x80, 1, 'm'})
	f.Fuzz(func(t *testing.T, text string, body, props []byte) {
		e, err := ParseExpression(text)
		if err != nil {
			if e != (Expression{}) {
				t.Error("an error and an expression")
			}
			return
		}
		if again, err := ParseExpression(e.String()); err != nil || again != e || e.String() != text {
			t.Errorf("%q became %q: %v", text, e, err)
		}
		v := amqpwire.Parse(props)
		value, from := find([]Expression{e}, &v, body)
		if len(value) > maxValue || !utf8.ValidString(value) || (value == "") != (from == "") {
			t.Errorf("%q from %q", value, from)
		}
	})
}
