package local

import (
	"encoding/binary"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/quarantine"
)

// turn is one transaction of the loop. The first storage error sticks in
// broken and ends the broker: state and file may differ from then on.
type turn struct {
	b       *Broker
	tx      *bbolt.Tx
	now     int64 // milliseconds since 1970, the same for the whole turn
	dirty   bool
	broken  error
	touched []*queue // queues whose head or length may break a rule now
	handing []handing
	ended   []func()
}

// handing is a delivery that goes out after the commit.
type handing struct {
	to *Consumer
	d  quarantine.Delivery
}

var errVanished = errors.New("a message is missing in the file")

func (t *turn) note(err error) {
	if err != nil && t.broken == nil {
		t.broken = err
	}
}

func (q *queue) key() []byte { return binary.BigEndian.AppendUint32(nil, q.number) }

func (e *entry) key() []byte { return binary.BigEndian.AppendUint64(nil, e.seq) }

func (t *turn) messages(q *queue) *bbolt.Bucket { return t.tx.Bucket(bucketMessages).Bucket(q.key()) }

func (t *turn) handed(q *queue) *bbolt.Bucket { return t.tx.Bucket(bucketHanded).Bucket(q.key()) }

// putJSON stores v under key; nil stores an empty value.
func (t *turn) putJSON(bucket, key []byte, v any) {
	raw := []byte{}
	if v != nil {
		raw = t.json(v)
	}
	t.dirty = true
	t.note(t.tx.Bucket(bucket).Put(key, raw))
}

func (t *turn) addQueue(s QueueSpec) {
	t.dirty = true
	number, err := t.tx.Bucket(bucketQueues).NextSequence()
	t.note(err)
	q := &queue{spec: s, number: uint32(number)}
	_, err = t.tx.Bucket(bucketMessages).CreateBucket(q.key())
	t.note(err)
	_, err = t.tx.Bucket(bucketHanded).CreateBucket(q.key())
	t.note(err)
	t.putJSON(bucketQueues, []byte(s.Name), storedQueue{s, q.number})
	t.b.queues[s.Name] = q
	t.b.order = append(t.b.order, q)
}

func (t *turn) dropQueue(q *queue) {
	b := t.b
	t.dirty = true
	t.note(t.tx.Bucket(bucketMessages).DeleteBucket(q.key()))
	t.note(t.tx.Bucket(bucketHanded).DeleteBucket(q.key()))
	t.note(t.tx.Bucket(bucketQueues).Delete([]byte(q.spec.Name)))
	for _, x := range b.exchanges {
		x.bindings = slices.DeleteFunc(x.bindings, func(bd Binding) bool {
			if bd.Queue != q.spec.Name {
				return false
			}
			t.note(t.tx.Bucket(bucketBindings).Delete(t.json(bd)))
			return true
		})
	}
	delete(b.queues, q.spec.Name)
	b.order = slices.DeleteFunc(b.order, func(o *queue) bool { return o == q })
	for _, c := range q.consumers {
		c.gone = missing(q.spec.Name)
		t.ended = append(t.ended, func() { c.end(c.gone) })
	}
	q.consumers, q.ready = nil, nil
}

// enqueue stores a message at the end of q.
func (t *turn) enqueue(q *queue, r record) {
	bucket := t.messages(q)
	// Places only grow, so pages can be filled to the brim.
	bucket.FillPercent = 0.95
	seq, err := bucket.NextSequence()
	t.note(err)
	e := &entry{seq: seq, expires: r.expires}
	t.dirty = true
	t.note(bucket.Put(e.key(), r.encode()))
	q.push(e)
	t.touched = append(t.touched, q)
}

// read loads a message.
func (t *turn) read(q *queue, e *entry) *record {
	raw := t.messages(q).Get(e.key())
	if raw == nil {
		t.note(errVanished)
		return &record{}
	}
	r, err := decodeRecord(raw)
	if err != nil {
		t.note(err)
		return &record{}
	}
	return r
}

// remove deletes a message that is no longer among the ready ones.
func (t *turn) remove(q *queue, e *entry) {
	t.dirty = true
	t.note(t.messages(q).Delete(e.key()))
	t.note(t.handed(q).Delete(e.key()))
}

// giveBack puts a message to its place again, unless its limit is spent.
func (t *turn) giveBack(q *queue, e *entry) {
	if q.spent(e) {
		t.deadLetter(q, e, reasonLimit)
		return
	}
	q.push(e)
	t.touched = append(t.touched, q)
}

// spent tells whether a message that comes back was handed out as often as
// its queue allows.
func (q *queue) spent(e *entry) bool {
	return q.spec.DeliveryLimit > 0 && int(e.handed) > q.spec.DeliveryLimit
}

// sweep removes from the touched queues what is due or too much, and from
// those that this touches in turn. It ends, because a message that circles
// without a rejection is dropped.
func (t *turn) sweep() {
	for len(t.touched) > 0 && t.broken == nil {
		q := t.touched[0]
		t.touched = t.touched[1:]
		for e := q.head(); e != nil && t.broken == nil; e = q.head() {
			switch {
			case e.due(t.now):
				t.deadLetter(q, q.pop(), reasonExpired)
				continue
			case q.spent(e):
				// Handed out before the process ended, and never returned.
				t.deadLetter(q, q.pop(), reasonLimit)
				continue
			case q.spec.Overflow == DropHead && q.spec.MaxLength > 0 && len(q.ready) > q.spec.MaxLength:
				t.deadLetter(q, q.pop(), reasonMaxLen)
				continue
			}
			break
		}
	}
}

// dispatch assigns ready messages to consumers that may take more.
func (t *turn) dispatch() {
	for again := true; again && t.broken == nil; {
		for _, q := range t.b.order {
			t.dispatchQueue(q)
		}
		again = len(t.touched) > 0
		t.sweep()
	}
}

func (t *turn) dispatchQueue(q *queue) {
	for q.head() != nil && t.broken == nil {
		c := q.free()
		if c == nil {
			return
		}
		t.assign(q, q.pop(), c)
		// The next head may be due by now.
		t.touched = append(t.touched, q)
		t.sweep()
	}
}

// assign records that c is handed e, so that the count survives whatever
// happens next.
func (t *turn) assign(q *queue, e *entry, c *Consumer) {
	r := t.read(q, e)
	before := e.handed
	e.handed++
	t.dirty = true
	t.note(t.handed(q).Put(e.key(), binary.BigEndian.AppendUint32(nil, e.handed)))
	t.b.receipts++
	receipt := t.b.receipts
	c.unsettled[receipt] = e
	t.handing = append(t.handing, handing{c, quarantine.Delivery{
		Receipt: receipt, Queue: q.spec.Name, Exchange: r.exchange, RoutingKey: r.routingKey,
		Properties: r.properties, Body: r.body,
		Redelivered: before > 0, DeliveryCount: int(before),
	}})
}

// handOver tells consumers what the commit has made true.
func (t *turn) handOver() {
	for _, h := range t.handing {
		h.to.deliveries <- h.d // never blocks: see Consumer.deliveries
	}
	for _, end := range t.ended {
		end()
	}
}
