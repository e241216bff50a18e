package rabbitmq

import (
	"context"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// benchMessage is a message as releases have them: 1 KiB, stamped, to a queue.
func benchMessage(b *testing.B, queue string) redrive.Message {
	b.Helper()
	props, err := amqpwire.Build(amqpwire.View{
		Present:     amqpwire.ContentType | amqpwire.Headers | amqpwire.DeliveryMode | amqpwire.MessageID,
		ContentType: "application/json", DeliveryMode: 2, MessageID: "3f0c9bb2-52a7-4bd4-8c53-1c1d53cb3a1e",
		Headers: []amqpwire.Field{
			amqpwire.StringField("x-redrive-generation", "01J9ZK6V7Q8R9S0T1V2W3X4Y5Z"),
			amqpwire.StringField("x-redrive-envelope", "01J9ZK6V7QABCDEFGHJKMNPQRS"),
			amqpwire.StringField("x-redrive-intent", "17/1"),
			amqpwire.StringField("x-redrive-mac", "000102030405060708090a0b0c0d0e0f"),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return redrive.Message{Dest: redrive.Destination{RoutingKey: queue}, Properties: props, Body: make([]byte, 1024)}
}

// release publishes n messages and waits for their confirms.
func release(b *testing.B, c redrive.Channel, m redrive.Message, n int) {
	b.Helper()
	go func() {
		for range n {
			if err := c.Publish(context.Background(), m); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	for range n {
		if r, ok := <-c.Results(); !ok || r.Resolution != "confirmed" {
			b.Fatalf("%+v", r)
		}
	}
}

func BenchmarkRelease(b *testing.B) {
	url := rabbittest.Shared(b).VHost(b)
	rawamqp.Dial(b, url).Declare("bench", amqpwire.LongField("x-max-length", 10000))
	c := mustChannel(b, mustReleaser(b, mustParse(b, url)), redrive.ChannelOptions{Window: 256, ConfirmDeadline: time.Minute})
	m := benchMessage(b, "bench")
	b.ReportAllocs()
	b.ResetTimer()
	release(b, c, m, b.N)
}

func BenchmarkCapture(b *testing.B) {
	url := rabbittest.Shared(b).VHost(b)
	rawamqp.Dial(b, url).Declare("bench")
	c := mustChannel(b, mustReleaser(b, mustParse(b, url)), redrive.ChannelOptions{Window: 256, ConfirmDeadline: time.Minute})
	release(b, c, benchMessage(b, "bench"), b.N)
	s := mustSession(b, mustSource(b, mustParse(b, url)), "bench", 1000)
	b.ReportAllocs()
	b.ResetTimer()
	var batch []quarantine.Receipt
	for i := range b.N {
		d, ok := <-s.Deliveries()
		if !ok {
			b.Fatal(s.Err())
		}
		if batch = append(batch, d.Receipt); len(batch) == 500 || i == b.N-1 {
			if err := s.Settle(context.Background(), batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}
