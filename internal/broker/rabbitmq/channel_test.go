package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// usual are options for a broker that is well.
var usual = redrive.ChannelOptions{Window: 64, ConfirmDeadline: 20 * time.Second, LateGrace: time.Second}

func refusedFor(t *testing.T, c redrive.Channel, m redrive.Message, reason string) {
	t.Helper()
	err := c.Publish(within(t), m)
	var refused *redrive.RefusedError
	if !errors.Is(err, redrive.ErrNotSent) || !errors.As(err, &refused) || refused.Reason != reason {
		t.Errorf("got %v, want a refusal for %s", err, reason)
	}
}

// publishAll publishes n messages to a queue while the results are read.
func publishAll(t *testing.T, c redrive.Channel, n int, m func(i int) redrive.Message) []redrive.Result {
	t.Helper()
	var done sync.WaitGroup
	ctx := within(t)
	done.Go(func() {
		for i := range n {
			if err := c.Publish(ctx, m(i)); err != nil {
				t.Errorf("publish %d of %d: %v", i, n, err)
				_ = c.Close(ctx) // the results end
				return
			}
		}
	})
	rs := results(t, c, n)
	done.Wait()
	return rs
}

func toQueue(queue string) func(i int) redrive.Message {
	return func(i int) redrive.Message {
		return redrive.Message{Token: uint64(i), Dest: redrive.Destination{RoutingKey: queue}, Properties: []byte{0, 0}, Body: body(i)}
	}
}

func TestP5UnroutableIsNeverConfirmed(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("gone")
	raw.Delete("gone")
	c := mustChannel(t, mustReleaser(t, mustParse(t, url)), usual)
	rs := publishAll(t, c, 1000, toQueue("gone"))
	if got := tally(rs); got["returned no_route"] != 1000 {
		t.Errorf("results: %v", got)
	}
	seen := map[uint64]bool{}
	for _, r := range rs {
		seen[r.Token] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d different tokens", len(seen))
	}
}

// TestP6ReturnsAreMatched: every third message has no route; they are alike but
// for the stamp, and some but for nothing.
func TestP6ReturnsAreMatched(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("here")
	c := mustChannel(t, mustReleaser(t, mustParse(t, url)), redrive.ChannelOptions{Window: 200, ConfirmDeadline: 20 * time.Second})
	rs := publishAll(t, c, 600, func(i int) redrive.Message {
		m := redrive.Message{Token: uint64(i), Dest: redrive.Destination{RoutingKey: "here"}, Properties: []byte{0, 0}, Body: []byte("same")}
		if i%3 == 0 {
			m.Dest.RoutingKey = "absent"
		}
		return m
	})
	for _, r := range rs {
		if want := map[bool]string{true: "returned", false: "confirmed"}[r.Token%3 == 0]; string(r.Resolution) != want {
			t.Errorf("message %d: %+v", r.Token, r)
		}
	}
	if n := len(raw.Drain("here")); n != 400 {
		t.Errorf("%d messages arrived", n)
	}
}

func TestWindowAndContext(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	rawamqp.Dial(t, url).Declare("here")
	rel := mustReleaser(t, mustParse(t, url))
	c := mustChannel(t, rel, redrive.ChannelOptions{Window: 1, ConfirmDeadline: 20 * time.Second})
	// The reader of results holds one, its channel one more, and the window one.
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	sent := make(chan int, 1)
	go func() {
		for i := 0; ; i++ {
			if err := c.Publish(ctx, toQueue("here")(i)); err != nil {
				stopped <- err
				sent <- i
				return
			}
		}
	}()
	eventually(t, "one message has arrived", func() bool {
		r, err := rel.Route(within(t), redrive.Destination{RoutingKey: "here"})
		return err == nil && r.Ready > 0
	})
	cancel()
	if err := <-stopped; !errors.Is(err, redrive.ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("publish: %v", err)
	}
	n := <-sent
	if n > 3 {
		t.Errorf("%d publishes with a window of 1 and nobody reading", n)
	}
	if err := c.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := tally(results(t, c, -1)); got["confirmed"] != n {
		t.Errorf("results: %v of %d", got, n)
	}
	refusedFor(t, c, toQueue("here")(0), "channel_closed")
	if err := c.Close(within(t)); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestNackIsNotConfirmed(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("full", amqpwire.LongField("x-max-length", 2), amqpwire.StringField("x-overflow", "reject-publish"))
	c := mustChannel(t, mustReleaser(t, mustParse(t, url)), redrive.ChannelOptions{Window: 1, ConfirmDeadline: 20 * time.Second})
	got := tally(publishAll(t, c, 10, toQueue("full")))
	kept := len(raw.Drain("full"))
	if got["confirmed"] != kept || got["confirmed"]+got["nacked nacked"] != 10 || kept > 9 {
		t.Errorf("%d kept, results: %v", kept, got)
	}
}

func TestRoute(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("here")
	raw.Publish("", "here", []byte{0, 0}, nil)
	rel := mustReleaser(t, mustParse(t, url))
	for _, tt := range []struct {
		d                redrive.Destination
		exists           bool
		ready, consumers int
	}{
		{redrive.Destination{RoutingKey: "here"}, true, 1, 0},
		{redrive.Destination{RoutingKey: "absent"}, false, -1, -1},
		{redrive.Destination{}, false, -1, -1},
		{redrive.Destination{RoutingKey: strings.Repeat("q", 256)}, false, -1, -1},
		{redrive.Destination{Exchange: "amq.topic", RoutingKey: "k"}, true, -1, -1},
		{redrive.Destination{Exchange: "absent", RoutingKey: "k"}, false, -1, -1},
	} {
		r, err := rel.Route(within(t), tt.d)
		if err != nil || r.Exists != tt.exists || r.Ready != tt.ready || r.Consumers != tt.consumers || r.At.IsZero() {
			t.Errorf("%.20v: %+v, %v", tt.d, r, err)
		}
	}
	_ = rel.Close()
	if _, err := rel.Route(within(t), redrive.Destination{RoutingKey: "here"}); !errors.Is(err, quarantine.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := rel.Open(within(t), usual); !errors.Is(err, quarantine.ErrClosed) {
		t.Errorf("open after Close: %v", err)
	}
}
