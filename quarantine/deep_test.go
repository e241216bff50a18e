package quarantine_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/quarantine"
)

// A body that nests as deep as the decoder allows, with many values at the
// bottom, costs no more than one walk over it.
func TestDeepBodiesAreCheap(t *testing.T) {
	e, err := quarantine.ParseExpression("body:/customer/id")
	if err != nil {
		t.Fatal(err)
	}
	b := newBook(t)
	b.pr.Rules.OrderingKey = []quarantine.Expression{e}
	const depth = 9000
	body := strings.Repeat("[", depth) + strings.TrimSuffix(strings.Repeat("1,", 300_000), ",") + strings.Repeat("]", depth)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.prepare(b.delivery(body, headers()))
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100*uint64(len(body)) {
		t.Errorf("%d bytes allocated for a body of %d", n, len(body))
	}
}
