package docs

import (
	"os"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/predicate"
)

// The reference of expressions names every field of an envelope.
func TestFieldsOfExpressionsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, name := range predicate.Fields() {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/operating.md does not name the field %s", name)
		}
	}
}
