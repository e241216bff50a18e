package control_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"path/filepath"
	"sort"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// timed measures how long each write transaction takes, commit included.
type timed struct {
	*bolt.Store
	mu  sync.Mutex
	all []time.Duration
}

func (t *timed) Update(fn func(ledger.Writer) error) error {
	from := time.Now()
	err := t.Store.Update(fn)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, time.Since(from))
	return err
}

// noBroker is a broker that cannot be reached: plans only warn about it.
type noBroker struct{}

func (noBroker) Source(context.Context) (quarantine.Source, error) {
	return nil, quarantine.ErrUnreachable
}

func (noBroker) Releaser(context.Context) (redrive.Releaser, error) {
	return nil, quarantine.ErrUnreachable
}

func (noBroker) Fresh(context.Context) (quarantine.Source, redrive.Releaser, func() error, error) {
	return nil, nil, nil, quarantine.ErrUnreachable
}

func (noBroker) Forget() error { return nil }

// BenchmarkPlanOfAMillion plans a cohort of 1,000,000 while another generation
// is told to pause again and again, and reports the longest transaction and
// the longest wait of a pause.
func BenchmarkPlanOfAMillion(b *testing.B) {
	const members = 1_000_000
	dir := filepath.Join(b.TempDir(), "data")
	must(b, bolt.Create(dir))
	must(b, keyfile.Create(dir, "bench.example/ledger"))
	keys, err := keyfile.Open(dir)
	must(b, err)
	store, err := bolt.Open(dir, bolt.Options{MinFree: 1, Reserve: 1})
	must(b, err)
	kv := &timed{Store: store}
	cfg := config.Default()
	c, err := control.Open(context.Background(), control.Options{KV: kv, Keys: keys, Stamps: redrive.Stamps{Key: keys.Stamp}, Sign: keys.Signer.Sign,
		Blobs: store, Config: cfg, Brokers: noBroker{}, Random: rand.Reader, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Ledger: ledger.Options{Program: "bench", Origin: keys.Origin, Signer: keys.Signer, VerifierKey: keys.Verifier, Now: time.Now}})
	must(b, err)
	fill(b, c, keys, store, members)
	// What the filling left to be written back would be measured as ours.
	unix.Sync()
	slowest, waited := time.Duration(0), time.Duration(0)
	ctx := control.WithActor(context.Background(), event.Actor{Auth: "os", Subject: "os:bench"})
	for b.Loop() {
		kv.all = nil
		done := make(chan error)
		var plan api.Plan
		go func() {
			var err error
			plan, err = api.Call(ctx, c, api.GenerationPlan, api.PlanRequest{All: true, ToQueue: "orders"}, nil)
			done <- err
		}()
		longest := time.Duration(0)
		for planning := true; planning; {
			select {
			case err := <-done:
				must(b, err)
				planning = false
			default:
				from := time.Now()
				// There is nothing to pause; the decision waits its turn all the same.
				_, err := api.Call(ctx, c, api.EnvelopeAnnotate, api.EnvelopeChange{IDs: []string{"#1"}, Note: "n"}, nil)
				must(b, err)
				longest = max(longest, time.Since(from))
			}
		}
		if plan.Members != members {
			b.Fatalf("%d members", plan.Members)
		}
		sort.Slice(kv.all, func(i, j int) bool { return kv.all[i] < kv.all[j] })
		slowest, waited = max(slowest, kv.all[len(kv.all)-1]), max(waited, longest)
		b.ReportMetric(float64(slowest.Milliseconds()), "longest-tx-ms")
		b.ReportMetric(float64(kv.all[len(kv.all)/2].Microseconds())/1000, "median-tx-ms")
		b.ReportMetric(float64(waited.Milliseconds()), "longest-wait-ms")
		_, err := api.Call(ctx, c, api.GenerationReject, api.GenerationAct{ID: fmt.Sprint(plan.Generation.Number), Why: "bench"}, nil)
		must(b, err)
	}
}

// fill captures n small messages.
func fill(b *testing.B, c *control.Controller, keys quarantine.Keys, blobs quarantine.Blobs, n int) {
	b.Helper()
	judge, err := c.Judge()
	must(b, err)
	pr := quarantine.Preparer{Rules: quarantine.DefaultRules(), Judge: judge, Keys: keys, Blobs: blobs, Random: rand.Reader}
	for from := 0; from < n; from += 500 {
		var batch quarantine.Batch
		for i := range 500 {
			id := fmt.Sprintf("order-%d", from+i)
			props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.MessageID | amqpwire.Headers, MessageID: id,
				Headers: []amqpwire.Field{amqpwire.StringField("x-death-reason", "unknown_sku"), amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Count: 1, Time: uint64(time.Now().Unix())})}})
			must(b, err)
			p, err := pr.Prepare(quarantine.Delivery{Queue: "orders.dlq", Properties: props, Body: bytes.Repeat([]byte("b"), 100)}, quarantine.Origin{}, time.Now())
			must(b, err)
			batch.New = append(batch.New, p)
		}
		must(b, c.CaptureBatch(batch))
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
