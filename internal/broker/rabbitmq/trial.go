package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/redrive"
)

// The broker tells whether it takes a publish only when one is tried, and
// closes the channel when it does not: no permission to write (403), an
// exchange for the broker's own use (403), or none of that name (404). So a
// trial is made on another channel, in a transaction that is rolled back:
// nothing arrives anywhere.
//
// An exchange of a plugin's kind may act on a message before the transaction
// ends. There the trial also names a user who is not logged in, which the
// broker refuses with 406 before it looks for a route, and after it has looked
// at everything that is asked here.

// trialUser stands in the broker's log when it refuses the trial.
const trialUser = "redrive asks whether it may publish here: nothing is sent"

// trial asks on a connection of its own whether the broker would take publishes
// to these destinations, see link.trial.
func (r *Releaser) trial(ctx context.Context, ds ...redrive.Destination) ([]*redrive.RefusedError, error) {
	l, err := dial(ctx, r.control.cfg, "redrive release", noContent{}, r.control.id)
	if err != nil {
		return nil, err
	}
	defer l.close()
	return l.trial(ctx, ds...)
}

// trial asks whether the broker would take publishes to these destinations. For
// each one that it would not, there is the reason; nil is yes, or unknown. The
// error is a RefusedError when the broker is out of a resource, and otherwise
// says why there is no answer. With an error the connection is of no more use.
func (l *link) trial(ctx context.Context, ds ...redrive.Destination) ([]*redrive.RefusedError, error) {
	out := make([]*redrive.RefusedError, len(ds))
	if !l.id.atLeast(0) {
		return out, nil
	}
	blocked := make(chan string, 1)
	over := make(chan struct{})
	defer close(over)
	go l.watchTrial(l.conn.NotifyBlocked(make(chan amqp.Blocking, 1)), blocked, over)
	for i, d := range ds {
		err := l.call(ctx, func() error { return tryPublish(ctx, l.conn, d) })
		select {
		case reason := <-blocked:
			return nil, refuse(reasonBlocked, "%s", outOf(reason))
		default:
		}
		switch replyCode(err) {
		case amqp.NotFound:
			out[i] = refuse(reasonNoExchange, "%s", words(err))
		case amqp.AccessRefused:
			out[i] = refuse(reasonNoPermission, "%s", words(err))
		case 0:
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// watchTrial gives the connection up when the broker reads no more from it: it
// will not answer before it has more of what it is out of. It goes on reading
// what is notified, which the library wants, until the connection ends.
func (l *link) watchTrial(notified <-chan amqp.Blocking, blocked chan<- string, over <-chan struct{}) {
	for b := range notified {
		select {
		case <-over:
		default:
			if b.Active {
				select {
				case blocked <- b.Reason:
				default:
				}
				l.tap.kill()
			}
		}
	}
}

// outOf says why a broker takes no publishes.
func outOf(reason string) string { return "the broker is out of a resource: " + cut(reason) }

// tryPublish is one trial. Its error is the broker's reply.
func tryPublish(ctx context.Context, conn *amqp.Connection, d redrive.Destination) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Tx(); err != nil {
		return err
	}
	var p amqp.Publishing
	if d.Exchange != "" && !strings.HasPrefix(d.Exchange, "amq.") {
		p.UserId = trialUser
	}
	err = ch.PublishWithContext(ctx, d.Exchange, d.RoutingKey, false, false, p)
	if err == nil {
		err = ch.TxRollback()
	}
	if err == nil {
		return ch.Close()
	}
	if errors.Is(err, amqp.ErrClosed) { // the reply came before the request
		if reply := <-closed; reply != nil {
			return reply
		}
	}
	return err
}

// door is what a channel knows of publishing to an exchange.
type door struct {
	perKey  bool // the broker asks for a permission for each routing key
	any     reply
	answers map[string]reply // by routing key, when perKey
}

// reply is what a trial brought, and when.
type reply struct {
	refused *redrive.RefusedError // nil is yes
	at      time.Time
}

const (
	// maxAnswers bounds how many answers a door keeps.
	maxAnswers = 10_000
	// refusedAge is for how long a refusal is repeated without asking again.
	refusedAge = 5 * time.Second
)

// known returns what is known of a destination. The caller holds mu.
func (c *channel) known(d redrive.Destination) (reply, bool) {
	at := c.doors[d.Exchange]
	if at == nil {
		return reply{}, false
	}
	a, ok := at.any, true
	if at.perKey {
		a, ok = at.answers[d.RoutingKey]
	}
	return a, ok && (a.refused == nil || time.Since(a.at) < refusedAge)
}

// admit asks once for each exchange, and where permissions look at routing
// keys once for each of those, whether the broker takes publishes there. One
// that it does not take would cost the channel, and nobody would know what
// became of the rest of the window.
func (c *channel) admit(ctx context.Context, d redrive.Destination) error {
	c.mu.Lock()
	a, ok := c.known(d)
	c.mu.Unlock()
	if !ok {
		var err error
		if a, err = c.ask(ctx, d); err != nil {
			return err
		}
	}
	if a.refused != nil {
		return a.refused
	}
	return nil
}

func (c *channel) ask(ctx context.Context, d redrive.Destination) (reply, error) {
	// A key that nobody has a permission for tells whether keys matter.
	other := redrive.Destination{Exchange: d.Exchange, RoutingKey: "redrive." + rand.Text()}
	answers, err := c.r.trial(ctx, d, other)
	var refused *redrive.RefusedError
	switch {
	case ctx.Err() != nil:
		return reply{}, notSent(ctx.Err())
	case errors.As(err, &refused):
		return reply{}, refused
	case err != nil:
		return reply{}, fmt.Errorf("%w: %w", refuse(reasonNotConnected, "cannot ask whether the destination takes messages"), classify(err, opening))
	}
	a := reply{answers[0], time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.doors[d.Exchange]
	if at == nil || len(at.answers) >= maxAnswers {
		at = &door{answers: map[string]reply{}}
		c.doors[d.Exchange] = at
	}
	at.any = a
	at.perKey = at.perKey || ofKey(answers[0]) || ofKey(answers[1])
	at.answers[d.RoutingKey] = a
	return a, nil
}

// ofKey reports whether a refusal speaks of the routing key, so that another
// key may be taken.
func ofKey(r *redrive.RefusedError) bool {
	return r != nil && strings.Contains(r.Detail, "access to topic '")
}
