package integration

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// TestMessageOnItsWay holds the last message back when the broker has sent it,
// so that the queue is empty by the broker's word and nothing has come. A
// capture is not done before it is there.
func TestMessageOnItsWay(t *testing.T) {
	var depths, asked atomic.Int64
	c := newCapturing(t, func(l *link, f frame) verb {
		switch {
		case l.queue == "" && !f.up && f.is(queueClass, declareOK):
			depths.Add(1)
		case l.queue != "" && f.up && f.class == queueClass:
			asked.Add(1) // behind the message
		case l.queue != "" && f.body && asked.Load() == 0 && depths.Load() < 20:
			return again
		}
		return pass
	})
	c.publish("orders.dlq", 1)
	if sum := ask[api.CaptureSummary](c.site, "capture", "--queue", "orders.dlq"); sum.Captured != 1 {
		t.Errorf("%d captured, want 1: the capture ended while it was on its way", sum.Captured)
	}
	c.whole()
}

// TestLargeMessageOnASlowLink lets a message take much longer than a request
// may. While it comes, the broker is not dead.
func TestLargeMessageOnASlowLink(t *testing.T) {
	var from atomic.Int64 // when the last part of a body passed
	c := newCapturing(t, func(_ *link, f frame) verb {
		if !f.body || f.up {
			return pass
		}
		now := time.Now().UnixMilli()
		if now < from.Load()+40 {
			return again
		}
		from.Store(now)
		return pass
	})
	yaml := read(t, c.site.path("redrive.yaml"))
	c.site.write("redrive.yaml", strings.Replace(yaml, `", user: `, `?rpc_timeout=400ms", user: `, 1))
	small, large := amqp.Publishing{Body: []byte("small")}, amqp.Publishing{Body: bytes.Repeat([]byte("x"), 6<<20)}
	c.r.rabbit.publish("orders.dlq", small, large, small)
	sum := ask[api.CaptureSummary](c.site, "capture", "--queue", "orders.dlq")
	if n := c.wire.opened.Load(); sum.Captured != 3 || sum.Merged != 0 || n > 2 {
		t.Errorf("captured %d and %d known already, want 3, on %d connections, want one and the one beside it", sum.Captured, sum.Merged, n)
	}
}
