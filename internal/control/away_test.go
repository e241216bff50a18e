package control_test

import (
	"errors"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/quarantine"
)

// A one-shot capture whose first session was lost, and whose broker then stays
// away, ends: it does not take the lost session for progress for ever.
func TestBrokerThatStaysAway(t *testing.T) {
	w := newWorld(t)
	w.pond.script["q"] = func(n int, _ quarantine.SessionOptions) (*visit, error) {
		if n == 0 {
			return lost(fresh("a", 1)...)(), nil
		}
		return nil, quarantine.ErrUnreachable
	}
	_, err := w.captured(api.CaptureRequest{Queues: []string{"q"}})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeTemporary {
		t.Errorf("it ended with %v", err)
	}
}

// The same holds for a broker that lets it in and ends the session at once,
// though nothing is there that it could cost.
func TestBrokerThatEndsEverySession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q", func() *visit { return &visit{broken: true} })
	if _, err := w.captured(api.CaptureRequest{Queues: []string{"q"}}); !refusedWith(err, api.CodeTemporary) {
		t.Errorf("it ended with %v", err)
	}
	if n := len(w.pond.sessions("q")); n != 4 {
		t.Errorf("%d sessions were opened, want 4", n)
	}
	if got := w.sources(); len(got) != 0 {
		t.Errorf("the ledger has %q", got)
	}
}
