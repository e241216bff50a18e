package amqpwire

import "fmt"

// Headers that the broker writes.
const (
	HeaderDeath              = "x-death"
	HeaderFirstDeathQueue    = "x-first-death-queue"
	HeaderFirstDeathReason   = "x-first-death-reason"
	HeaderFirstDeathExchange = "x-first-death-exchange"
	HeaderLastDeathQueue     = "x-last-death-queue"
	HeaderLastDeathReason    = "x-last-death-reason"
	HeaderLastDeathExchange  = "x-last-death-exchange"
	HeaderDeliveryCount      = "x-delivery-count"
	HeaderAcquiredCount      = "x-acquired-count"
)

// Death is one entry of x-death: all deaths in one queue for one reason.
type Death struct {
	Queue       string
	Reason      string // rejected, expired, maxlen, delivery_limit
	Exchange    string // "" is the default exchange
	RoutingKeys []string
	Count       int64  // 0 when the entry does not say
	Time        uint64 // seconds since 1970 of the first of them, by the broker's clock; 0 when unknown
	// OriginalExpiration is the per-message TTL that the broker took off, ""
	// when there was none.
	OriginalExpiration string
}

// DeathHistory is what a message tells about its dead-lettering. Everything in
// it was written by brokers, or by whoever published the message: it informs
// people, it proves nothing.
type DeathHistory struct {
	Deaths []Death // latest first, as in the header

	FirstQueue    string // x-first-death-queue
	FirstReason   string // x-first-death-reason
	FirstExchange string // x-first-death-exchange

	// Problem says what was odd about the x-death header, "" when nothing was.
	// The header itself is still in the View.
	Problem string
}

// Last returns the latest death, false when there is none.
func (h *DeathHistory) Last() (Death, bool) {
	if len(h.Deaths) == 0 {
		return Death{}, false
	}
	return h.Deaths[0], true
}

// First returns the earliest death of which x-death tells, false when there is
// none.
func (h *DeathHistory) First() (Death, bool) {
	if len(h.Deaths) == 0 {
		return Death{}, false
	}
	return h.Deaths[len(h.Deaths)-1], true
}

// DeathHistory reads the dead-letter headers. It takes every shape: entries
// that are not tables are left out and named in Problem, and of an entry with
// odd fields the others are still read.
func (v *View) DeathHistory() DeathHistory {
	var h DeathHistory
	h.FirstQueue, _ = v.Text(HeaderFirstDeathQueue)
	h.FirstReason, _ = v.Text(HeaderFirstDeathReason)
	h.FirstExchange, _ = v.Text(HeaderFirstDeathExchange)
	f, ok := v.Header(HeaderDeath)
	if !ok {
		return h
	}
	items, ok := f.Data.([]Value)
	if !ok {
		h.note("x-death is of type %s, not an array", f.Kind)
		return h
	}
	for i, it := range items {
		fields, ok := it.Data.([]Field)
		if !ok {
			h.note("x-death entry %d is of type %s, not a table", i, it.Kind)
			continue
		}
		h.Deaths = append(h.Deaths, h.entry(i, fields))
	}
	return h
}

func (h *DeathHistory) note(format string, args ...any) {
	if h.Problem == "" {
		h.Problem = fmt.Sprintf(format, args...)
	}
}

// entry reads one table of x-death.
func (h *DeathHistory) entry(i int, fields []Field) Death {
	text := func(name string, needed bool) string {
		f, ok := find(fields, name)
		if !ok {
			if needed {
				h.note("x-death entry %d has no %s", i, name)
			}
			return ""
		}
		s, ok := f.Text()
		if !ok {
			h.note("x-death entry %d: %s is of type %s", i, name, f.Kind)
		}
		return s
	}
	number := func(name string) int64 {
		f, ok := find(fields, name)
		if !ok {
			return 0
		}
		n, ok := f.Int()
		if !ok || n < 0 {
			h.note("x-death entry %d: %s is not a count", i, name)
			return 0
		}
		return n
	}
	return Death{
		Queue:              text("queue", true),
		Reason:             text("reason", true),
		Exchange:           text("exchange", false),
		RoutingKeys:        h.routingKeys(i, fields),
		Count:              number("count"),
		Time:               uint64(number("time")),
		OriginalExpiration: text("original-expiration", false),
	}
}

func (h *DeathHistory) routingKeys(i int, fields []Field) []string {
	f, ok := find(fields, "routing-keys")
	if !ok {
		return nil
	}
	items, ok := f.Data.([]Value)
	if !ok {
		h.note("x-death entry %d: routing-keys is of type %s", i, f.Kind)
		return nil
	}
	var keys []string
	for _, it := range items {
		k, ok := it.Text()
		if !ok {
			h.note("x-death entry %d: a routing key is of type %s", i, it.Kind)
			continue
		}
		keys = append(keys, k)
	}
	return keys
}

// DeathField is the x-death header as RabbitMQ writes it, latest death first.
func DeathField(deaths ...Death) Field {
	items := make([]Value, 0, len(deaths))
	for _, d := range deaths {
		keys := make([]Value, 0, len(d.RoutingKeys))
		for _, k := range d.RoutingKeys {
			keys = append(keys, Value{Str, k})
		}
		t := []Field{
			LongField("count", d.Count),
			StringField("exchange", d.Exchange),
			StringField("queue", d.Queue),
			StringField("reason", d.Reason),
			ArrayField("routing-keys", keys...),
			TimeField("time", d.Time),
		}
		if d.OriginalExpiration != "" {
			t = append(t, StringField("original-expiration", d.OriginalExpiration))
		}
		items = append(items, Value{Table, t})
	}
	return ArrayField(HeaderDeath, items...)
}
