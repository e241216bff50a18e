package rabbitmq

import (
	"context"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
)

// control is the connection for questions, beside those that carry messages.
// It is opened again when it was lost.
type control struct {
	cfg  Config
	name string
	turn chan struct{} // holds one token: one question at a time

	mu     sync.Mutex
	link   *link
	id     identity // of the first connection; later ones must be the same cluster
	kinds  map[string]knownKind
	closed bool
}

// noContent is the sink of a connection that carries no messages.
type noContent struct{}

func (noContent) deliver(delivered) {}
func (noContent) back(returned)     {}
func (noContent) settle(confirm)    {}

// newControl checks c and connects, and so learns which broker this is.
func newControl(ctx context.Context, c Config, name string) (*control, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k := &control{cfg: c, name: name, turn: make(chan struct{}, 1), kinds: map[string]knownKind{}}
	l, err := k.connection(ctx)
	if err != nil {
		return nil, err
	}
	k.id = l.id
	return k, nil
}

// connection returns the live connection, opening one when there is none. The
// caller has the turn, or is newControl.
func (k *control) connection(ctx context.Context) (*link, error) {
	k.mu.Lock()
	l, closed := k.link, k.closed
	k.mu.Unlock()
	if closed {
		return nil, quarantine.ErrClosed
	}
	if l != nil && !l.conn.IsClosed() {
		return l, nil
	}
	l, err := dial(ctx, k.cfg, k.name, noContent{}, k.id)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		l.tap.kill()
		return nil, quarantine.ErrClosed
	}
	k.link = l
	return l, nil
}

// ask runs a request on a channel of its own, because a refused request takes
// its channel with it. The error is the library's, or one of package
// quarantine.
func (k *control) ask(ctx context.Context, f func(*amqp.Channel) error) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	l, err := k.connection(ctx)
	if err != nil {
		return err
	}
	return l.call(ctx, func() error {
		ch, err := l.conn.Channel()
		if err != nil {
			return err
		}
		if err := f(ch); err != nil {
			return err
		}
		return ch.Close()
	})
}

// queue asks what the broker says about a queue. Passive, so nothing is made.
func (k *control) queue(ctx context.Context, name string) (ready, consumers int, err error) {
	err = k.ask(ctx, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, false, false, false, false, nil)
		ready, consumers = q.Messages, q.Consumers
		return err
	})
	if replyCode(err) == amqp.NotFound {
		k.forgetKind(name)
	}
	return ready, consumers, err
}

// exchange asks whether an exchange exists; the error is nil when it does.
func (k *control) exchange(ctx context.Context, name string) error {
	return k.ask(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, "direct", false, false, false, false, nil)
	})
}

func (k *control) close() {
	k.mu.Lock()
	l, was := k.link, k.closed
	k.closed, k.link = true, nil
	k.mu.Unlock()
	if l != nil && !was {
		l.close()
	}
}
