package quarantine

import (
	"fmt"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// MaxSpent is how many deliveries in a row the head of a queue may spend
// without a settlement before its queue is parked.
//
// A quorum queue with a delivery limit of n drops a message, or dead-letters
// it, when it comes back for the time n+1. So a limit of 5, 10 or 20 leaves 3,
// 8 or 18 more deliveries to a queue that is parked, and one of 3 leaves one.
// Limits of 1 and 2 are used up before the queue is parked.
const MaxSpent = 3

// Spent is how often the messages at the head of a queue may have been
// delivered to this store without being settled, by this process or by others
// before it that died. It is 0 when the last session that received from the
// queue settled something.
func Spent(r ledger.Reader, queue string) uint64 {
	if v := r.Get(bucketSpent, []byte(queue)); v != nil {
		return ledger.Unkey(v)
	}
	return 0
}

func spend(w ledger.Writer, queue string, n uint64) error {
	if n == 0 {
		return w.Delete(bucketSpent, []byte(queue))
	}
	return w.Put(bucketSpent, []byte(queue), ledger.Key(n))
}

// unspent notes that the queue of settled envelopes gets on.
func unspent(w ledger.Writer, envs event.Ranges) error {
	for n := range envs.All() {
		f, err := GetFacts(w, event.EnvelopeNo(n))
		if err != nil {
			return err
		}
		return spend(w, f.Queue, 0) // all of them come from one queue
	}
	return nil
}

// unpark lets a queue be tried once more: one further session without a
// settlement parks it again.
func unpark(w ledger.Writer, queue string) error {
	if err := w.Delete(bucketParked, []byte(queue)); err != nil {
		return err
	}
	return spend(w, queue, min(Spent(w, queue), MaxSpent-1))
}

// ParkedQueue is a queue whose capture is stopped.
type ParkedQueue struct {
	Queue  string
	Reason string // stable code
	Why    string // for people
	Since  time.Time
}

// Parked tells whether the capture of a queue is stopped, and why.
func Parked(r ledger.Reader, queue string) (p ParkedQueue, parked bool, err error) {
	v := r.Get(bucketParked, []byte(queue))
	if v == nil {
		return ParkedQueue{}, false, nil
	}
	p, err = parkedBy(r, ledger.Unkey(v))
	return p, true, err
}

// ParkedQueues lists the queues whose capture is stopped, by name.
func ParkedQueues(r ledger.Reader) (out []ParkedQueue, err error) {
	r.Scan(bucketParked, nil, func(_, v []byte) bool {
		var p ParkedQueue
		if p, err = parkedBy(r, ledger.Unkey(v)); err != nil {
			return false
		}
		out = append(out, p)
		return true
	})
	return out, err
}

// parkedBy reads the record that parked a queue.
func parkedBy(r ledger.Reader, seq uint64) (p ParkedQueue, err error) {
	found := false
	failed := ledger.Records(r, seq, func(rec *event.Record) bool {
		var b *event.SourceParked
		if b, found = rec.Body.(*event.SourceParked); found {
			p = ParkedQueue{Queue: b.Queue, Reason: b.Reason, Why: b.Why, Since: time.UnixMilli(int64(rec.TS)).UTC()}
		}
		return false
	})
	if failed == nil && !found {
		failed = fmt.Errorf("record %d parks no queue: %w", seq, ledger.ErrIntegrity)
	}
	return p, failed
}
