package policy

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Runs is how often a message runs at most: the first time and every retry.
func (q *Queue) Runs() int { return q.Retries + 1 }

// Delay is the delay before the retry that follows on a run, without jitter.
// Runs count from 1; those behind the last delay have the last one.
func (q *Queue) Delay(run int) time.Duration {
	if len(q.Delays) == 0 {
		return 0
	}
	return q.Delays[min(max(run, 1), len(q.Delays))-1]
}

// DelayFor is how long a message waits whose run failed and is retried: the
// delay of that retry, moved within the jitter by u in [0, 1): 0 is the
// shortest, 0.5 the delay itself. It is a whole number of milliseconds and at
// least one. Runs count from 1; those behind the last delay have the last one.
func (q *Queue) DelayFor(run int, u float64) time.Duration {
	d := float64(q.Delay(run)) * (1 + q.Jitter*(2*u-1))
	ms := math.Round(d / float64(time.Millisecond))
	return max(time.Duration(ms)*time.Millisecond, time.Millisecond)
}

// RetryQueueFor is the queue in which a message waits whose run failed and is
// retried. Runs count from 1.
func (q *Queue) RetryQueueFor(run int) string {
	if q.Mode == Shared {
		return q.RetryQueue
	}
	return q.RetryQueue + "." + short(q.Delay(run))
}

// RetryQueues lists all queues in which messages wait for a retry, in the order
// of their first use. Equal delays share a queue. It is empty without retries.
func (q *Queue) RetryQueues() []string {
	var out []string
	for run := 1; run <= q.Retries; run++ {
		if name := q.RetryQueueFor(run); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Ladder is how long all retries of a message wait together, without jitter.
func (q *Queue) Ladder() time.Duration {
	var sum time.Duration
	for run := 1; run <= q.Retries; run++ {
		sum += q.Delay(run)
	}
	return sum
}

// OutcomeDeadline is when a released message has had its outcome, unless
// something is wrong: 1.2 times the ladder, and five minutes.
func (q *Queue) OutcomeDeadline() time.Duration {
	return q.Ladder()*6/5 + 5*time.Minute
}

// MaxDeliveries bounds the deliveries of one message: each of its copies can
// use up the broker's limit.
func (q *Queue) MaxDeliveries() int { return q.Runs() * (q.DeliveryLimit + 1) }

// short spells a delay with its largest whole unit: 10m, 90s, 1500ms.
func short(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d > 0 && d%u.of == 0 {
			return strconv.FormatInt(int64(d/u.of), 10) + u.name
		}
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// Span spells a time span as the file does: 14d, 12m36s, 1s500ms. Parts of a
// millisecond are left out.
func Span(d time.Duration) string {
	d = d.Truncate(time.Millisecond)
	if d <= 0 {
		return "0s"
	}
	out := ""
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.of; n > 0 {
			out += strconv.FormatInt(int64(n), 10) + u.name
			d %= u.of
		}
	}
	return out
}
