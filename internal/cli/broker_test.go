package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
	wirestamp "github.com/redrivehq/redrive/quarantine/stamp"
)

// withBroker opens the broker file of the data directory, which nobody else
// may hold at that time.
func withBroker(fn func(*local.Broker) error) error {
	b, err := local.Open(filepath.Join(os.Getenv("REDRIVE_DATA"), "broker.db"), local.Options{})
	if err != nil {
		return err
	}
	return errors.Join(fn(b), b.Close())
}

// seedFile declares queues and kills messages.
type seedFile struct {
	Queues   []local.QueueSpec `json:"queues"`
	Messages []seedMessage     `json:"messages"`
}

// seedMessage is published to Queue and rejected there, so that the broker
// dead-letters it; with Alive it stays. %d in texts is its number, from 1.
type seedMessage struct {
	Queue     string            `json:"queue"`
	Repeat    int               `json:"repeat"`
	Alive     bool              `json:"alive"`
	ID        string            `json:"id"`
	Operation string            `json:"operation"`
	Type      string            `json:"type"`
	Reason    string            `json:"reason"`
	Error     string            `json:"error"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Base64    string            `json:"base64"`
}

func (m *seedMessage) message(n int) (local.Message, error) {
	text := func(s string) string { return strings.ReplaceAll(s, "%d", strconv.Itoa(n)) }
	v := amqpwire.View{Present: amqpwire.ContentType | amqpwire.DeliveryMode | amqpwire.Headers,
		ContentType: "application/json", DeliveryMode: 2}
	if m.ID != "" {
		v.Present |= amqpwire.MessageID
		v.MessageID = text(m.ID)
	}
	if m.Type != "" {
		v.Present |= amqpwire.Type
		v.Type = text(m.Type)
	}
	for _, h := range [][2]string{{"x-operation-id", m.Operation}, {"x-death-reason", m.Reason}, {"x-last-error", m.Error}} {
		if h[1] != "" {
			v.Headers = append(v.Headers, amqpwire.StringField(h[0], text(h[1])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		v.Headers = append(v.Headers, amqpwire.StringField(name, text(m.Headers[name])))
	}
	body := []byte(text(m.Body))
	if m.Base64 != "" {
		var err error
		if body, err = base64.StdEncoding.DecodeString(m.Base64); err != nil {
			return local.Message{}, err
		}
	}
	props, err := amqpwire.Build(v)
	return local.Message{RoutingKey: m.Queue, Properties: props, Body: body}, err
}

// seed is the command "seed FILE".
func seed(ctx context.Context, args []string) error {
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var f seedFile
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	return withBroker(func(b *local.Broker) error {
		for _, q := range f.Queues {
			if err := b.Declare(ctx, q); err != nil {
				return err
			}
		}
		for _, m := range f.Messages {
			if err := m.publish(ctx, b); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *seedMessage) publish(ctx context.Context, b *local.Broker) error {
	n := max(m.Repeat, 1)
	for i := range n {
		msg, err := m.message(i + 1)
		if err != nil {
			return err
		}
		outs, err := b.Publish(ctx, msg)
		if err != nil {
			return err
		}
		if outs[0].Resolution != event.Confirmed {
			return fmt.Errorf("%s: %s", outs[0].Resolution, outs[0].Reason)
		}
	}
	if m.Alive {
		return nil
	}
	c, err := b.Consume(ctx, m.Queue, 100)
	if err != nil {
		return err
	}
	for range n {
		d := <-c.Deliveries()
		if err := c.Reject(ctx, d.Receipt); err != nil {
			return err
		}
	}
	return c.Close(ctx)
}

// worker is a consumer of the queue orders: it reports on stdout, one line for
// each message, in the form that "redrive outcome import" reads.
type worker struct {
	b      *local.Broker
	c      *local.Consumer
	every  int    // each such message fails and goes to the dead-letter queue
	report string // what it says about the others, "" for nothing
}

// consume is the command "consume N [fail-every K] [report OUTCOME]".
func consume(ctx context.Context, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	w := worker{}
	for rest := args[1:]; len(rest) > 1; rest = rest[2:] {
		switch rest[0] {
		case "fail-every":
			if w.every, err = strconv.Atoi(rest[1]); err != nil {
				return err
			}
		case "report":
			w.report = rest[1]
		default:
			return fmt.Errorf("unknown word %q", rest[0])
		}
	}
	return withBroker(func(b *local.Broker) error {
		w.b = b
		if w.c, err = b.Consume(ctx, "orders", 1); err != nil {
			return err
		}
		for i := range n {
			select {
			case d := <-w.c.Deliveries():
				if err := w.handle(ctx, i+1, d); err != nil {
					return err
				}
			case <-ctx.Done():
				return fmt.Errorf("only %d of %d messages came", i, n)
			}
		}
		return w.c.Close(ctx)
	})
}

func (w *worker) handle(ctx context.Context, i int, d quarantine.Delivery) error {
	if w.every > 0 && i%w.every == 0 {
		// A worker copies what it gives up, with headers and stamp, and settles
		// the original only after the copy is confirmed.
		e := amqpwire.Edit(d.Properties)
		e.Set(amqpwire.StringField("x-death-reason", "unknown_sku"))
		props, err := e.Bytes()
		if err != nil {
			return err
		}
		if _, err := w.b.Publish(ctx, local.Message{RoutingKey: "orders.dlq", Properties: props, Body: d.Body}); err != nil {
			return err
		}
	} else if w.report != "" {
		v := amqpwire.Parse(d.Properties)
		st, mac, present, err := wirestamp.Read(v)
		if err != nil || !present {
			return fmt.Errorf("message %q has no stamp to report with: %w", v.MessageID, err)
		}
		r := outcome.Report{Stamp: st, MAC: mac, Outcome: event.Outcome(w.report), Operation: v.MessageID, ConsumerVersion: "worker 2"}
		line, err := r.Encode()
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
	}
	return w.c.Ack(ctx, d.Receipt)
}

// depth is the command "depth QUEUE".
func depth(ctx context.Context, args []string) error {
	return withBroker(func(b *local.Broker) error {
		s, err := b.Stats(ctx, args[0])
		if err == nil {
			fmt.Println(s.Ready)
		}
		return err
	})
}
