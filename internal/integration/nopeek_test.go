package integration

import (
	"testing"

	"github.com/redrivehq/redrive/internal/api"
)

// TestLookingSpendsNothing looks at everything that can be looked at, more
// often than the delivery limit of the queue: its messages are still as they
// were delivered by nobody.
func TestLookingSpendsNothing(t *testing.T) {
	const looks = 22 // the limit is 20, and from RabbitMQ 4.0 on 20 by default
	c := newCapturing(t, nil)
	c.publish("orders.dlq", 20)
	c.publish("others.dlq", 5)
	c.site.ok("capture", "--queue", "others.dlq")
	settled := c.wire.settled.Load()
	for range looks {
		for _, args := range [][]string{
			{"doctor"},
			{"dlq", "depth", "--queue", "orders.dlq"},
			{"generation", "plan", "--all", "--fix", "none", "--to-queue", "orders", "--dry-run"},
		} {
			if p := c.site.run(args...); p.code != 0 && args[0] != "doctor" {
				t.Fatalf("%s: exit %d\n%s", p.description, p.code, p.err.String())
			}
		}
	}
	if d := ask[api.DepthInfo](c.site, "dlq", "depth", "--queue", "orders.dlq"); d.BrokerReady == nil || *d.BrokerReady != 20 {
		t.Errorf("%+v, want 20 ready", d)
	}
	if n := c.wire.settled.Load(); n != settled {
		t.Errorf("looking settled %d times", n-settled)
	}
	if most, left := c.deliveries("orders.dlq"); most != 0 || left != 20 {
		t.Errorf("%d messages are left, delivered %d times at most; want all 20, and 0", left, most)
	}
	c.site.ok("capture")
	c.whole()
}

// TestCaptureSpendsNothing captures more than is ever in flight at once: none of
// the messages is delivered a second time, although more and more are asked for
// while some are on their way.
func TestCaptureSpendsNothing(t *testing.T) {
	c := newCapturing(t, nil)
	c.publish("orders.dlq", 700)
	c.site.ok("capture", "--queue", "orders.dlq", "--prefetch", "1000")
	for _, e := range c.site.envelopes() {
		if e.DeliveryCount > 0 {
			t.Errorf("%s was delivered %d times before", e.ID, e.DeliveryCount)
		}
	}
	c.whole()
}
