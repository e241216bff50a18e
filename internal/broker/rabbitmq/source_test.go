package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

func TestP14SettleRemovesExactlyWhatIsNamed(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	for i := range 10 {
		raw.Publish("", "dead", []byte{0, 0}, body(i))
	}
	s := mustSession(t, mustSource(t, mustParse(t, url)), "dead", 100)
	ds := receive(t, s, 10)
	pick := func(is ...int) []quarantine.Receipt {
		var rs []quarantine.Receipt
		for _, i := range is {
			rs = append(rs, ds[i].Receipt)
		}
		return rs
	}
	// 0, 1 and 2 can go by one frame, 5 and 8 cannot; given out of order.
	if err := s.Settle(within(t), pick(8, 1, 0, 5, 2)); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(within(t), pick(1)); err == nil || s.Err() != nil {
		t.Errorf("a receipt settled twice: %v; session: %v", err, s.Err())
	}
	if err := s.Settle(within(t), nil); err != nil {
		t.Errorf("nothing to settle: %v", err)
	}
	if err := s.Return(within(t), pick(9)); err != nil {
		t.Fatal(err)
	}
	again := receive(t, s, 1)[0]
	if !again.Redelivered || !bytes.Equal(again.Body, body(9)) {
		t.Errorf("returned message came back as %+v", again)
	}
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); !errors.Is(err, quarantine.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	var left []string
	for _, m := range raw.Drain("dead") {
		left = append(left, string(m.Body))
	}
	if got := strings.Join(left, ", "); got != "message 3, message 4, message 6, message 7, message 9" {
		t.Errorf("left in the queue: %s", got)
	}
}

func TestPrefetchBoundsAndCanBeRaised(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	for i := range 50 {
		raw.Publish("", "dead", []byte{0, 0}, body(i))
	}
	src := mustSource(t, mustParse(t, url))
	s := mustSession(t, src, "dead", 1)
	first := receive(t, s, 1)
	eventually(t, "49 messages are ready", func() bool {
		d, err := src.Depth(within(t), "dead")
		return err == nil && d.Ready == 49 && d.Consumers == 1
	})
	if err := s.SetPrefetch(within(t), 20); err != nil {
		t.Fatal(err)
	}
	ds := receive(t, s, 19)
	if err := s.Settle(within(t), append(receipts(ds), first[0].Receipt)); err != nil {
		t.Fatal(err)
	}
	ds = receive(t, s, 19)
	for i, d := range ds {
		if want := body(20 + i); !bytes.Equal(d.Body, want) {
			t.Errorf("delivery %d is %q, want %q", i, d.Body, want)
		}
	}
	for _, n := range []int{0, -1, 1001, 65536} {
		if err := s.SetPrefetch(within(t), n); (err == nil) != (n == 0) {
			t.Errorf("prefetch %d: %v", n, err)
		}
		if _, err := src.Open(within(t), quarantine.SessionOptions{Queue: "dead", Prefetch: n}); err == nil {
			t.Errorf("a session with prefetch %d was opened", n)
		}
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

func TestOpenSaysWhyNot(t *testing.T) {
	node := rabbittest.Shared(t)
	url := node.VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	src := mustSource(t, mustParse(t, url))
	for _, tt := range []struct {
		queue string
		want  error
		words string
	}{
		{"absent", quarantine.ErrQueueMissing, "404"},
		{"", quarantine.ErrQueueMissing, "no queue name"},
		{strings.Repeat("q", 256), quarantine.ErrQueueMissing, "256 bytes"},
	} {
		_, err := src.Open(within(t), quarantine.SessionOptions{Queue: tt.queue, Prefetch: 1})
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("open %.10q: %v", tt.queue, err)
		}
		_, err = src.Depth(within(t), tt.queue)
		if !errors.Is(err, tt.want) {
			t.Errorf("depth of %.10q: %v", tt.queue, err)
		}
	}
	for name, change := range map[string]func(*Config){
		"wrong password": func(c *Config) { c.Password = func() (string, error) { return "hunter2canary", nil } },
		"unknown vhost":  func(c *Config) { c.VHost = "absent" },
	} {
		c := mustParse(t, url)
		change(&c)
		_, err := NewSource(within(t), c)
		if !errors.Is(err, quarantine.ErrRefused) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := mustParse(t, url)
	c.Hosts = []string{"127.0.0.1:1"}
	if _, err := NewReleaser(within(t), c); !errors.Is(err, quarantine.ErrUnreachable) {
		t.Errorf("nobody listens: %v", err)
	}
	c.Hosts = append(c.Hosts, node.Addr())
	if _, err := NewReleaser(within(t), c); err != nil {
		t.Errorf("the second host listens: %v", err)
	}
}

func TestP38SessionEndsWhenItsQueueIsDeleted(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	raw.Publish("", "dead", []byte{0, 0}, nil)
	s := mustSession(t, mustSource(t, mustParse(t, url)), "dead", 10)
	ds := receive(t, s, 1)
	raw.Delete("dead")
	for range s.Deliveries() {
		t.Error("a delivery from nowhere")
	}
	if !errors.Is(s.Err(), quarantine.ErrUnreachable) {
		t.Errorf("session: %v", s.Err())
	}
	if err := s.Settle(within(t), receipts(ds)); !errors.Is(err, quarantine.ErrUnreachable) {
		t.Errorf("settle: %v", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestQueueNamesArePassedVerbatim(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	for _, name := range []string{"a/b c%é", strings.Repeat("n", 255)} {
		raw.Declare(name)
		raw.Publish("", name, []byte{0, 0}, nil)
		src := mustSource(t, mustParse(t, url))
		d := receive(t, mustSession(t, src, name, 1), 1)[0]
		if d.Queue != name || d.RoutingKey != name || d.Body == nil && len(d.Body) != 0 || !bytes.Equal(d.Properties, []byte{0, 0}) {
			t.Errorf("got %+v", d)
		}
	}
}

// TestDeliveryCountOfThePublisher: a classic queue counts no deliveries, so a
// header of that name is whatever its publisher wrote.
func TestDeliveryCountOfThePublisher(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{
		{Name: amqpwire.HeaderDeliveryCount, Value: amqpwire.Value{Kind: amqpwire.Int64, Data: int64(7)}}}})
	if err != nil {
		t.Fatal(err)
	}
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead")
	raw.Publish("", "dead", props, nil)
	s := mustSession(t, mustSource(t, mustParse(t, url)), "dead", 1)
	if d := receive(t, s, 1)[0]; d.DeliveryCount != -1 {
		t.Errorf("the count is %d, and nobody counts here", d.DeliveryCount)
	}
}
