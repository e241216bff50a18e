package control_test

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// A message whose confirm was lost goes out a second time after its rest, with
// the same message id and the stamp of the next try; under hold it does not.
func TestDoubtUnderRetryAndUnderHold(t *testing.T) {
	for _, policy := range []string{"hold", "retry"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Destinations = append(w.cfg.Destinations, config.Destination{Queue: "orders", Ambiguity: policy,
				Inbox: config.Inbox{Horizon: config.Duration(time.Hour)}})
			ids := w.orders(20)
			lost := 0
			w.wire.set(nil, func(m redrive.Message) (redrive.Result, bool) {
				if lost++; lost == 1 {
					return redrive.Result{Token: m.Token, Resolution: event.Ambiguous, Reason: "connection_lost"}, true
				}
				return confirm(m)
			})
			req := fast(ids...)
			req.Thresholds = []string{"ambiguous=20"}
			id := w.planned(req)
			s := w.start(id)
			w.until("one is in doubt and the rest is out", func() bool {
				g := w.show(id)
				return g.Tally["ambiguous_publish"] == 1 && g.Tally["pending"] == 19
			})
			w.later.Store(int64(redrive.RetryAfter))
			if policy == "hold" {
				if w.end(s); w.wire.count() != 20 {
					t.Errorf("%d went out", w.wire.count())
				}
				return
			}
			if g := w.end(s); g.State != "settling" || g.Tally["pending"] != 20 {
				t.Errorf("%s: %v", g.State, g.Tally)
			}
			sent := w.wire.messages()
			if len(sent) != 21 {
				t.Fatalf("%d went out", len(sent))
			}
			first, again := sent[0], sent[20]
			if messageID(first) != messageID(again) || said(first, "x-redrive-intent") != "0/1" || said(again, "x-redrive-intent") != "0/2" {
				t.Errorf("%s went out as %s, and again as %s with %s", messageID(first), said(first, "x-redrive-intent"), messageID(again), said(again, "x-redrive-intent"))
			}
		})
	}
}

// Neither a restart nor a pause makes a retry come early or twice.
func TestRetrySurvivesRestart(t *testing.T) {
	w := newWorld(t)
	w.cfg.Destinations = append(w.cfg.Destinations, config.Destination{Queue: "orders", Ambiguity: "retry", Inbox: config.Inbox{Horizon: config.Duration(time.Hour)}})
	ids := w.orders(1)
	w.wire.set(nil, func(m redrive.Message) (redrive.Result, bool) {
		return redrive.Result{Token: m.Token, Resolution: event.Ambiguous, Reason: "connection_lost"}, true
	})
	id := w.planned(fast(ids...))
	s := w.start(id)
	w.until("it is in doubt", func() bool { return w.show(id).Tally["ambiguous_publish"] == 1 })
	w.pause(id)
	s.cancel()
	<-s.done
	w.crash()
	w.wire.set(nil, nil)
	w.later.Store(int64(redrive.RetryAfter))
	do(w, api.GenerationShow, api.GenerationRef{ID: id})
	if n := w.wire.count(); n != 1 {
		t.Fatalf("%d went out while it stood still", n)
	}
	w.end(w.resume(id))
	if n := w.wire.count(); n != 2 {
		t.Errorf("%d copies went out", n)
	}
}

func messageID(m redrive.Message) string { return amqpwire.Parse(m.Properties).MessageID }
