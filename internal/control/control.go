package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/redrive"
)

// Brokers opens the two sides of the configured broker when they are needed
// first. Source and Releaser return the same ones each time; Fresh connects
// anew, for who must not trust a connection that was made long ago, and end
// closes what it returned. Forget closes what Source and Releaser returned so
// far; the next ones are new.
type Brokers interface {
	Source(ctx context.Context) (quarantine.Source, error)
	Releaser(ctx context.Context) (redrive.Releaser, error)
	Fresh(ctx context.Context) (s quarantine.Source, r redrive.Releaser, end func() error, err error)
	Forget() error
}

// Options says with what a Controller works. All fields are required unless
// they have a default.
type Options struct {
	KV      ledger.KV
	Scratch func() (frozen, empty ledger.KV, remove func() error, err error) // a snapshot and an empty store, for a rebuild
	Keys    quarantine.Keys
	Stamps  redrive.Stamps
	Sign    func(msg []byte) ([]byte, error) // Ed25519 by the key that is in force, for bundles
	Blobs   quarantine.Blobs
	Config  *config.Config
	// Schema judges bodies before they are released. Defaults to no schemas.
	Schema quarantine.Schema
	// Secret reads a file of one line that the configuration names. Defaults to a
	// refusal.
	Secret  func(path string) (string, error)
	Brokers Brokers
	// Evidence opens business data. Defaults to refusing: there is none.
	Evidence func(ctx context.Context, req api.ReconcileRequest) (redrive.Effects, error)
	// Predicates compiles the expressions of selections.
	Predicates quarantine.Predicates
	Random     io.Reader
	Now        func() time.Time
	Version    string
	Command    string // of the process that holds the store, for StatusInfo
	PID        int
	Since      time.Time
	// Stopped reports whether the kill switch is set. Defaults to never.
	Stopped func() bool
	Logger  *slog.Logger
	// Probes are asked beside the own ones of every generation, as often as
	// ProbeTimes says.
	Probes     []redrive.Probe
	ProbeTimes ProbeTimes
	// Ledger is completed by Open with projectors, reactors and hooks.
	Ledger ledger.Options
}

// Controller is the one holder of an open store.
type Controller struct {
	o      Options
	log    *ledger.Log
	policy *policy.Policy
	masks  []quarantine.Mask
	ops    map[string]handler

	gates   gates
	changes changes
	commits samples // how long commits took

	due      sync.Mutex // guards schedule
	schedule quarantine.Schedule

	mu        sync.Mutex
	driven    map[event.GenerationNo]bool
	watches   map[event.GenerationNo]*watch
	capturing map[string]api.CaptureState // by queue
}

type handler func(ctx context.Context, req json.RawMessage, progress func(api.Progress)) (any, error)

// Open starts a Controller on a store. It brings the store's state up to now:
// what the last process left in flight, and what has become due.
func Open(ctx context.Context, o Options) (*Controller, error) {
	c := &Controller{o: o, driven: map[event.GenerationNo]bool{}, watches: map[event.GenerationNo]*watch{}, capturing: map[string]api.CaptureState{}}
	c.o.Brokers = guarded{o.Brokers, c}
	c.o.ProbeTimes.Every = either(c.o.ProbeTimes.Every, time.Duration(o.Config.Brake.ProbeEvery))
	c.o.ProbeTimes = c.o.ProbeTimes.withDefaults()
	if c.o.Stopped == nil {
		c.o.Stopped = func() bool { return false }
	}
	if c.o.Schema == nil {
		c.o.Schema = noSchema{}
	}
	if c.o.Secret == nil {
		c.o.Secret = func(string) (string, error) { return "", config.ErrInvalid }
	}
	if err := c.checkProbes(); err != nil {
		return nil, err
	}
	var err error
	if c.policy, err = o.Config.BuildPolicy(); err != nil {
		return nil, err
	}
	// A rule that cannot be used is found now, not when somebody captures.
	if _, err = c.judge(); err != nil {
		return nil, err
	}
	if c.masks, err = o.Config.BuildMasks(); err != nil {
		return nil, err
	}
	lo := o.Ledger
	lo.Projectors = Projectors(o.Keys)
	lo.Reactors = []ledger.Reactor{redrive.Reactor{}}
	// The committer is one goroutine, so the two hooks share a moment.
	var began time.Time
	lo.Before = func(rs []*event.Record) {
		c.gates.before(rs)
		began = time.Now()
	}
	lo.After = func([]*event.Record) {
		c.commits.add(time.Now(), time.Since(began))
		c.changes.announce()
	}
	if c.log, err = ledger.Open(o.KV, lo); err != nil {
		return nil, err
	}
	c.register()
	if err := c.recover(ctx); err != nil {
		return nil, errors.Join(err, c.log.Close())
	}
	return c, nil
}

// Projectors lists the projections of a store in the order in which they are
// applied.
func Projectors(keys quarantine.Keys) []ledger.Projector {
	return []ledger.Projector{quarantine.Projector{Keys: keys}, redrive.Projector{}}
}

// recover begins an epoch at once when the last process left intents without
// an answer, so that nobody ever sees them as in flight.
func (c *Controller) recover(ctx context.Context) error {
	if !c.log.NeedsRecovery() {
		return c.settleDue(ctx)
	}
	orphans := false
	err := c.log.View(func(v ledger.View) error {
		gens, err := redrive.Unfinished(v)
		for _, g := range gens {
			orphans = orphans || g.Counts[event.InFlight] > 0 || g.State == event.Running
		}
		return err
	})
	if err == nil && orphans {
		// Any record begins the epoch; the reactor resolves the orphans.
		_, err = c.log.Update(ctx, ledger.Request{Actor: event.System, Urgent: true}, func(ledger.View) ([]event.Event, error) {
			return []event.Event{{Body: &event.LedgerRecovered{}}}, nil
		})
	}
	if err != nil {
		return err
	}
	return c.settleDue(ctx)
}

// Close ends the epoch in order.
func (c *Controller) Close() error { return c.log.Close() }

// Dead is closed when the ledger can no longer be used; Err says why.
func (c *Controller) Dead() <-chan struct{} { return c.log.Dead() }

// Err is the reason why the ledger died, nil when it was closed in order.
func (c *Controller) Err() error { return c.log.Err() }

// Checkpoint signs the current size of the ledger when it has grown.
func (c *Controller) Checkpoint(ctx context.Context) error { return c.log.Checkpoint(ctx) }

// Call implements api.Caller for whoever is in the same process.
func (c *Controller) Call(ctx context.Context, name string, req json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	h, ok := c.ops[name]
	if !ok {
		return nil, &api.Error{Code: api.CodeUsage, Message: fmt.Sprintf("operation %q is unknown; is the other side a newer version?", name)}
	}
	resp, err := h(ctx, req, func(p api.Progress) {
		if b, err := json.Marshal(p); err == nil && progress != nil {
			progress(b)
		}
	})
	if err != nil {
		return nil, wireError(err)
	}
	return json.Marshal(resp)
}

// handle registers an operation. What is due is settled before each, so that
// nobody decides on or looks at a state that time has overtaken.
func handle[Req, Resp any](c *Controller, op api.Op[Req, Resp], fn func(context.Context, Req, func(api.Progress)) (Resp, error)) {
	atOnce(c, op, func(ctx context.Context, req Req, progress func(api.Progress)) (Resp, error) {
		if err := c.settleDue(ctx); err != nil && !errors.Is(err, ledger.ErrNoSpace) {
			var none Resp
			return none, err
		}
		return fn(ctx, req, progress)
	})
}

// atOnce registers an operation that waits for nothing: stops, and the question
// who is there.
func atOnce[Req, Resp any](c *Controller, op api.Op[Req, Resp], fn func(context.Context, Req, func(api.Progress)) (Resp, error)) {
	c.ops[op.Name] = func(ctx context.Context, raw json.RawMessage, progress func(api.Progress)) (any, error) {
		var req Req
		if err := json.Unmarshal(raw, &req); err != nil {
			return nil, &api.Error{Code: api.CodeUsage, Message: fmt.Sprintf("request of %s: %v", op.Name, err)}
		}
		return fn(ctx, req, progress)
	}
}

func quick[Req, Resp any](fn func(context.Context, Req) (Resp, error)) func(context.Context, Req, func(api.Progress)) (Resp, error) {
	return func(ctx context.Context, req Req, _ func(api.Progress)) (Resp, error) { return fn(ctx, req) }
}

func (c *Controller) register() {
	c.ops = map[string]handler{}
	atOnce(c, api.Ping, quick(func(context.Context, api.None) (api.None, error) { return api.None{}, nil }))
	handle(c, api.Status, quick(c.status))
	handle(c, api.CaptureRun, c.captureRun)
	handle(c, api.SourceDepth, quick(c.sourceDepth))
	handle(c, api.SourcePin, quick(c.sourcePin))
	handle(c, api.Doctor, quick(c.doctor))
	handle(c, api.EnvelopeList, quick(c.envelopeList))
	handle(c, api.EnvelopeGroups, quick(c.envelopeGroups))
	handle(c, api.EnvelopeShow, quick(c.envelopeShow))
	c.registerChanges()
	handle(c, api.EnvelopeRepair, quick(c.repair))
	handle(c, api.EnvelopeRepairs, quick(c.chooseRepair))
	handle(c, api.EnvelopeCompare, quick(c.compareEnvelopes))
	handle(c, api.GenerationPlan, quick(func(ctx context.Context, req api.PlanRequest) (api.Plan, error) {
		if err := c.contact(ctx, req.As, !req.DryRun); err != nil {
			return api.Plan{}, err
		}
		return c.plan(ctx, req)
	}))
	handle(c, api.GenerationList, quick(c.generationList))
	handle(c, api.GenerationShow, quick(c.generationShow))
	handle(c, api.GenerationApprove, quick(c.approve))
	handle(c, api.GenerationReject, quick(c.reject))
	handle(c, api.GenerationStart, c.atBroker(c.start))
	handle(c, api.GenerationResume, c.atBroker(c.resume))
	atOnce(c, api.GenerationPause, quick(c.pause))
	atOnce(c, api.GenerationAbort, quick(c.abort))
	handle(c, api.GenerationLimit, quick(c.limit))
	handle(c, api.GenerationRule, quick(c.rule))
	handle(c, api.GenerationClose, quick(c.closeGeneration))
	handle(c, api.GenerationReport, quick(c.report))
	handle(c, api.GenerationMembers, quick(c.generationMembers))
	handle(c, api.GenerationReconcile, c.reconcile)
	handle(c, api.OutcomeReport, quick(c.outcomeReport))
	handle(c, api.LedgerTail, quick(c.ledgerTail))
	handle(c, api.LedgerVerify, quick(c.ledgerVerify))
	handle(c, api.LedgerExport, quick(c.ledgerExport))
	handle(c, api.LedgerCheckpoint, quick(c.ledgerCheckpoint))
	handle(c, api.StoreCheck, quick(c.storeCheck))
	handle(c, api.StoreRebuild, quick(c.storeRebuild))
}

// settleDue appends what time has brought: deadlines and expiries are events.
func (c *Controller) settleDue(ctx context.Context) error {
	c.due.Lock()
	defer c.due.Unlock()
	due := func(v ledger.View) ([]event.Event, error) {
		events, err := redrive.Due(v)
		if err != nil {
			return nil, err
		}
		more, err := c.retention().Due(v, &c.schedule)
		return append(events, more...), err
	}
	for range dueRounds {
		n := 0
		err := c.log.View(func(v ledger.View) error {
			events, err := due(v)
			n = len(events)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
		c.schedule = quarantine.Schedule{} // the decision looks at everything again
		if _, err := c.log.Update(ctx, ledger.Request{Actor: event.System}, due); err != nil {
			return err
		}
	}
	return nil
}

// dueRounds bounds how much of a backlog one call settles; the rest follows
// with the next calls and with Maintain.
const dueRounds = 4

func (c *Controller) retention() quarantine.Retention {
	r := quarantine.Retention{Deadline: time.Duration(c.o.Config.Retention.Deadline),
		PayloadAge: time.Duration(c.o.Config.Retention.PayloadAge), ByQueue: map[string]time.Duration{}}
	for _, q := range c.policy.Queues {
		r.ByQueue[q.Quarantine] = q.Retention
	}
	for _, s := range c.o.Config.Sources {
		if s.Retention > 0 {
			r.ByQueue[s.Queue] = time.Duration(s.Retention)
		}
	}
	return r
}

type actorKey struct{}

// WithActor says on whose behalf calls with this context are made.
func WithActor(ctx context.Context, a event.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// request is who asks, with the name that they assert beside it.
func request(ctx context.Context, as string) ledger.Request {
	a, ok := ctx.Value(actorKey{}).(event.Actor)
	if !ok {
		a = event.Actor{Auth: "unknown", Subject: "unknown"}
	}
	if as != "" {
		a.As = as
	}
	return ledger.Request{Actor: a}
}

// update runs a decision for a caller.
func (c *Controller) update(ctx context.Context, as string, decide ledger.Decide) (ledger.Receipt, error) {
	return c.log.Update(ctx, request(ctx, as), decide)
}
