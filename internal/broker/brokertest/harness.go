package brokertest

import (
	"testing"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// Raw is a message as it is on the wire.
type Raw struct {
	Exchange   string
	RoutingKey string
	Properties []byte // property flags and list, see package amqpwire
	Body       []byte
}

// Harness connects the suite with one broker. Its functions fail t when they
// cannot do what they should, and leave no goroutine and no connection behind.
// Those without the word "optional" are required.
type Harness struct {
	// NewSource and NewReleaser open the driver. The suite closes what it opened.
	NewSource   func(t testing.TB) quarantine.Source
	NewReleaser func(t testing.TB) redrive.Releaser

	// NewLayout, optional, opens the driver that makes queues. The suite closes it.
	NewLayout func(t testing.TB) quarantine.Layout

	// NewQueue declares an empty durable queue under a new name and returns the
	// name. It has no limits, no time-to-live and no dead-letter target.
	NewQueue func(t testing.TB) string
	// NewExchange declares a direct exchange under a new name that leads the
	// routing key to the queue, and returns the name.
	NewExchange func(t testing.TB, queue, key string) string
	// DeleteQueue deletes a queue with everything in it.
	DeleteQueue func(t testing.TB, queue string)

	// Publish stores messages in this order, exactly as they are and past the
	// driver. When it returns, the broker has confirmed them.
	Publish func(t testing.TB, ms ...Raw)
	// Drain takes everything out of a queue past the driver, in order, exactly
	// as the broker has it. It is called when no session is open on the queue.
	Drain func(t testing.TB, queue string) []Raw
	// DeadLetter publishes a message to a new queue, rejects it there as a
	// consumer would, and returns the name of that queue and of the one that the
	// message was dead-lettered to.
	DeadLetter func(t testing.TB, properties, body []byte) (died, holds string)

	// Exact tells that the broker hands on properties byte for byte, with
	// header order, duplicate names and type L. RabbitMQ does until 3.12; later
	// versions sort headers and keep the first of a name. Either way, what the
	// driver hands on is compared with what the broker makes of the same bytes
	// past the driver.
	Exact bool

	// QueueOf, by kind, returns a new empty queue of that kind, for each kind
	// that the broker has. Those of quarantine.Depth are the keys.
	QueueOf map[string]func(t testing.TB) string
	// FullQueue, optional, returns a new queue that rejects every publish.
	FullQueue func(t testing.TB) string
	// NewRefused, optional, opens a source that the broker denies access to for
	// good, such as one with a wrong password. The driver may find out when it
	// opens the source, and then returns the error here, or on Source.Open.
	NewRefused func(t testing.TB) (quarantine.Source, error)
	// Stall, optional, makes the broker answer nothing until resume is called.
	// Connections stay open. Resume is idempotent.
	Stall func(t testing.TB) (resume func())
	// Cut, optional, breaks every connection that the driver has to the broker,
	// without a goodbye. New connections work.
	Cut func(t testing.TB)
}
