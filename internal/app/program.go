package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/httpapi"
	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/internal/predicate"
	"github.com/redrivehq/redrive/internal/schema"
	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/redrive"
)

// program is a process that holds the store.
type program struct {
	settings Settings
	store    *bolt.Store
	control  *control.Controller
	brokers  *brokers
	server   *httpapi.Server
	stop     context.CancelFunc
	ended    chan struct{}
	stays    atomic.Int32 // long operations of its own that this process stays for
}

// long are the operations that go on for as long as the work takes.
var long = map[string]bool{
	api.CaptureRun.Name: api.CaptureRun.Long, api.GenerationStart.Name: api.GenerationStart.Long, api.GenerationResume.Name: api.GenerationResume.Long,
}

// call runs an operation for this process itself.
func (p *program) call(ctx context.Context, name string, req json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	if long[name] {
		p.stays.Add(1)
		defer p.stays.Add(-1)
	}
	return p.control.Call(control.WithActor(ctx, p.settings.Actor), name, req, progress)
}

// guests is how other processes call. A process that holds the store only for
// a moment takes no long work from them: its own command would not end.
type guests struct{ p *program }

// Call implements api.Caller.
func (g guests) Call(ctx context.Context, name string, req json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	if long[name] && g.p.stays.Load() == 0 {
		return nil, &api.Error{Code: api.CodeHeld, Message: fmt.Sprintf("the store is held by process %d (%s), which is about to end; try again", os.Getpid(), g.p.settings.Command)}
	}
	return g.p.control.Call(ctx, name, req, progress)
}

// maintainEvery is how often due events and checkpoints are looked for while a
// store is held.
const maintainEvery = time.Second

func open(ctx context.Context, s Settings) (*program, error) {
	if !bolt.Exists(s.Data) {
		return nil, fmt.Errorf("%s: %w", s.Data, bolt.ErrMissing)
	}
	cfg, err := config.Load(s.Config, checkRules)
	if err != nil {
		return nil, err
	}
	store, err := bolt.Open(s.Data, bolt.Options{Command: s.Command, MinFree: cfg.Store.MinFreeMiB << 20})
	if err != nil {
		return nil, err
	}
	p := &program{settings: s, store: store, brokers: &brokers{cfg: cfg, dir: s.Data, embedded: s.Embedded}, ended: make(chan struct{})}
	if err := p.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if s.private {
		close(p.ended)
		return p, nil
	}
	l, err := listen(s.Data)
	if err != nil {
		return nil, errors.Join(err, p.control.Close(), store.Close())
	}
	p.server = httpapi.NewServer(guests{p}, func(ctx context.Context, uid uint32) context.Context {
		return control.WithActor(ctx, osActor(uid))
	})
	side, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = cancel
	go p.run(side, l)
	return p, nil
}

func (p *program) start(ctx context.Context, cfg *config.Config) error {
	s := p.settings
	keys, err := keyfile.Open(s.Data)
	if err != nil {
		return err
	}
	checkpoints := exported{dir: filepath.Join(s.Data, "checkpoints"), logger: s.Logger}
	if err := checkpoints.check(p.store, keys); err != nil {
		return err
	}
	predicates, err := predicate.New()
	if err != nil {
		return err
	}
	schemas, err := p.schemas(cfg)
	if err != nil {
		return err
	}
	p.control, err = control.Open(control.WithActor(ctx, s.Actor), control.Options{
		KV: p.store, Scratch: p.scratch, Keys: keys, Stamps: redrive.Stamps{Key: keys.Stamp}, Sign: keys.Signer.Sign, Blobs: p.store,
		Config: cfg, Schema: schemas, Brokers: p.brokers, Predicates: predicates, Random: rand.Reader, Now: time.Now, Version: s.Version, Command: s.Command,
		Evidence: evidenceOf,
		PID:      os.Getpid(), Since: time.Now(), Logger: s.Logger,
		Secret:  func(path string) (string, error) { return readSecret(p.brokers.file(path)) },
		Stopped: func() bool { _, err := os.Stat(filepath.Join(s.Data, "STOP")); return err == nil },
		Ledger: ledger.Options{Program: s.Version, Origin: keys.Origin, Signer: keys.Signer, VerifierKey: keys.Verifier, Now: time.Now,
			Exported: checkpoints.add},
	})
	return err
}

// schemas reads the contracts that the configuration names.
func (p *program) schemas(cfg *config.Config) (*schema.Set, error) {
	var files []schema.File
	for _, s := range cfg.Schemas {
		files = append(files, schema.File{Type: s.Type, Version: s.Version, Path: p.brokers.file(s.File)})
	}
	set, err := schema.Load(files)
	if err != nil {
		return nil, fmt.Errorf("schemas: %w: %w", err, config.ErrInvalid)
	}
	return set, nil
}

// run serves the control socket and does what time brings.
func (p *program) run(ctx context.Context, l net.Listener) {
	defer close(p.ended)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := p.server.Serve(l); err != nil {
			p.settings.Logger.ErrorContext(ctx, "the control socket is not served any more", slog.Any("error", err))
		}
	}()
	t := time.NewTicker(maintainEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := errors.Join(p.control.Maintain(ctx), p.store.Refill()); err != nil {
				p.settings.Logger.ErrorContext(ctx, "due events or a checkpoint could not be written", slog.Any("error", err))
			}
		case <-p.control.Dead():
			if p.control.Err() != nil {
				p.server.Abort() // nobody is served by a ledger that is in doubt
			}
			<-ctx.Done()
			<-served
			return
		case <-ctx.Done():
			<-served
			return
		}
	}
}

// scratch makes a snapshot of the store and an empty one beside it.
func (p *program) scratch() (frozen, empty ledger.KV, remove func() error, err error) {
	dir, err := os.MkdirTemp(p.settings.Data, "rebuild-")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a scratch store: %w", err)
	}
	var opened []*bolt.Store
	remove = func() error {
		var errs []error
		for _, s := range opened {
			errs = append(errs, s.Close())
		}
		return errors.Join(append(errs, os.RemoveAll(dir))...)
	}
	make1 := func(name string, create func(string) error) (*bolt.Store, error) {
		path := filepath.Join(dir, name)
		if err := create(path); err != nil {
			return nil, err
		}
		s, err := bolt.Open(path, bolt.Options{Command: "rebuild", MinFree: 1, Reserve: 1, UrgentFree: 1})
		if err == nil {
			opened = append(opened, s)
		}
		return s, err
	}
	a, err := make1("frozen", p.store.Snapshot)
	if err != nil {
		return nil, nil, nil, errors.Join(err, remove())
	}
	b, err := make1("empty", bolt.Create)
	if err != nil {
		return nil, nil, nil, errors.Join(err, remove())
	}
	return a, b, remove, nil
}

func (p *program) close(ctx context.Context) error {
	var err error
	if p.server != nil {
		drain(ctx, p.settings.Data)
		err = p.server.Shutdown(ctx)
		p.stop()
	}
	<-p.ended
	err = errors.Join(err, p.brokers.close())
	if dead := p.control.Err(); dead != nil {
		// The truth is on the disk: neither ledger nor store is touched again.
		return dead
	}
	return errors.Join(err, p.control.Close(), p.store.Close())
}

// Compact rewrites the store of a data directory that nobody holds, and
// removes large bodies that nothing refers to.
func Compact(ctx context.Context, s Settings) (before, after int64, err error) {
	s = s.withDefaults()
	s.private = true // a capture meanwhile could lose its large bodies
	p, err := open(ctx, s)
	if err != nil {
		return 0, 0, wire(err)
	}
	err = p.control.CollectBlobs(p.store)
	if err = errors.Join(err, p.close(ctx)); err != nil {
		return 0, 0, wire(err)
	}
	before, after, err = bolt.Compact(s.Data)
	return before, after, wire(err)
}
