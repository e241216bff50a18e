package rabbitmq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// worked is a policy for the queue "work" with three replicas.
func worked() []policy.Queue {
	return []policy.Queue{policy.Queue{Name: "work", Retries: 3, Replicas: 3, Prefetch: 10, Delays: []time.Duration{time.Second, time.Minute}}.WithDefaults()}
}

func mustLayout(t testing.TB, c Config) *Layout {
	t.Helper()
	l, err := NewLayout(within(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// compares looks until all statistics are there.
func (l *land) compares(o *Layout, qs []policy.Queue) quarantine.Comparison {
	l.Helper()
	var c quarantine.Comparison
	eventually(l, "the statistics", func() bool {
		var err error
		if c, err = o.Compare(within(l), qs); err != nil {
			l.Fatal(err)
		}
		return !awaits(c.Findings) && !slices.ContainsFunc(c.Findings, func(f quarantine.Finding) bool { return f.Severity == quarantine.Unknown })
	})
	return c
}

// drifts waits until a comparison finds this and nothing else: what has just
// changed comes with later statistics.
func (l *land) drifts(o *Layout, qs []policy.Queue, want ...string) {
	l.Helper()
	slices.Sort(want)
	var got []string
	deadline := time.Now().Add(patience)
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		c, err := o.Compare(within(l), qs)
		if err != nil {
			l.Fatal(err)
		}
		if got = brief(c.Findings); slices.Equal(got, want) {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			l.Fatalf("drift (-want +got):\n%s\n%v", cmp.Diff(want, got), c.Findings)
		}
	}
}

// makes does all that is missing and returns how much that was.
func (l *land) makes(o *Layout, qs []policy.Queue) int {
	l.Helper()
	n := 0
	for _, s := range l.compares(o, qs).Steps {
		if s.State == quarantine.StepMissing {
			if err := o.Make(within(l), qs, s); err != nil {
				l.Fatalf("make %s %s: %v", s.Object, s.Name, err)
			}
			n++
		}
	}
	return n
}

// states are the steps that are not right.
func states(c quarantine.Comparison) []string {
	out := []string{}
	for _, s := range c.Steps {
		if s.State != quarantine.StepRight {
			out = append(out, fmt.Sprintf("%s %s %s", s.Object, s.Name, s.State))
		}
	}
	return out
}

// testLayout makes a system and then plants drifts in it.
func testLayout(t *testing.T, l *land) {
	o, qs := mustLayout(t, l.config()), worked()
	if n := l.makes(o, qs); n != 7 {
		t.Errorf("%d steps were done, want 7: exchange, queue and binding of outcomes, quarantine, main, two retry queues", n)
	}
	l.drifts(o, qs, "risks no_consumer work")
	if n := l.makes(o, qs); n != 0 {
		t.Errorf("the second time %d steps were done", n)
	}

	// Workers, with the wrong prefetch at first.
	consume := func(queue string, prefetch int) *amqp.Channel {
		ch, err := l.conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Qos(prefetch, 0, false); err != nil {
			t.Fatal(err)
		}
		if _, err := ch.Consume(queue, "", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		return ch
	}
	first := consume("work", 250)
	l.drifts(o, qs, "risks replicas_missing work", "risks prefetch_above work")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		consume("work", 10)
	}
	l.drifts(o, qs)

	// What others do to it, on a broker that knows how to.
	thief := consume("work.retry.1s", 1)
	l.drifts(o, qs, "risks retry_consumed work.retry.1s")
	if err := thief.Close(); err != nil {
		t.Fatal(err)
	}
	l.put("operator-policies/"+l.vhost+"/cap", map[string]any{"pattern": "^work$", "apply-to": "queues", "definition": map[string]any{"delivery-limit": 1}})
	l.drifts(o, qs, "risks delivery_limit_overridden work")
	l.put("operator-policies/"+l.vhost+"/cap", map[string]any{"pattern": "^nothing$", "apply-to": "queues", "definition": map[string]any{"delivery-limit": 1}})
	l.policy("expiring", `^work\.dlq$`, "queues", map[string]any{"message-ttl": 60000})
	l.drifts(o, qs, "loses message_ttl work.dlq", "loses retention_cut work.dlq")
	l.policy("expiring", `^work\.retry\.1m$`, "queues", map[string]any{"message-ttl": 30000, "max-length": 10})
	l.drifts(o, qs, "risks retry_ttl_short work.retry.1m", "risks retry_limited work.retry.1m")
	l.policy("expiring", `^work\.retry\.1m$`, "queues", map[string]any{"overflow": "drop-head"}) // a policy goes before the argument
	l.drifts(o, qs, "loses strategy_falls_back work.retry.1m")
}

// testLayoutOfOthers is about queues that were there before.
func testLayoutOfOthers(t *testing.T, l *land) {
	o, qs := mustLayout(t, l.config()), worked()
	l.queue("work", quorum())
	l.queue("work.retry.1s", nil)
	l.queue("work.dlq", quorum("x-message-ttl", int32(1000)))
	c := l.compares(o, qs)
	want := []string{"binding redrive.outcomes → redrive.outcomes missing", "broker_policy redrive-work missing", "exchange redrive.outcomes missing",
		"queue redrive.outcomes missing", "queue work.retry.1m missing", "queue work.retry.1s differs"}
	if l.four() { // where a quarantine has a limit of deliveries unless it says otherwise
		want = append(want, "broker_policy redrive-work.dlq missing")
	}
	got := states(c)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l.makes(o, qs)
	// What nobody can change stays, and nothing of it was touched.
	l.drifts(o, qs, "loses message_ttl work.dlq", "loses retention_cut work.dlq", "loses wrong_kind work.retry.1s", "loses retry_no_way_back work.retry.1s", "risks no_consumer work")
	if got := states(l.compares(o, qs)); !slices.Equal(got, []string{"queue work.retry.1s differs"}) {
		t.Errorf("after it was made: %v", got)
	}
	if n := l.makes(o, qs); n != 0 {
		t.Errorf("the second time %d steps were done", n)
	}

	// Another number is another policy of the same name.
	qs[0].Retries, qs[0].DeliveryLimit = 4, 4
	l.drifts(o, qs, "loses message_ttl work.dlq", "loses retention_cut work.dlq", "loses wrong_kind work.retry.1s", "loses retry_no_way_back work.retry.1s", "risks no_consumer work", "risks delivery_limit_differs work")
	if n := l.makes(o, qs); n != 1 {
		t.Errorf("%d steps were done for another number, want 1", n)
	}
	l.drifts(o, qs, "loses message_ttl work.dlq", "loses retention_cut work.dlq", "loses wrong_kind work.retry.1s", "loses retry_no_way_back work.retry.1s", "risks no_consumer work")

	// A policy that somebody put there since a plan was made is left in force.
	qs[0].Retries, qs[0].DeliveryLimit = 5, 5
	var planned quarantine.Step
	for _, s := range l.compares(o, qs).Steps {
		if s.Object == quarantine.ObjectBrokerPolicy && s.State == quarantine.StepMissing {
			planned = s
		}
	}
	l.put("policies/"+l.vhost+"/theirs", map[string]any{"pattern": "^work$", "apply-to": "queues", "priority": 7, "definition": map[string]any{"max-length": 100000}})
	eventually(t, "their policy is in force", func() bool { return slices.Contains(states(l.compares(o, qs)), "queue work differs") })
	if err := o.Make(within(t), qs, planned); !errors.Is(err, quarantine.ErrRefused) || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("a policy over another one: %v", err)
	}
}

// testLayoutDenied is about a user who may look and nothing else.
func testLayoutDenied(t *testing.T, l *land) {
	l.put("users/reader", map[string]any{"password": "reader", "tags": "management"})
	l.put("permissions/"+l.vhost+"/reader", map[string]any{"configure": "^$", "write": ".*", "read": ".*"})
	l.queue("work", quorum())
	c := l.config()
	c.User, c.Password = "reader", func() (string, error) { return "reader", nil }
	c.Management.User, c.Management.Password = c.User, c.Password
	o, qs := mustLayout(t, c), worked()
	tried := 0
	for _, s := range l.compares(o, qs).Steps {
		switch {
		case s.Name == "work":
			if s.State != quarantine.StepDiffers || !strings.Contains(s.Advice, "rabbitmqctl set_policy -p "+l.vhost) {
				t.Errorf("what an administrator can do is told as %+v", s)
			}
		case s.State == quarantine.StepMissing:
			tried++
			err := o.Make(within(t), qs, s)
			if s.Object == quarantine.ObjectBinding { // to an exchange that was not made
				if err == nil {
					t.Error("there is a binding to nothing")
				}
				continue
			}
			if !errors.Is(err, quarantine.ErrDenied) || !strings.Contains(err.Error(), "403") {
				t.Errorf("make %s %s: %v", s.Object, s.Name, err)
			}
		}
	}
	if tried < 5 {
		t.Errorf("only %d steps were tried", tried)
	}
	admin := mustLayout(t, l.config())
	for _, s := range l.compares(admin, qs).Steps {
		if s.Object != quarantine.ObjectBrokerPolicy {
			continue
		}
		if err := o.setPolicy(within(t), qs, s); !errors.Is(err, quarantine.ErrRefused) && !errors.Is(err, quarantine.ErrDenied) {
			t.Errorf("a policy without the right: %v", err)
		}
	}
}
