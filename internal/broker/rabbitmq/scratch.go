package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// DeclareScratch makes durable queues for a demo, which must not exist yet,
// and returns how to delete them again. It is the only place where this
// package declares anything.
func DeclareScratch(ctx context.Context, c Config, names ...string) (undo func() error, err error) {
	k, err := newControl(ctx, c, "redrive demo")
	if err != nil {
		return nil, err
	}
	made := []string{}
	undo = func() error {
		var errs []error
		for _, n := range made {
			errs = append(errs, k.ask(context.WithoutCancel(ctx), func(ch *amqp.Channel) error {
				_, err := ch.QueueDelete(n, false, false, false)
				return err
			}))
		}
		k.close()
		return errors.Join(errs...)
	}
	for _, n := range names {
		if err := declareNew(ctx, k, n); err != nil {
			return nil, errors.Join(err, undo())
		}
		made = append(made, n)
	}
	return undo, nil
}

// declareNew refuses a queue that exists: it belongs to somebody.
func declareNew(ctx context.Context, k *control, name string) error {
	_, _, err := k.queue(ctx, name)
	var no *amqp.Error
	switch {
	case err == nil:
		return fmt.Errorf("queue %s exists already and is left alone: delete it, or use another vhost", name)
	case !errors.As(err, &no) || no.Code != amqp.NotFound:
		return classify(err, opening)
	}
	return k.ask(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "classic"})
		return err
	})
}
