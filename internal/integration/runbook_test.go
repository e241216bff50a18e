package integration

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
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
	r *rabbit
}

func newBadNight(t *testing.T, config string) *badNight {
	t.Helper()
	r := newRabbit(t)
	ch := r.channel()
	for name, args := range map[string]amqp.Table{
		orderDeadQueue: {"x-queue-type": "quorum"},
		orderQueue:     {"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": orderDeadQueue},
	} {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		must(t, err)
	}
	const address = `{url: "amqp://broker.example/"`
	if !strings.Contains(config, address) {
		t.Fatalf("the configuration of the runbook has no %s", address)
	}
	config = strings.Replace(config, address, `{url: "amqp://`+r.node.Addr()+"/"+r.vhost+`"`, 1)
	f := &badNight{newSite(t, config+"store: {min_free_mib: 16}\n"), r}
	must(t, os.Mkdir(f.path("policies"), 0o700))
	for _, name := range []string{"fulfillment.yaml", "order.placed.schema.json"} {
		text, err := os.ReadFile(filepath.FromSlash("../../testdata/policies/" + name))
		must(t, err)
		f.write("policies/"+name, string(text))
	}
	f.night()
	f.worker(r.declareOutcomes())
	return f
}

// placed is an order.placed, with headers as the worker writes them.
func placed(id, body string, headers amqp.Table) amqp.Publishing {
	m := amqp.Publishing{MessageId: id, Type: "order.placed", ContentType: "application/json", Body: []byte(body),
		Headers: amqp.Table{"x-idempotency-key": "order-" + id}}
	maps.Copy(m.Headers, headers)
	return m
}

func orderOf(id, sku string) string {
	return `{"order_id":"` + id + `","customer_id":"c-1","lines":[{"sku":"` + sku + `","quantity":1}]}`
}

// aside are the headers of what the worker of that night moved aside.
func aside(reason, last string, retries int32, why string) amqp.Table {
	h := amqp.Table{"x-death-reason": reason, "x-retry-count": retries, "x-first-failed-at": time.Now().UTC().Add(-5 * time.Hour).Format(time.RFC3339),
		"x-last-error": why, "x-consumer-version": "2.4.0"}
	if last != "" {
		h["x-last-reason"] = last
	}
	return h
}

// night leaves behind what a night left behind.
func (f *badNight) night() {
	unknown := func(sku string) amqp.Table { return aside("unknown_sku", "", 0, "catalogue answers 404 for SKU "+sku) }
	late := aside("retries_exhausted", "downstream_timeout", 5, "POST /reservations: no answer within 5s")
	f.r.publish(orderDeadQueue,
		placed("7f3c1a", orderOf("o-1", "88"), unknown("88")), placed("7f3c1b", orderOf("o-2", "88"), unknown("88")),
		placed("7f3c1c", orderOf("o-3", "99"), unknown("99")),
		placed("5e11d0", `{"order_id":17}`, aside("schema_invalid", "", 0, "at /order_id: got number, want string")),
		placed("9d04e2", `{"test":true}`, aside("schema_invalid", "", 0, "order_id is missing")),
		placed("c0ffee", orderOf("o-6", "12"), late), placed("c0ffef", orderOf("o-7", "13"), late))

	// One killed every worker that took it.
	f.r.publish(orderQueue, placed("dead01", orderOf("o-8", "14"), nil))
	ch := f.r.channel()
	must(f.t, ch.Qos(1, 0, false))
	in, err := ch.Consume(orderQueue, "", false, false, false, false, nil)
	must(f.t, err)
	for range 6 {
		d := <-in
		must(f.t, d.Nack(false, true))
	}
	must(f.t, ch.Close())
	eventually(f.t, "the broker to move it aside", func() bool { return f.r.ready(orderDeadQueue) == 8 })
}

// worker is the one that runs in the morning: it knows SKU 88, and SKU 99 from
// the second time on.
func (f *badNight) worker(out outcomes) {
	var mu sync.Mutex
	seen := map[string]int{}
	f.r.work(orderQueue, func(ch *amqp.Channel, d amqp.Delivery) verdict {
		mu.Lock()
		seen[d.MessageId]++
		first := seen[d.MessageId] == 1
		mu.Unlock()
		if d.MessageId != "7f3c1c" || !first {
			out.report(ch, d, "succeeded")
			return take
		}
		headers := maps.Clone(d.Headers)
		maps.Copy(headers, aside("unknown_sku", "", 0, "catalogue answers 404 for SKU 99"))
		// It comes back after everything was published, as it does when a person
		// watches.
		eventually(f.t, "the release to wait for it", func() bool { return strings.Contains(f.run("generation", "list").out.String(), "settling") })
		f.r.publish(orderDeadQueue, placed(d.MessageId, string(d.Body), headers))
		return take
	})
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
