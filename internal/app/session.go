package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/httpapi"
	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger/event"
)

// Settings say which store a command works on.
type Settings struct {
	Data    string // data directory
	Config  string // configuration file. Defaults to Data/redrive.yaml
	Command string // shown to others that find the store held
	Version string
	Logger  *slog.Logger
	// Embedded is an embedded broker that this process has open already; a
	// local: URL then means this one. Defaults to nil: it is opened by its file.
	Embedded *local.Broker
	// Actor is on whose behalf the command acts. Defaults to the user of the
	// operating system.
	Actor event.Actor

	private bool // no control socket
}

// ConfigFile is the name of the configuration in the data directory.
const ConfigFile = "redrive.yaml"

func (s Settings) withDefaults() Settings {
	if s.Config == "" {
		s.Config = filepath.Join(s.Data, ConfigFile)
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if s.Actor == (event.Actor{}) {
		s.Actor = osActor(uint32(os.Getuid()))
	}
	return s
}

// osActor is the actor that the operating system vouches for.
func osActor(uid uint32) event.Actor {
	name := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return event.Actor{Auth: "os", Subject: "os:" + name, Role: "operator"}
}

// Init makes a new store with its keys, and a configuration unless there is
// one. It leaves nothing half-made: the store's own file comes last.
func Init(s Settings) error {
	s = s.withDefaults()
	if bolt.Exists(s.Data) {
		return &api.Error{Code: api.CodeRefused, Message: s.Data + " already holds a store"}
	}
	if err := os.MkdirAll(s.Data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if _, err := os.Stat(filepath.Join(s.Data, "keys")); errors.Is(err, os.ErrNotExist) {
		origin := fmt.Sprintf("redrive/%s/%d", host, time.Now().UnixNano())
		if err := keyfile.Create(s.Data, origin); err != nil {
			return wire(err)
		}
	}
	if _, err := os.Stat(s.Config); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(s.Config, config.Example, 0o600); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	return wire(bolt.Create(s.Data))
}

// Session is the way to whoever holds the store. It implements api.Caller.
type Session struct {
	settings Settings
	caller   api.Caller // the process that holds the store, when it is another one
	program  *program
}

// socketPatience is how long a command waits for a store that is held by a
// process which does not (yet, or any more) answer.
const socketPatience = 5 * time.Second

// Connect reaches the store: through the control socket of the process that
// holds it, or by opening it.
func Connect(ctx context.Context, s Settings) (*Session, error) {
	s = s.withDefaults()
	deadline := time.Now().Add(socketPatience)
	for {
		if c, err := dialSocket(ctx, s.Data, socketName); err == nil {
			return &Session{settings: s, caller: c}, nil
		}
		p, err := open(ctx, s)
		if err == nil {
			return &Session{settings: s, program: p}, nil
		}
		var held *bolt.HeldError
		if !errors.As(err, &held) {
			return nil, wire(err)
		}
		if time.Now().After(deadline) {
			return nil, &api.Error{Code: api.CodeHeld, Message: held.Error() + " and does not answer on its control socket; try again when it has ended. To stop releases even so: touch " + filepath.Join(s.Data, "STOP")}
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// pause is the time between two looks at who holds the store.
func pause(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dialSocket returns a client when a process answers on the control socket.
func dialSocket(ctx context.Context, dir, name string) (*httpapi.Client, error) {
	path, release, err := socketPath(dir, name)
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	c := httpapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		path, release, err := socketPath(dir, name)
		if err != nil {
			return nil, err
		}
		defer release()
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
	// A frozen process accepts the connection and never answers.
	ping, cancel := context.WithTimeout(ctx, socketPatience)
	defer cancel()
	_, err = c.Call(ping, api.Ping.Name, []byte("{}"), nil)
	return c, err
}

// Call implements api.Caller. A holder that refuses because it is about to end,
// or has ended, has done nothing: the next one is asked, or this process holds
// the store then.
func (s *Session) Call(ctx context.Context, name string, req json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	deadline := time.Now().Add(socketPatience)
	for {
		if s.program != nil {
			return s.program.call(ctx, name, req, progress)
		}
		raw, err := s.caller.Call(ctx, name, req, progress)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeHeld || time.Now().After(deadline) {
			return raw, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
		next, err := Connect(ctx, s.settings)
		if err != nil {
			return nil, err
		}
		*s = *next
	}
}

// Close waits for the calls of other processes that this one still serves, and
// ends the epoch in order. ctx bounds the wait.
func (s *Session) Close(ctx context.Context) error {
	if s.program == nil {
		return nil
	}
	return wire(s.program.close(ctx))
}

// wire gives errors of opening and closing their code.
func wire(err error) error {
	if err == nil {
		return nil
	}
	var held *bolt.HeldError
	if errors.As(err, &held) {
		return &api.Error{Code: api.CodeHeld, Message: held.Error() + "; try again when it has ended"}
	}
	for _, c := range []struct {
		is   error
		code api.Code
	}{
		{bolt.ErrMissing, api.CodeMissing}, {bolt.ErrNewer, api.CodeNewer}, {bolt.ErrUnsafe, api.CodeUnsafe}, {bolt.ErrUnreadable, api.CodeIntegrity},
	} {
		if errors.Is(err, c.is) {
			return &api.Error{Code: c.code, Message: advise(c.code, err)}
		}
	}
	return control.WireError(err)
}

func advise(code api.Code, err error) string {
	text := err.Error()
	switch code {
	case api.CodeMissing:
		return text + "; make one with: redrive init --data DIR"
	case api.CodeNewer:
		return text + "; use the version of redrive that wrote it, or a newer one"
	case api.CodeIntegrity:
		return text + "; nothing was changed: restore a backup of the data directory"
	}
	return text
}
