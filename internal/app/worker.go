package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/policing"
	"github.com/redrivehq/redrive/internal/proxy"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/drivers"
	rabbit "github.com/redrivehq/redrive/quarantine/worker/rabbitmq"
)

// WorkerSettings say which queue is worked, and by whom.
type WorkerSettings struct {
	Settings
	Policy          PolicyChoice
	HTTP            string   // address of the handler …
	Command         []string // … or the program, which is the handler
	Concurrency     int
	ConsumerVersion string
}

// Work works a queue until ctx ends. It needs no store.
func Work(ctx context.Context, s WorkerSettings) (err error) {
	s.Settings = s.withDefaults()
	h, err := s.handler()
	if err != nil {
		return usage(err)
	}
	file, err := s.Policy.file(s.Settings)
	if err != nil {
		return err
	}
	p, err := config.LoadPolicy(file, checkRules)
	if err != nil {
		return wire(err)
	}
	qs, err := policing.Choose(p, s.Policy.Queues)
	if err != nil {
		return err
	}
	if len(qs) != 1 {
		return usage(fmt.Errorf("the policy has %d queues and a worker works one: give --queue once, and start one worker for each", len(qs)))
	}
	o := worker.Options{Queue: qs[0].Name, Concurrency: s.Concurrency, Version: s.ConsumerVersion, Log: s.Logger}
	if o.Schema, err = rabbit.Schemas(filepath.Dir(file), qs[0]); err != nil {
		return &api.Error{Code: api.CodeConfig, Message: err.Error()}
	}
	cfg, err := config.Load(s.Config)
	if err != nil {
		return wire(err)
	}
	b := &brokers{cfg: cfg, dir: s.Data, embedded: s.Embedded}
	defer func() {
		if e := b.close(); e != nil && err == nil {
			err = wire(e)
		}
	}()
	source, releaser, done, err := b.Fresh(ctx)
	if err != nil {
		return wire(err)
	}
	err = worker.Run(ctx, drivers.Conn(source, releaser), p, h, o)
	if errors.Is(err, worker.ErrOptions) {
		err = usage(err)
	}
	return wire(errors.Join(err, done()))
}

func usage(err error) error { return &api.Error{Code: api.CodeUsage, Message: err.Error()} }

func (s *WorkerSettings) handler() (worker.Handler, error) {
	switch {
	case (s.HTTP == "") == (len(s.Command) == 0):
		return nil, errors.New("want either --http ADDRESS, or -- COMMAND…: whoever handles the messages")
	case s.HTTP != "":
		return proxy.HTTP(s.HTTP, time.Now)
	}
	return proxy.Command(s.Command)
}
