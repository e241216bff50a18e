// Package api holds the operations of redrive with their wire types. The
// command line, the control socket and, later, the server speak nothing else:
// an operation behaves the same whoever carries it.
package api

import (
	"context"
	"encoding/json"
	"fmt"
)

// Op is an operation with its request and response.
type Op[Req, Resp any] struct {
	Name string
	// Changes tells that it may write to the ledger.
	Changes bool
	// Long tells that it runs for a while and reports progress.
	Long bool
}

// Caller carries a call to whoever holds the store: this process, or another
// one behind a socket.
type Caller interface {
	// Call runs the operation of that name. Progress, when not nil, is called
	// with each interim report of a long operation, in order. The error of a
	// refused call is an *Error on either way.
	Call(ctx context.Context, name string, req json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error)
}

// Call runs an operation through a Caller.
func Call[Req, Resp any](ctx context.Context, c Caller, op Op[Req, Resp], req Req, progress func(Progress)) (Resp, error) {
	var resp Resp
	b, err := json.Marshal(req)
	if err != nil {
		return resp, fmt.Errorf("encode the request of %s: %w", op.Name, err)
	}
	raw, err := c.Call(ctx, op.Name, b, func(m json.RawMessage) {
		var p Progress
		if progress != nil && json.Unmarshal(m, &p) == nil {
			progress(p)
		}
	})
	if err != nil {
		return resp, err
	}
	if err := json.Unmarshal(raw, &resp); err != nil {
		return resp, fmt.Errorf("decode the answer of %s: %w", op.Name, err)
	}
	return resp, nil
}

// Code is the stable kind of an error, which decides the exit code of the
// command line and the status of HTTP. Codes are only ever added.
type Code string

// Codes of errors.
const (
	CodeUsage     Code = "usage"     // the request makes no sense: exit 2
	CodeNotFound  Code = "not_found" // no such envelope, generation, queue: exit 3
	CodeRefused   Code = "refused"   // not possible in this state: exit 3
	CodeHeld      Code = "held"      // the store is held by another process: exit 75
	CodeTemporary Code = "temporary" // try again later: exit 75
	CodeNoSpace   Code = "no_space"  // exit 75
	CodeIntegrity Code = "integrity" // stored data contradicts itself: exit 6
	CodeFailed    Code = "failed"    // anything else: exit 1
	CodeCommit    Code = "commit"    // a commit failed, the process ends: exit 75
	CodeErased    Code = "erased"    // the payload was removed: exit 3
	CodeBroker    Code = "broker"    // the broker refuses for good: exit 1
	CodeMissing   Code = "no_store"  // there is no store: exit 3
	CodeUnsafe    Code = "unsafe"    // files are open to others: exit 3
	CodeNewer     Code = "newer"     // written by a newer version: exit 3
	CodeConfig    Code = "config"    // malformed configuration: exit 2
	CodeCancelled Code = "cancelled" // interrupted by the caller: exit 1
)

// Error is what a refused call returns.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // what happened, why, and what to do next
}

func (e *Error) Error() string { return e.Message }

// Progress is an interim report of a long operation.
type Progress struct {
	Stage      string      `json:"stage"` // "capture", "release", "waiting", "paused", "note"
	Message    string      `json:"message,omitempty"`
	Captured   uint64      `json:"captured,omitempty"`
	Merged     uint64      `json:"merged,omitempty"`
	Generation *Generation `json:"generation,omitempty"`
}
