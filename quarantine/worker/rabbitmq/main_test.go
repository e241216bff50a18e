package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	broker "github.com/redrivehq/redrive/internal/broker/rabbitmq"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/dedup/postgres"
	"github.com/redrivehq/redrive/quarantine/worker/rabbitmq"
)

// Environment of a worker that is a process of its own: this test binary.
const (
	envURL     = "REDRIVE_TEST_WORKER_URL"     // of its broker
	envKill    = "REDRIVE_TEST_WORKER_KILL"    // the step at which it dies
	envEffects = "REDRIVE_TEST_WORKER_EFFECTS" // file that it appends the effects to
	envInbox   = "REDRIVE_TEST_WORKER_INBOX"   // database of its inbox
	envDown    = "REDRIVE_TEST_WORKER_DOWN"    // while this file is there, the warehouse is not; its failures are appended
)

// scale shortens all delays for the everyday run, proportions kept. With
// REDRIVE_TEST_SCALE=1 the true ladder is lived through.
func scale() float64 {
	if f, err := strconv.ParseFloat(os.Getenv("REDRIVE_TEST_SCALE"), 64); err == nil && f > 0 {
		return f
	}
	return 0.001
}

// fullRun is how many orders the reference run has, and everyday how many it has
// unless REDRIVE_TEST_MESSAGES is set, or it runs with its true delays.
const (
	fullRun  = 5000
	everyday = 1000
)

func orderCount() int {
	if os.Getenv("REDRIVE_TEST_MESSAGES") != "" || scale() == 1 {
		return fullRun
	}
	return everyday
}

// patience ends a hang, and measures nothing.
func patience() time.Duration {
	return 3*time.Minute + time.Duration(scale()*float64(2*time.Hour))
}

func TestMain(m *testing.M) {
	if url := os.Getenv(envURL); url != "" {
		if err := child(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(rabbittest.Main(m))
}

// child works until it is killed, by itself or by SIGTERM.
func child(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conn, err := rabbitmq.Dial(ctx, rabbitmq.Config{URL: url})
	if err != nil {
		return err
	}
	at := os.Getenv(envKill)
	world := conn.World()
	if at == "publish" {
		world.Publisher = killer{world.Publisher}
	}
	o := worker.Options{Scale: scale(), Log: slog.New(slog.DiscardHandler), Observe: func(s worker.Step, m *worker.Message) {
		if string(s) == at && strings.HasPrefix(m.ID, "permanent") {
			die()
		}
	}}
	p, err := reference()
	if err != nil {
		return err
	}
	if dsn := os.Getenv(envInbox); dsn != "" {
		inbox, err := postgres.Open(ctx, dsn, p.Queues[0].Horizon)
		if err != nil {
			return err
		}
		defer inbox.Close()
		o.Inbox = inbox
		if o.Schema, err = rabbitmq.Schemas("../../../testdata/policies", p.Queues[0]); err != nil {
			return err
		}
	}
	return errors.Join(worker.Run(ctx, world, p, handle, o), conn.Close())
}

// killer dies between a publish and its confirm, or close to that.
type killer struct{ worker.Publisher }

func (k killer) Publish(ctx context.Context, c worker.Copy) error {
	go func() { _ = k.Publisher.Publish(ctx, c) }()
	time.Sleep(500 * time.Microsecond)
	die()
	return nil
}

// die is how the kernel ends a process that has no memory left.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// handle does what the id of a message says.
func handle(_ context.Context, m *worker.Message) error {
	kind, _, _ := strings.Cut(m.ID, "-")
	if down, err := warehouseDown(); down || err != nil {
		return worker.Systemic("warehouse_down", 0, err)
	}
	switch kind {
	case "permanent":
		return worker.Permanent("unknown_sku", errors.New("no such SKU"))
	case "transient":
		return worker.Transient("downstream_timeout", errors.New("warehouse: 5 s have passed"))
	case "once":
		if m.Run == 1 {
			return worker.Transient("db_conflict", nil).WithCode("40P01")
		}
	case "unknown":
		return errors.New("nobody expected this")
	case "panic":
		panic("nil map")
	case "duplicate":
		return worker.Duplicate("shipment 7")
	case "rejected":
		return worker.Rejected("credit_limit", nil)
	case "ambiguous":
		return worker.Ambiguous("carrier_silent", nil)
	case "defect":
		return worker.Defect("new_field", nil)
	case "killer":
		die()
	}
	if name := os.Getenv(envEffects); name != "" {
		return note(name, os.O_CREATE, m.ID)
	}
	return nil
}

// note appends a line to a file.
func note(name string, flag int, line any) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// warehouseDown looks whether the file is there that says so.
func warehouseDown() (bool, error) {
	name := os.Getenv(envDown)
	if name == "" {
		return false, nil
	}
	err := note(name, 0, os.Getpid())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// reference is the policy of the reference system.
func reference() (*policy.Policy, error) {
	b, err := os.ReadFile("../../../testdata/policies/fulfillment.yaml")
	if err != nil {
		return nil, err
	}
	return policy.Parse("fulfillment.yaml", b)
}

// world is the reference system on a vhost of its own.
type world struct {
	t      *testing.T
	url    string
	raw    *rawamqp.Client
	policy *policy.Policy
	q      policy.Queue
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: rabbittest.Shared(t).VHost(t)}
	p, err := reference()
	must(t, err)
	w.policy, w.q = p, p.Queues[0]
	c, err := broker.ParseURL(w.url)
	must(t, err)
	l, err := broker.NewLayout(t.Context(), c)
	must(t, err)
	defer l.Close()
	cmp, err := l.Compare(t.Context(), p.Queues)
	must(t, err)
	for _, s := range cmp.Steps {
		if s.State == quarantine.StepMissing {
			must(t, l.Make(t.Context(), p.Queues, s))
		}
	}
	w.raw = rawamqp.Dial(t, w.url)
	t.Cleanup(w.raw.Close)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// order is the properties of an order, changed by edits.
func order(t testing.TB, id string, edits ...func(*amqpwire.View)) []byte {
	t.Helper()
	v := amqpwire.View{Present: amqpwire.MessageID | amqpwire.Type | amqpwire.DeliveryMode | amqpwire.Headers, MessageID: id, Type: "order.placed", DeliveryMode: 2}
	for _, edit := range edits {
		edit(&v)
	}
	b, err := amqpwire.Build(v)
	must(t, err)
	return b
}

func (w *world) publish(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		w.raw.Publish("", w.q.Name, order(w.t, id), []byte("{}"))
	}
}

// spawn starts a worker process.
func (w *world) spawn(env ...string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(env, envURL+"="+w.url)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(w.t, cmd.Start())
	return cmd
}

// killed tells whether a process has been killed, and not just ended.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	s, ok := exit.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// effects are the ids in the file of effects, with their counts.
func effects(t testing.TB, name string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		out[strings.TrimSpace(line)]++
	}
	return out
}

// run works until n messages were settled, in this process.
func (w *world) run(n int, h worker.Handler, o worker.Options) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	left := make(chan struct{}, 10000)
	before := o.Observe
	o.Observe = func(s worker.Step, m *worker.Message) {
		if before != nil {
			before(s, m)
		}
		if s == worker.StepSettled {
			left <- struct{}{}
		}
	}
	o.Scale, o.Log = scale(), slog.New(slog.DiscardHandler)
	done := make(chan error, 1)
	go func() { done <- rabbitmq.Run(ctx, rabbitmq.Config{URL: w.url}, w.policy, h, o) }()
	for i := range n {
		select {
		case <-left:
		case err := <-done:
			w.t.Fatalf("the worker ended after %d of %d: %v", i, n, err)
		case <-time.After(patience()):
			w.t.Fatalf("%d of %d", i, n)
		}
	}
	cancel()
	must(w.t, <-done)
}

// dead are the ids in the quarantine queue, each with reason, last reason and
// retry count.
func (w *world) dead() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, m := range w.raw.Drain(w.q.Quarantine) {
		v := amqpwire.Parse(m.Properties)
		text := func(name string) string { s, _ := v.Text(name); return s }
		out[v.MessageID] = fmt.Sprintf("%s/%s/%s", text("x-death-reason"), text("x-last-reason"), text("x-retry-count"))
		if h := v.DeathHistory(); len(h.Deaths) > 0 {
			out[v.MessageID] += "/" + h.Deaths[0].Reason
		}
	}
	return out
}

// rest checks that no queue but the quarantine holds anything.
func (w *world) rest() {
	w.t.Helper()
	for _, name := range append(w.q.RetryQueues(), w.q.Name) {
		if got := w.raw.Drain(name); len(got) > 0 {
			w.t.Errorf("%s has %d messages", name, len(got))
		}
	}
}

// until asks the broker and the files again and again until something is so.
func (w *world) until(so func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience())
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			w.t.Fatal("it has not come to that in time")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
