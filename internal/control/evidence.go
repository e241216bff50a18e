package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/redrive"
)

// watchEvidence captures what comes back and reads what consumers report while
// a generation is driven.
func (c *Controller) watchEvidence(ctx context.Context, no event.GenerationNo, progress func(api.Progress)) {
	queues, err := c.cohortQueues(no)
	if err != nil {
		progress(api.Progress{Stage: "note", Message: "returns are not watched: " + err.Error()})
	}
	var wg sync.WaitGroup
	for _, q := range queues {
		wg.Go(func() {
			if err := c.followReturns(ctx, q); err != nil && ctx.Err() == nil {
				progress(api.Progress{Stage: "note", Message: fmt.Sprintf("returns to %s are not watched: %v", q, err)})
			}
		})
	}
	wg.Go(func() {
		if err := c.readOutcomes(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, quarantine.ErrQueueMissing) {
			progress(api.Progress{Stage: "note", Message: "outcome reports are not read: " + err.Error()})
		}
	})
	wg.Wait()
}

// followReturns captures a queue until ctx ends. While somebody else in this
// process captures it, or the broker does not answer, it waits for its turn.
func (c *Controller) followReturns(ctx context.Context, queue string) error {
	for {
		cp, err := c.newCapture(queue, api.CaptureRequest{Follow: true})
		if err != nil {
			return err
		}
		if err = cp.run(ctx); !errors.Is(err, errClaimed) && !errors.Is(err, quarantine.ErrUnreachable) {
			return err
		}
		if !pauseFor(ctx, time.Second) {
			return nil
		}
	}
}

// cohortQueues lists the queues from which the members were captured.
func (c *Controller) cohortQueues(no event.GenerationNo) ([]string, error) {
	seen := map[quarantine.Word]bool{}
	var out []string
	err := c.log.View(func(v ledger.View) error {
		g, err := redrive.Get(v, no)
		if err != nil {
			return err
		}
		return redrive.EachMember(v, g, func(_ event.Position, env event.EnvelopeNo) error {
			cell, _ := quarantine.GetCell(v, env)
			if !seen[cell.Queue] {
				seen[cell.Queue] = true
				out = append(out, quarantine.WordText(v, cell.Queue))
			}
			return nil
		})
	})
	return out, err
}

// readOutcomes takes reports off their queue: recorded first, settled then. It
// returns ErrQueueMissing when there is no such queue, which means that this
// kind of evidence is absent.
func (c *Controller) readOutcomes(ctx context.Context) error {
	queue := c.o.Config.Outcomes.Queue
	if queue == "" {
		queue = outcome.Queue
	}
	release, ok := c.claim(queue)
	for ; !ok; release, ok = c.claim(queue) {
		if !pauseFor(ctx, time.Second) {
			return nil
		}
	}
	defer release()
	for lost := 0; ; lost++ {
		src, err := c.o.Brokers.Source(ctx)
		if err == nil {
			err = c.outcomeSession(ctx, src, queue)
		}
		if ctx.Err() != nil || !errors.Is(err, quarantine.ErrUnreachable) {
			return err
		}
		if !pauseFor(ctx, backoff(min(lost, 5))) {
			return nil
		}
	}
}

func (c *Controller) outcomeSession(ctx context.Context, src quarantine.Source, queue string) error {
	// As with a capture, a session that is lost costs what is in flight a delivery.
	s, err := src.Open(ctx, quarantine.SessionOptions{Queue: queue, Prefetch: 1})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = s.Close(end) // what was not settled is delivered again
	}()
	for grown := false; ; {
		var first quarantine.Delivery
		var open bool
		select {
		case first, open = <-s.Deliveries():
		case <-ctx.Done():
			return nil
		}
		if !open {
			return s.Err()
		}
		batch := []quarantine.Delivery{first}
		for more := true; more && len(batch) < outcomePrefetch; {
			select {
			case d, ok := <-s.Deliveries():
				if more = ok; ok {
					batch = append(batch, d)
				}
			default:
				more = false
			}
		}
		if err := c.takeOutcomes(ctx, s, batch); err != nil {
			return err
		}
		if !grown {
			if err := s.SetPrefetch(ctx, outcomePrefetch); err != nil {
				return err
			}
			grown = true
		}
	}
}

// outcomePrefetch is how many reports may be in flight once one was settled.
const outcomePrefetch = 500

func (c *Controller) takeOutcomes(ctx context.Context, s quarantine.Session, batch []quarantine.Delivery) error {
	var reports []outcome.Report
	var malformed uint64
	receipts := make([]quarantine.Receipt, 0, len(batch))
	for _, d := range batch {
		receipts = append(receipts, d.Receipt)
		r, err := outcome.Parse(d.Body)
		if err != nil {
			malformed++
			continue
		}
		reports = append(reports, r)
	}
	_, err := c.log.Update(context.WithoutCancel(ctx), ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
		return c.o.Stamps.Report(v, c.o.Keys, reports, malformed, "broker")
	})
	if err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return s.Settle(end, receipts)
}

// outcomeReport takes reports from a person or a file.
func (c *Controller) outcomeReport(ctx context.Context, req api.OutcomeRequest) (api.OutcomeResult, error) {
	res := api.OutcomeResult{Unmatched: map[string]uint64{}}
	if len(req.Reports) == 0 || len(req.Reports) > 10_000 {
		return res, usage(fmt.Errorf("%d reports: want 1 to 10,000 in one call", len(req.Reports)))
	}
	if req.Via != "command" && req.Via != "import" {
		return res, usage(fmt.Errorf("via %q: want command or import", req.Via))
	}
	var reports []outcome.Report
	var malformed uint64
	for _, text := range req.Reports {
		r, err := outcome.Parse([]byte(text))
		if err != nil {
			malformed++
			continue
		}
		reports = append(reports, r)
	}
	rc, err := c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
		return c.o.Stamps.Report(v, c.o.Keys, reports, malformed, req.Via)
	})
	if err != nil {
		return res, err
	}
	rejected := uint64(0)
	for _, r := range rc.Records {
		switch b := r.Body.(type) {
		case *event.OutcomeReported:
			res.Taken += b.Pos.Count()
		case *event.OutcomeUnmatched:
			res.Unmatched[b.Reason] += b.Count
			rejected += b.Count
		}
	}
	res.Known = uint64(len(req.Reports)) - min(res.Taken+rejected, uint64(len(req.Reports)))
	return res, nil
}
