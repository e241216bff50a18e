package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/proxy"
	"github.com/redrivehq/redrive/internal/schema"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/drivers"
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
	p, err := s.Policy.read(s.Settings)
	if err != nil {
		return err
	}
	o := worker.Options{Concurrency: s.Concurrency, Version: s.ConsumerVersion, Log: s.Logger}
	switch len(s.Policy.Queues) {
	case 0:
	case 1:
		o.Queue = s.Policy.Queues[0]
	default:
		return usage(errors.New("a worker works one queue: give --queue once, and start one worker for each queue"))
	}
	set, err := bodies(p, o.Queue, filepath.Dir(s.Policy.File))
	if err != nil {
		return &api.Error{Code: api.CodeConfig, Message: err.Error()}
	}
	if set != nil {
		o.Schema = set
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

// bodies are the schemas of a queue, which stand beside the policy file; nil
// when it has none.
func bodies(p *policy.Policy, queue, dir string) (*schema.Set, error) {
	var files []schema.File
	for _, q := range p.Queues {
		if queue != "" && q.Name != queue {
			continue
		}
		for typ, path := range q.Schemas {
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			files = append(files, schema.File{Type: typ, Path: path})
		}
	}
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // no schemas are no error
	}
	set, err := schema.Load(files)
	if err != nil {
		return nil, fmt.Errorf("schemas of the policy: %w", err)
	}
	return set, nil
}
