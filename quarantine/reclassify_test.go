package quarantine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// TestRejudge lets a newer policy speak about what an older one has classified.
func TestRejudge(t *testing.T) {
	b := newBook(t)
	rejected := amqpwire.View{Headers: append(texts("x-exception", "WarehouseTimeout"), amqpwire.DeathField(death("orders.fulfillment", "rejected", 1_700_000_100)))}
	var ds []quarantine.Delivery
	for _, body := range []string{"rule", "by hand", "gone", "purged"} {
		ds = append(ds, b.delivery(body, rejected))
	}
	ds = append(ds, b.delivery("own", headers("x-death-reason", "unknown_sku")))
	nos, _ := b.capture(ds...)
	b.must(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Classify(v, event.RangesOf(nos[1]), "", "db_conflict", "7", "")
	})
	b.must(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Purge(v, event.RangesOf(nos[3]), "T-1", "", func(event.EnvelopeNo) event.GenerationNo { return 0 })
	})

	p := b.reference("")
	b.judgeBy(p, "orders.fulfillment.dlq", nil)
	again := func(no event.EnvelopeNo) (out quarantine.Reclassification) {
		b.view(func(v ledger.View) {
			var err error
			out, err = quarantine.Rejudge(v, b.keys, b.store, no, &b.pr.Rules, b.pr.Judge)
			b.ok(err)
		})
		return out
	}
	before := quarantine.Standing{Reason: "rejected", Class: "unclassified", Owner: "on-call"}
	timeout := quarantine.Standing{Reason: "downstream_timeout", Class: "transient", Owner: "Fulfillment team"}
	var changes []quarantine.Reclassification
	for i, want := range []struct{ was, is quarantine.Standing }{
		{before, timeout},
		{quarantine.Standing{Reason: "db_conflict", Class: "unclassified", Owner: "on-call"}, quarantine.Standing{Reason: "db_conflict", Class: "transient", Owner: "Fulfillment team"}},
		{before, timeout},
		{before, before},
		{quarantine.Standing{Reason: "unknown_sku", Class: "permanent", Owner: "catalog"}, quarantine.Standing{Reason: "unknown_sku", Class: "permanent", Owner: "Catalog team"}},
	} {
		got := again(nos[i])
		if got.Was != want.was || got.Is != want.is {
			t.Errorf("message %d: %+v becomes %+v; want %+v becomes %+v", i, got.Was, got.Is, want.was, want.is)
		}
		changes = append(changes, got)
	}

	var events []event.Event
	rc := b.must(func(v ledger.View) (_ []event.Event, err error) {
		events, err = quarantine.Reclassify(v, changes, p.Version, "new rules")
		return events, err
	})
	if rc.Last == 0 || len(events) != 5 { // three of class and reason, two of owners
		t.Errorf("%d records", len(events))
	}
	for _, e := range events {
		if c, ok := e.Body.(*event.EnvelopeClassified); ok && (c.Policy != "2026-12-01" || c.Why != "new rules" || c.Class == "") {
			t.Errorf("%+v", c)
		}
	}
	for i, c := range changes {
		b.view(func(v ledger.View) {
			if now, err := quarantine.GetStanding(v, nos[i]); err != nil || now != c.Is {
				t.Errorf("message %d is %+v (%v), want %+v", i, now, err, c.Is)
			}
		})
	}

	// What was found before somebody else changed it is not recorded.
	_, err := b.update(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Reclassify(v, changes[:1], p.Version, "")
	})
	if !errors.Is(err, quarantine.ErrNotNow) {
		t.Errorf("%v", err)
	}
	_, err = b.update(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Reclassify(v, nil, "", strings.Repeat("x", 1025))
	})
	if !errors.Is(err, quarantine.ErrArgument) {
		t.Errorf("%v", err)
	}
}

// TestRejudgeWithoutPayload classifies by what is still known.
func TestRejudgeWithoutPayload(t *testing.T) {
	b := newBook(t)
	nos, _ := b.capture(
		b.delivery("a", headers("x-death-reason", "retries_exhausted", "x-last-reason", "downstream_timeout")),
		b.delivery("b", headers("x-error-code", "404")))
	b.judgeBy(b.reference(""), "orders.fulfillment.dlq", nil)
	b.must(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Resolve(v, event.RangesOf(nos...), "done", "", func(event.EnvelopeNo) event.GenerationNo { return 0 })
	})
	b.must(func(ledger.View) ([]event.Event, error) {
		return []event.Event{{Subj: event.Subject{Env: nos[0]}, Body: &event.EnvelopeExpired{Envs: event.RangesOf(nos...)}}}, nil
	})
	b.view(func(v ledger.View) {
		for i, want := range []quarantine.Standing{{Reason: "retries_exhausted", Class: "transient", Owner: "Fulfillment team"}, {Class: "permanent", Owner: "Catalog team"}} {
			got, err := quarantine.Rejudge(v, b.keys, b.store, nos[i], &b.pr.Rules, b.pr.Judge)
			if err != nil || got.Is != want {
				t.Errorf("%+v (%v), want %+v", got.Is, err, want)
			}
		}
		if _, err := quarantine.GetStanding(v, 99); !errors.Is(err, quarantine.ErrNoEnvelope) {
			t.Errorf("%v", err)
		}
	})
}
