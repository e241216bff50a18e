// Package httpapi carries operations over HTTP on the control socket of a data
// directory, so that every command works from a second shell while a process
// holds the store.
//
//	POST /op/NAME   body: the request; answer: NDJSON, one line per progress
//	                report and a last line with the response or the error
//
// The socket is reachable for its owner only; who connects is asked of the
// kernel, not of the client.
package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redrivehq/redrive/internal/api"
)

// maxRequest bounds the body of a request.
const maxRequest = 16 << 20

// line is one line of an answer.
type line struct {
	Progress json.RawMessage `json:"progress,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
	Error    *api.Error      `json:"error,omitempty"`
}

// Server serves operations on one listener.
type Server struct {
	http *http.Server
	busy sync.WaitGroup
}

type peerKey struct{}

// NewServer makes a server for caller. Identify puts the peer into the
// context of its calls.
func NewServer(caller api.Caller, identify func(ctx context.Context, uid uint32) context.Context) *Server {
	s := &Server{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /op/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.busy.Add(1)
		defer s.busy.Done()
		uid, ok := r.Context().Value(peerKey{}).(uint32)
		if !ok {
			http.Error(w, "the peer is not known", http.StatusForbidden)
			return
		}
		s.serve(identify(r.Context(), uid), caller, w, r)
	})
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if uid, err := peer(c); err == nil {
				return context.WithValue(ctx, peerKey{}, uid)
			}
			return ctx
		}}
	// A connection that is kept would be closed by a server that ends at the
	// very moment in which a call is written to it.
	s.http.SetKeepAlivesEnabled(false)
	return s
}

// peer asks the kernel who is at the other end of a Unix socket.
func peer(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a Unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return 0, errors.Join(err, credErr)
	}
	return cred.Uid, nil
}

func (s *Server) serve(ctx context.Context, caller api.Caller, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the request is too large or was cut off", http.StatusRequestEntityTooLarge)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := writer{w: w}
	resp, err := caller.Call(ctx, r.PathValue("name"), body, func(p json.RawMessage) { out.line(line{Progress: p}) })
	var e *api.Error
	switch {
	case errors.As(err, &e):
		out.line(line{Error: e})
	case err != nil:
		out.line(line{Error: &api.Error{Code: api.CodeFailed, Message: err.Error()}})
	default:
		out.line(line{Response: resp})
	}
}

// writer writes lines from several goroutines.
type writer struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (o *writer) line(l line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := json.Marshal(l)
	if err != nil {
		return // every part was marshalled before
	}
	if _, err := o.w.Write(append(b, '\n')); err == nil {
		_ = http.NewResponseController(o.w).Flush() // a gone client ends the call through its context
	}
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown takes no new calls, waits for those that run until ctx ends, and
// cuts off the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	s.busy.Wait()
	return nil
}

// Abort cuts off all calls at once.
func (s *Server) Abort() { _ = s.http.Close() } // there is nobody left to tell

// Client calls the operations of the process behind a socket. It implements
// api.Caller.
type Client struct{ http http.Client }

// NewClient makes a client that reaches the socket through dial.
func NewClient(dial func(ctx context.Context) (net.Conn, error)) *Client {
	return &Client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}
}

// Call implements api.Caller.
func (c *Client) Call(ctx context.Context, name string, req json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://control/op/"+name, bytes.NewReader(req))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		code := api.CodeTemporary
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			code = api.CodeHeld // nothing was asked: whoever holds the store next may be
		}
		return nil, &api.Error{Code: code, Message: fmt.Sprintf("the process that holds the store does not answer: %v", err)}
	}
	defer func() { _ = resp.Body.Close() }() // was only read
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // for the message only
		return nil, &api.Error{Code: api.CodeFailed, Message: fmt.Sprintf("control socket: %s: %s", resp.Status, b)}
	}
	in := bufio.NewReader(resp.Body)
	for {
		b, err := in.ReadBytes('\n')
		if err != nil {
			if ctx.Err() != nil {
				return nil, &api.Error{Code: api.CodeCancelled, Message: "interrupted; what was decided stays decided"}
			}
			return nil, &api.Error{Code: api.CodeTemporary, Message: "the process that holds the store ended before it answered; look at the state and try again"}
		}
		var l line
		if err := json.Unmarshal(b, &l); err != nil {
			return nil, fmt.Errorf("answer of the control socket: %w", err)
		}
		switch {
		case l.Error != nil:
			return nil, l.Error
		case l.Response != nil:
			return l.Response, nil
		case progress != nil:
			progress(l.Progress)
		}
	}
}
