package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// maxPrefetch bounds what a session holds. On the wire the number has 16 bits,
// and 65536 would mean no bound at all.
const maxPrefetch = 1000

// tagBits is how many bits of a receipt hold the delivery tag. Those above
// number the session, so that a receipt means nothing in another one.
const tagBits = 40

// sessions numbers the sessions of this process.
var sessions atomic.Uint64

func prefetchRange(n int) error {
	if n < 1 || n > maxPrefetch {
		return fmt.Errorf("prefetch %d is not between 1 and %d", n, maxPrefetch)
	}
	return nil
}

// session implements quarantine.Session: one connection, one channel, one
// consumer. Receipts are delivery tags under the number of the session. Tags
// mean nothing on another channel, and there never is another one in the life
// of a session.
type session struct {
	src   *Source
	queue string
	out   chan quarantine.Delivery
	turn  chan struct{} // holds one token: one request at a time
	ended chan struct{} // closed when the session is over
	epoch quarantine.Receipt

	link     *link
	ch       *amqp.Channel
	consumer int                       // how many consumers there have been
	granted  int                       // prefetch of the current one, 0 when there is none
	since    quarantine.Receipt        // the last receipt of the consumers before it
	barrier  func(*amqp.Channel) error // a request that is answered after all before it
	closing  sync.Once

	mu       sync.Mutex
	prefetch int                  // the bound that is asked for
	counts   bool                 // the queue may count deliveries; known before the first one
	open     []quarantine.Receipt // handed out and not settled, ascending
	last     quarantine.Receipt   // the latest that came
	over     bool
	err      error
}

var _ quarantine.Session = (*session)(nil)

func newSession(src *Source, o quarantine.SessionOptions) *session {
	s := &session{
		src: src, queue: o.Queue, prefetch: o.Prefetch,
		out:   make(chan quarantine.Delivery, maxPrefetch),
		turn:  make(chan struct{}, 1),
		ended: make(chan struct{}),
		epoch: quarantine.Receipt(sessions.Add(1) << tagBits),
	}
	s.turn <- struct{}{} // start has it
	return s
}

// start connects and begins to consume.
func (s *session) start(ctx context.Context, c Config, want identity) error {
	defer func() { <-s.turn }()
	l, err := dial(ctx, c, "redrive capture "+s.queue, s, want)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.link = l
	s.mu.Unlock()
	err = l.call(ctx, func() error {
		if err := s.findBarrier(); err != nil {
			return err
		}
		if err := s.lookAtKind(); err != nil {
			return err
		}
		if s.ch, err = l.conn.Channel(); err != nil {
			return err
		}
		closed := s.ch.NotifyClose(make(chan *amqp.Error, 1))
		cancelled := s.ch.NotifyCancel(make(chan string, 1))
		if err := s.consume(s.prefetch); err != nil {
			return err
		}
		go s.watch(closed, cancelled)
		return nil
	})
	return classify(err, opening)
}

// findBarrier looks which request may stand at the end of a settlement. A
// passive declare also passes through a classic queue's own process, but some
// versions want a permission for it, and refusing it costs the channel. That
// is found out on another channel.
func (s *session) findBarrier() error {
	declare := func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(s.queue, false, false, false, false, nil)
		return err
	}
	ch, err := s.link.conn.Channel()
	if err != nil {
		return err
	}
	err = declare(ch)
	switch replyCode(err) {
	case amqp.AccessRefused:
		s.barrier = s.limitBarrier
		return nil
	default:
		s.barrier = declare
		return errors.Join(err, ch.Close())
	}
}

// lookAtKind makes sure that a settlement will remove what it settles: a
// consumer of a stream would be told the same messages by every session. It
// also finds out whether the queue counts deliveries. In a classic queue a
// header of that name is the publisher's, and says nothing.
func (s *session) lookAtKind() error {
	s.setCounts(true)
	if !s.link.id.tellsKinds() {
		return nil
	}
	ch, err := s.link.conn.Channel()
	if err != nil {
		return err
	}
	kind, err := askKind(ch, s.queue)
	if err == nil && kind == quarantine.QueueStream {
		return fmt.Errorf("%w: it is a stream: streams cannot be captured, acknowledgement removes nothing there", quarantine.ErrRefused)
	}
	s.setCounts(kind != quarantine.QueueClassic)
	return err
}

func (s *session) setCounts(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = yes
}

// limitBarrier repeats the prefetch: a request without effect that needs no
// permission. It passes through the channel only.
func (s *session) limitBarrier(ch *amqp.Channel) error { return ch.Qos(max(1, s.granted), 0, false) }

// consume starts the next consumer with a prefetch of n.
func (s *session) consume(n int) error {
	if err := s.ch.Qos(n, 0, false); err != nil {
		return err
	}
	s.consumer++
	s.granted = n
	// The library's deliveries stay empty: the tap takes them.
	_, err := s.ch.Consume(s.queue, s.consumerTag(), false, false, false, false, nil)
	return err
}

// cancel ends the current consumer, if there is one. Its deliveries stay open.
func (s *session) cancel() error {
	if s.granted == 0 {
		return nil
	}
	s.granted = 0
	return s.ch.Cancel(s.consumerTag(), false)
}

func (s *session) consumerTag() string { return "redrive." + strconv.Itoa(s.consumer) }

// watch waits for the end of the channel or of the consumer. A consumer that
// the broker cancels leaves channel and connection as they are.
func (s *session) watch(closed <-chan *amqp.Error, cancelled <-chan string) {
	select {
	case reply := <-closed:
		if reply == nil { // the close was ours
			s.end(quarantine.ErrClosed)
			return
		}
		s.end(classify(reply, running))
	case _, ok := <-cancelled:
		if ok {
			s.end(fmt.Errorf("%w: the broker cancelled the consumer; the queue was deleted or has moved", quarantine.ErrUnreachable))
			return
		}
		// The channel closed first; its reason is there or will be.
		s.watch(closed, nil)
	}
}

// end is where every session comes to, once. Deliveries that nobody has taken
// yet are dropped: their receipts are worthless from here on.
func (s *session) end(err error) {
	s.mu.Lock()
	first := !s.over
	if first {
		s.over, s.err = true, err
		for len(s.out) > 0 {
			<-s.out
		}
		close(s.out)
		close(s.ended)
	}
	l := s.link
	s.mu.Unlock()
	if !first {
		return
	}
	s.src.remove(s)
	if l != nil && !errors.Is(err, quarantine.ErrClosed) {
		l.tap.kill()
	}
}

// deliver implements sink.
func (s *session) deliver(d delivered) {
	out := quarantine.Delivery{
		Receipt: s.epoch | quarantine.Receipt(d.tag), Queue: s.queue,
		Exchange: d.exchange, RoutingKey: d.routingKey, Redelivered: d.redelivered,
		Properties: d.props, Body: d.body, DeliveryCount: -1,
	}
	count := -1
	if v, ok := amqpwire.Lookup(d.props, amqpwire.HeaderDeliveryCount); ok {
		if n, ok := v.Int(); ok && n >= 0 && n < 1<<31 {
			count = int(n)
		}
	}
	s.mu.Lock()
	if s.counts {
		out.DeliveryCount = count
	}
	if s.over {
		s.open = append(s.open, out.Receipt) // given back by Close
		s.mu.Unlock()
		return
	}
	if len(s.out) < cap(s.out) {
		s.open = append(s.open, out.Receipt)
		s.last = out.Receipt
		s.out <- out
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.end(fmt.Errorf("%w: the broker sent more than the prefetch allows", quarantine.ErrUnreachable))
}

// back implements sink; a session publishes nothing.
func (s *session) back(returned) {}

// settle implements sink; a session publishes nothing.
func (s *session) settle(confirm) {}

// Deliveries implements quarantine.Session.
func (s *session) Deliveries() <-chan quarantine.Delivery { return s.out }

// Err implements quarantine.Session.
func (s *session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// tagOf is the delivery tag of a receipt of this session.
func tagOf(r quarantine.Receipt) uint64 { return uint64(r) & (1<<tagBits - 1) }

// take removes receipts from those that are open. It removes none when one of
// them is not open: to the broker that would be an error that ends the channel.
// all is how many at the front of the open ones, counted before, are among rs,
// so that one frame can settle them together; upTo is the last of those.
func (s *session) take(rs []quarantine.Receipt) (rest []quarantine.Receipt, upTo quarantine.Receipt, all int, err error) {
	rs = slices.Clone(rs)
	slices.Sort(rs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, 0, 0, fmt.Errorf("session is over: %w", s.err)
	}
	kept := make([]quarantine.Receipt, 0, len(s.open))
	left := rs
	for _, r := range s.open {
		switch {
		case len(left) == 0 || r != left[0]:
			kept = append(kept, r)
		case len(kept) == 0:
			upTo, left, all = r, left[1:], all+1
		default:
			rest, left = append(rest, r), left[1:]
		}
	}
	if len(left) > 0 {
		return nil, 0, 0, fmt.Errorf("receipt %d is not open: it is unknown or was settled before", left[0])
	}
	s.open = kept
	return rest, upTo, all, nil
}
