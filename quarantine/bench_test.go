package quarantine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// BenchmarkCapture takes batches of 500 messages of a kilobyte.
func BenchmarkCapture(bb *testing.B) {
	b := newBook(bb)
	body := `{"order":"` + strings.Repeat("x", 1000) + `"}`
	var slowest time.Duration
	n := 0
	for bb.Loop() {
		var batch quarantine.Batch
		for range 500 {
			n++
			batch.New = append(batch.New, b.prepare(b.delivery(body, headers("x-operation-id", fmt.Sprint(n), "x-death-reason", "unknown_sku"))))
		}
		start := time.Now()
		b.must(func(v ledger.View) ([]event.Event, error) { return quarantine.Capture(v, b.keys, batch, b.releases) })
		slowest = max(slowest, time.Since(start))
	}
	bb.ReportMetric(float64(slowest)/1e6, "max-ms")
	bb.ReportMetric(float64(n)/bb.Elapsed().Seconds(), "messages/s")
}
