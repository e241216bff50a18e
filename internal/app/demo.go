package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/demo"
	"github.com/redrivehq/redrive/ledger/event"
)

// DemoOptions says how the demo runs.
type DemoOptions struct {
	Out     io.Writer
	Data    string // keep the data here; "" for a temporary directory
	Broker  string // amqp URL, "" for the embedded broker
	Seed    uint64
	Version string
}

// demoConfig is the configuration of the demo, with the broker filled in.
const demoConfig = `version: 1
broker: {url: %q}
sources:
  - queue: ` + demo.Dead + `
destinations:
  - {queue: ` + demo.Orders + `, evidence: outcomes, outcome_deadline: 30s, bake: 100ms}
outcomes: {queue: ` + demo.Outcomes + `}
policy:
  version: demo-1
  default_owner: Fulfillment on-call
  reasons:
    schema_invalid: {class: permanent, owner: Orders API team}
    unknown_sku: {class: permanent, owner: Catalog team}
    downstream_timeout: {class: transient, owner: Fulfillment team}
store: {min_free_mib: 64}
brake: {hold_down: 1s, probe_every: 100ms}
`

// Actors of the demo: two people, because a plan is not approved by who made
// it.
var (
	demoOperator = event.Actor{Auth: "demo", Role: "operator", Subject: "demo:operator"}
	demoApprover = event.Actor{Auth: "demo", Role: "approver", Subject: "demo:approver"}
)

// Demo lives through a whole redrive and tells it as a story. Every number is
// read back from the ledger.
func Demo(ctx context.Context, o DemoOptions) (err error) {
	dir := o.Data
	if dir == "" {
		if dir, err = os.MkdirTemp("", "redrive-demo-"); err != nil {
			return fmt.Errorf("make a directory for the demo: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	t := &teller{o: o, dir: dir}
	w, closeWorld, err := t.world(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWorld()) }()
	if t.program, err = open(ctx, t.settings()); err != nil {
		return wire(err)
	}
	defer func() { err = errors.Join(err, wire(t.program.close(context.WithoutCancel(ctx)))) }()

	work, stop := context.WithCancel(ctx)
	consumed := make(chan error, 1)
	go func() { consumed <- w.Consume(work) }()
	err = t.story(ctx, w)
	stop()
	return errors.Join(err, <-consumed)
}

// teller tells the story and acts in it.
type teller struct {
	o        DemoOptions
	dir      string
	program  *program
	embedded *local.Broker
	config   string
}

func (t *teller) settings() Settings {
	return Settings{Data: t.dir, Command: "redrive demo", Version: t.o.Version, Actor: demoOperator, Embedded: t.embedded}.withDefaults()
}

// world makes store and broker, and the shop on it.
func (t *teller) world(ctx context.Context) (*demo.World, func() error, error) {
	url, place := "local:broker.db", "an embedded broker"
	var w *demo.World
	end := func() error { return nil }
	if t.o.Broker != "" {
		url, place = t.o.Broker, "the broker you named"
		c, err := rabbitmq.ParseURL(url)
		if err != nil {
			return nil, nil, &api.Error{Code: api.CodeUsage, Message: "--broker: " + err.Error()}
		}
		undo, err := rabbitmq.DeclareScratch(ctx, c, demo.Orders, demo.Dead, demo.Outcomes)
		if err != nil {
			return nil, nil, control.WireError(err)
		}
		s, err := rabbitmq.NewSource(ctx, c)
		if err != nil {
			return nil, nil, control.WireError(errors.Join(err, undo()))
		}
		r, err := rabbitmq.NewReleaser(ctx, c)
		if err != nil {
			return nil, nil, control.WireError(errors.Join(err, s.Close(), undo()))
		}
		w = demo.New(s, r)
		end = func() error { return errors.Join(s.Close(), r.Close(), undo()) }
	}
	t.config = filepath.Join(t.dir, ConfigFile)
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	if err := os.WriteFile(t.config, fmt.Appendf(nil, demoConfig, url), 0o600); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	if err := Init(t.settings()); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	if w == nil {
		b, err := local.Open(filepath.Join(t.dir, "broker.db"), local.Options{})
		if err != nil {
			return nil, nil, err
		}
		for _, q := range []string{demo.Orders, demo.Dead, demo.Outcomes} {
			if err := b.Declare(ctx, local.QueueSpec{Name: q}); err != nil {
				return nil, nil, errors.Join(err, b.Close())
			}
		}
		t.embedded = b
		w, end = demo.New(local.NewSource(b), local.NewReleaser(b)), b.Close
	}
	t.say("A small shop takes orders. Its worker fulfils them from the queue %s", demo.Orders)
	t.say("on %s; what it cannot handle goes to %s.", place, demo.Dead)
	return w, end, nil
}

func (t *teller) say(format string, args ...any) {
	_, _ = fmt.Fprintf(t.o.Out, format+"\n", args...) // stdout is gone: nothing to tell anyone
}

// chapter begins a part of the story with the command that does the same.
func (t *teller) chapter(title, command string) {
	t.say("\n== %s", title)
	if command != "" {
		t.say("   $ redrive %s", command)
	}
}

func (t *teller) indent(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		t.say("   %s", line)
	}
}

// call acts as one of the demo's people.
func call[Req, Resp any](ctx context.Context, t *teller, who event.Actor, op api.Op[Req, Resp], req Req) (Resp, error) {
	return api.Call(control.WithActor(ctx, who), t.program.control, op, req, nil)
}
