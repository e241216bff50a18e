package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// TestP11CutMakesTheWindowAmbiguous: whenever the connection is cut, all in flight are
// ambiguous, and every confirmed message is there.
func TestP11CutMakesTheWindowAmbiguous(t *testing.T) {
	node := rabbittest.Shared(t)
	w := &world{node: node, url: node.VHost(t)}
	rel := mustReleaser(t, w.config(t))
	for round := range 20 {
		q := w.declare(t, "here")
		c := mustChannel(t, rel, redrive.ChannelOptions{Window: 256, ConfirmDeadline: 20 * time.Second})
		accepted := make(chan int, 1)
		go func() {
			n := 0
			for c.Publish(context.Background(), toQueue(q)(n)) == nil {
				n++
			}
			accepted <- n
		}()
		rs := results(t, c, 1+round*37)
		w.cut(t)
		rs = append(rs, results(t, c, -1)...)
		n := <-accepted
		got := tally(rs)
		if len(rs) != n || got["confirmed"]+got["ambiguous connection_lost"] != n {
			t.Errorf("%d accepted, results: %v", n, got)
		}
		there := map[string]bool{}
		w.raw(t, func(raw *rawamqp.Client) {
			for _, m := range raw.Drain(q) {
				there[string(m.Body)] = true
			}
		})
		for _, r := range rs {
			if r.Resolution == "confirmed" && !there[string(body(int(r.Token)))] {
				t.Errorf("message %d is confirmed and not there", r.Token)
			}
		}
		refusedFor(t, c, toQueue(q)(0), "not_connected")
	}
}

func TestStalledBroker(t *testing.T) {
	node := rabbittest.Start(t)
	raw := rawamqp.Dial(t, node.URL())
	raw.Declare("here")
	raw.Declare("dead")
	raw.Publish("", "dead", []byte{0, 0}, nil)
	conf := mustParse(t, node.URL())
	rel, src := mustReleaser(t, conf), mustSource(t, conf)
	late := mustChannel(t, rel, redrive.ChannelOptions{Window: 10, ConfirmDeadline: 500 * time.Millisecond, LateGrace: time.Minute})
	brief := mustChannel(t, rel, redrive.ChannelOptions{Window: 10, ConfirmDeadline: 500 * time.Millisecond, LateGrace: 100 * time.Millisecond})
	s := mustSession(t, src, "dead", 1)
	ds := receive(t, s, 1)

	pause(t, node)
	for i := range 5 {
		for _, c := range []redrive.Channel{late, brief} {
			if err := c.Publish(within(t), toQueue("here")(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []redrive.Channel{late, brief} {
		if got := tally(results(t, c, 5)); got["ambiguous confirm_deadline"] != 5 {
			t.Errorf("after the deadline: %v", got)
		}
		refusedFor(t, c, toQueue("here")(9), "channel_closed")
	}
	if rs := results(t, brief, -1); len(rs) != 0 {
		t.Errorf("after the grace: %v", rs)
	}
	// A settlement that nobody answers is an error, and the session is over.
	ctx, cancel := context.WithTimeout(within(t), 300*time.Millisecond)
	defer cancel()
	if err := s.Settle(ctx, receipts(ds)); !errors.Is(err, quarantine.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("settle: %v", err)
	}
	for range s.Deliveries() {
		t.Error("a delivery from a stalled broker")
	}
	short := conf
	short.DialTimeout, short.RPCTimeout = 300*time.Millisecond, 300*time.Millisecond
	if _, err := NewSource(within(t), short); !errors.Is(err, quarantine.ErrUnreachable) {
		t.Errorf("dial: %v", err)
	}

	node.Resume(t)
	if got := tally(results(t, late, -1)); got["late confirmed"] != 5 {
		t.Errorf("late results: %v", got)
	}
	if n := len(raw.Drain("here")); n < 5 {
		t.Errorf("%d messages arrived", n)
	}
}

func TestRequestsToAStalledBrokerEnd(t *testing.T) {
	node := rabbittest.Start(t)
	conf := mustParse(t, node.URL())
	conf.RPCTimeout = 300 * time.Millisecond
	src, rel := mustSource(t, conf), mustReleaser(t, conf)
	pause(t, node)
	defer node.Resume(t)
	if d, err := src.Depth(within(t), "here"); !errors.Is(err, quarantine.ErrUnreachable) || d != (quarantine.Depth{}) {
		t.Errorf("depth: %+v, %v", d, err)
	}
	if _, err := rel.Route(within(t), redrive.Destination{RoutingKey: "here"}); !errors.Is(err, quarantine.ErrUnreachable) {
		t.Errorf("route: %v", err)
	}
}

// alarm makes the broker believe that it is out of memory until over is called,
// or t ends.
func alarm(t testing.TB, node *rabbittest.Node) (over func()) {
	t.Helper()
	var once sync.Once
	over = func() { once.Do(func() { node.Ctl(t, "set_vm_memory_high_watermark", "0.6") }) }
	t.Cleanup(over)
	node.Ctl(t, "set_vm_memory_high_watermark", "0.000001")
	return over
}

// TestP33AlarmBlocksPublishersOnly: a broker that is out of memory stops reading
// from publishers; capture goes on.
func TestP33AlarmBlocksPublishersOnly(t *testing.T) {
	node := rabbittest.Shared(t)
	address := node.VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here")
	raw.Declare("dead")
	for i := range 5 {
		raw.Publish("", "dead", []byte{0, 0}, body(i))
	}
	conf := mustParse(t, address)
	conf.RPCTimeout = 2 * time.Second
	rel, src := mustReleaser(t, conf), mustSource(t, conf)
	c := mustChannel(t, rel, redrive.ChannelOptions{Window: 100, ConfirmDeadline: time.Second})
	over := alarm(t, node)
	if err := c.Publish(within(t), toQueue("here")(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "publishes are refused as blocked", func() bool {
		var refused *redrive.RefusedError
		err := c.Publish(within(t), toQueue("here")(1))
		return errors.As(err, &refused) && (refused.Reason == "blocked" || refused.Reason == "channel_closed")
	})
	rs := results(t, c, -1)
	for _, r := range rs {
		if r.Resolution != "ambiguous" || r.Reason != "blocked" || !strings.Contains(r.Detail, "memory") {
			t.Errorf("%+v", r)
		}
	}
	s := mustSession(t, src, "dead", 10)
	if err := s.Settle(within(t), receipts(receive(t, s, 5))); err != nil {
		t.Errorf("settle during the alarm: %v", err)
	}
	over()
	again := mustChannel(t, rel, usual)
	if got := tally(publishAll(t, again, 10, toQueue("here"))); got["confirmed"] != 10 {
		t.Errorf("after the alarm: %v", got)
	}
}

// TestBrokerKilled: what was confirmed outlives the broker, sessions and
// channels end, and the source and releaser go on when it is back.
func TestBrokerKilled(t *testing.T) {
	node := rabbittest.Start(t)
	raw := rawamqp.Dial(t, node.URL())
	raw.Declare("dead")
	// RabbitMQ 3 writes down a new queue some seconds later; a kill before that
	// takes the queue with it, and what was confirmed in it.
	node.Ctl(t, "eval", "mnesia:sync_log().")
	conf := mustParse(t, node.URL())
	rel, src := mustReleaser(t, conf), mustSource(t, conf)
	c := mustChannel(t, rel, usual)
	persistent := func(i int) redrive.Message {
		m := toQueue("dead")(i)
		m.Properties = []byte{0x10, 0, 2}
		return m
	}
	if got := tally(publishAll(t, c, 10, persistent)); got["confirmed"] != 10 {
		t.Fatalf("results: %v", got)
	}
	s := mustSession(t, src, "dead", 10)
	ds := receive(t, s, 10)
	node.Kill(t)
	for range s.Deliveries() {
		t.Error("a delivery from a dead broker")
	}
	if err := s.Settle(within(t), receipts(ds)); !errors.Is(err, quarantine.ErrUnreachable) || !errors.Is(s.Err(), quarantine.ErrUnreachable) {
		t.Errorf("settle: %v; session: %v", err, s.Err())
	}
	if rs := results(t, c, -1); len(rs) != 0 {
		t.Errorf("results from nowhere: %v", rs)
	}
	if _, err := src.Depth(within(t), "dead"); !errors.Is(err, quarantine.ErrUnreachable) {
		t.Errorf("depth: %v", err)
	}
	node.Restart(t)
	eventually(t, "the queue has its messages again", func() bool {
		d, err := src.Depth(within(t), "dead")
		return err == nil && d.Ready == 10
	})
	for _, d := range receive(t, mustSession(t, src, "dead", 10), 10) {
		if !d.Redelivered && d.DeliveryCount == 0 {
			t.Errorf("%+v", d)
		}
	}
}

func TestManyDialsAtOnce(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	rawamqp.Dial(t, url).Declare("dead")
	conf := mustParse(t, url)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			s, err := NewSource(context.Background(), conf)
			if err != nil {
				t.Errorf("dial: %v", err)
				return
			}
			if _, err := s.Depth(context.Background(), "dead"); err != nil {
				t.Errorf("depth: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	all.Wait()
}

// TestNoErrorHoldsThePassword makes errors of every sort with a password that
// can be recognized.
func TestNoErrorHoldsThePassword(t *testing.T) {
	node := rabbittest.Shared(t)
	secret := func(string) Config {
		c := mustParse(t, node.URL())
		c.Password = func() (string, error) { return canary, nil }
		c.DialTimeout = 500 * time.Millisecond
		return c
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, change := range map[string]func(*Config){
		"wrong password":        func(*Config) {},
		"nobody listens":        func(c *Config) { c.Hosts = []string{"127.0.0.1:1"} },
		"nobody answers":        func(c *Config) { c.Hosts = []string{silent.Addr().String()} },
		"the name is unknown":   func(c *Config) { c.Hosts = []string{"[::1]:1", "127.0.0.1:1"} },
		"TLS to a plain port":   func(c *Config) { c.TLS = &TLS{} },
		"no such CA file":       func(c *Config) { c.TLS = &TLS{CAFile: "/nonexistent"} },
		"no such client file":   func(c *Config) { c.TLS = &TLS{CertFile: "/nonexistent", KeyFile: "/nonexistent"} },
		"the dialler is broken": func(c *Config) { c.Dial = brokenDial },
	} {
		c := secret(name)
		change(&c)
		_, err1 := NewSource(within(t), c)
		_, err2 := NewReleaser(within(t), c)
		for _, err := range []error{err1, err2} {
			if !errors.Is(err, quarantine.ErrRefused) && !errors.Is(err, quarantine.ErrUnreachable) {
				t.Errorf("%s: %v", name, err)
			}
			if s := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(s, canary) {
				t.Errorf("%s: the error holds the password", name)
			}
		}
	}
}

func brokenDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("broken")
}

// TestBarrierWithoutPermissionToLook: where a broker refuses the passive
// declare, a request that needs no permission stands behind settlements.
func TestBarrierWithoutPermissionToLook(t *testing.T) {
	url := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, url)
	raw.Declare("dead", rawamqp.Quorum...)
	for i := range 100 {
		raw.Publish("", "dead", []byte{0, 0}, body(i))
	}
	s := mustSession(t, mustSource(t, mustParse(t, url)), "dead", 10).(*session)
	s.barrier = s.limitBarrier
	for range 10 {
		if err := s.Settle(within(t), receipts(receive(t, s, 10))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if ms := raw.Drain("dead"); len(ms) != 0 {
		t.Errorf("%d messages are left", len(ms))
	}
}

// TestReturnThatFitsNothing: a broker that returns what was never sent leaves
// the whole window in doubt.
func TestReturnThatFitsNothing(t *testing.T) {
	node := rabbittest.Shared(t)
	w := &world{node: node, url: node.VHost(t)}
	q := w.declare(t, "here")
	c := mustChannel(t, mustReleaser(t, w.config(t)), usual).(*channel)
	c.mu.Lock()
	c.launched(toQueue(q)(1)) // in flight, and never answered
	c.mu.Unlock()
	c.slots <- struct{}{}
	c.back(returned{code: 312, text: "NO_ROUTE", routingKey: "other"})
	if got := tally(results(t, c, -1)); got["ambiguous unmatched_return"] != 1 {
		t.Errorf("results: %v", got)
	}
}

// TestReturnWrittenAnew: newer brokers sort the headers of what they return.
func TestReturnWrittenAnew(t *testing.T) {
	node := rabbittest.Shared(t)
	w := &world{node: node, url: node.VHost(t)}
	c := mustChannel(t, mustReleaser(t, w.config(t)), usual).(*channel)
	stamped := func(intent string, more ...string) []byte {
		var fields []byte
		for _, kv := range append(more, "x-redrive-intent="+intent) {
			k, v, _ := strings.Cut(kv, "=")
			fields = append(append(fields, byte(len(k))), k...)
			fields = append(fields, 'S', 0, 0, 0, byte(len(v)))
			fields = append(fields, v...)
		}
		return headerTable(fields)
	}
	c.mu.Lock()
	for i, intent := range []string{"0/1", "1/1", "2/1"} {
		m := toQueue("absent")(0)
		m.Token, m.Properties = uint64(i), stamped(intent, "z=1", "a=2")
		c.launched(m)
	}
	c.mu.Unlock()
	for range 3 {
		c.slots <- struct{}{}
	}
	c.back(returned{code: 312, text: "NO_ROUTE", routingKey: "absent", props: stamped("1/1", "a=2", "z=1"), body: body(0)})
	c.settle(confirm{tag: 3, multiple: true, ack: true})
	for _, r := range results(t, c, 3) {
		if want := map[bool]string{true: "returned", false: "confirmed"}[r.Token == 1]; string(r.Resolution) != want {
			t.Errorf("%+v", r)
		}
	}
}
