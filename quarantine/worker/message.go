package worker

import (
	"strconv"
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// Message is a delivery as its handler sees it. A handler may keep it, and must
// not change Body or what View refers to.
type Message struct {
	Queue      string
	Exchange   string // of its first publish, as far as that is known
	RoutingKey string
	View       amqpwire.View // the decoded properties
	Body       []byte

	// What the rules of Options find in it; "" where they find nothing.
	ID            string // the message id, which need not be unique
	Type          string
	SchemaVersion string
	Operation     string // business identity
	Key, Sequence string // of its order
	TraceID       string

	Run         int  // 1 for the first run, the policy's retries + 1 for the last
	Redelivered bool // the broker says that it may have been delivered before
	// Resumed tells that the inbox knows of an earlier run of this operation that
	// ended without a word: its effect may be there.
	Resumed bool
	// Received is when it came, by the worker's clock.
	Received time.Time

	// Effect may be set by the handler to a reference to the business effect. It
	// goes into the inbox and into the outcome report.
	Effect string

	delivery  quarantine.Delivery
	retries   int // as its header says
	stamp     stamp.Stamp
	mac       stamp.MAC
	released  bool // it carries a well-formed stamp
	lastOfKey bool

	hold     *Decision // the latest systemic failure, nil when there was none
	openings int       // of the gate, when that was
	suspect  int       // how often others got through between two such failures
}

// message reads a delivery.
func (w *worker) message(d quarantine.Delivery) *Message {
	v := amqpwire.Parse(d.Properties)
	r := &w.o.Rules
	find := func(es []quarantine.Expression) string { return quarantine.Find(es, &v, d.Body) }
	m := &Message{
		Queue: d.Queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, View: v, Body: d.Body,
		ID: quarantine.CleanText(v.MessageID, 512), Type: find(r.Type), SchemaVersion: find(r.Schema),
		Operation: find(r.Operation), Key: find(r.OrderingKey), Sequence: find(r.Sequence), TraceID: find(r.TraceID),
		Redelivered: d.Redelivered, Received: w.conn.Clock.Now(), delivery: d,
	}
	if x, ok := v.Text(quarantine.HeaderOriginExchange); ok {
		m.Exchange = x
	}
	if k, ok := v.Text(quarantine.HeaderOriginRoutingKey); ok {
		m.RoutingKey = k
	}
	m.retries = w.retries(&v)
	m.Run = m.retries + 1
	var err error
	m.stamp, m.mac, m.released, err = stamp.Read(v)
	m.released = m.released && err == nil
	if m.released {
		_, m.lastOfKey = v.Header(HeaderLastOfKey)
	}
	return m
}

// retries is how often a message was retried, by its header. One that is no
// sensible number is none of ours and counts for nothing; one beyond the
// policy's retries is as good as their number.
func (w *worker) retries(v *amqpwire.View) int {
	text, _ := v.Text(w.q.Headers.Attempts)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return int(min(n, int64(w.q.Retries)))
}

// operation is what the inbox is told about m.
func (w *worker) operation(m *Message) Operation {
	return Operation{ID: m.Operation, Fingerprint: quarantine.Fingerprint(m.Type, m.Body), Now: w.conn.Clock.Now()}
}
