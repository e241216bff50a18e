package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine/outcome"
)

// order is a message as the worker of the shop leaves it when it gives up.
func order(n int, reason string) amqp.Publishing {
	return amqp.Publishing{
		MessageId: orderID(n), Type: "order.placed", ContentType: "application/json",
		Headers: amqp.Table{"x-operation-id": fmt.Sprintf("op-%04d", n), "x-death-reason": reason, "x-retry-count": int32(2)},
		Body:    fmt.Appendf(nil, `{"order_id":"o-%04d","sku":"SKU-%d","quantity":%d}`, n, n%7, 1+n%5),
	}
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

func orderID(n int) string { return fmt.Sprintf("m-%04d", n) }

// orders makes n orders that died of one reason, numbered from first on.
func orders(first, n int, reason string) []amqp.Publishing {
	out := make([]amqp.Publishing, n)
	for i := range out {
		out[i] = order(first+i, reason)
	}
	return out
}

// position is that of a released message, -1 when it carries no stamp.
func position(d amqp.Delivery) int {
	intent, _ := d.Headers["x-redrive-intent"].(string)
	pos, _, _ := strings.Cut(intent, "/")
	n, err := strconv.Atoi(pos)
	if err != nil {
		return -1
	}
	return n
}

// die dead-letters messages: published to the queue, and rejected there.
func (r *rabbit) die(queue string, messages ...amqp.Publishing) {
	r.t.Helper()
	w := r.work(queue, func(*amqp.Channel, amqp.Delivery) verdict { return refuse })
	before := r.ready("orders.dlq")
	r.publish(queue, messages...)
	// The broker dead-letters on its own time, and a rejection that it has not
	// read when the connection closes never happened.
	eventually(r.t, "all messages to be dead-lettered", func() bool {
		_, refused := w.counts()
		return refused == len(messages) && r.ready("orders.dlq") == before+len(messages)
	})
	w.stop()
}

// outcomes is the queue in which consumers report.
type outcomes struct{ t testing.TB }

// declareOutcomes makes the exchange and the queue of the outcome contract.
func (r *rabbit) declareOutcomes() outcomes {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	if err := ch.ExchangeDeclare(outcome.Exchange, "fanout", true, false, false, false, nil); err != nil {
		r.t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(outcome.Queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		r.t.Fatal(err)
	}
	if err := ch.QueueBind(outcome.Queue, "", outcome.Exchange, false, nil); err != nil {
		r.t.Fatal(err)
	}
	return outcomes{r.t}
}

// stampOf is the report that a consumer makes about a delivery.
func stampOf(d amqp.Delivery, what string) map[string]string {
	m := map[string]string{"outcome": what, "consumer_version": "2.4.1", "effect": "shipment " + d.MessageId}
	for _, name := range []string{"generation", "envelope", "intent", "mac"} {
		m[name], _ = d.Headers["x-redrive-"+name].(string)
	}
	return m
}

// report publishes an outcome, as any consumer in any language would.
func (o outcomes) report(ch *amqp.Channel, d amqp.Delivery, what string) {
	o.send(ch, stampOf(d, what))
}

func (o outcomes) send(ch *amqp.Channel, report map[string]string) {
	body, err := json.Marshal(report)
	if err != nil {
		o.t.Error(err)
		return
	}
	if err := ch.PublishWithContext(context.Background(), outcome.Exchange, "", false, false, amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent}); err != nil {
		o.t.Error(err)
	}
}
