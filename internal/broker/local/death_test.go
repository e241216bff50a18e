package local

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// wantDeaths compares x-death, latest first, each "queue/reason/count".
func wantDeaths(t *testing.T, d quarantine.Delivery, want ...string) {
	t.Helper()
	v := amqpwire.Parse(d.Properties)
	h := v.DeathHistory()
	if v.Problem+h.Problem != "" {
		t.Errorf("%s %s", v.Problem, h.Problem)
	}
	var got []string
	for _, death := range h.Deaths {
		got = append(got, fmt.Sprintf("%s/%s/%d", death.Queue, death.Reason, death.Count))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("x-death (-want +got):\n%s", diff)
	}
	first, last := strings.Split(want[len(want)-1], "/"), strings.Split(want[0], "/")
	lastQueue, _ := v.Text(amqpwire.HeaderLastDeathQueue)
	if h.FirstQueue != first[0] || h.FirstReason != first[1] || lastQueue != last[0] {
		t.Errorf("first death %s %s, last in %s, want %s and %s", h.FirstQueue, h.FirstReason, lastQueue, first, last)
	}
}

func wantStats(t *testing.T, b *Broker, queue string, ready, dropped int) {
	t.Helper()
	s, err := b.Stats(within(t), queue)
	must(t, err)
	if s.Ready != ready || s.Dropped != dropped {
		t.Errorf("%s: %d ready, %d dropped, want %d and %d", queue, s.Ready, s.Dropped, ready, dropped)
	}
}

// consume receives n messages.
func consume(t *testing.T, b *Broker, queue string, n int) (*Consumer, []quarantine.Delivery) {
	t.Helper()
	c, err := b.Consume(within(t), queue, max(n, 1))
	must(t, err)
	var ds []quarantine.Delivery
	for range n {
		select {
		case d, ok := <-c.Deliveries():
			if !ok {
				t.Fatal(c.Err())
			}
			ds = append(ds, d)
		case <-within(t).Done():
			t.Fatalf("%d of %d deliveries", len(ds), n)
		}
	}
	return c, ds
}

func TestMessagesExpireAtTheHead(t *testing.T) {
	clk := newClock()
	b, ctx := openTemp(t, Options{Clock: clk.Now})
	declare(t, b, QueueSpec{Name: "dead"}, QueueSpec{Name: "q", MessageTTL: 10 * time.Second, DeadLetter: ToQueue("dead")})
	_, err := b.Publish(ctx,
		Message{RoutingKey: "q", Body: []byte("queue's TTL")},
		Message{RoutingKey: "q", Body: []byte("own, shorter"), Properties: expiration("3000")},
		Message{RoutingKey: "q", Body: []byte("own, longer"), Properties: expiration("60000")})
	must(t, err)
	clk.add(9_999 * time.Millisecond)
	wantStats(t, b, "q", 3, 0) // the second one is due, and blocked by the first
	clk.add(time.Millisecond)
	wantStats(t, b, "q", 0, 0)
	ds := drain(t, b, "dead")
	var got []string
	for _, d := range ds {
		wantDeaths(t, d, "q/expired/1")
		v := amqpwire.Parse(d.Properties)
		death, _ := firstDeath(v)
		got = append(got, string(d.Body)+" "+death.OriginalExpiration)
		if v.Has(amqpwire.Expiration) || death.Time != uint64(clk.Now().Unix()) || d.Redelivered {
			t.Errorf("%q: expiration %q, died at %d, redelivered %v", d.Body, v.Expiration, death.Time, d.Redelivered)
		}
	}
	if diff := cmp.Diff([]string{"queue's TTL ", "own, shorter 3000", "own, longer 60000"}, got); diff != "" {
		t.Error(diff)
	}
}

func firstDeath(v amqpwire.View) (amqpwire.Death, bool) {
	h := v.DeathHistory()
	return h.First()
}

func TestExpiryNeedsNoCallAndSurvivesReopening(t *testing.T) {
	clk := newClock()
	b, _ := openTemp(t, Options{Clock: clk.Now})
	declare(t, b, QueueSpec{Name: "work"}, QueueSpec{Name: "retry", MessageTTL: time.Second, DeadLetter: ToQueue("work")})
	c, _ := consume(t, b, "work", 0)
	publish(t, b, "retry", "again")
	clk.add(time.Second)
	select { // nobody calls the broker: its timer must do it
	case d := <-c.Deliveries():
		wantDeaths(t, d, "retry/expired/1")
		must(t, c.Ack(within(t), d.Receipt))
	case <-within(t).Done():
		t.Fatal("nothing expired")
	}
	publish(t, b, "retry", "later")
	path := b.db.Path()
	must(t, b.Close())
	clk.add(time.Hour)
	b = open(t, path, Options{Clock: clk.Now})
	wantStats(t, b, "retry", 0, 0)
	wantBodies(t, b, "work", "later")

	// The same with the system's clock, which is followed by a timer.
	b2, _ := openTemp(t, Options{})
	declare(t, b2, QueueSpec{Name: "work"}, QueueSpec{Name: "retry", MessageTTL: 20 * time.Millisecond, DeadLetter: ToQueue("work")})
	publish(t, b2, "retry", "again")
	_, ds := consume(t, b2, "work", 1)
	wantDeaths(t, ds[0], "retry/expired/1")
}

func TestDeliveryLimit(t *testing.T) {
	b, ctx := openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "dead"}, QueueSpec{Name: "q", DeliveryLimit: 5, DeadLetter: ToQueue("dead")},
		QueueSpec{Name: "lost", DeliveryLimit: 1})
	publish(t, b, "q", "killer")
	for run := 0; run < 6; run += 2 { // returned once and lost once in each session
		c, ds := consume(t, b, "q", 1)
		must(t, c.Nack(ctx, true, ds[0].Receipt))
		ds = append(ds, <-c.Deliveries())
		for i, d := range ds {
			if d.DeliveryCount != run+i || d.Redelivered != (run+i > 0) {
				t.Errorf("run %d: count %d, redelivered %v", run+i, d.DeliveryCount, d.Redelivered)
			}
		}
		must(t, c.Close(ctx))
	}
	wantStats(t, b, "q", 0, 0)
	ds := drain(t, b, "dead")
	if len(ds) != 1 {
		t.Fatalf("%d dead letters after six deliveries", len(ds))
	}
	wantDeaths(t, ds[0], "q/delivery_limit/1")
	if ds[0].Redelivered || ds[0].DeliveryCount != 0 {
		t.Errorf("the copy starts at %d, redelivered %v", ds[0].DeliveryCount, ds[0].Redelivered)
	}

	publish(t, b, "lost", "x")
	for range 2 {
		c, _ := consume(t, b, "lost", 1)
		must(t, c.Close(ctx))
	}
	wantStats(t, b, "lost", 0, 1)
}

func TestDeathsAreCountedByQueueAndReason(t *testing.T) {
	clk := newClock()
	b, ctx := openTemp(t, Options{Clock: clk.Now})
	declare(t, b,
		QueueSpec{Name: "work", DeadLetter: ToQueue("retry")},
		QueueSpec{Name: "retry", MessageTTL: time.Second, DeadLetter: ToQueue("work")})
	born := clk.Now().Unix()
	publish(t, b, "work", "m")
	for range 3 {
		c, ds := consume(t, b, "work", 1)
		must(t, c.Nack(ctx, false, ds[0].Receipt))
		must(t, c.Close(ctx))
		clk.add(time.Second)
	}
	ds := drain(t, b, "work")
	if len(ds) != 1 {
		t.Fatalf("%d messages", len(ds))
	}
	wantDeaths2(t, ds[0], []string{"retry/expired/3", "work/rejected/3"}, "work", "rejected")
	first, _ := firstDeath(amqpwire.Parse(ds[0].Properties))
	if first.Time != uint64(born) || first.Exchange != "" || len(first.RoutingKeys) != 1 || first.RoutingKeys[0] != "work" {
		t.Errorf("the entry has lost its beginning: %+v", first)
	}
}

// wantDeaths2 is wantDeaths for a history whose oldest entry has moved.
func wantDeaths2(t *testing.T, d quarantine.Delivery, want []string, queue, reason string) {
	t.Helper()
	wantDeaths(t, d, want...)
	v := amqpwire.Parse(d.Properties)
	h := v.DeathHistory()
	if h.FirstQueue != queue || h.FirstReason != reason {
		t.Errorf("first death %s %s", h.FirstQueue, h.FirstReason)
	}
}

func TestACircleWithoutRejectionIsBroken(t *testing.T) {
	clk := newClock()
	b, _ := openTemp(t, Options{Clock: clk.Now})
	declare(t, b,
		QueueSpec{Name: "a", MessageTTL: time.Second, DeadLetter: ToQueue("b")},
		QueueSpec{Name: "b", MessageTTL: time.Second, DeadLetter: ToQueue("a")},
		QueueSpec{Name: "self", MaxLength: 1, Overflow: DropHead, DeadLetter: ToQueue("self")})
	publish(t, b, "a", "m")
	clk.add(time.Second)
	wantStats(t, b, "b", 1, 0)
	clk.add(time.Second)
	wantStats(t, b, "b", 0, 1)
	wantStats(t, b, "a", 0, 0)
	publish(t, b, "self", "1", "2")
	wantStats(t, b, "self", 1, 1)
}

func TestDeadLetterKeepsOrChangesTheRoutingKey(t *testing.T) {
	b, ctx := openTemp(t, Options{})
	must(t, b.DeclareExchange(ctx, ExchangeSpec{"dlx", Topic}))
	declare(t, b, QueueSpec{Name: "kept", DeadLetter: &DeadLetter{Exchange: "dlx"}},
		QueueSpec{Name: "changed", DeadLetter: &DeadLetter{Exchange: "dlx", RoutingKey: "dead.changed"}},
		QueueSpec{Name: "nowhere", DeadLetter: &DeadLetter{Exchange: "absent"}},
		QueueSpec{Name: "all"}, QueueSpec{Name: "some"})
	must(t, b.Bind(ctx, Binding{"dlx", "all", "#"}))
	must(t, b.Bind(ctx, Binding{"dlx", "some", "dead.*"}))
	for _, q := range []string{"kept", "changed", "nowhere"} {
		publish(t, b, q, q)
		c, ds := consume(t, b, q, 1)
		must(t, c.Reject(ctx, ds[0].Receipt))
		must(t, c.Close(ctx))
	}
	var got []string
	for _, d := range drain(t, b, "all") {
		got = append(got, fmt.Sprintf("%s: %s %s", d.Body, d.Exchange, d.RoutingKey))
		wantDeaths(t, d, string(d.Body)+"/rejected/1")
	}
	if diff := cmp.Diff([]string{"kept: dlx kept", "changed: dlx dead.changed"}, got); diff != "" {
		t.Error(diff)
	}
	wantBodies(t, b, "some", "changed")
	wantStats(t, b, "nowhere", 0, 1)
}

func TestOddHistoriesAreKeptOrReplaced(t *testing.T) {
	text := amqpwire.StringField
	table := func(fs ...amqpwire.Field) amqpwire.Value { return amqpwire.Value{Kind: amqpwire.Table, Data: fs} }
	other := table(text("queue", "old"), text("reason", "expired"), amqpwire.LongField("count", 7), text("extra", "kept"))
	for name, c := range map[string]struct {
		header amqpwire.Field
		want   []string
		extra  bool
	}{
		"an older death":       {amqpwire.ArrayField("x-death", other), []string{"q/rejected/1", "old/expired/7"}, true},
		"the same death":       {amqpwire.ArrayField("x-death", other, table(text("queue", "q"), text("reason", "rejected"), amqpwire.LongField("count", 4))), []string{"q/rejected/5", "old/expired/7"}, true},
		"a death uncounted":    {amqpwire.ArrayField("x-death", table(text("queue", "q"), text("reason", "rejected"))), []string{"q/rejected/2"}, false},
		"text, not a list":     {text("x-death", "yesterday"), []string{"q/rejected/1"}, false},
		"a list of text":       {amqpwire.ArrayField("x-death", amqpwire.Value{Kind: amqpwire.Str, Data: "x"}), []string{"q/rejected/1"}, false},
		"another queue's name": {amqpwire.ArrayField("x-death", table(text("queue", "q"), text("reason", "maxlen"), amqpwire.LongField("count", 1))), []string{"q/rejected/1", "q/maxlen/1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, ctx := openTemp(t, Options{})
			declare(t, b, QueueSpec{Name: "dead"}, QueueSpec{Name: "q", DeadLetter: ToQueue("dead")})
			props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Headers | amqpwire.MessageID, MessageID: "id",
				Headers: []amqpwire.Field{text("a", "1"), c.header, text("b", "2")}})
			must(t, err)
			_, err = b.Publish(ctx, Message{RoutingKey: "q", Properties: props})
			must(t, err)
			consumer, ds := consume(t, b, "q", 1)
			must(t, consumer.Reject(ctx, ds[0].Receipt))
			must(t, consumer.Close(ctx))
			v := amqpwire.Parse(drain(t, b, "dead")[0].Properties)
			h := v.DeathHistory()
			var got []string
			for _, d := range h.Deaths {
				got = append(got, fmt.Sprintf("%s/%s/%d", d.Queue, d.Reason, d.Count))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if v.MessageID != "id" || v.Headers[0].Name != "a" || v.Headers[1].Name != "b" {
				t.Errorf("the rest has changed: %+v", v.Headers)
			}
			if c.extra != strings.Contains(string(v.RawHeaders), "extra") {
				t.Error("a field of an older entry was lost")
			}
		})
	}
}

func TestDeadLetterOfATableThatCannotBeRead(t *testing.T) {
	// Nested deeper than the decoder goes, with x-death among it: the history
	// starts anew, the rest stays byte for byte.
	deep := amqpwire.Value{Kind: amqpwire.Void}
	for range amqpwire.MaxDepth - 2 {
		deep = amqpwire.Value{Kind: amqpwire.Array, Data: []amqpwire.Value{deep}}
	}
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{
		{Name: "deep", Value: deep}, amqpwire.StringField("x-death", "x"),
	}})
	must(t, err)
	got, deaths := died(&record{properties: props}, "q", reasonRejected, 1)
	v := amqpwire.Parse(got)
	if len(deaths) != 1 || v.Problem != "" || v.Headers[0].Name != "deep" {
		t.Errorf("%d deaths, %s", len(deaths), v.Problem)
	}
	broken := []byte{0x20, 0, 0, 0, 0, 9, 1}
	if got, deaths := died(&record{properties: broken}, "q", reasonRejected, 1); !bytes.Equal(got, broken) || len(deaths) != 1 {
		t.Errorf("properties that cannot be edited became %x", got)
	}
}
