package policy

import (
	"cmp"
	"slices"
	"time"
)

// Defaults of a queue, in the words of the contract.
const (
	DefaultPrefetch   = 10
	DefaultRetries    = 5   // of a file that does not say; the zero Queue has none
	DefaultJitter     = 0.2 // of a file that does not say
	DefaultRetention  = 14 * 24 * time.Hour
	DefaultAlertFor   = 10 * time.Minute
	DefaultAlertDepth = 50
)

// DefaultDelays is the ladder of a queue that has retries and no delays.
func DefaultDelays() []time.Duration {
	return []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
}

// Kinds of queues.
const (
	Quorum  = "quorum"
	Classic = "classic"
)

// What a failure does to the messages behind it of the same key.
const (
	Continue = "continue"
	Park     = "park"
)

// WithDefaults fills in what a Queue does not say. Retries and Jitter stay as
// they are, since zero means something.
func (q Queue) WithDefaults() Queue {
	q.Kind = cmp.Or(q.Kind, Quorum)
	q.Prefetch = cmp.Or(q.Prefetch, DefaultPrefetch)
	q.Replicas = cmp.Or(q.Replicas, 1)
	q.DeliveryLimit = cmp.Or(q.DeliveryLimit, q.Retries)
	if len(q.Delays) == 0 {
		ladder := DefaultDelays()
		q.Delays = ladder[:min(max(q.Retries, 0), len(ladder))]
	}
	q.Delays = slices.Clone(q.Delays)
	q.Mode = cmp.Or(q.Mode, PerDelay)
	q.RetryQueue = cmp.Or(q.RetryQueue, q.Name+".retry")
	q.Quarantine = cmp.Or(q.Quarantine, q.Name+".dlq")
	q.Retention = cmp.Or(q.Retention, DefaultRetention)
	q.Headers = q.Headers.withDefaults()
	q.Words = q.Words.withDefaults()
	q.Ordering.OnFailure = cmp.Or(q.Ordering.OnFailure, Continue)
	q.Alerts.For = cmp.Or(q.Alerts.For, DefaultAlertFor)
	q.Alerts.Depth = cmp.Or(q.Alerts.Depth, DefaultAlertDepth)
	return q
}

func (h Headers) withDefaults() Headers {
	d := DefaultHeaders()
	return Headers{
		Reason: cmp.Or(h.Reason, d.Reason), LastReason: cmp.Or(h.LastReason, d.LastReason),
		Attempts: cmp.Or(h.Attempts, d.Attempts), FirstFailed: cmp.Or(h.FirstFailed, d.FirstFailed),
		LastError: cmp.Or(h.LastError, d.LastError), ErrorCode: cmp.Or(h.ErrorCode, d.ErrorCode),
		TraceID: cmp.Or(h.TraceID, d.TraceID), Consumer: cmp.Or(h.Consumer, d.Consumer),
	}
}

func (w Words) withDefaults() Words {
	d := DefaultWords()
	return Words{
		Malformed: cmp.Or(w.Malformed, d.Malformed), Exhausted: cmp.Or(w.Exhausted, d.Exhausted),
		Unknown: cmp.Or(w.Unknown, d.Unknown), Duplicate: cmp.Or(w.Duplicate, d.Duplicate),
		Parked: cmp.Or(w.Parked, d.Parked), Crash: cmp.Or(w.Crash, d.Crash),
	}
}
