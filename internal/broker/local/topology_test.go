package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

func openTemp(t *testing.T, o Options) (*Broker, context.Context) {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "broker"), o), within(t)
}

func declare(t *testing.T, b *Broker, specs ...QueueSpec) {
	t.Helper()
	for _, s := range specs {
		must(t, b.Declare(within(t), s))
	}
}

// publish stores one message for each body in a queue.
func publish(t *testing.T, b *Broker, queue string, bodies ...string) []Outcome {
	t.Helper()
	var ms []Message
	for _, body := range bodies {
		ms = append(ms, Message{RoutingKey: queue, Body: []byte(body)})
	}
	out, err := b.Publish(within(t), ms...)
	must(t, err)
	return out
}

func wantBodies(t *testing.T, b *Broker, queue string, want ...string) {
	t.Helper()
	got := []string{}
	for _, d := range drain(t, b, queue) {
		got = append(got, string(d.Body))
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", queue, diff)
	}
}

func TestTopicMatches(t *testing.T) {
	for _, c := range []struct {
		binding, key string
		want         bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a.*", "a.b", true}, {"a.*", "a", false}, {"a.*", "a.b.c", false},
		{"#", "", true}, {"#", "a.b.c", true}, {"a.#", "a", true}, {"a.#", "a.b.c", true}, {"a.#.c", "a.c", true},
		{"a.#.c", "a.b.b.c", true}, {"a.#.c", "a.b", false}, {"*", "", false}, {"*", ".", false}, {"*.*", ".", true}, {"*.*", "a", false}, {"#.a.#", "b.a.c", true},
		{"#.#.#", "x", true}, {"a.#.#", "a", true}, {"", "", true}, {"", "a", false}, {"*.#", "", false}, {"#.*", "a.b", true},
	} {
		if got := Topic.matches(c.binding, c.key); got != c.want {
			t.Errorf("binding %q, key %q: %v, want %v", c.binding, c.key, got, c.want)
		}
	}
}

func TestExchangesRoute(t *testing.T) {
	b, ctx := openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "one"}, QueueSpec{Name: "two"})
	for _, x := range []ExchangeSpec{{"d", Direct}, {"f", Fanout}, {"t", Topic}} {
		must(t, b.DeclareExchange(ctx, x))
		must(t, b.DeclareExchange(ctx, x))
	}
	for _, bd := range []Binding{
		{"d", "one", "k"}, {"f", "one", ""}, {"f", "two", "ignored"}, {"t", "one", "a.*"}, {"t", "one", "a.#"}, {"t", "two", "#"},
	} {
		must(t, b.Bind(ctx, bd))
		must(t, b.Bind(ctx, bd))
	}
	check := func(b *Broker) {
		t.Helper()
		for _, c := range []struct {
			exchange, key string
			want          event.Resolution
			one, two      int
		}{
			{"d", "k", event.Confirmed, 1, 0}, {"d", "other", event.Returned, 0, 0},
			{"f", "", event.Confirmed, 1, 1},
			{"t", "a.b", event.Confirmed, 1, 1}, {"t", "b", event.Confirmed, 0, 1},
			{"", "two", event.Confirmed, 0, 1}, {"", "three", event.Returned, 0, 0}, {"absent", "k", event.Returned, 0, 0},
		} {
			out, err := b.Publish(within(t), Message{Exchange: c.exchange, RoutingKey: c.key, Body: []byte("x")})
			must(t, err)
			if out[0].Resolution != c.want {
				t.Errorf("%q %q: %+v", c.exchange, c.key, out[0])
			}
			if one, two := len(drain(t, b, "one")), len(drain(t, b, "two")); one != c.one || two != c.two {
				t.Errorf("%q %q: %d in one, %d in two", c.exchange, c.key, one, two)
			}
		}
	}
	check(b)
	path := b.db.Path()
	must(t, b.Close())
	b = open(t, path, Options{})
	check(b)

	must(t, b.DeleteQueue(within(t), "two"))
	publish(t, b, "one", "kept")
	path = b.db.Path()
	must(t, b.Close())
	b = open(t, path, Options{}) // bindings of the deleted queue are gone from the file too
	wantBodies(t, b, "one", "kept")
}

func TestDeclarationsAreChecked(t *testing.T) {
	b, ctx := openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "q", MaxLength: 1}, QueueSpec{Name: "q", MaxLength: 1, Overflow: RejectPublish})
	must(t, b.DeclareExchange(ctx, ExchangeSpec{"x", Direct}))
	long := string(make([]byte, 256))
	for name, err := range map[string]error{
		"other length":        b.Declare(ctx, QueueSpec{Name: "q", MaxLength: 2}),
		"other target":        b.Declare(ctx, QueueSpec{Name: "q", MaxLength: 1, DeadLetter: ToQueue("d")}),
		"no name":             b.Declare(ctx, QueueSpec{}),
		"long name":           b.Declare(ctx, QueueSpec{Name: long}),
		"negative limit":      b.Declare(ctx, QueueSpec{Name: "n", DeliveryLimit: -1}),
		"short TTL":           b.Declare(ctx, QueueSpec{Name: "n", MessageTTL: time.Microsecond}),
		"unknown overflow":    b.Declare(ctx, QueueSpec{Name: "n", Overflow: "explode"}),
		"long target":         b.Declare(ctx, QueueSpec{Name: "n", DeadLetter: ToQueue(long)}),
		"other kind":          b.DeclareExchange(ctx, ExchangeSpec{"x", Topic}),
		"unknown kind":        b.DeclareExchange(ctx, ExchangeSpec{"y", "headers"}),
		"exchange, no name":   b.DeclareExchange(ctx, ExchangeSpec{"", Direct}),
		"unknown exchange":    b.Bind(ctx, Binding{"absent", "q", ""}),
		"default exchange":    b.Bind(ctx, Binding{"", "q", ""}),
		"long binding key":    b.Bind(ctx, Binding{"x", "q", long}),
		"long routing key":    publishErr(b, Message{RoutingKey: long}),
		"broken properties":   publishErr(b, Message{RoutingKey: "q", Properties: []byte{0x80}}),
		"negative expiration": publishErr(b, Message{RoutingKey: "q", Properties: expiration("-1")}),
		"wordy expiration":    publishErr(b, Message{RoutingKey: "q", Properties: expiration("soon")}),
	} {
		if !errors.Is(err, ErrSpec) {
			t.Errorf("%s: %v, want ErrSpec", name, err)
		}
	}
	for name, err := range map[string]error{
		"bind":   b.Bind(ctx, Binding{"x", "absent", ""}),
		"delete": b.DeleteQueue(ctx, "absent"),
	} {
		if !errors.Is(err, quarantine.ErrQueueMissing) {
			t.Errorf("%s: %v, want ErrQueueMissing", name, err)
		}
	}
	wantBodies(t, b, "q")
}

func publishErr(b *Broker, m Message) error {
	_, err := b.Publish(context.Background(), m)
	return err
}

// expiration is the property alone.
func expiration(text string) []byte { return append([]byte{0x01, 0x00, byte(len(text))}, text...) }

func TestFullQueueRejectsOrDropsItsHead(t *testing.T) {
	b, ctx := openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "dead"},
		QueueSpec{Name: "rejects", MaxLength: 2, DeadLetter: ToQueue("dead")},
		QueueSpec{Name: "drops", MaxLength: 2, Overflow: DropHead, DeadLetter: ToQueue("dead")})
	var got []event.Resolution
	for _, o := range publish(t, b, "rejects", "1", "2", "3") {
		got = append(got, o.Resolution)
	}
	if diff := cmp.Diff([]event.Resolution{event.Confirmed, event.Confirmed, event.Nacked}, got); diff != "" {
		t.Error(diff)
	}
	publish(t, b, "drops", "4", "5", "6", "7")
	wantBodies(t, b, "rejects", "1", "2")
	wantBodies(t, b, "drops", "6", "7")
	ds := drain(t, b, "dead")
	if len(ds) != 2 || string(ds[0].Body) != "4" || string(ds[1].Body) != "5" {
		t.Fatalf("%d dead letters", len(ds))
	}
	wantDeaths(t, ds[0], "drops/maxlen/1")

	// One full queue of several: none stores the message.
	must(t, b.DeclareExchange(ctx, ExchangeSpec{"all", Fanout}))
	for _, q := range []string{"dead", "rejects"} {
		must(t, b.Bind(ctx, Binding{Exchange: "all", Queue: q}))
	}
	publish(t, b, "rejects", "1", "2")
	out, err := b.Publish(ctx, Message{Exchange: "all", Body: []byte("x")})
	must(t, err)
	if out[0].Resolution != event.Nacked {
		t.Errorf("%+v", out[0])
	}
	wantBodies(t, b, "dead")
}

func TestTenThousandPublishes(t *testing.T) {
	b, ctx := openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "q"})
	ms := make([]Message, 10_000)
	for i := range ms {
		ms[i] = Message{RoutingKey: "q", Body: fmt.Appendf(make([]byte, 0, 1024), "%01024d", i)}
	}
	from := time.Now()
	_, err := b.Publish(ctx, ms...)
	must(t, err)
	ds := drain(t, b, "q")
	if len(ds) != len(ms) {
		t.Fatalf("%d messages", len(ds))
	}
	for i, d := range ds {
		if !bytes.Equal(d.Body, ms[i].Body) {
			t.Fatalf("message %d is out of order", i)
		}
	}
	t.Logf("published and drained in %v", time.Since(from))
}
