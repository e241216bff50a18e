package rabbitmq

import (
	"context"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
)

// A client is not told of which kind a queue is. But only a stream takes the
// consumer argument x-stream-offset; for other queues the broker refuses the
// consumer, and names their kind in doing so. A consumer at "next" of a stream
// gets nothing that is there already. So the question costs a channel and a
// line in the broker's log, needs no more than what capture needs, and takes
// no message.

const (
	offsetArgument = "x-stream-offset"
	kindConsumer   = "redrive.kind"

	// kindAge is how long an answer is believed. A queue can be deleted and
	// made again as another kind.
	kindAge = 10 * time.Minute
	// maxKinds bounds how many answers are kept.
	maxKinds = 1000
)

// knownKind is an answer that is kept.
type knownKind struct {
	kind string
	at   time.Time
}

// brokerKinds maps the broker's words for kinds of queues.
var brokerKinds = map[string]string{
	"rabbit_classic_queue": quarantine.QueueClassic,
	"rabbit_quorum_queue":  quarantine.QueueQuorum,
	"rabbit_stream_queue":  quarantine.QueueStream,
}

// askKind finds out the kind of a queue on a channel that is not needed any
// more. It is "" without an error when the broker does not say.
func askKind(ch *amqp.Channel, queue string) (string, error) {
	if err := ch.Qos(1, 0, false); err != nil { // without, no stream has consumers
		return "", err
	}
	_, err := ch.Consume(queue, kindConsumer, false, false, false, false, amqp.Table{offsetArgument: "next"})
	switch replyCode(err) {
	case amqp.PreconditionFailed:
		return kindIn(err), nil
	case amqp.AccessRefused, amqp.ResourceLocked:
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return quarantine.QueueStream, ch.Cancel(kindConsumer, false)
}

// kindIn reads the kind out of the refusal. It is "" where a long name leaves
// the reply no room for it.
func kindIn(err error) string {
	_, word, _ := strings.Cut(words(err), " of queue type ")
	for more := true; more; { // a queue may be named like that
		var next string
		if _, next, more = strings.Cut(word, " of queue type "); more {
			word = next
		}
	}
	return brokerKinds[word]
}

// tellsKinds reports whether the broker answers the question. One that ignored
// the argument would start to deliver.
func (i identity) tellsKinds() bool { return i.atLeast(9) }

// atLeast reports whether this is RabbitMQ in version 3.minor or a later one.
func (i identity) atLeast(minor int) bool {
	var x, y int
	if n, _ := fmt.Sscanf(i.version, "%d.%d", &x, &y); n != 2 || i.product != "RabbitMQ" {
		return false
	}
	return x > 3 || x == 3 && y >= minor
}

// kind is the kind of a queue as it was when it was last asked about, "" when
// the broker does not say.
func (k *control) kind(ctx context.Context, queue string) string {
	if !k.id.tellsKinds() {
		return ""
	}
	k.mu.Lock()
	known, ok := k.kinds[queue]
	k.mu.Unlock()
	if ok && time.Since(known.at) < kindAge {
		return known.kind
	}
	kind := ""
	err := k.ask(ctx, func(ch *amqp.Channel) (err error) {
		kind, err = askKind(ch, queue)
		return err
	})
	if err != nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kinds) >= maxKinds {
		clear(k.kinds)
	}
	k.kinds[queue] = knownKind{kind, time.Now()}
	return kind
}

// forgetKind is called when a queue was found missing.
func (k *control) forgetKind(queue string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kinds, queue)
}
