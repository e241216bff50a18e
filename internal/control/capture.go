package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

const (
	// inFlightBytes bounds what one capture holds and has not settled, as far as
	// the sizes seen so far tell. Several queues share it.
	inFlightBytes = 32 << 20
	// leastBytes is what each of many queues may hold all the same.
	leastBytes = 4 << 20
	// maxUnreachable is how many attempts in a row to reach the broker a one-shot
	// capture makes.
	maxUnreachable = 3
	// maxWary is how many messages of a queue a process before this one may have
	// had in flight.
	maxWary = 1000
)

// captureRun captures one or more queues, until they are empty, Max is
// reached, or ctx ends. What goes wrong with one queue stands in its part of
// the summary and stops no other one.
func (c *Controller) captureRun(ctx context.Context, req api.CaptureRequest, progress func(api.Progress)) (api.CaptureSummary, error) {
	queues := req.Queues
	if len(queues) == 0 {
		for _, s := range c.o.Config.Sources {
			queues = append(queues, s.Queue)
		}
	}
	if len(queues) == 0 {
		return api.CaptureSummary{}, usage(errors.New("no queue given and none configured: use --queue, or list sources in redrive.yaml"))
	}
	if req.Prefetch < 0 || req.Prefetch > 1000 {
		return api.CaptureSummary{}, usage(fmt.Errorf("prefetch %d: want 1 to 1000", req.Prefetch))
	}
	sum := api.CaptureSummary{Queues: make([]api.QueueSummary, len(queues))}
	var mu sync.Mutex // progress comes from all queues
	var wg sync.WaitGroup
	captures := make([]*capture, len(queues))
	for i, q := range queues {
		cp, err := c.newCapture(q, req)
		if err != nil {
			return api.CaptureSummary{}, err
		}
		cp.bytes = max(inFlightBytes/len(queues), leastBytes)
		captures[i] = cp
	}
	for i, cp := range captures {
		q := cp.queue
		cp.tell = func(p api.Progress) {
			mu.Lock()
			defer mu.Unlock()
			progress(p)
		}
		wg.Go(func() {
			err := cp.look(ctx)
			if err == nil {
				err = cp.run(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				err = fmt.Errorf("capture of %s (%d captured and safe): %w", q, cp.sum.Captured, err)
				errors.As(wireError(err), &cp.sum.Error)
			}
			sum.Queues[i] = cp.sum
			sum.Captured += cp.sum.Captured
			sum.Merged += cp.sum.Merged
			sum.Returned += cp.returned
		})
	}
	wg.Wait()
	return sum, c.log.Err()
}

// capture moves messages of one queue into the store.
type capture struct {
	c        *Controller
	queue    string
	max      uint64 // 0 for no bound
	follow   bool
	unpark   bool
	prefetch int // what the session may grow to
	bytes    int // bound of what is in flight
	tell     func(api.Progress)

	preparer quarantine.Preparer
	matcher  *quarantine.Matcher
	origin   quarantine.Origin
	source   quarantine.Source
	settled  event.Ranges // processed by the broker, not yet recorded
	opened   bool         // a session, at least once
	proven   bool         // the session has settled something, and that is recorded
	largest  int          // size in bytes of a large message of late
	wary     int          // messages that a lost session may have had in flight
	held     int          // messages that this session has and that cannot be stored
	room     int          // how many of them the prefetch makes room for
	// unstorable says what the first of them is and why it cannot be stored.
	unstorable error
	spending   spending
	returned   uint64
	sum        api.QueueSummary
}

func (c *Controller) newCapture(queue string, req api.CaptureRequest) (*capture, error) {
	s := c.o.Config.Source(queue)
	rules, err := s.Rules()
	if err != nil {
		return nil, usage(err)
	}
	judge, err := c.judge()
	if err != nil {
		return nil, err
	}
	cp := &capture{c: c, queue: queue, max: req.Max, follow: req.Follow, unpark: req.Unpark,
		prefetch: s.Prefetch, bytes: inFlightBytes / 4, tell: func(api.Progress) {},
		sum: api.QueueSummary{Queue: queue, Ready: -1},
		preparer: quarantine.Preparer{Rules: rules, Judge: judge, Keys: c.o.Keys, Blobs: c.o.Blobs, Random: c.o.Random,
			MaxBody: c.o.Config.Store.MaxBodyMiB << 20}}
	if c.log.NeedsRecovery() {
		cp.wary = maxWary
	}
	if req.Prefetch > 0 {
		cp.prefetch = req.Prefetch
	}
	return cp, nil
}

// judge makes a judge by the policy. What its rules call "now" is this moment.
func (c *Controller) judge() (*quarantine.Judge, error) {
	j, err := quarantine.NewJudge(c.policy, c.o.Predicates, c.o.Now())
	if err != nil {
		return nil, fmt.Errorf("policy: %w: %w", err, config.ErrInvalid)
	}
	return j, nil
}

// States of a queue that is being captured, as status shows them.
const (
	stateConnecting = "connecting"
	stateCapturing  = "capturing"
	stateWaiting    = "waiting"
)

// claim makes sure that a queue is captured once at a time in this process.
func (c *Controller) claim(queue string) (release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.capturing[queue]; taken {
		return nil, false
	}
	c.capturing[queue] = api.CaptureState{Queue: queue, State: stateConnecting, Since: c.o.Now().UTC()}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.capturing, queue)
	}, true
}

// stands notes for status how the capture of a queue stands, and tells those
// who follow it when it waits for something.
func (cp *capture) stands(state, detail string) {
	c := cp.c
	c.mu.Lock()
	before := c.capturing[cp.queue]
	changed := before.State != state || before.Detail != detail
	if changed {
		c.capturing[cp.queue] = api.CaptureState{Queue: cp.queue, State: state, Detail: detail, Since: c.o.Now().UTC()}
	}
	c.mu.Unlock()
	if changed && state == stateWaiting {
		cp.tell(api.Progress{Stage: "note", Message: fmt.Sprintf("%s is waited for: %s", cp.queue, detail)})
	}
}

// errClaimed is returned when this process captures the queue already. A second
// shell reads it, for which this process is the one that holds the store.
var errClaimed = &api.Error{Code: api.CodeRefused, Message: "the process that holds the store is capturing this queue already; see: redrive status"}

func (cp *capture) run(ctx context.Context) error {
	release, ok := cp.c.claim(cp.queue)
	if !ok {
		return errClaimed
	}
	defer release()
	var err error
	if cp.source, err = cp.c.o.Brokers.Source(ctx); err != nil {
		return err
	}
	caps := cp.source.Caps()
	cp.origin = quarantine.Origin{Cluster: caps.Cluster, VHost: caps.VHost}
	if err := cp.c.pin(ctx, "", pinOfSource(cp.source)); err != nil {
		return err
	}
	if err := cp.admit(ctx); err != nil {
		return err
	}
	err = cp.c.log.View(func(v ledger.View) error {
		cp.matcher, err = quarantine.LoadMatcher(v, cp.origin, cp.queue)
		return err
	})
	if err != nil {
		return err
	}
	err = cp.sessions(ctx)
	return errors.Join(err, cp.recordSettled(), cp.lift())
}

// sessions opens sessions until the work is done. What a wait can cure is tried
// again, by a capture that follows its queue for as long as it takes.
func (cp *capture) sessions(ctx context.Context) error {
	for away := 0; ; {
		began, lost := time.Now(), cp.spending.lost
		done, err := cp.session(ctx)
		if done && cp.max > 0 && ctx.Err() == nil {
			// Only now the queue has back what the session held and did not take.
			return cp.depth(ctx)
		}
		if done || ctx.Err() != nil {
			return nil //nolint:nilerr // what an interrupted session says about its end is no news
		}
		if away++; cp.proven || cp.spending.lost > lost || time.Since(began) > longest {
			away = 0
		}
		wait, again := cp.again(err, away)
		if cp.spending.times >= quarantine.MaxSpent && !cp.spending.armed {
			wait = 0 // to be parked
		}
		if !again {
			return err
		}
		cp.stands(stateWaiting, err.Error())
		if !pauseFor(ctx, wait) {
			return nil
		}
	}
}

// again decides whether a session is opened after one that ended with err, and
// after which wait. Away counts attempts in a row that came to nothing.
func (cp *capture) again(err error, away int) (time.Duration, bool) {
	switch {
	case errors.Is(err, quarantine.ErrUnreachable):
		return backoff(max(away, cp.spending.lost)), cp.follow || away <= maxUnreachable
	case !cp.follow || cp.c.log.Err() != nil:
		return 0, false
	case errors.Is(err, ledger.ErrNoSpace):
		return backoff(away), true
	case errors.Is(err, quarantine.ErrQueueMissing):
		return backoff(away), cp.opened // it was there: its owner may declare it again
	case errors.Is(err, quarantine.ErrRefused):
		return max(backoff(away), 5*time.Second), cp.opened
	}
	return 0, false
}

// longest is the longest wait between two sessions.
const longest = 30 * time.Second

// backoff grows from 250 ms to the longest wait.
func backoff(n int) time.Duration {
	return min(250*time.Millisecond<<min(n, 10), longest)
}

// pauseFor waits; false means that ctx ended first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Controller) sourceDepth(ctx context.Context, req api.DepthRequest) (api.DepthInfo, error) {
	d := api.DepthInfo{Queue: req.Queue}
	err := c.log.View(func(v ledger.View) error {
		var err error
		d.StoreOpen, err = quarantine.Open(v, req.Queue)
		return err
	})
	if err != nil {
		return d, err
	}
	src, err := c.o.Brokers.Source(ctx)
	if err == nil {
		var depth quarantine.Depth
		if depth, err = src.Depth(ctx, req.Queue); err == nil {
			sum := depth.Ready + int(d.StoreOpen)
			d.BrokerReady, d.Sum = &depth.Ready, &sum
			return d, nil
		}
	}
	if errors.Is(err, quarantine.ErrQueueMissing) {
		return d, err
	}
	d.Unknown = err.Error()
	return d, nil
}
