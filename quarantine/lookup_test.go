package quarantine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// TestLookupWithinAQueue names messages that several queues have seen.
func TestLookupWithinAQueue(t *testing.T) {
	b := newBook(t)
	named := func(queue, id, operation string) event.EnvelopeNo {
		v := headers("x-operation-id", operation)
		v.Present, v.MessageID = amqpwire.MessageID, id
		d := b.delivery(queue+id, v)
		d.Queue = queue
		nos, _ := b.capture(d)
		return nos[0]
	}
	first, other := named("a.dlq", "m-1", "op-1"), named("b.dlq", "m-1", "op-1")
	second, longer := named("a.dlq", "m-2", "op-2"), named("b.dlq", "m-21", "op-3")
	ulid := b.facts(first).ID.String()
	b.view(func(v ledger.View) {
		for _, x := range []struct {
			id, queue string
			want      event.EnvelopeNo
			err       error
		}{
			{"m-1", "a.dlq", first, nil}, {"m-1", "b.dlq", other, nil}, {"op-1", "b.dlq", other, nil},
			{"m-1", "", 0, quarantine.ErrSeveral}, {"m-", "a.dlq", 0, quarantine.ErrSeveral},
			{"m-2", "a.dlq", second, nil}, {"m-2", "", second, nil},
			{"m-2", "b.dlq", longer, nil}, // the whole name is another queue's
			{ulid, "a.dlq", first, nil}, {ulid, "b.dlq", 0, quarantine.ErrNoEnvelope}, {ulid, "c.dlq", 0, quarantine.ErrNoEnvelope},
			{"#2", "b.dlq", other, nil}, {"#2", "a.dlq", 0, quarantine.ErrNoEnvelope}, {"#2", "", other, nil},
		} {
			no, err := quarantine.LookupIn(v, x.id, x.queue)
			if no != x.want || !errors.Is(err, x.err) {
				t.Errorf("%s of %q is %d (%v), want %d (%v)", x.id, x.queue, no, err, x.want, x.err)
			}
			if err != nil && x.queue != "" && !strings.Contains(err.Error(), x.queue) {
				t.Errorf("%s of %q: the error does not name the queue: %v", x.id, x.queue, err)
			}
		}
	})
}

// TestCopyOfAWorkerDiedAtItsHome captures what a worker has moved aside: the
// broker wrote no history into it.
func TestCopyOfAWorkerDiedAtItsHome(t *testing.T) {
	b := newBook(t)
	worked := func(name, quarantine string) policy.Queue { return policy.Queue{Name: name, Quarantine: quarantine} }
	b.judgeBy(&policy.Policy{Queues: []policy.Queue{worked("orders", "orders.dlq"), worked("red", "shared.dlq"), worked("blue", "shared.dlq")}}, "", nil)
	for _, x := range []struct {
		queue string
		view  amqpwire.View
		died  string
	}{
		{"orders.dlq", headers("x-death-reason", "unknown_sku"), "orders"},
		{"orders.dlq", headers("x-other", "1"), ""}, // nothing says that it died
		{"shared.dlq", headers("x-death-reason", "unknown_sku"), ""},
		{"else.dlq", headers("x-death-reason", "unknown_sku"), ""},
		{"orders.dlq", amqpwire.View{Headers: append(texts("x-death-reason", "unknown_sku"), amqpwire.ArrayField(amqpwire.HeaderDeath, amqpwire.TableField("", texts("queue", "older", "reason", "rejected")...).Value))}, "older"},
	} {
		d := b.delivery("{}", x.view)
		d.Queue = x.queue
		nos, _ := b.capture(d)
		if got := b.facts(nos[0]).DiedQueue; got != x.died {
			t.Errorf("a message of %s with %v died in %q, want %q", x.queue, x.view.Headers, got, x.died)
		}
	}
}
