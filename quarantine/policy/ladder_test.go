package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/strictyaml"
	"github.com/redrivehq/redrive/quarantine/policy"
)

func TestLadderOfTheContract(t *testing.T) {
	q := policy.Queue{Name: "orders.fulfillment", Retries: 5, Jitter: 0.2}.WithDefaults()
	for run, want := range []struct {
		queue          string
		low, mid, high time.Duration
	}{
		{"orders.fulfillment.retry.1s", 800 * time.Millisecond, time.Second, 1200 * time.Millisecond},
		{"orders.fulfillment.retry.5s", 4 * time.Second, 5 * time.Second, 6 * time.Second},
		{"orders.fulfillment.retry.30s", 24 * time.Second, 30 * time.Second, 36 * time.Second},
		{"orders.fulfillment.retry.2m", 96 * time.Second, 2 * time.Minute, 144 * time.Second},
		{"orders.fulfillment.retry.10m", 8 * time.Minute, 10 * time.Minute, 12 * time.Minute},
		{"orders.fulfillment.retry.10m", 8 * time.Minute, 10 * time.Minute, 12 * time.Minute}, // behind the last one
	} {
		run++
		if got := q.RetryQueueFor(run); got != want.queue {
			t.Errorf("run %d waits in %s, want %s", run, got, want.queue)
		}
		for u, d := range map[float64]time.Duration{0: want.low, 0.5: want.mid, 1: want.high} {
			if got := q.DelayFor(run, u); got != d {
				t.Errorf("run %d, u %g: %s, want %s", run, u, got, d)
			}
		}
	}
	if q.Runs() != 6 || q.DeliveryLimit != 5 || q.MaxDeliveries() != 36 {
		t.Errorf("%d runs, limit %d, at most %d deliveries; want 6, 5, 36", q.Runs(), q.DeliveryLimit, q.MaxDeliveries())
	}
	if q.Ladder() != 756*time.Second || q.OutcomeDeadline() != 20*time.Minute+7200*time.Millisecond {
		t.Errorf("the ladder takes %s, an outcome %s", q.Ladder(), q.OutcomeDeadline())
	}
	q.Mode = policy.Shared
	if got := q.RetryQueues(); !slices.Equal(got, []string{"orders.fulfillment.retry"}) {
		t.Errorf("shared: %q", got)
	}
}

func TestOddLadders(t *testing.T) {
	for _, c := range []struct {
		q      policy.Queue
		queues []string
		ladder time.Duration
	}{
		{policy.Queue{Name: "q"}, nil, 0},
		{policy.Queue{Name: "q", Retries: 2}, []string{"q.retry.1s", "q.retry.5s"}, 6 * time.Second},
		{policy.Queue{Name: "q", Retries: 7}, []string{"q.retry.1s", "q.retry.5s", "q.retry.30s", "q.retry.2m", "q.retry.10m"}, 756*time.Second + 20*time.Minute},
		{policy.Queue{Name: "q", Retries: 3, Delays: []time.Duration{time.Second}}, []string{"q.retry.1s"}, 3 * time.Second},
		{policy.Queue{Name: "q", Retries: 3, RetryQueue: "r", Delays: []time.Duration{25 * time.Millisecond, 90 * time.Second, 48 * time.Hour}},
			[]string{"r.25ms", "r.90s", "r.2d"}, 48*time.Hour + 90*time.Second + 25*time.Millisecond},
		{policy.Queue{Name: "q", Retries: 2, Delays: []time.Duration{1500 * time.Millisecond, 3 * time.Hour}}, []string{"q.retry.1500ms", "q.retry.3h"}, 3*time.Hour + 1500*time.Millisecond},
	} {
		q := c.q.WithDefaults()
		if got := q.RetryQueues(); !slices.Equal(got, c.queues) || q.Ladder() != c.ladder {
			t.Errorf("%+v: %q, %s; want %q, %s", c.q, got, q.Ladder(), c.queues, c.ladder)
		}
	}
	q := policy.Queue{Name: "q", Retries: 1, Jitter: 1, Delays: []time.Duration{time.Millisecond}}.WithDefaults()
	if d := q.DelayFor(1, 0); d != time.Millisecond {
		t.Errorf("the shortest wait is %s: a message must not come back at once", d)
	}
	// What is filled in belongs to the copy.
	delays := []time.Duration{time.Second}
	a := policy.Queue{Name: "a", Retries: 1, Delays: delays}.WithDefaults()
	a.Delays[0] = time.Hour
	if delays[0] != time.Second {
		t.Error("defaults share the delays of the original")
	}
}

func TestSpan(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "1ms": time.Millisecond + 1, "1s500ms": 1500 * time.Millisecond, "12m36s": 756 * time.Second,
		"14d": 14 * 24 * time.Hour, "1d1s": 24*time.Hour + time.Second, "1h": time.Hour} {
		got := policy.Span(d)
		back, err := strictyaml.ParseDuration(got)
		if got != want || err != nil || back != d.Truncate(time.Millisecond) {
			t.Errorf("%s is %q, want %q; read again %s (%v)", d, got, want, back, err)
		}
	}
}
