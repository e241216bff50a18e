package control_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// world is a Controller on a real store with real keys, between a pond and a
// wire that obey the test.
type world struct {
	testing.TB
	dir      string
	store    *bolt.Store
	kv       *hooked
	keys     *keyfile.Keys
	cfg      *config.Config
	c        *control.Controller
	wire     *wire
	pond     *pond
	contract quarantine.Schema
	times    control.ProbeTimes
	stop     atomic.Bool  // the file STOP
	away     atomic.Int32 // how often the pond cannot be reached
	next     int          // number of the next order
	later    atomic.Int64 // how much later it is for the Controller than it is, in nanoseconds

	probes []redrive.Probe
}

// hooked is a store that a test can step into.
type hooked struct {
	*bolt.Store
	mu     sync.Mutex
	viewed func() // runs once, in the caller of a View
	within string
	commit func() error // runs inside each transaction, last; an error becomes ErrCommit
	room   error
}

func (h *hooked) Room(urgent bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.room != nil && !urgent {
		return h.room
	}
	return h.Store.Room(urgent)
}

func (h *hooked) setRoom(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.room = err
}

func (h *hooked) View(fn func(ledger.Reader) error) error {
	err := h.Store.View(fn)
	h.mu.Lock()
	hook := h.viewed
	if hook == nil || !calledFrom(h.within) {
		hook = nil
	} else {
		h.viewed = nil
	}
	h.mu.Unlock()
	if hook != nil {
		hook()
	}
	return err
}

// afterView runs fn once, after the next View of a function of the package.
func (h *hooked) afterView(within string, fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewed, h.within = fn, within
}

// calledFrom reports whether a function is among the callers.
func calledFrom(name string) bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

func (h *hooked) Update(fn func(ledger.Writer) error) error {
	h.mu.Lock()
	hook := h.commit
	h.mu.Unlock()
	return h.Store.Update(func(w ledger.Writer) error {
		if err := fn(w); err != nil || hook == nil {
			return err
		}
		if err := hook(); err != nil {
			return fmt.Errorf("%w: %w", err, ledger.ErrCommit)
		}
		return nil
	})
}

func (h *hooked) onCommit(fn func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commit = fn
}

// Source and Releaser implement control.Brokers.
func (w *world) Source(context.Context) (quarantine.Source, error) {
	if w.away.Add(-1) >= 0 {
		return nil, quarantine.ErrUnreachable
	}
	return w.pond, nil
}

func (w *world) Releaser(context.Context) (redrive.Releaser, error) { return w.wire, nil }

// Fresh implements control.Brokers.
func (w *world) Fresh(ctx context.Context) (quarantine.Source, redrive.Releaser, func() error, error) {
	s, err := w.Source(ctx)
	return s, w.wire, func() error { return nil }, err
}

// Forget implements control.Brokers.
func (w *world) Forget() error { return nil }

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{TB: tb, dir: filepath.Join(tb.TempDir(), "data"), wire: &wire{}, cfg: config.Default(),
		pond: &pond{script: map[string]func(int, quarantine.SessionOptions) (*visit, error){}}}
	must(tb, bolt.Create(w.dir))
	must(tb, keyfile.Create(w.dir, "test.example/ledger"))
	var err error
	w.keys, err = keyfile.Open(w.dir)
	must(tb, err)
	w.store, err = bolt.Open(w.dir, bolt.Options{MinFree: 1, Reserve: 1, UrgentFree: 1})
	must(tb, err)
	w.kv = &hooked{Store: w.store}
	w.cfg.Destinations = []config.Destination{{Exchange: "events"}}
	// What a test does not ask for is not watched, and nothing is held down.
	w.cfg.Brake = config.Brake{HoldDown: config.Duration(-1), Watch: []string{"none"}}
	w.cfg.Approvals.PlannerUpTo = 1_000_000
	w.open()
	must(tb, w.c.Pin(context.Background(), quarantine.Pin{Broker: "pond", Cluster: "test"}))
	tb.Cleanup(func() {
		err := w.c.Close()
		if w.c.Err() == nil {
			must(tb, err)
			w.check()
		}
		must(tb, w.store.Close())
	})
	return w
}

// open starts a Controller on the store, as a process does.
func (w *world) open() {
	w.Helper()
	var err error
	w.c, err = control.Open(context.Background(), control.Options{KV: w.kv, Keys: w.keys, Stamps: redrive.Stamps{Key: w.keys.Stamp}, Predicates: w.predicates(),
		Sign: w.keys.Signer.Sign, Blobs: w.store, Config: w.cfg, Schema: w.contract, Probes: w.probes, ProbeTimes: w.times, Brokers: w, Evidence: businessData, Random: rand.Reader, Now: w.now,
		Stopped: w.stop.Load, Logger: slog.New(slog.DiscardHandler),
		Ledger: ledger.Options{Program: "test", Origin: w.keys.Origin, Signer: w.keys.Signer, VerifierKey: w.keys.Verifier, Now: w.now}})
	must(w, err)
}

// now is the time of the Controller.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.later.Load())) }

// crash leaves the Controller without closing it, and starts another one.
func (w *world) crash() {
	w.Helper()
	w.open()
}

// check holds the sums of every generation against its members.
func (w *world) check() {
	w.Helper()
	must(w, w.store.View(func(r ledger.Reader) error {
		gens, err := redrive.All(r)
		for _, g := range gens {
			if got := redrive.Recount(r, g); got != g.Counts {
				w.Errorf("generation %d: counters %v, recounted %v", g.No, g.Counts, got)
			}
		}
		return err
	}))
}

func as(who string) context.Context {
	return control.WithActor(context.Background(), event.Actor{Auth: "os", Subject: "os:" + who})
}

// do calls an operation and fails the test when that fails.
func do[Req, Resp any](w *world, op api.Op[Req, Resp], req Req) Resp {
	w.Helper()
	resp, err := api.Call(as("ann"), w.c, op, req, nil)
	must(w, err)
	return resp
}

// dead is a message that died in the queue orders.
func dead(id string, body []byte) quarantine.Delivery {
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.MessageID | amqpwire.Headers, MessageID: id,
		Headers: []amqpwire.Field{amqpwire.StringField("x-death-reason", "unknown_sku"),
			amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Count: 1, Time: uint64(time.Now().Unix())})}})
	if err != nil {
		panic(err)
	}
	return quarantine.Delivery{Properties: props, Body: body, DeliveryCount: -1}
}

// capture stores messages of a queue, and returns their numbers as ids.
func (w *world) capture(queue string, ds ...quarantine.Delivery) []string {
	w.Helper()
	judge, err := w.c.Judge()
	must(w, err)
	pr := quarantine.Preparer{Rules: quarantine.DefaultRules(), Judge: judge, Keys: w.keys, Blobs: w.store, Random: rand.Reader}
	var batch quarantine.Batch
	ids := make([]string, 0, len(ds))
	for _, d := range ds {
		d.Queue = queue
		p, err := pr.Prepare(d, quarantine.Origin{Cluster: "test"}, time.Now())
		must(w, err)
		batch.New = append(batch.New, p)
		w.next++
		ids = append(ids, fmt.Sprintf("#%d", w.next))
	}
	must(w, w.c.CaptureBatch(batch))
	return ids
}

// orders stores n small messages.
func (w *world) orders(n int) []string {
	w.Helper()
	ds := make([]quarantine.Delivery, 0, n)
	for i := range n {
		ds = append(ds, dead(fmt.Sprintf("order-%d", w.next+i+1), bytes.Repeat([]byte("b"), 20)))
	}
	return w.capture("orders.dlq", ds...)
}

// fast is a plan in one stage without a pace worth mentioning.
func fast(ids ...string) api.PlanRequest {
	return api.PlanRequest{IDs: ids, Rate: 1_000_000, Burst: 64, Stages: []uint64{uint64(len(ids))}, Bake: "1ms"}
}

// planned freezes a plan and has somebody else approve it.
func (w *world) planned(req api.PlanRequest) string {
	w.Helper()
	p := do(w, api.GenerationPlan, req)
	id := fmt.Sprint(p.Generation.Number)
	_, err := api.Call(as("bob"), w.c, api.GenerationApprove, api.ApproveRequest{ID: id, Digest: p.Generation.Manifest, Why: "looked at, no-stages as well"}, nil)
	must(w, err)
	return id
}

// shell is a call that stays with a generation.
type shell struct {
	cancel context.CancelFunc
	done   chan struct{}
	g      api.Generation
	err    error
}

func (w *world) shell(op api.Op[api.RunRequest, api.Generation], req api.RunRequest) *shell {
	ctx, cancel := context.WithCancel(as("ann"))
	s := &shell{cancel: cancel, done: make(chan struct{})}
	c := w.c
	w.Cleanup(func() {
		cancel()
		<-s.done
	})
	go func() {
		defer close(s.done)
		s.g, s.err = api.Call(ctx, c, op, req, nil)
	}()
	return s
}

func (w *world) start(id string) *shell {
	return w.shell(api.GenerationStart, api.RunRequest{ID: id, NoWait: true})
}

func (w *world) resume(id string) *shell {
	return w.shell(api.GenerationResume, api.RunRequest{ID: id, Why: "go on", NoWait: true, Digest: w.show(id).Manifest})
}

// end waits for a shell to come back by itself.
func (w *world) end(s *shell) api.Generation {
	w.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		w.Fatal("the shell does not come back")
	}
	must(w, s.err)
	return s.g
}

const patience = 20 * time.Second

// until polls for what has to become true.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			w.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *world) show(id string) api.Generation {
	w.Helper()
	return do(w, api.GenerationShow, api.GenerationRef{ID: id})
}

func (w *world) state(id string) string { w.Helper(); return w.show(id).State }

func (w *world) pause(id string) {
	w.Helper()
	do(w, api.GenerationPause, api.PauseRequest{ID: id, Why: "look"})
}

// reasons lists why a generation stands still.
func reasons(g api.Generation) map[string]bool {
	out := map[string]bool{}
	for _, p := range g.Pauses {
		out[p.Reason] = true
	}
	return out
}

// records reads all records of a generation from the store.
func (w *world) records(id string) (out []*event.Record) {
	w.Helper()
	no := event.GenerationNo(w.show(id).Number)
	must(w, w.store.View(func(r ledger.Reader) error {
		return ledger.Records(r, 1, func(rec *event.Record) bool {
			if rec.Subj.Gen == no {
				out = append(out, rec)
			}
			return true
		})
	}))
	return out
}

// members reads the members of a generation.
func (w *world) members(id string) (out []redrive.Member) {
	w.Helper()
	must(w, w.store.View(func(r ledger.Reader) error {
		no, err := redrive.Find(r, id)
		if err != nil {
			return err
		}
		g, err := redrive.Get(r, no)
		if err != nil {
			return err
		}
		return redrive.EachMember(r, g, func(p event.Position, _ event.EnvelopeNo) error {
			out = append(out, redrive.GetMember(r, no, p))
			return nil
		})
	}))
	return out
}

// refusedWith reports whether an error of a call has a code.
func refusedWith(err error, code api.Code) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == code
}

// reportOf is what a consumer says about a message that went out.
func (w *world) reportOf(m redrive.Message, o event.Outcome) string {
	w.Helper()
	st, mac, present, err := stamp.Read(amqpwire.Parse(m.Properties))
	must(w, err)
	if !present {
		w.Fatal("a message went out without a stamp")
	}
	b, err := (&outcome.Report{Stamp: st, MAC: mac, Outcome: o}).Encode()
	must(w, err)
	return string(b)
}

// typed is a dead message with an event type.
func typed(id, typ string, body []byte) quarantine.Delivery {
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.MessageID | amqpwire.Headers | amqpwire.Type, MessageID: id, Type: typ,
		Headers: []amqpwire.Field{amqpwire.StringField("x-death-reason", "unknown_sku"),
			amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Count: 1, Time: uint64(time.Now().Unix())})}})
	if err != nil {
		panic(err)
	}
	return quarantine.Delivery{Properties: props, Body: body, DeliveryCount: -1}
}

// comesBack releases a generation and captures again what went out.
func (w *world) comesBack(t *testing.T, id string) {
	t.Helper()
	from := w.wire.count()
	call := w.start(id)
	w.until("a message goes out", func() bool { return w.wire.count() > from })
	call.cancel()
	<-call.done
	for _, m := range w.wire.messages()[from:] {
		e := amqpwire.Edit(m.Properties)
		e.Set(amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Count: 1, Time: uint64(time.Now().Unix())}))
		props, err := e.Bytes()
		must(t, err)
		w.capture("orders.dlq", quarantine.Delivery{Properties: props, Body: m.Body, DeliveryCount: -1})
	}
}
