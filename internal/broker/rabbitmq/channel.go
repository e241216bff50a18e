package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// flight is one publish that the broker has not answered for good.
type flight struct {
	m    redrive.Message
	at   time.Time // when it was handed over
	back string    // the broker's words when it returned the message, "" before
	late bool      // called ambiguous; an answer is still welcome
	done bool
}

// channel implements redrive.Channel: one connection, one AMQP channel in
// confirm mode, used for publishing only.
//
// Returns and confirms are handled in wire order by the goroutine that reads
// the connection: the return of a message precedes its confirm there, so when
// a confirm is looked at, all that could contradict it has been.
//
// The life of a channel: it accepts until stopped has a reason; it is over
// when the connection is of no more use, and then everything in flight has a
// result.
type channel struct {
	r     *Releaser
	o     redrive.ChannelOptions
	link  *link
	slots chan struct{} // one token for each publish without a result that was taken
	out   chan redrive.Result
	body  int // largest body frame payload

	stop  chan struct{} // closed when nothing more is accepted
	ended chan struct{} // closed when over

	mu        sync.Mutex
	flights   []*flight // in order of publish; the first has number base
	base      uint64
	unsettled int // flights without a result
	late      int // flights called ambiguous that may still be confirmed
	stopped   string
	blocked   string // the broker's reason for not reading, "" while it reads
	over      bool
	timer     *time.Timer // of the oldest unsettled flight, and then of the grace
	lastLate  time.Time   // when a flight was last called ambiguous
	doors     map[string]*door

	results []redrive.Result // decided, not yet handed to out
	wake    chan struct{}
}

var _ redrive.Channel = (*channel)(nil)

func newChannel(r *Releaser, o redrive.ChannelOptions) *channel {
	return &channel{
		r: r, o: o, base: 1,
		slots: make(chan struct{}, o.Window),
		out:   make(chan redrive.Result, o.Window),
		stop:  make(chan struct{}),
		ended: make(chan struct{}),
		wake:  make(chan struct{}, 1),
		doors: map[string]*door{},
	}
}

// connect opens the connection, and finds out on it whether the default
// exchange may be published to. While the broker is out of a resource that
// question costs the connection, and is left for later.
func (c *channel) connect(ctx context.Context) (*link, error) {
	l, err := dial(ctx, c.r.control.cfg, "redrive release", c, c.r.control.id)
	if err != nil {
		return nil, err
	}
	answers, err := l.trial(ctx, redrive.Destination{})
	if err == nil {
		c.doors[""] = &door{any: reply{answers[0], time.Now()}, answers: map[string]reply{}}
		return l, nil
	}
	l.tap.kill()
	if !errors.Is(err, redrive.ErrNotSent) {
		return nil, err
	}
	return dial(ctx, c.r.control.cfg, "redrive release", c, c.r.control.id)
}

// start connects and turns confirms on.
func (c *channel) start(ctx context.Context) error {
	l, err := c.connect(ctx)
	if err != nil {
		return err
	}
	c.link = l
	c.body = 128 << 10
	if n := maxHeader(l.conn.Config.FrameSize); n > 0 {
		c.body = n
	}
	blocked := l.conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	var closed chan *amqp.Error
	err = l.call(ctx, func() error {
		ch, err := l.conn.Channel()
		if err != nil {
			return err
		}
		closed = ch.NotifyClose(make(chan *amqp.Error, 1))
		return ch.Confirm(false)
	})
	if err != nil {
		l.tap.kill()
		return err
	}
	go c.watchBlocked(blocked)
	go c.watchClosed(closed)
	go c.pump()
	return nil
}

func (c *channel) watchBlocked(blocked <-chan amqp.Blocking) {
	for b := range blocked {
		c.mu.Lock()
		c.blocked = ""
		if b.Active {
			c.blocked = outOf(b.Reason)
		}
		c.mu.Unlock()
	}
}

func (c *channel) watchClosed(closed <-chan *amqp.Error) {
	reply := <-closed
	switch {
	case reply == nil:
		c.lose(reasonClosed, "")
	case c.link.conn.IsClosed():
		c.lose("connection_lost", words(reply))
	default:
		c.blame(reply)
		c.lose("channel_closed_by_broker", words(reply))
	}
}

// Publish implements redrive.Channel. It may be called from several goroutines.
func (c *channel) Publish(ctx context.Context, m redrive.Message) error {
	refused, byStream := check(m, c.r.takes())
	if byStream != nil && m.Dest.SingleQueue() && c.r.control.kind(ctx, m.Dest.RoutingKey) == quarantine.QueueStream {
		refused = byStream
	}
	if refused != nil {
		return refused
	}
	if err := c.admit(ctx, m.Dest); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.stop:
		return c.refuseStopped()
	case <-ctx.Done():
		return notSent(ctx.Err())
	}
	if err := c.hand(ctx, m); err != nil {
		<-c.slots
		return err
	}
	return nil
}

// notSent says that ctx ended before anything was written.
func notSent(err error) error {
	return fmt.Errorf("%w: %w", refuse(reasonCancelled, "the caller gave up"), err)
}

func (c *channel) refuseStopped() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return refuse(c.stopped, "this channel takes no more messages")
}

// hand puts the message into the outbox and on the list of flights in one
// step, so that its number is the one that the broker will count.
func (c *channel) hand(ctx context.Context, m redrive.Message) error {
	head := make([]byte, 0, 2*frameOverhead+frameOverhead+64+len(m.Dest.Exchange)+len(m.Dest.RoutingKey)+len(m.Properties))
	for {
		if err := c.link.tap.out.ready(ctx, c.stop); err != nil {
			switch {
			case errors.Is(err, quarantine.ErrClosed):
				return c.refuseStopped()
			case ctx.Err() != nil:
				return notSent(ctx.Err())
			}
			return refuse(reasonNotConnected, "the connection is lost")
		}
		c.mu.Lock()
		if c.stopped != "" {
			c.mu.Unlock()
			return c.refuseStopped()
		}
		if c.blocked != "" {
			detail := c.blocked
			c.mu.Unlock()
			return refuse(reasonBlocked, "%s", detail)
		}
		ok, err := c.link.tap.out.try(func(add func([]byte), id uint16) {
			add(appendPublish(head, id, m.Dest.Exchange, m.Dest.RoutingKey, m.Properties, len(m.Body)))
			for b := m.Body; len(b) > 0; {
				n := min(len(b), c.body)
				add(appendFrameHead(nil, frameBody, id, n))
				add(b[:n])
				add([]byte{frameEnd})
				b = b[n:]
			}
		})
		if ok {
			c.launched(m)
		}
		c.mu.Unlock()
		if err != nil {
			return refuse(reasonNotConnected, "the connection is lost")
		}
		if ok {
			return nil
		}
	}
}

// launched books a message that is in the outbox. The caller holds mu.
func (c *channel) launched(m redrive.Message) {
	c.flights = append(c.flights, &flight{m: m, at: time.Now()})
	c.unsettled++
	if c.timer == nil {
		c.timer = time.AfterFunc(c.o.ConfirmDeadline, c.expire)
	}
}

// Results implements redrive.Channel.
func (c *channel) Results() <-chan redrive.Result { return c.out }

// Close implements redrive.Channel. It also waits for late confirms, as long
// as their grace lasts.
func (c *channel) Close(ctx context.Context) error {
	c.mu.Lock()
	c.refuseFromNow(reasonClosed)
	if c.unsettled == 0 && c.late == 0 {
		c.finish(reasonClosed, "")
	}
	c.mu.Unlock()
	select {
	case <-c.ended:
	case <-ctx.Done():
		c.lose(reasonClosed, "the channel was closed before the confirm came")
	}
	return nil
}

// refuseFromNow accepts nothing more. The first reason stays. The caller holds
// mu.
func (c *channel) refuseFromNow(reason string) {
	if c.stopped == "" {
		c.stopped = reason
		close(c.stop)
	}
}
