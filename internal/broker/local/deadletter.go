package local

import (
	"slices"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// reason is why a message was dead-lettered, as x-death names it.
type reason string

const (
	reasonRejected reason = "rejected"
	reasonExpired  reason = "expired"
	reasonMaxLen   reason = "maxlen"
	reasonLimit    reason = "delivery_limit"
)

// deadLetter moves a message that is no longer ready to the dead-letter target
// of its queue. Without target, route or way out of a circle it is dropped.
func (t *turn) deadLetter(q *queue, e *entry, why reason) {
	r := t.read(q, e)
	t.remove(q, e)
	if t.broken != nil {
		return
	}
	dl := q.spec.DeadLetter
	if dl == nil {
		q.dropped++
		return
	}
	key := dl.RoutingKey
	if key == "" {
		key = r.routingKey
	}
	props, deaths := died(r, q.spec.Name, why, uint64(t.now/1000))
	targets := slices.DeleteFunc(t.b.route(dl.Exchange, key), func(target *queue) bool {
		return why != reasonRejected && circles(target.spec.Name, deaths)
	})
	if len(targets) == 0 {
		q.dropped++
	}
	for _, target := range targets {
		t.enqueue(target, t.record(target, Message{
			Exchange: dl.Exchange, RoutingKey: key, Properties: props, Body: r.body,
		}, -1))
	}
}

// died returns the properties of r after its death in a queue, and the items
// of its x-death. Properties that cannot be edited stay as they are.
func died(r *record, queue string, why reason, seconds uint64) ([]byte, []amqpwire.Value) {
	v := amqpwire.Parse(r.properties)
	death := amqpwire.Death{
		Queue: queue, Reason: string(why), Exchange: r.exchange, RoutingKeys: []string{r.routingKey},
		Count: 1, Time: seconds, OriginalExpiration: v.Expiration,
	}
	deaths := addDeath(pastDeaths(&v), death)
	props, err := withDeaths(r.properties, &v, death, deaths)
	if err != nil {
		// An older entry, written by a publisher, cannot be encoded again.
		deaths = addDeath(nil, death)
		props, err = withDeaths(r.properties, &v, death, deaths)
	}
	if err != nil {
		return r.properties, deaths
	}
	return props, deaths
}

// withDeaths edits properties: x-death, the first and the last death, and no
// expiration any more, which would let the message expire again.
func withDeaths(props []byte, v *amqpwire.View, last amqpwire.Death, deaths []amqpwire.Value) ([]byte, error) {
	e := amqpwire.Edit(props)
	e.Set(amqpwire.ArrayField(amqpwire.HeaderDeath, deaths...))
	if _, ok := v.Header(amqpwire.HeaderFirstDeathQueue); !ok {
		e.Set(
			amqpwire.StringField(amqpwire.HeaderFirstDeathExchange, last.Exchange),
			amqpwire.StringField(amqpwire.HeaderFirstDeathQueue, last.Queue),
			amqpwire.StringField(amqpwire.HeaderFirstDeathReason, last.Reason),
		)
	}
	e.Set(
		amqpwire.StringField(amqpwire.HeaderLastDeathExchange, last.Exchange),
		amqpwire.StringField(amqpwire.HeaderLastDeathQueue, last.Queue),
		amqpwire.StringField(amqpwire.HeaderLastDeathReason, last.Reason),
	)
	e.Drop(amqpwire.Expiration)
	return e.Bytes()
}

// pastDeaths returns the tables in x-death; whatever else is there was not
// written by a broker.
func pastDeaths(v *amqpwire.View) []amqpwire.Value {
	f, _ := v.Header(amqpwire.HeaderDeath)
	items, _ := f.Data.([]amqpwire.Value)
	var tables []amqpwire.Value
	for _, it := range items {
		if _, ok := it.Data.([]amqpwire.Field); ok {
			tables = append(tables, it)
		}
	}
	return tables
}

// addDeath puts a death first. All deaths in one queue for one reason are one
// entry, which keeps the time and keys of the first of them and counts.
func addDeath(past []amqpwire.Value, d amqpwire.Death) []amqpwire.Value {
	for i, it := range past {
		if textOf(it, "queue") == d.Queue && textOf(it, "reason") == d.Reason {
			rest := slices.Delete(slices.Clone(past), i, i+1)
			return slices.Insert(rest, 0, counted(it))
		}
	}
	fresh, _ := amqpwire.DeathField(d).Data.([]amqpwire.Value)
	return append(slices.Clone(fresh), past...)
}

// counted returns an entry with its count raised by one.
func counted(entry amqpwire.Value) amqpwire.Value {
	fields, _ := entry.Data.([]amqpwire.Field)
	fields = slices.Clone(fields)
	for i, f := range fields {
		if f.Name == "count" {
			n, _ := f.Int()
			fields[i] = amqpwire.LongField("count", n+1)
			return amqpwire.Value{Kind: amqpwire.Table, Data: fields}
		}
	}
	fields = append(fields, amqpwire.LongField("count", 2))
	return amqpwire.Value{Kind: amqpwire.Table, Data: fields}
}

func textOf(entry amqpwire.Value, name string) string {
	fields, _ := entry.Data.([]amqpwire.Field)
	for _, f := range fields {
		if f.Name == name {
			s, _ := f.Text()
			return s
		}
	}
	return ""
}

// circles tells whether a message has been in target before and no consumer
// has rejected it since: it would go round for ever.
func circles(target string, deaths []amqpwire.Value) bool {
	for _, d := range deaths {
		if textOf(d, "reason") == string(reasonRejected) {
			return false
		}
		if textOf(d, "queue") == target {
			return true
		}
	}
	return false
}
