package control_test

import (
	"context"
	"sync"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// wire is a broker whose channels do what a test says. Without orders it takes
// every message and confirms it at once.
type wire struct {
	consumers *int // of the destination, beside idle
	mu        sync.Mutex
	// before runs when a message is about to be written, and may block, or
	// refuse the message with an error.
	before func(m redrive.Message) error
	// answer says what becomes of a publish; false leaves it without an answer
	// until confirmAll.
	answer func(m redrive.Message) (redrive.Result, bool)
	// denied is why no publish would be taken.
	denied string
	ready  int               // messages that wait at the destination
	idle   bool              // nobody consumes there
	sent   []redrive.Message // in the order in which their writing ended
	open   []*line
}

// Caps implements redrive.Releaser.
func (w *wire) Caps() redrive.ReleaserCaps {
	return redrive.ReleaserCaps{Broker: "wire", Cluster: "test", ConfirmsAll: true}
}

// Route implements redrive.Releaser.
func (w *wire) Route(context.Context, redrive.Destination) (redrive.Route, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := redrive.Route{Exists: true, Ready: w.ready, Consumers: 1, Denied: w.denied}
	if w.idle {
		r.Consumers = 0
	}
	if w.consumers != nil {
		r.Consumers = *w.consumers
	}
	return r, nil
}

func (w *wire) consume(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.consumers = &n
}

func (w *wire) deny(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied = why
}

func (w *wire) pile(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = n
}

// Open implements redrive.Releaser.
func (w *wire) Open(context.Context, redrive.ChannelOptions) (redrive.Channel, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &line{w: w, held: map[uint64]bool{}, changed: make(chan struct{}, 1), results: make(chan redrive.Result, 10_000)}
	w.open = append(w.open, l)
	return l, nil
}

// Close implements redrive.Releaser.
func (w *wire) Close() error { return nil }

func (w *wire) set(before func(redrive.Message) error, answer func(redrive.Message) (redrive.Result, bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.answer = before, answer
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sent)
}

func (w *wire) messages() []redrive.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]redrive.Message(nil), w.sent...)
}

func confirm(m redrive.Message) (redrive.Result, bool) {
	return redrive.Result{Token: m.Token, Resolution: event.Confirmed}, true
}

func silent(redrive.Message) (redrive.Result, bool) { return redrive.Result{}, false }

// confirmAll answers what has no answer yet, and from now on everything.
func (w *wire) confirmAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = confirm
	for _, l := range w.open {
		for token := range l.held {
			delete(l.held, token)
			l.results <- redrive.Result{Token: token, Resolution: event.Confirmed}
		}
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
}

// line is one channel of a wire.
type line struct {
	w       *wire
	held    map[uint64]bool
	changed chan struct{}
	results chan redrive.Result
	closed  bool
}

// Publish implements redrive.Channel.
func (l *line) Publish(_ context.Context, m redrive.Message) error {
	l.w.mu.Lock()
	before := l.w.before
	l.w.mu.Unlock()
	if before != nil {
		if err := before(m); err != nil {
			return err
		}
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.sent = append(l.w.sent, m)
	answer := l.w.answer
	if answer == nil {
		answer = confirm
	}
	if res, now := answer(m); now {
		l.results <- res
	} else {
		l.held[m.Token] = true
	}
	return nil
}

// Results implements redrive.Channel.
func (l *line) Results() <-chan redrive.Result { return l.results }

// Close implements redrive.Channel.
func (l *line) Close(ctx context.Context) error {
	for {
		l.w.mu.Lock()
		if len(l.held) == 0 || ctx.Err() != nil {
			break
		}
		l.w.mu.Unlock()
		select {
		case <-l.changed:
		case <-ctx.Done():
		}
	}
	defer l.w.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	for token := range l.held {
		l.results <- redrive.Result{Token: token, Resolution: event.Ambiguous, Reason: "connection_lost"}
	}
	close(l.results)
	return nil
}

// pond is a source whose queues do what a test says. A queue without orders is
// empty; the one of outcome reports does not exist.
type pond struct {
	mu     sync.Mutex
	script map[string]func(n int, o quarantine.SessionOptions) (*visit, error) // n counts sessions from 0
	found  map[string][]quarantine.Finding
	ready  map[string]int // by queue, as the broker counts; -1: it does not answer
	opened []quarantine.SessionOptions
	visits []*visit
}

// Caps implements quarantine.Source.
func (p *pond) Caps() quarantine.SourceCaps {
	return quarantine.SourceCaps{Broker: "pond", Cluster: "test"}
}

// Open implements quarantine.Source.
func (p *pond) Open(_ context.Context, o quarantine.SessionOptions) (quarantine.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, before := range p.opened {
		if before.Queue == o.Queue {
			n++
		}
	}
	v := &visit{}
	if script := p.script[o.Queue]; script != nil {
		var err error
		if v, err = script(n, o); err != nil {
			return nil, err
		}
	} else if o.Queue == "redrive.outcomes" {
		return nil, quarantine.ErrQueueMissing
	}
	p.opened = append(p.opened, o)
	p.visits = append(p.visits, v)
	v.begin(o.Queue)
	return v, nil
}

// Depth implements quarantine.Source.
func (p *pond) Depth(_ context.Context, queue string) (quarantine.Depth, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[queue] < 0 {
		return quarantine.Depth{}, quarantine.ErrUnreachable
	}
	return quarantine.Depth{Ready: p.ready[queue]}, nil
}

// Inspect implements quarantine.Source.
func (p *pond) Inspect(_ context.Context, queue string) (quarantine.Inspection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return quarantine.Inspection{Queue: queue, Consumers: -1, Findings: p.found[queue]}, nil
}

// Close implements quarantine.Source.
func (p *pond) Close() error { return nil }

// sessions lists how the sessions of a queue were opened.
func (p *pond) sessions(queue string) (out []quarantine.SessionOptions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.opened {
		if o.Queue == queue {
			out = append(out, o)
		}
	}
	return out
}

// lose breaks the sessions of a queue that are open.
func (p *pond) lose(queue string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, v := range p.visits {
		v.mu.Lock()
		if p.opened[i].Queue == queue && v.err == nil {
			v.err = err
			close(v.ch)
		}
		v.mu.Unlock()
	}
}

// live counts sessions of a queue that are not closed.
func (p *pond) live(queue string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, v := range p.visits {
		if p.opened[i].Queue == queue && v.Err() == nil {
			n++
		}
	}
	return n
}

// visit is one session. It hands out groups of deliveries, each after the one
// before was settled.
type visit struct {
	groups   [][]quarantine.Delivery
	lose     int  // the settlement, from 1, at which the link breaks instead
	broken   bool // the link breaks at once, with the first group on its way
	late     bool // the first group is on its way, behind which an answer waits
	ch       chan quarantine.Delivery
	settling func(n int) // runs after the n-th settlement, when the next group is there

	mu         sync.Mutex
	calls      int
	err        error
	settled    int
	prefetches []int
}

func (v *visit) begin(queue string) {
	v.ch = make(chan quarantine.Delivery, 1000)
	for i := range v.groups {
		for j := range v.groups[i] {
			d := &v.groups[i][j]
			d.Receipt, d.Queue = quarantine.Receipt(1000*i+j+1), queue
		}
	}
	if v.broken {
		v.err = quarantine.ErrUnreachable
		close(v.ch)
		return
	}
	if !v.late {
		v.next()
	}
}

// next hands out a group at once, so that it is taken as one batch.
func (v *visit) next() {
	if len(v.groups) == 0 {
		return
	}
	for _, d := range v.groups[0] {
		v.ch <- d
	}
	v.groups = v.groups[1:]
}

// Deliveries implements quarantine.Session.
func (v *visit) Deliveries() <-chan quarantine.Delivery { return v.ch }

// Settle implements quarantine.Session.
func (v *visit) Settle(_ context.Context, rs []quarantine.Receipt) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(rs) == 0 {
		if v.late {
			v.late = false
			v.next()
		}
		return v.err
	}
	if v.lose--; v.lose == 0 {
		v.err = quarantine.ErrUnreachable
		close(v.ch)
		return quarantine.ErrUnreachable
	}
	v.settled += len(rs)
	v.next()
	if v.calls++; v.settling != nil {
		v.settling(v.calls)
	}
	return nil
}

// Return implements quarantine.Session.
func (v *visit) Return(context.Context, []quarantine.Receipt) error { return nil }

// SetPrefetch implements quarantine.Session.
func (v *visit) SetPrefetch(_ context.Context, n int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.prefetches = append(v.prefetches, n)
	return nil
}

// Err implements quarantine.Session.
func (v *visit) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Close implements quarantine.Session.
func (v *visit) Close(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil {
		v.err = quarantine.ErrClosed
		close(v.ch)
	}
	return nil
}

// refuse is how a channel says that a message was not sent.
func refuse(reason string) error { return &redrive.RefusedError{Reason: reason, Detail: "test"} }

// rest says how many messages wait at the destination, and whether nobody
// consumes them.
func (w *wire) rest(ready int, idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready, w.idle = ready, idle
}
