package rabbitmq

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// userWith makes a user with these permissions in the vhost of an address, and
// returns the address for the user. An empty topic is no permission by key.
func userWith(t *testing.T, node *rabbittest.Node, address, configure, write, read, exchange, topic string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := "user-" + strings.TrimPrefix(u.Path, "/") + "-" + fmt.Sprint(time.Now().UnixNano())
	vhost := strings.TrimPrefix(u.Path, "/")
	call := func(function string, args ...string) string {
		quoted := ""
		for _, a := range append(args, "test") {
			quoted += `,<<"` + a + `">>`
		}
		return "rabbit_auth_backend_internal:" + function + "(" + quoted[1:] + ")"
	}
	expr := call("add_user", name, "pw") + ", " + call("set_permissions", name, vhost, configure, write, read)
	if topic != "" {
		expr += ", " + call("set_topic_permissions", name, vhost, exchange, topic, ".*")
	}
	if out := node.Ctl(t, "eval", expr+"."); !strings.Contains(out, "ok") {
		t.Fatalf("making a user: %s", out)
	}
	u.User = url.UserPassword(name, "pw")
	return u.String()
}

// TestKindOfQueueNeedsReadPermissionOnly: who may not read is told nothing, and
// nobody's queue loses or gets anything by the question.
func TestKindOfQueueNeedsReadPermissionOnly(t *testing.T) {
	node := rabbittest.Shared(t)
	address := node.VHost(t)
	raw := rawamqp.Dial(t, address)
	long := strings.Repeat("q", 255)
	tricky := "x of queue type rabbit_stream_queue"
	raw.Declare("quorum", rawamqp.Quorum...)
	raw.Declare(long, rawamqp.Quorum...)
	raw.Declare(tricky)
	raw.Publish("", "quorum", []byte{0, 0}, body(1))
	reader := mustSource(t, mustParse(t, userWith(t, node, address, "^$", "^$", ".*", "", "")))
	blind := mustSource(t, mustParse(t, userWith(t, node, address, "^$", "^$", "^$", "", "")))
	kind := func(s *Source, queue string) string {
		d, err := s.Depth(within(t), queue)
		if err != nil {
			t.Fatal(err)
		}
		return d.Kind
	}
	for _, tt := range []struct {
		s           *Source
		queue, want string
	}{
		{reader, "quorum", quarantine.QueueQuorum}, {reader, long, ""}, {reader, tricky, quarantine.QueueClassic}, {blind, "quorum", ""},
	} {
		if got := kind(tt.s, tt.queue); got != tt.want {
			t.Errorf("queue %.20s is of kind %q, want %q", tt.queue, got, tt.want)
		}
	}
	// A queue that is made again as another kind is asked about again.
	raw.Delete("quorum")
	if _, err := reader.Depth(within(t), "quorum"); !errors.Is(err, quarantine.ErrQueueMissing) {
		t.Errorf("depth of a deleted queue: %v", err)
	}
	raw.Declare("quorum")
	raw.Publish("", "quorum", []byte{0, 0}, body(2))
	if got := kind(reader, "quorum"); got != quarantine.QueueClassic {
		t.Errorf("made again, it is of kind %q", got)
	}
	if m, ok := raw.Get("quorum"); !ok || m.Redelivered || string(m.Body) != string(body(2)) {
		t.Errorf("the queue holds %+v", m)
	}
	caps := reader.Caps()
	if caps.CountsIn(quarantine.QueueClassic) || !caps.CountsIn(quarantine.QueueQuorum) || !caps.CountsIn("") {
		t.Error("quorum queues count deliveries, classic ones do not, and one of unknown kind may")
	}
}

// TestPermissionIsAskedBeforePublishing: what the broker denies with 403 is
// refused, in the broker's words, and costs nobody the channel.
func TestPermissionIsAskedBeforePublishing(t *testing.T) {
	node := rabbittest.Shared(t)
	address := node.VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here")
	raw.DeclareExchange("mine", "fanout")
	raw.DeclareExchange("yours", "fanout")
	raw.DeclareExchange("topics", "topic")
	raw.Bind("here", "mine", "")
	raw.Bind("here", "topics", "#")
	to := func(exchange, key string) redrive.Message {
		return redrive.Message{Dest: redrive.Destination{Exchange: exchange, RoutingKey: key}, Properties: []byte{0, 0}}
	}
	rel := mustReleaser(t, mustParse(t, userWith(t, node, address, "^$", "^(mine|topics)$", "^$", "topics", "^good")))
	c := mustChannel(t, rel, usual)
	for range 2 {
		refusedFor(t, c, to("", "here"), "no_permission")
		refusedFor(t, c, to("yours", ""), "no_permission")
		refusedFor(t, c, to("topics", "bad.key"), "no_permission")
		refusedFor(t, c, to("topics", "worse.key"), "no_permission")
		for _, m := range []redrive.Message{to("mine", ""), to("topics", "good.key"), to("topics", "good.key.too")} {
			if err := c.Publish(within(t), m); err != nil {
				t.Errorf("%+v: %v", m.Dest, err)
			}
		}
	}
	if got := tally(results(t, c, 6)); got["confirmed"] != 6 {
		t.Errorf("results: %v", got)
	}
	if n := len(raw.Drain("here")); n != 6 {
		t.Errorf("%d messages arrived, want those 6 and no trial", n)
	}
	for dest, want := range map[redrive.Destination]string{
		{RoutingKey: "here"}: "403", {Exchange: "yours"}: "403", {Exchange: "mine"}: "", {Exchange: "topics", RoutingKey: "bad"}: "403",
	} {
		route, err := rel.Route(within(t), dest)
		if err != nil || !route.Exists || (want == "") != (route.Denied == "") || !strings.Contains(route.Denied, want) {
			t.Errorf("%+v: %+v, %v", dest, route, err)
		}
	}
}

// TestTrialByImpersonator: the broker lets some users name others in user_id,
// so that nothing but the transaction holds the trial back.
func TestTrialByImpersonator(t *testing.T) {
	node := rabbittest.Shared(t)
	address := node.VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("here")
	raw.DeclareExchange("mine", "fanout")
	raw.Bind("here", "mine", "")
	address = userWith(t, node, address, ".*", ".*", ".*", "", "")
	u, _ := url.Parse(address)
	node.Ctl(t, "set_user_tags", u.User.Username(), "impersonator")
	rel := mustReleaser(t, mustParse(t, address))
	route, err := rel.Route(within(t), redrive.Destination{Exchange: "mine"})
	if err != nil || route.Denied != "" {
		t.Fatalf("%+v, %v", route, err)
	}
	c := mustChannel(t, rel, usual)
	m := redrive.Message{Dest: redrive.Destination{Exchange: "mine"}, Properties: []byte{0, 0}, Body: body(1)}
	if err := c.Publish(within(t), m); err != nil {
		t.Fatal(err)
	}
	if got := tally(results(t, c, 1)); got["confirmed"] != 1 {
		t.Errorf("results: %v", got)
	}
	if ms := raw.Drain("here"); len(ms) != 1 || string(ms[0].Body) != string(body(1)) {
		t.Errorf("%d messages arrived", len(ms))
	}
}

// TestStreamTakesOnlyWhatItCanHold: at a stream some messages end the
// connection that are good elsewhere.
func TestStreamTakesOnlyWhatItCanHold(t *testing.T) {
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	raw.Declare("stream", amqpwire.StringField("x-queue-type", "stream"))
	raw.Declare("classic")
	rel := mustReleaser(t, mustParse(t, address))
	c := mustChannel(t, rel, usual)
	build := func(v amqpwire.View) []byte {
		props, err := amqpwire.Build(v)
		if err != nil {
			t.Fatal(err)
		}
		return props
	}
	header := func(f amqpwire.Field) []byte {
		return build(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{f}})
	}
	dec := amqpwire.Value{Kind: amqpwire.Dec, Data: amqpwire.Decimal{Scale: 2, Unscaled: 1}}
	bad := [][]byte{header(amqpwire.Field{Name: "price", Value: dec})}
	later := [][]byte{
		header(amqpwire.ArrayField("x-prices", dec)),
		header(amqpwire.LongField("x-stream-filter-value", 1)),
		header(amqpwire.StringField("x-stream-filter-value", "\xff")),
		build(amqpwire.View{Present: amqpwire.Type, Type: "amqp-1.0"}),
	}
	good := [][]byte{
		header(amqpwire.ArrayField("prices", amqpwire.Value{Kind: amqpwire.Str, Data: "1"})),
		header(amqpwire.TableField("t", amqpwire.LongField("n", 1))),
		header(amqpwire.StringField("h", "\xff")),
		header(amqpwire.TimeField("t", 1<<64-1)),
		build(amqpwire.View{Present: amqpwire.MessageID, MessageID: "\xff"}),
	}
	if rel.control.id.atLeast(13) {
		bad = append(bad, later...)
		good = append(good, header(amqpwire.StringField("x-stream-filter-value", "f")))
	}
	for _, props := range bad {
		if v := raw.Try("", "stream", props, []byte("b")); !v.Closed() {
			t.Errorf("%q at a stream: the broker says %+v", props, v)
		}
		refusedFor(t, c, redrive.Message{Dest: redrive.Destination{RoutingKey: "stream"}, Properties: props, Body: []byte("b")}, "invalid_property")
	}
	n := 0
	publish := func(queue string, props []byte) {
		t.Helper()
		if err := c.Publish(within(t), redrive.Message{Dest: redrive.Destination{RoutingKey: queue}, Properties: props, Body: []byte("b")}); err != nil {
			t.Errorf("%q to %s: %v", props, queue, err)
			return
		}
		n++
	}
	for _, props := range bad {
		publish("classic", props)
	}
	for _, props := range good {
		publish("stream", props)
	}
	if got := tally(results(t, c, n)); got["confirmed"] != n {
		t.Errorf("results: %v of %d", got, n)
	}
}
