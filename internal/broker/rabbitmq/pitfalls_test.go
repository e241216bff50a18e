package rabbitmq

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// The pitfalls of RabbitMQ and its client libraries have numbers. A test that
// keeps the driver out of one begins with its number; those that need more
// than one of them, and those of other files, do as well.

// TestP1OldReceiptsSettleNothing: a receipt is held when the connection is cut,
// another consumer takes that message, and a new session gets another one under
// the same delivery tag. The receipt settles neither.
func TestP1OldReceiptsSettleNothing(t *testing.T) {
	node := rabbittest.Shared(t)
	for _, kind := range []string{quarantine.QueueClassic, quarantine.QueueQuorum} {
		t.Run(kind, func(t *testing.T) {
			w := &world{node: node, url: node.VHost(t)}
			raw := rawamqp.Dial(t, w.url)
			q := w.queueOf(kind)(t)
			for i := range 3 {
				raw.Publish("", q, []byte{0, 0}, body(i))
			}
			src := mustSource(t, w.config(t))
			old := mustSession(t, src, q, 1)
			held := receive(t, old, 1)
			w.cut(t)
			for range old.Deliveries() {
				t.Error("a delivery from a connection that is cut")
			}
			eventually(t, "the message is back in its queue", func() bool {
				d, err := src.Depth(within(t), q)
				return err == nil && d.Ready == 3
			})
			// Another consumer takes it. RabbitMQ 3 has put it at the end of a quorum
			// queue; those before it go back there.
			taken := false
			for range 3 {
				m, _ := raw.Get(q)
				if taken = bytes.Equal(m.Body, held[0].Body); taken {
					break
				}
				raw.Publish("", q, []byte{0, 0}, m.Body)
			}
			if !taken {
				t.Fatal("the message that was held is not in the queue")
			}
			now := mustSession(t, src, q, 1)
			d := receive(t, now, 1)[0]
			if tagOf(d.Receipt) != tagOf(held[0].Receipt) || d.Receipt == held[0].Receipt {
				t.Fatalf("receipts %x and %x: the tags should be equal, and not the receipts", d.Receipt, held[0].Receipt)
			}
			for name, s := range map[string]quarantine.Session{"old": old, "new": now} {
				if err := s.Settle(within(t), receipts(held)); err == nil {
					t.Errorf("the %s session settled a receipt of the old one", name)
				}
				if err := s.Return(within(t), receipts(held)); err == nil {
					t.Errorf("the %s session returned a receipt of the old one", name)
				}
			}
			if now.Err() != nil {
				t.Errorf("the new session is over: %v", now.Err())
			}
			if err := now.Close(within(t)); err != nil {
				t.Fatal(err)
			}
			left := map[string]bool{}
			for _, m := range raw.Drain(q) {
				left[string(m.Body)] = true
			}
			if len(left) != 2 || !left[string(body(1))] || !left[string(body(2))] {
				t.Errorf("left in the queue: %v", left)
			}
		})
	}
}

// TestP9OversizeHeaderLeavesTheWindowAlone: 20 messages are in flight around
// one whose header is larger than a frame.
func TestP9OversizeHeaderLeavesTheWindowAlone(t *testing.T) {
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here")
	c := mustChannel(t, mustReleaser(t, mustParse(t, address)), usual)
	for i := range 20 {
		if i == 10 {
			refusedFor(t, c, redrive.Message{Token: 99, Dest: redrive.Destination{RoutingKey: "here"}, Properties: long(140_000)}, "header_too_large")
		}
		if err := c.Publish(within(t), toQueue("here")(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := tally(results(t, c, 20)); got["confirmed"] != 20 {
		t.Errorf("results: %v", got)
	}
	publishAndConfirm(t, c)
	if n := len(raw.Drain("here")); n != 21 {
		t.Errorf("%d messages arrived", n)
	}
}

// TestP10LongNamesLeaveTheWindowAlone: a name of 255 bytes is sent as it is, one
// of 256 is refused.
func TestP10LongNamesLeaveTheWindowAlone(t *testing.T) {
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	most := strings.Repeat("n", 255)
	raw.Declare(most)
	raw.DeclareExchange(most, "direct")
	raw.Bind(most, most, most)
	c := mustChannel(t, mustReleaser(t, mustParse(t, address)), usual)
	props := append(append([]byte{0x80, 0, 255}, most...), 0)[:3+255]
	header := headerTable(append(append([]byte{255}, most...), 'V'))
	n := 0
	for range 10 {
		for _, d := range []redrive.Destination{{RoutingKey: most + "n"}, {Exchange: most + "n", RoutingKey: "k"}, {Exchange: most, RoutingKey: most + "n"}} {
			refusedFor(t, c, redrive.Message{Dest: d, Properties: []byte{0, 0}}, "invalid_property")
		}
		for _, p := range [][]byte{{0, 0}, props, header} {
			for _, d := range []redrive.Destination{{RoutingKey: most}, {Exchange: most, RoutingKey: most}} {
				if err := c.Publish(within(t), redrive.Message{Dest: d, Properties: p}); err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
	}
	if got := tally(results(t, c, n)); got["confirmed"] != n {
		t.Errorf("results: %v of %d", got, n)
	}
	if got := len(raw.Drain(most)); got != n {
		t.Errorf("%d messages arrived, want %d", got, n)
	}
}

// TestP11ChannelCloseMakesTheWindowAmbiguous: the broker takes less than it is
// thought to, and closes the channel in mid-window. The message that was too
// large was certainly not stored; those before it may have been, and those after
// it were not, which nobody claims to know. From then on the limit is known.
func TestP11ChannelCloseMakesTheWindowAmbiguous(t *testing.T) {
	const most = 100_000
	node := rabbittest.Shared(t)
	tuneMessageSize(t, node, most)
	address := node.VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here", rawamqp.Quorum...)
	rel := mustReleaser(t, mustParse(t, address))
	c := mustChannel(t, rel, redrive.ChannelOptions{Window: 256, ConfirmDeadline: patience})
	const n, large = 200, 120
	message := func(i int) redrive.Message {
		m := toQueue("here")(i)
		if i == large {
			m.Body = make([]byte, most+1)
		}
		return m
	}
	sent := 0
	for sent < n && c.Publish(within(t), message(sent)) == nil {
		sent++
	}
	if sent <= large {
		t.Fatalf("only %d were taken", sent)
	}
	arrived := func() map[string]bool {
		there := map[string]bool{}
		for _, m := range raw.Drain("here") {
			there[string(m.Body)] = true
		}
		return there
	}
	rs := results(t, c, -1)
	there := arrived()
	if len(rs) != sent {
		t.Errorf("%d results for %d publishes", len(rs), sent)
	}
	for _, r := range rs {
		switch is := there[string(message(int(r.Token)).Body)]; {
		case r.Token == large:
			if r.Resolution != "nacked" || r.Reason != "body_too_large" || !strings.Contains(r.Detail, "100000") || is {
				t.Errorf("the message that was too large: %+v, in the queue %v", r, is)
			}
		case r.Resolution == "confirmed":
			if !is {
				t.Errorf("message %d is confirmed and not there", r.Token)
			}
		case r.Resolution != "ambiguous" || r.Reason != "channel_closed_by_broker":
			t.Errorf("message %d: %+v", r.Token, r)
		case is && r.Token > large:
			t.Errorf("message %d is there, behind the one that closed the channel", r.Token)
		}
	}
	refusedFor(t, c, message(0), "not_connected")
	next := mustChannel(t, rel, usual)
	refusedFor(t, next, message(large), "body_too_large")
	publishAndConfirm(t, next)
	if len(arrived()) != 1 {
		t.Error("the next channel delivered something else")
	}
}

// TestP22CCIsNotTheDriversBusiness: a message reaches the queues that its bytes
// say, each once: CC that was taken out reaches nobody, CC that was left in
// reaches its queue. The routing key that is told is that of the publish.
func TestP22CCIsNotTheDriversBusiness(t *testing.T) {
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	for _, q := range []string{"dead", "here", "other", "hidden"} {
		raw.Declare(q)
	}
	raw.DeclareExchange("in", "topic")
	raw.Bind("dead", "in", "order.#")
	build := func(fields ...amqpwire.Field) []byte {
		props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Headers, Headers: fields})
		if err != nil {
			t.Fatal(err)
		}
		return props
	}
	key := func(s string) amqpwire.Value { return amqpwire.Value{Kind: amqpwire.Str, Data: s} }
	raw.Publish("in", "order.created", build(amqpwire.ArrayField("CC", key("other"))), body(1))
	s := mustSession(t, mustSource(t, mustParse(t, address)), "dead", 1)
	d := receive(t, s, 1)[0]
	if d.Exchange != "in" || d.RoutingKey != "order.created" {
		t.Errorf("captured from %q with key %q", d.Exchange, d.RoutingKey)
	}
	c := mustChannel(t, mustReleaser(t, mustParse(t, address)), usual)
	stripped := amqpwire.Edit(d.Properties)
	stripped.Strip("CC", "BCC")
	without, err := stripped.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		props               []byte
		here, other, hidden int
	}{
		{without, 1, 0, 0},
		{d.Properties, 1, 1, 0},
		{build(amqpwire.ArrayField("CC", key("other"), key("here")), amqpwire.ArrayField("BCC", key("hidden"))), 1, 1, 1},
		{build(amqpwire.ArrayField("CC")), 1, 0, 0},
		{build(amqpwire.ArrayField("CC", amqpwire.Value{Kind: amqpwire.Int32, Data: int32(1)}, key("absent"))), 1, 0, 0},
	} {
		if err := c.Publish(within(t), redrive.Message{Dest: redrive.Destination{RoutingKey: "here"}, Properties: tt.props, Body: d.Body}); err != nil {
			t.Fatal(err)
		}
		if got := tally(results(t, c, 1)); got["confirmed"] != 1 {
			t.Errorf("results: %v", got)
		}
		for q, want := range map[string]int{"here": tt.here, "other": tt.other, "hidden": tt.hidden, "dead": 0} {
			if got := len(raw.Drain(q)); got != want {
				t.Errorf("%x: %d in queue %s, want %d", tt.props, got, q, want)
			}
		}
	}
}

// TestP23PartialNackIsNotDefinite: of two queues behind an exchange one is full
// and rejects. The answer is a nack, though the other queue has the message, so
// that a nack counts only where there is one queue.
func TestP23PartialNackIsNotDefinite(t *testing.T) {
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("full", amqpwire.LongField("x-max-length", 1), amqpwire.StringField("x-overflow", "reject-publish"))
	raw.Declare("open")
	raw.DeclareExchange("both", "fanout")
	raw.Bind("full", "both", "")
	raw.Bind("open", "both", "")
	raw.Publish("both", "", []byte{0, 0}, body(0))
	c := mustChannel(t, mustReleaser(t, mustParse(t, address)), usual)
	d := redrive.Destination{Exchange: "both"}
	for i := range 4 {
		if err := c.Publish(within(t), redrive.Message{Token: uint64(i), Dest: d, Properties: []byte{0, 0}, Body: body(1 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range results(t, c, 4) {
		if r.Resolution != "nacked" || d.SingleQueue() {
			t.Errorf("%+v, single queue %v", r, d.SingleQueue())
		}
	}
	if n := len(raw.Drain("open")); n != 5 {
		t.Errorf("the open queue has %d, want all 5", n)
	}
	if n := len(raw.Drain("full")); n != 1 {
		t.Errorf("the full queue has %d", n)
	}
	publishTo := redrive.Destination{RoutingKey: "open"}
	if err := c.Publish(within(t), redrive.Message{Dest: publishTo, Properties: []byte{0, 0}}); err != nil || !publishTo.SingleQueue() {
		t.Errorf("the channel takes no more: %v", err)
	}
	if got := tally(results(t, c, 1)); got["confirmed"] != 1 {
		t.Errorf("results: %v", got)
	}
}

// TestP25ForeignUserIDs: of 100 messages 10 name another user. They are refused,
// and the other 90 arrive, with the name of the user who is logged in or none.
func TestP25ForeignUserIDs(t *testing.T) {
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here")
	rel := mustReleaser(t, mustParse(t, address))
	c := mustChannel(t, rel, redrive.ChannelOptions{Window: 100, ConfirmDeadline: patience})
	with := func(user string) []byte {
		props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.UserID, UserID: user})
		if err != nil {
			t.Fatal(err)
		}
		return props
	}
	for i := range 100 {
		m := toQueue("here")(i)
		switch i % 10 {
		case 3:
			m.Properties = with([]string{"someone", "", "Guest", "guest "}[i/10%4])
			refusedFor(t, c, m, "invalid_property")
			continue
		case 7:
			m.Properties = with(rel.Caps().UserID)
		}
		if err := c.Publish(within(t), m); err != nil {
			t.Fatal(err)
		}
	}
	if got := tally(results(t, c, 90)); got["confirmed"] != 90 {
		t.Errorf("results: %v", got)
	}
	own := 0
	for _, m := range raw.Drain("here") {
		if v, ok := amqpwire.Short(m.Properties, amqpwire.UserID); ok && v == "guest" {
			own++
		}
	}
	if own != 10 {
		t.Errorf("%d messages name the user who is logged in, want 10", own)
	}
	publishAndConfirm(t, c)
}

// TestP26ExpirationIsKeptOrRefused: what the broker reads as a time is sent as
// it is written, what it does not is refused. RabbitMQ 4 writes the number anew.
func TestP26ExpirationIsKeptOrRefused(t *testing.T) {
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here")
	raw.Declare("twin")
	c := mustChannel(t, mustReleaser(t, mustParse(t, address)), usual)
	with := func(s string) redrive.Message {
		props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Expiration, Expiration: s})
		if err != nil {
			t.Fatal(err)
		}
		return redrive.Message{Dest: redrive.Destination{RoutingKey: "here"}, Properties: props}
	}
	good := []string{"86400000", "+86400000", "00086400000", "4294967296", "315360000000", strings.Repeat("0", 244) + "86400000000"}
	for i, bad := range []string{"", "abc", "-1", "-86400000", "1.5", " 5", "5 ", "+-5", "--5", "+", "1e3", "0x5", "5_0", "315360000001", strings.Repeat("9", 255)} {
		refusedFor(t, c, with(bad), "invalid_property")
		if err := c.Publish(within(t), with(good[i%len(good)])); err != nil {
			t.Fatalf("%q: %v", good[i%len(good)], err)
		}
	}
	if got := tally(results(t, c, 15)); got["confirmed"] != 15 {
		t.Errorf("results: %v", got)
	}
	for i, m := range raw.Drain("here") {
		raw.Publish("", "twin", with(good[i%len(good)]).Properties, nil)
		if want, _ := raw.Get("twin"); !bytes.Equal(m.Properties, want.Properties) {
			t.Errorf("expiration %q arrived as %q, a raw client's as %q", good[i%len(good)], m.Properties, want.Properties)
		}
	}
	// Zero is a time as well: the message is taken, and gone.
	for _, zero := range []string{"0", "-0", "+000"} {
		if err := c.Publish(within(t), with(zero)); err != nil {
			t.Errorf("%q: %v", zero, err)
		}
	}
	if got := tally(results(t, c, 3)); got["confirmed"] != 3 {
		t.Errorf("results: %v", got)
	}
}

// TestP33BlockedFromTheBeginning: a channel that is opened while the broker is
// out of memory resolves every publish as well.
func TestP33BlockedFromTheBeginning(t *testing.T) {
	node := rabbittest.Shared(t)
	address := node.VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here")
	rel := mustReleaser(t, mustParse(t, address))
	over := alarm(t, node)
	c := mustChannel(t, rel, redrive.ChannelOptions{Window: 4, ConfirmDeadline: time.Second, LateGrace: time.Second})
	refusedFor(t, c, toQueue("here")(0), "blocked")
	if route, err := rel.Route(within(t), redrive.Destination{RoutingKey: "here"}); err != nil || !route.Exists {
		t.Errorf("route: %+v, %v", route, err)
	}
	if err := c.Close(within(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	if rs := results(t, c, -1); len(rs) != 0 {
		t.Errorf("results of nothing: %v", rs)
	}
	over()
	again := mustChannel(t, rel, usual)
	if got := tally(publishAll(t, again, 10, toQueue("here"))); got["confirmed"] != 10 {
		t.Errorf("after the alarm: %v", got)
	}
}

// TestP37ConsumerTimeoutEndsTheSessionWithItsReason: who holds messages for
// longer than the broker likes is told so, and a new session gets them.
func TestP37ConsumerTimeoutEndsTheSessionWithItsReason(t *testing.T) {
	node := rabbittest.Shared(t)
	// The broker looks for overdue consumers once a minute, and only here oftener.
	tune(t, node, "consumer_timeout", 2000, 1_800_000)
	tune(t, node, "channel_tick_interval", 1000, 60_000)
	address := node.VHost(t)
	raw := rawamqp.Dial(t, address)
	src := mustSource(t, mustParse(t, address))
	for _, kind := range []string{quarantine.QueueClassic, quarantine.QueueQuorum} {
		t.Run(kind, func(t *testing.T) {
			raw.Declare(kind, amqpwire.StringField("x-queue-type", kind))
			for i := range 3 {
				raw.Publish("", kind, []byte{0, 0}, body(i))
			}
			s := mustSession(t, src, kind, 2)
			held := receive(t, s, 2)
			select {
			case _, more := <-s.Deliveries():
				if more {
					t.Error("a delivery beyond the prefetch")
				}
			case <-time.After(patience):
				t.Fatal("the session does not end")
			}
			if err := s.Err(); !errors.Is(err, quarantine.ErrUnreachable) || !strings.Contains(err.Error(), "timed out") {
				t.Errorf("the session says: %v", err)
			}
			if err := s.Settle(within(t), receipts(held)); err == nil {
				t.Error("a receipt of a session that is over was settled")
			}
			again := mustSession(t, src, kind, 10)
			ds := receive(t, again, 3)
			redelivered := 0
			for _, d := range ds {
				if d.Redelivered {
					redelivered++
				}
			}
			if redelivered != 2 {
				t.Errorf("%d of the 2 that were held are marked as redelivered", redelivered)
			}
			if err := again.Settle(within(t), receipts(ds)); err != nil {
				t.Error(err)
			}
		})
	}
}
