package quarantine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

const generation = "01J9ZK6V7Q8R9S0T1V2W3X4Y5Z"

// release lets an envelope go to a queue and returns its message, dead again.
func (b *book) release(no event.EnvelopeNo) (quarantine.Delivery, stamp.Stamp) {
	b.Helper()
	f := b.facts(no)
	s := stamp.Stamp{Generation: generation, Envelope: f.ID.String(), Position: uint32(no), Try: 1}
	b.releases.of[s] = quarantine.Release{Gen: 4, Env: no, RoutingKey: "orders", BodyDigest: f.BodyDigest, Intended: true}
	o, err := b.original(no)
	b.ok(err)
	return b.stamped(o, s, b.keys.Stamp.Sign(s, "", "orders")), s
}

func (b *book) stamped(o *quarantine.Original, s stamp.Stamp, mac stamp.MAC) quarantine.Delivery {
	b.Helper()
	e := amqpwire.Edit(o.Properties)
	e.Set(s.Headers(mac)...)
	props, err := e.Bytes()
	b.ok(err)
	b.last++
	return quarantine.Delivery{Receipt: b.last, Queue: "orders.dlq", Exchange: "", RoutingKey: "orders.dlq", Properties: props, Body: o.Body, DeliveryCount: -1}
}

func TestMessageThatComesBackIsAChild(t *testing.T) {
	b := newBook(t)
	nos, _ := b.capture(b.delivery(`{"a":1}`, headers("x-operation-id", "op", "x-first-failed-at", "1780000000")))
	root := nos[0]
	b.now = b.now.Add(time.Hour)
	back, _ := b.release(root)
	kids, rc := b.capture(back)
	f := b.facts(kids[0])
	if f.Parent != root || f.Root != root || f.Attempt != 2 || f.Stamp != quarantine.StampValid || f.BodyOf != root || f.FirstDied != 1_780_000_000_000 {
		t.Errorf("%+v", f)
	}
	want := &event.EnvelopeReturned{Parent: root, Pos: event.Position(root), Try: 1}
	last := rc.Records[len(rc.Records)-1]
	if d := cmp.Diff(event.Body(want), last.Body); d != "" || last.Subj != (event.Subject{Env: kids[0], Gen: 4}) {
		t.Errorf("%s about %+v", d, last.Subj)
	}
	again, _ := b.release(kids[0])
	grand, _ := b.capture(again)
	if f := b.facts(grand[0]); f.Parent != kids[0] || f.Root != root || f.Attempt != 3 || f.BodyOf != root {
		t.Errorf("%+v", f)
	}
	b.view(func(v ledger.View) {
		if d := cmp.Diff(kids, quarantine.Kids(v, root)); d != "" {
			t.Errorf("children of the root: %s", d)
		}
		if no, err := quarantine.Lookup(v, "op"); err != nil || no != grand[0] {
			t.Errorf("the operation names envelope %d, want the latest attempt: %v", no, err)
		}
		if v.Get(ledger.Bucket{Name: "body.sealed"}, ledger.Key(uint64(kids[0]))) != nil {
			t.Error("the body is stored twice")
		}
	})
	for _, no := range []event.EnvelopeNo{root, kids[0], grand[0]} {
		if o, err := b.original(no); err != nil || string(o.Body) != `{"a":1}` {
			t.Errorf("envelope %d: %v", no, err)
		}
	}
}

func TestSecondReturnOfOneIntent(t *testing.T) {
	for _, batched := range []bool{true, false} {
		b := newBook(t)
		root := b.orders(1)[0]
		back, s := b.release(root)
		twin := back
		var records []*event.Record
		if batched {
			_, rc := b.capture(back, twin)
			records = rc.Records
		} else {
			_, rc := b.capture(back)
			rel := b.releases.of[s]
			rel.Returned = true
			b.releases.of[s] = rel
			_, rc2 := b.capture(twin)
			records = slices.Concat(rc.Records, rc2.Records)
		}
		var again []uint8
		for _, r := range records {
			if e, ok := r.Body.(*event.EnvelopeReturned); ok {
				again = append(again, e.Again)
			}
		}
		if d := cmp.Diff([]uint8{0, 1}, again); d != "" {
			t.Errorf("in one batch %v: %s", batched, d)
		}
		if f := b.facts(3); f.Parent != root || f.Attempt != 2 {
			t.Errorf("the second child: %+v", f)
		}
	}
}

// Whatever is wrong with a stamp makes a root with a flag, and nothing is
// reported as returned.
func TestStampsThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		name string
		want quarantine.StampState
		flag quarantine.Flags
		make func(b *book, o *quarantine.Original, s stamp.Stamp) quarantine.Delivery
	}{
		{"forged MAC", quarantine.StampInvalid, quarantine.FlagStampInvalid, func(b *book, o *quarantine.Original, s stamp.Stamp) quarantine.Delivery {
			mac := b.keys.Stamp.Sign(s, "", "orders")
			mac[0] ^= 1
			return b.stamped(o, s, mac)
		}},
		{"wrong destination", quarantine.StampInvalid, quarantine.FlagStampInvalid, func(b *book, o *quarantine.Original, s stamp.Stamp) quarantine.Delivery {
			return b.stamped(o, s, b.keys.Stamp.Sign(s, "", "payments"))
		}},
		{"guessed try", quarantine.StampInvalid, quarantine.FlagStampInvalid, func(b *book, o *quarantine.Original, s stamp.Stamp) quarantine.Delivery {
			rel := b.releases.of[s]
			rel.Intended = false
			s.Try = 2
			b.releases.of[s] = rel
			return b.stamped(o, s, b.keys.Stamp.Sign(s, "", "orders"))
		}},
		{"unknown generation", quarantine.StampUnknown, quarantine.FlagStampUnknown, func(b *book, o *quarantine.Original, s stamp.Stamp) quarantine.Delivery {
			s.Generation = "01J9ZK6V7Q8R9S0T1V2W3X4Y60"
			return b.stamped(o, s, b.keys.Stamp.Sign(s, "", "orders"))
		}},
		{"altered body", quarantine.StampDerived, quarantine.FlagDerived, func(b *book, o *quarantine.Original, s stamp.Stamp) quarantine.Delivery {
			d := b.stamped(o, s, b.keys.Stamp.Sign(s, "", "orders"))
			d.Body = append([]byte{' '}, d.Body...)
			return d
		}},
		{"half a stamp", quarantine.StampInvalid, quarantine.FlagStampInvalid, func(b *book, _ *quarantine.Original, s stamp.Stamp) quarantine.Delivery {
			return b.delivery("x", headers(stamp.HeaderEnvelope, s.Envelope, stamp.HeaderIntent, "1/1"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook(t)
			root := b.orders(1)[0]
			_, s := b.release(root)
			o, err := b.original(root)
			b.ok(err)
			nos, rc := b.capture(c.make(b, o, s))
			f, cell := b.facts(nos[0]), b.cell(nos[0])
			if f.Stamp != c.want || f.Parent != 0 || f.Root != nos[0] || f.Attempt != 1 || f.BodyOf != nos[0] || cell.Flags != c.flag {
				t.Errorf("%+v, flags %b", f, cell.Flags)
			}
			for _, r := range rc.Records {
				if r.Body.Kind() == event.KindEnvelopeReturned {
					t.Error("it counts as returned")
				}
			}
		})
	}
}

func (b *book) purge(nos ...event.EnvelopeNo) error {
	b.Helper()
	_, err := b.update(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Purge(v, event.RangesOf(nos...), "T-9", "", b.isReserved)
	})
	return err
}

// A purge takes the body of a lineage with the last one that needs it, in
// whatever order.
func TestPurgeLeavesTheBodyToTheOthers(t *testing.T) {
	for _, order := range [][]event.EnvelopeNo{{1, 2}, {2, 1}} {
		b := newBook(t)
		root := b.orders(1)[0]
		back, _ := b.release(root)
		b.capture(back)
		b.ok(b.purge(order[0]))
		if _, err := b.original(order[0]); !errors.Is(err, quarantine.ErrErased) {
			t.Errorf("the purged one: %v", err)
		}
		if _, err := b.original(order[1]); err != nil {
			t.Errorf("the other one: %v", err)
		}
		b.ok(b.purge(order[1]))
		if _, err := b.original(order[1]); !errors.Is(err, quarantine.ErrErased) {
			t.Errorf("both purged: %v", err)
		}
		b.view(func(v ledger.View) {
			for _, name := range []string{"envelope.secret", "envelope.properties", "body.secret", "body.sealed", "body.refs"} {
				if k, _ := v.Last(ledger.Bucket{Name: name}); k != nil {
					t.Errorf("%s is left in %s", k, name)
				}
			}
		})
	}
}

func TestPurgeOfAWholeLineageAtOnce(t *testing.T) {
	b := newBook(t)
	back, _ := b.release(b.orders(1)[0])
	b.capture(back)
	b.ok(b.purge(1, 2))
	b.view(func(v ledger.View) {
		if k, _ := v.Last(ledger.Bucket{Name: "body.secret"}); k != nil {
			t.Error("the secret of the body is left")
		}
	})
}
