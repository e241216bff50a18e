package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
)

// numbered publishes messages to a queue, with numbers from one on.
func (c *capturing) numbered(queue string, from, n int) {
	c.t.Helper()
	ms := make([]amqp.Publishing, n)
	for i := range ms {
		ms[i] = amqp.Publishing{MessageId: fmt.Sprint("n-", from+i), Body: fmt.Append(nil, "body of ", from+i)}
	}
	c.r.rabbit.publish(queue, ms...)
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

// ids are the message ids in the store.
func (c *capturing) ids() (out []string) {
	c.t.Helper()
	for _, e := range c.site.envelopes() {
		out = append(out, e.Identity.MessageID)
	}
	slices.Sort(out)
	return out
}

// TestPoisonHeader has a header in the middle of 1,000 messages that client
// libraries cannot read, and end the connection at. All 1,001 are captured on
// the one connection of their session, and so is the other queue.
func TestPoisonHeader(t *testing.T) {
	c := newCapturing(t, nil)
	raw := rawamqp.Dial(t, c.r.url)
	// One header, x-big, of the type L. It is a long of eight bytes, under
	// another letter than l.
	table := append([]byte("\x05x-bigL"), binary.BigEndian.AppendUint64(nil, 1<<40)...)
	props := binary.BigEndian.AppendUint16(nil, 1<<13|1<<7) // headers, message id
	props = append(binary.BigEndian.AppendUint32(props, uint32(len(table))), table...)
	props = append(props, "\x06poison"...)

	// A quorum queue of 3.10 writes headers anew, a classic one leaves them alone.
	raw.Declare("classic.dlq")
	c.numbered("classic.dlq", 0, 500)
	raw.Publish("", "classic.dlq", props, []byte("poison"))
	c.numbered("classic.dlq", 500, 500)
	c.publish("others.dlq", 50)
	sum := ask[api.CaptureSummary](c.site, "capture", "--queue", "classic.dlq", "--queue", "others.dlq")
	if part(t, sum, "classic.dlq").Captured != 1001 || part(t, sum, "others.dlq").Captured != 50 || len(sum.Queues) != 2 {
		t.Errorf("the capture says %+v", sum)
	}
	if n := c.wire.opened.Load(); n > 4 {
		t.Errorf("%d connections for two queues", n)
	}
	ids := c.ids()
	if i, found := slices.BinarySearch(ids, "poison"); len(ids) != 1051 || !found || ids[i] != "poison" {
		t.Errorf("%d are in the store; the poison is there: %v", len(ids), found)
	}
	e := ask[api.Envelope](c.site, "envelope", "show", "poison", "--payload", "--raw", "--why", "the header")
	want := api.Header{Name: "x-big", Type: "L", Value: "1099511627776"}
	if !strings.HasPrefix(c.r.node.Version(), "3.") {
		want.Type = "l" // the broker itself writes it so
	}
	if e.Payload == nil || !slices.Contains(e.Payload.Headers, want) {
		t.Errorf("shown as %+v, want %+v", e.Payload, want)
	}
}

// TestUnstorableMessage has a message in the middle that the store is not
// allowed to take. Its queue is parked for a reason that names it; what is
// around it and the other queue are captured; and it goes on when the cause is
// mended.
func TestUnstorableMessage(t *testing.T) {
	c := newCapturing(t, nil)
	yaml := c.site.path("redrive.yaml")
	limit := func(mib int) {
		t.Helper()
		text, _, _ := strings.Cut(read(t, yaml), "store: ")
		c.site.write("redrive.yaml", fmt.Sprintf("%sstore: {min_free_mib: 16, max_body_mib: %d}\n", text, mib))
	}
	limit(1)
	// At the head, where everything else waits behind it.
	c.r.rabbit.publish("orders.dlq", amqp.Publishing{MessageId: "large", Body: bytes.Repeat([]byte("x"), 1<<20+1)})
	c.numbered("orders.dlq", 0, 200)
	c.publish("others.dlq", 50)

	p := c.site.want(3, "capture", "--json")
	sum := answer[api.CaptureSummary](p)
	bad, good := part(t, sum, "orders.dlq"), part(t, sum, "others.dlq")
	if bad.Parked != "cannot_be_stored" || bad.Captured != 200 || good.Captured != 50 || good.Error != nil {
		t.Errorf("the capture says %+v", sum)
	}
	if got := c.parked("orders.dlq", "cannot_be_stored"); !strings.Contains(got.Why, "1048577 bytes") || !strings.Contains(got.Why, `message id "large"`) ||
		!strings.Contains(got.Advice, "max_body_mib") {
		t.Errorf("status says %+v", got)
	}
	if n := c.wire.opened.Load(); n > 4 {
		t.Errorf("%d connections for two queues", n)
	}
	ids := c.ids()
	for i := range 200 {
		if _, found := slices.BinarySearch(ids, fmt.Sprint("n-", i)); !found {
			t.Errorf("its neighbour n-%d is not in the store", i)
		}
	}
	if n := c.r.ready("orders.dlq") + int(bad.Captured); n != 201 {
		t.Errorf("%d in store and queue, want 201", n)
	}
	// Nothing is tried before the cause is mended, and a try without mending
	// says so again.
	opened := c.wire.opened.Load()
	c.site.fails(3, `parked since.*cannot_be_stored`, "capture", "--queue", "orders.dlq")
	c.site.fails(3, `is parked now \(cannot_be_stored\).*delivered 2 times.*1048577 bytes`, "capture", "--queue", "orders.dlq", "--unpark")
	if n := c.wire.opened.Load() - opened; n > 3 {
		t.Errorf("%d connections for one try", n)
	}
	limit(2)
	c.site.ok("capture", "--unpark")
	if n := len(c.site.envelopes()); n != 251 || c.r.ready("orders.dlq") != 0 {
		t.Errorf("%d of 251 are in the store, %d left", n, c.r.ready("orders.dlq"))
	}
	if e := ask[api.Envelope](c.site, "envelope", "show", "large"); e.Size != 1<<20+1 {
		t.Errorf("the large one has %d bytes", e.Size)
	}
}
