package integration

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine/policy"
	engine "github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/rabbitmq"
)

const (
	orderQueue     = "orders.fulfillment"
	orderDeadQueue = "orders.fulfillment.dlq"
)

// TestRunbook runs the commands of docs/runbook.md in order, on the reference
// system, and compares what they print with what is printed there.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../docs/runbook.md"))
	must(t, err)
	_, rest, ok := strings.Cut(string(text), "```yaml\n")
	config, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the runbook has no configuration")
	}
	f := newBadNight(t, config)
	n := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(part, "\n")
			n++
			out, code := f.shell(line)
			if got := plain(out); got != plain(want) {
				t.Errorf("$ %s\nprints\n%s\nand the runbook says\n%s", line, got, plain(want))
			}
			if code != 0 {
				t.Errorf("$ %s\nends with %d, and the runbook does not say so", line, code)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d commands were found", n)
	}
}

// varies is what differs from night to night, and what stands for it.
var varies = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`(?m)^(\d+ .*) \d+[smhd]$`), "$1 AGE"},
	{regexp.MustCompile(`recorded at \d+`), "recorded at N"},
	{regexp.MustCompile(`\d+ records, (\d+)/(\d+) checkpoints`), "N records, N/N checkpoints"},
	// Progress, which a terminal wipes away.
	{regexp.MustCompile(`(?m)^(\S+: \d+ captured, \d+ already known|generation \d+ [a-z]+, stage .*)\n`), ""},
	{regexp.MustCompile(` +`), " "}, // widths of columns follow from the above
	{regexp.MustCompile(`(?m) $`), ""},
}

// plain is an output without what differs from night to night.
func plain(text string) string {
	for _, v := range varies {
		text = v.re.ReplaceAllString(text, v.to)
	}
	return strings.TrimSpace(text)
}

// badNight is the reference system after a bad night: eight messages lie in
// its dead-letter queue, and the worker that runs now has the fixes.
type badNight struct {
	*site
	r     *rabbit
	asked atomic.Int32 // how often the catalogue of the morning was asked for SKU 99
}

func newBadNight(t *testing.T, config string) *badNight {
	t.Helper()
	r := newRabbit(t)
	const address = `{url: "amqp://broker.example/"`
	if !strings.Contains(config, address) {
		t.Fatalf("the configuration of the runbook has no %s", address)
	}
	config = strings.Replace(config, address, `{url: "amqp://`+r.node.Addr()+"/"+r.vhost+`"`, 1)
	// Here nothing is watched from outside, and no signal has to hold for a while:
	// that takes minutes and prints nothing.
	f := &badNight{site: newSite(t, config+"store: {min_free_mib: 16}\nbrake: {hold_down: 1ms, watch: [none]}\n"), r: r}
	must(t, os.Mkdir(f.path("policies"), 0o700))
	for _, name := range []string{"fulfillment.yaml", "order.placed.schema.json"} {
		text, err := os.ReadFile(filepath.FromSlash("../../testdata/policies/" + name))
		must(t, err)
		f.write("policies/"+name, string(text))
	}
	f.ok("policy", "apply", "--yes")
	f.night()
	f.work(f.morning)
	return f
}

// placed is an order.placed as the Orders API publishes it.
func placed(id, body string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, Type: "order.placed", ContentType: "application/json", Body: []byte(body),
		Headers: amqp.Table{"x-idempotency-key": "order-" + id}}
}

func orderOf(id, sku string) string {
	return `{"order_id":"` + id + `","customer_id":"c-1","lines":[{"sku":"` + sku + `","quantity":1}]}`
}

// night leaves behind what a night left behind.
func (f *badNight) night() {
	// One killed every worker that took it.
	f.r.publish(orderQueue, placed("dead01", orderOf("o-8", "14")))
	ch := f.r.channel()
	must(f.t, ch.Qos(1, 0, false))
	in, err := ch.Consume(orderQueue, "", false, false, false, false, nil)
	must(f.t, err)
	for range 6 {
		d := <-in
		must(f.t, d.Nack(false, true))
	}
	must(f.t, ch.Close())
	stop := f.work(func(_ context.Context, m *engine.Message) error {
		switch {
		case strings.HasPrefix(m.ID, "7f3c"):
			return unknownSKU(m)
		default:
			return engine.Transient("downstream_timeout", errors.New("POST /reservations: no answer within 5s"))
		}
	})
	for i, m := range []amqp.Publishing{
		placed("7f3c1a", orderOf("o-1", "88")), placed("7f3c1b", orderOf("o-2", "88")), placed("7f3c1c", orderOf("o-3", "99")),
		placed("5e11d0", `{"order_id":17,"customer_id":"c-1","lines":[{"sku":"12","quantity":1}]}`), placed("9d04e2", `{}`),
		placed("c0ffee", orderOf("o-6", "12")), placed("c0ffef", orderOf("o-7", "13")),
	} {
		f.r.publish(orderQueue, m)
		eventually(f.t, m.MessageId+" to be moved aside", func() bool { return f.r.ready(orderDeadQueue) == i+2 })
	}
	stop()
}

// unknownSKU is the catalogue's answer about an order.
func unknownSKU(m *engine.Message) error {
	sku := "88"
	if strings.Contains(string(m.Body), `"99"`) {
		sku = "99"
	}
	return engine.Permanent("unknown_sku", errors.New("catalogue answers 404 for SKU "+sku)).WithCode("404")
}

// morning is a handler that knows SKU 88, and SKU 99 from the second time on.
func (f *badNight) morning(_ context.Context, m *engine.Message) error {
	if m.ID == "7f3c1c" && f.asked.Add(1) == 1 {
		return unknownSKU(m)
	}
	return nil
}

// work runs the worker of the reference system with a handler, with its delays
// shortened to thousandths, until it is stopped or the test ends.
func (f *badNight) work(handle engine.Handler) (stop func()) {
	f.t.Helper()
	text, err := os.ReadFile(fulfillment)
	must(f.t, err)
	p, err := policy.Parse(fulfillment, text)
	must(f.t, err)
	conn, err := rabbitmq.Dial(f.t.Context(), rabbitmq.Config{URL: f.r.url})
	must(f.t, err)
	q, _ := p.Queue(orderQueue)
	schemas, err := rabbitmq.Schemas(filepath.Dir(fulfillment), q)
	must(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- engine.Run(ctx, conn.World(), p, handle, engine.Options{Version: "2.4.1", Scale: 0.001, Schema: schemas, Log: slog.New(slog.DiscardHandler),
			Observe: f.observe})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, conn.Close()); err != nil {
			f.t.Errorf("the worker: %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

// observe lets the message that comes back wait until everything was published,
// as it is when a person watches: otherwise the brake may be faster than the end.
func (f *badNight) observe(s engine.Step, m *engine.Message) {
	if s == engine.StepRun && m.ID == "7f3c1c" && f.asked.Load() == 1 {
		eventually(f.t, "the release to wait for it", func() bool { return strings.Contains(f.run("generation", "list").out.String(), "settling") })
	}
}

// shell runs a line as a shell does and returns what a terminal would show, and
// how it ended.
func (f *badNight) shell(line string) (out string, code int) {
	f.t.Helper()
	bin := f.t.TempDir()
	must(f.t, os.Symlink(programOf(f.t), filepath.Join(bin, "redrive")))
	cmd := exec.Command("sh", "-c", "{ "+line+"\n} 2>&1")
	cmd.Env = f.command().Env
	cmd.Env = append(cmd.Env, "PATH="+bin, "REDRIVE_DATA="+f.data)
	p := startProcess(f.t, cmd)
	f.mu.Lock()
	f.spoken = append(f.spoken, p)
	f.mu.Unlock()
	code = p.wait()
	return p.out.String(), code
}
