package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// maxHeld is how many messages that cannot be stored a session keeps while it
// takes their neighbours.
const maxHeld = 16

// take makes a batch durable and then settles exactly it. What can never be
// stored stays unsettled; the queue is parked for it when its neighbours are
// safe, or when there are too many of its kind.
func (cp *capture) take(ctx context.Context, s quarantine.Session, ds []quarantine.Delivery) error {
	if err := cp.learn(ctx, ds[0]); err != nil {
		return err
	}
	b := quarantine.Batch{Merged: map[string]event.Ranges{}, Settled: cp.settled}
	receipts := map[quarantine.Receipt]event.EnvelopeNo{}
	merged := map[string][]event.EnvelopeNo{}
	now := cp.c.o.Now()
	var stored int
	for _, d := range ds {
		p, err := cp.preparer.Prepare(d, cp.origin, now)
		if errors.Is(err, quarantine.ErrUnstorable) {
			if cp.held++; cp.held == 1 {
				cp.unstorable = describe(d, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		stored++
		no, why, same := cp.matcher.Match(p)
		if same {
			cp.unneeded(p)
			receipts[d.Receipt] = no
			merged[why] = append(merged[why], no)
			continue
		}
		b.New = append(b.New, p)
		b.Doubles = append(b.Doubles, no)
	}
	for why, nos := range merged {
		b.Merged[why] = event.RangesOf(nos...)
		cp.sum.Merged += uint64(len(nos))
	}
	if stored > 0 {
		if err := cp.commit(ctx, b, receipts); err != nil {
			return err
		}
		if err := cp.settle(ctx, s, receipts); err != nil {
			return err
		}
	}
	if cp.held > maxHeld {
		return cp.parkHeld()
	}
	return nil
}

// parkHeld parks the queue when this session holds what cannot be stored.
func (cp *capture) parkHeld() error {
	if cp.held == 0 {
		return nil
	}
	return cp.park(reasonUnstorable, fmt.Sprintf("%d of its messages cannot be stored, the first: %v", cp.held, cp.unstorable))
}

// describe says which message it is that cannot be stored.
func describe(d quarantine.Delivery, err error) error {
	times := ""
	if d.Redelivered && d.DeliveryCount >= 0 {
		times = fmt.Sprintf(", delivered %d times so far", d.DeliveryCount+1)
	}
	v := amqpwire.Parse(d.Properties)
	return fmt.Errorf("message id %.100q, exchange %.100q, routing key %.100q%s: %w", v.MessageID, d.Exchange, d.RoutingKey, times, err)
}

// commit makes a batch durable, and adds the numbers of its new envelopes to
// receipts.
func (cp *capture) commit(ctx context.Context, b quarantine.Batch, receipts map[quarantine.Receipt]event.EnvelopeNo) error {
	var first event.EnvelopeNo
	// The commit is not withdrawn when ctx ends: what was read is kept.
	rc, err := cp.c.log.Update(context.WithoutCancel(ctx), ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
		// Somebody may have pinned another broker since this capture began.
		if err := quarantine.CheckPin(v, quarantine.Pin{Cluster: cp.origin.Cluster, VHost: cp.origin.VHost}); err != nil {
			return nil, err
		}
		first = quarantine.Count(v) + 1
		return quarantine.Capture(v, cp.c.o.Keys, b, cp.c.o.Stamps)
	})
	if err != nil {
		return err
	}
	cp.settled = nil
	for i, p := range b.New {
		no := first + event.EnvelopeNo(i)
		receipts[p.Receipt] = no
		cp.matcher.Captured(no, p)
		if p.Blob() != "" && !cp.c.ownsBody(no) {
			cp.unneeded(p)
		}
	}
	for _, r := range rc.Records {
		if r.Body.Kind() == event.KindEnvelopeReturned {
			cp.returned++
		}
	}
	cp.sum.Captured += uint64(len(b.New))
	cp.tell(api.Progress{Stage: "capture", Message: cp.queue, Captured: cp.sum.Captured, Merged: cp.sum.Merged})
	return nil
}

// unneeded removes the blob of a body that is stored already. One that stays is
// found by the next compaction.
func (cp *capture) unneeded(p *quarantine.Prepared) {
	if name := p.Blob(); name != "" {
		if err := cp.c.o.Blobs.DeleteBlob(name); err != nil {
			cp.c.o.Logger.Warn("remove a body that is stored twice", slog.Any("error", err))
		}
	}
}

// ownsBody reports whether an envelope refers to a body object of its own.
func (c *Controller) ownsBody(no event.EnvelopeNo) bool {
	own := true
	_ = c.log.View(func(v ledger.View) error { // a wrong guess keeps a blob
		if f, err := quarantine.GetFacts(v, no); err == nil {
			own = f.BodyOf == no
		}
		return nil
	})
	return own
}

// settle removes a durable batch from the queue. The settlement is recorded
// with the next batch, or when the queue is idle; the first one of a session
// at once, because it proves that the queue gets on.
func (cp *capture) settle(ctx context.Context, s quarantine.Session, receipts map[quarantine.Receipt]event.EnvelopeNo) error {
	for _, no := range receipts {
		cp.matcher.Settling(no)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := s.Settle(end, slices.Sorted(maps.Keys(receipts))); err != nil {
		return err
	}
	nos := slices.Collect(maps.Values(receipts))
	for _, no := range nos {
		cp.matcher.Settled(no)
	}
	for n := range cp.settled.All() {
		nos = append(nos, event.EnvelopeNo(n))
	}
	cp.settled = event.RangesOf(nos...)
	if cp.proven {
		return nil
	}
	cp.proven = true
	return cp.recordSettled()
}

func (cp *capture) recordSettled() error {
	if len(cp.settled) == 0 {
		return nil
	}
	_, err := cp.c.log.Update(context.Background(), ledger.Request{Actor: event.System}, func(ledger.View) ([]event.Event, error) {
		return quarantine.SettledEvents(cp.settled), nil
	})
	if err == nil {
		cp.settled = nil
		cp.spending = spending{} // as the record says
	}
	return err
}
