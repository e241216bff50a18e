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
	"github.com/redrivehq/redrive/redrive"
)

const (
	// tick bounds how late something is noticed that no commit announces: a
	// deadline, the end of a bake time, the kill switch.
	tick = 200 * time.Millisecond
	// lateGrace is how long a channel stays open for confirms after their
	// deadline.
	lateGrace = 60 * time.Second
)

// drive stays with a generation until it is closed, stands still for a reason
// that is not an operator's, or has decided everything and noWait is set. One
// driver releases; others that ask for the same generation look on, and take
// over when the driver goes.
func (c *Controller) drive(ctx context.Context, no event.GenerationNo, noWait bool, progress func(api.Progress)) error {
	for {
		stop, ok := c.beginDrive(no)
		if !ok {
			err := c.follow(ctx, no, noWait, progress, false)
			if errors.Is(err, errNotDriven) {
				continue
			}
			return err
		}
		side, cancel := context.WithCancel(ctx)
		var sides sync.WaitGroup
		sides.Go(func() { c.watchEvidence(side, no, progress) })
		sides.Go(func() { c.watchOf(no).run(side, progress) })
		err := c.follow(ctx, no, noWait, progress, true)
		cancel()
		sides.Wait()
		stop()
		return err
	}
}

// errNotDriven ends looking on: the driver is gone, and with it whoever releases
// and watches for evidence.
var errNotDriven = errors.New("nobody drives the generation")

func (c *Controller) beginDrive(no event.GenerationNo) (stop func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driven[no] {
		return nil, false
	}
	c.driven[no] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.driven, no)
	}, true
}

func (c *Controller) isDriven(no event.GenerationNo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.driven[no]
}

// follow looks at the generation after each commit and each tick.
func (c *Controller) follow(ctx context.Context, no event.GenerationNo, noWait bool, progress func(api.Progress), release bool) error {
	told := false
	for {
		changed := c.changes.next()
		g, err := c.generation(no)
		if err != nil {
			return err
		}
		progress(api.Progress{Stage: string(g.State), Generation: c.briefly(g)})
		switch g.State {
		case event.Running:
			told = false
			if release {
				if err := c.release(ctx, g, progress); err != nil {
					return err
				}
				// A link that opens and fails at once is not tried in a loop: each
				// round uses up tries of the members in hand.
				if err := c.calm(ctx, g); err != nil {
					return err
				}
				continue
			}
		case event.Paused:
			if !c.staysPaused(g, noWait) {
				return nil
			}
			if !told {
				told = true
				progress(api.Progress{Stage: "note", Message: fmt.Sprintf("generation %d stands still, and this command stays: it goes on when the system or another shell resumes it", no)})
			}
		case event.Settling:
			if noWait || !c.awaits(g) {
				return nil
			}
		case event.Closed, event.Rejected, event.Expired:
			return nil
		}
		if !release && !c.isDriven(no) {
			return errNotDriven
		}
		if err := c.wait(ctx, changed, tick); err != nil {
			return err
		}
		if err := c.settleDue(ctx); err != nil {
			return err
		}
	}
}

// staysPaused reports whether a driver waits for the end of a pause: a person
// ordered it, or the system may end it by itself.
func (c *Controller) staysPaused(g *redrive.Generation, noWait bool) bool {
	byPeople := true
	for _, p := range g.Pauses {
		byPeople = byPeople && p.Reason == redrive.PauseOperator
	}
	return byPeople || !noWait && g.AwaitsAutoResume(c.o.Now(), c.watchOf(g.No).resumable())
}

// calm waits a while when a release ended and the generation runs on with
// members that wait.
func (c *Controller) calm(ctx context.Context, before *redrive.Generation) error {
	changed := c.changes.next()
	g, err := c.generation(before.No)
	if err != nil || g.State != event.Running || g.Counts[event.Waiting] == 0 {
		return err
	}
	return c.wait(ctx, changed, time.Second)
}

// awaits reports whether outcomes can still change a settling generation
// within its deadlines.
func (c *Controller) awaits(g *redrive.Generation) bool {
	return g.Counts[event.Pending]+g.Counts[event.InFlight] > 0 ||
		g.Counts[event.Admitted] > 0 && c.o.Now().Before(time.UnixMilli(int64(g.Changed+g.Deadline)))
}

// wait returns when the state changed or d has passed; an error when ctx ended
// or the ledger died.
func (c *Controller) wait(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.log.Dead():
		if err := c.log.Err(); err != nil {
			return err
		}
		return ledger.ErrClosed
	}
	return nil
}

func (c *Controller) generation(no event.GenerationNo) (*redrive.Generation, error) {
	var g *redrive.Generation
	err := c.log.View(func(v ledger.View) error {
		var err error
		g, err = redrive.Get(v, no)
		return err
	})
	return g, err
}

// release publishes until the generation does not run any more, everything is
// decided, or the channel is over.
func (c *Controller) release(ctx context.Context, g *redrive.Generation, progress func(api.Progress)) error {
	releaser, err := c.o.Brokers.Releaser(ctx)
	if err != nil {
		return err
	}
	manifest, err := c.manifest(g)
	if err != nil {
		return err
	}
	r := &runner{c: c, no: g.No, gate: c.gates.of(g.No), single: g.Destination.SingleQueue(), caps: releaser.Caps(), rules: manifest,
		sent: sentTimes{into: &c.watchOf(g.No).confirm}}
	if r.ch, err = releaser.Open(ctx, redrive.ChannelOptions{Window: redrive.MaxWindow,
		ConfirmDeadline: time.Duration(c.o.Config.Limits.ConfirmDeadline), LateGrace: lateGrace}); err != nil {
		if !errors.Is(err, quarantine.ErrUnreachable) {
			return err
		}
		progress(api.Progress{Stage: "note", Message: "the broker is not reachable, trying again: " + err.Error()})
		if !pauseFor(ctx, time.Second) {
			return ctx.Err()
		}
		return nil
	}
	// When a resolution cannot be recorded nothing more may go out.
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	collected := make(chan error, 1)
	go func() { collected <- r.collect(cancel) }()
	err = r.publishAll(work)
	end, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(c.o.Config.Limits.ConfirmDeadline)+lateGrace)
	defer cancelEnd()
	closeErr := r.ch.Close(end)
	if e := <-collected; e != nil {
		return e
	}
	if err == nil && closeErr != nil && !errors.Is(closeErr, quarantine.ErrUnreachable) && !errors.Is(closeErr, quarantine.ErrClosed) {
		err = closeErr
	}
	return err
}

func (c *Controller) manifest(g *redrive.Generation) (*redrive.Manifest, error) {
	var m *redrive.Manifest
	err := c.log.View(func(v ledger.View) error {
		var err error
		m, err = redrive.GetManifest(v, g.Manifest)
		return err
	})
	return m, err
}
