package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// ErrOptions is returned by Run for what cannot be run as it is asked for. The
// message says what to change.
var ErrOptions = errors.New("worker cannot run like this")

// Options are the choices that no policy makes.
type Options struct {
	// Queue is the queue to work, by its name in the policy. Defaults to the
	// policy's only one.
	Queue string
	// Concurrency is how many messages run at once, 1 to 1000. Messages of one
	// ordering key never do. Defaults to 1.
	Concurrency int
	// Version is the version of this consumer, which copies and reports carry.
	// Defaults to "".
	Version string
	// Rules find identities in messages. The policy's expressions for operation,
	// key and sequence come before them. Defaults to quarantine.DefaultRules.
	Rules quarantine.Rules
	// Schema judges bodies; a type that it does not know is held against its type
	// "*". Defaults to nil: any body is welcome.
	Schema quarantine.Schema
	// Inbox recognizes operations that are done. Defaults to nil: none is.
	Inbox Inbox
	// Keys remembers parked keys. A policy that parks keys needs one.
	Keys Keys
	// Masks hide more in error texts than quarantine.DefaultMasks and the policy.
	Masks []quarantine.Mask
	// Log gets one record for each quarantine, drop and pause, without content of
	// messages. Defaults to slog.Default().
	Log *slog.Logger
	// Scale multiplies every delay and back-off, to live through a policy faster:
	// 0.001 makes milliseconds of seconds. Defaults to 1.
	Scale float64
	// HoldLimit is how long a message may stay unacknowledged while a dependency
	// is down, shorter than the broker's consumer timeout (30 min by default).
	// Defaults to 15 min.
	HoldLimit time.Duration
	// DrainLimit is how long messages in hand may go on after ctx has ended.
	// Defaults to 20 s.
	DrainLimit time.Duration
	// Observe is called at each step of each message, by the goroutine that takes
	// it. Defaults to nil.
	Observe func(Step, *Message)
}

// Bounds of back-offs, before Scale.
const (
	leastBackoff = time.Second
	mostBackoff  = time.Minute
)

// WithDefaults returns o with every unset field at its default.
func (o Options) WithDefaults() Options {
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Rules.Operation == nil && o.Rules.Type == nil {
		o.Rules = quarantine.DefaultRules()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.HoldLimit == 0 {
		o.HoldLimit = 15 * time.Minute
	}
	if o.DrainLimit == 0 {
		o.DrainLimit = 20 * time.Second
	}
	if o.Observe == nil {
		o.Observe = func(Step, *Message) {}
	}
	return o
}

func (o *Options) validate() error {
	switch {
	case o.Concurrency < 1 || o.Concurrency > 1000:
		return fmt.Errorf("%w: concurrency %d is not between 1 and 1000", ErrOptions, o.Concurrency)
	case o.Scale < 0 || o.Scale > 1000:
		return fmt.Errorf("%w: scale %v is not between 0 and 1000", ErrOptions, o.Scale)
	case o.HoldLimit < 0 || o.DrainLimit < 0:
		return fmt.Errorf("%w: a limit of time is negative", ErrOptions)
	case len(o.Version) > 255:
		return fmt.Errorf("%w: the consumer version has %d bytes, at most 255", ErrOptions, len(o.Version))
	}
	return nil
}

// choose finds the queue in the policy.
func (o *Options) choose(p *policy.Policy) (policy.Queue, error) {
	if p == nil || len(p.Queues) == 0 {
		return policy.Queue{}, fmt.Errorf("%w: the policy has no queue", ErrOptions)
	}
	if o.Queue == "" && len(p.Queues) == 1 {
		return p.Queues[0].WithDefaults(), nil
	}
	q, ok := p.Queue(o.Queue)
	if !ok {
		return policy.Queue{}, fmt.Errorf("%w: the policy has %d queues and none with the name %q; name one of them", ErrOptions, len(p.Queues), o.Queue)
	}
	return q.WithDefaults(), nil
}

// newWorker checks everything that can be checked before a message is touched.
func newWorker(conn Conn, p *policy.Policy, h Handler, o Options) (*worker, error) {
	o = o.WithDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if conn.Source == nil || conn.Publisher == nil || conn.Clock == nil || conn.Random == nil || h == nil {
		return nil, fmt.Errorf("%w: source, publisher, clock, random and handler are all needed", ErrOptions)
	}
	q, err := o.choose(p)
	if err != nil {
		return nil, err
	}
	w := &worker{conn: conn, p: p, q: q, h: h, o: o, masks: append(quarantine.DefaultMasks(), o.Masks...)}
	for _, m := range p.Masks {
		mask, err := quarantine.NewMask(m.Name, m.Pattern)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		w.masks = append(w.masks, mask)
	}
	if err := w.order(); err != nil {
		return nil, err
	}
	w.gate = newGate(conn.Clock, w.scaled(leastBackoff), w.scaled(mostBackoff))
	return w, nil
}

// order takes the policy's expressions, and refuses to park keys where a
// replica would not know what another one has parked.
func (w *worker) order() error {
	for _, e := range []struct {
		text string
		list *[]quarantine.Expression
	}{{w.q.Operation, &w.o.Rules.Operation}, {w.q.Ordering.Key, &w.o.Rules.OrderingKey}, {w.q.Ordering.Sequence, &w.o.Rules.Sequence}} {
		if e.text == "" {
			continue
		}
		x, err := quarantine.ParseExpression(e.text)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrOptions, err)
		}
		*e.list = append([]quarantine.Expression{x}, *e.list...)
	}
	if !w.parks() {
		return nil
	}
	switch {
	case w.q.Ordering.Key == "":
		return fmt.Errorf("%w: the policy parks keys of %q and names no key", ErrOptions, w.q.Name)
	case w.o.Keys == nil:
		return fmt.Errorf("%w: the policy parks keys of %q, so the worker needs a store for them", ErrOptions, w.q.Name)
	case w.q.Replicas != 1 && !w.o.Keys.Shared():
		return fmt.Errorf("%w: the policy parks keys of %q and runs %d replicas, so they need one store that all of them share", ErrOptions, w.q.Name, w.q.Replicas)
	}
	return nil
}

// parks tells whether messages follow a quarantined one of their key aside.
func (w *worker) parks() bool { return w.q.Ordering.OnFailure == "park" }

func (w *worker) scaled(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)*w.o.Scale), time.Millisecond)
}

// Handler runs one message. A nil error says that the effect is there. It is
// called by several goroutines at once when Concurrency allows. When ctx ends,
// the policy's time-out or the drain limit has passed, and the handler should
// return.
type Handler func(ctx context.Context, m *Message) error
