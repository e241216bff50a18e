package worker

import (
	"errors"
	"math"
	"time"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// maxText bounds the error text in a header, in bytes.
const maxText = 512

// maxMasked bounds the error text that masks look through, in bytes: a handler
// may hand over anything.
const maxMasked = 64 << 10

// persistent is the delivery mode of messages that survive a restart.
const persistent = 2

// text is the error text as others may see it: masked first, so that no cut
// hides from the masks what they look for.
func (w *worker) text(s string) string {
	s = quarantine.CleanText(s, maxMasked)
	return quarantine.CleanText(quarantine.ApplyMasks(s, w.masks), maxText)
}

// sheet is what a copy says. The fields in must are on it or there is no copy;
// those in may give way from the end when there is no room.
type sheet struct {
	queue     string
	delay     time.Duration // of a retry, 0 for a copy that stays
	must, may []amqpwire.Field
	text      string // of the error
}

// retrySheet is the copy that runs again after the delay of the run. A message
// that was only held has spent none of its retries.
func (w *worker) retrySheet(m *Message, d Decision) sheet {
	retries := m.retries + 1
	run := m.Run
	if d.Act == ActPostpone {
		retries, run = m.retries, max(w.q.Retries, 1)
	}
	s := sheet{
		queue: w.q.RetryQueueFor(run), delay: w.scaled(w.q.DelayFor(run, w.conn.Random())), text: w.text(d.Text),
		must: []amqpwire.Field{amqpwire.LongField(w.q.Headers.Attempts, int64(retries))},
	}
	if last := d.Reason; last != "" {
		s.may = append(s.may, amqpwire.StringField(w.q.Headers.LastReason, last))
	} else if before, ok := m.View.Header(w.q.Headers.LastReason); ok {
		s.may = append(s.may, before) // it did not run this time
	}
	w.context(&s, m, d)
	return s
}

// quarantineSheet is the copy that waits for a person.
func (w *worker) quarantineSheet(m *Message, d Decision) sheet {
	s := sheet{
		queue: w.q.Quarantine, text: w.text(d.Text),
		must: []amqpwire.Field{
			amqpwire.StringField(w.q.Headers.Reason, d.Reason),
			amqpwire.LongField(w.q.Headers.Attempts, int64(m.retries)),
		},
		may: []amqpwire.Field{
			amqpwire.StringField(quarantine.HeaderDiedQueue, w.q.Name),
			amqpwire.StringField(quarantine.HeaderDiedAt, w.timestamp()),
		},
	}
	if d.Last != "" {
		s.must = append(s.must, amqpwire.StringField(w.q.Headers.LastReason, d.Last))
	}
	w.context(&s, m, d)
	return s
}

// context adds what both kinds of copies tell, the most useful first.
func (w *worker) context(s *sheet, m *Message, d Decision) {
	add := func(name, value string) { s.may = append(s.may, amqpwire.StringField(name, value)) }
	if _, ok := m.View.Header(w.q.Headers.FirstFailed); !ok && d.Act != ActPostpone {
		s.must = append(s.must, amqpwire.StringField(w.q.Headers.FirstFailed, w.timestamp()))
	}
	if d.Code != "" {
		add(w.q.Headers.ErrorCode, d.Code)
	}
	if _, ok := m.View.Header(quarantine.HeaderOriginRoutingKey); !ok {
		add(quarantine.HeaderOriginExchange, m.delivery.Exchange)
		add(quarantine.HeaderOriginRoutingKey, m.delivery.RoutingKey)
	}
	if m.View.Has(amqpwire.Expiration) {
		add(quarantine.HeaderOriginExpiration, m.View.Expiration)
	}
	if w.o.Version != "" {
		add(w.q.Headers.Consumer, w.o.Version)
	}
	if _, ok := m.View.Header(w.q.Headers.TraceID); !ok && m.TraceID != "" {
		add(w.q.Headers.TraceID, m.TraceID)
	}
}

func (w *worker) timestamp() string {
	return w.conn.Clock.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// stale are the headers that no copy takes along: what this worker, or one
// before it, has written about another failure.
func (w *worker) stale() []string {
	h := &w.q.Headers
	return append(quarantine.BrokerHeaders(), h.Reason, h.LastReason, h.Attempts, h.LastError, h.ErrorCode, h.Consumer,
		quarantine.HeaderDiedQueue, quarantine.HeaderDiedAt)
}

// copyOf makes the copy that a sheet describes, as complete as the broker takes
// it. An error, an *quarantine.UnsendableError, says that there can be none.
func (w *worker) copyOf(m *Message, s sheet) (Copy, error) {
	text, may := s.text, s.may
	for {
		fields := append([]amqpwire.Field(nil), s.must...)
		if text != "" {
			fields = append(fields, amqpwire.StringField(w.q.Headers.LastError, text))
		}
		props, err := w.properties(m, append(fields, may...), s.delay)
		var bad *quarantine.UnsendableError
		switch {
		case err == nil:
			return Copy{RoutingKey: s.queue, Properties: props, Body: m.Body}, nil
		case !errors.As(err, &bad) || bad.Excess == 0:
			return Copy{}, err
		case text != "":
			text = quarantine.CleanText(text, max(0, len(text)-bad.Excess))
		case len(may) > 0:
			may = may[:len(may)-1]
		default:
			return Copy{}, err
		}
	}
}

// properties edits those of the delivery.
func (w *worker) properties(m *Message, fields []amqpwire.Field, delay time.Duration) ([]byte, error) {
	e := amqpwire.Edit(m.delivery.Properties)
	e.Strip(w.stale()...)
	e.Set(fields...)
	e.SetDeliveryMode(persistent)
	if delay > 0 {
		e.SetExpiration(uint32(min(max(delay/time.Millisecond, 1), math.MaxUint32)))
	} else {
		e.Drop(amqpwire.Expiration)
	}
	return w.conn.Publisher.Limits().Republish(e, &m.View, len(m.Body))
}
