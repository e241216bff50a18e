package quarantine_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

func TestCaptureNumbersAndNamesAscend(t *testing.T) {
	b := newBook(t)
	var last string
	for i, step := range []time.Duration{0, 0, -time.Hour, time.Millisecond, 2 * time.Hour, -24 * time.Hour} {
		b.now = b.now.Add(step)
		nos := b.orders(200)
		for j, no := range nos {
			f := b.facts(no)
			if want := event.EnvelopeNo(i*200 + j + 1); no != want {
				t.Fatalf("envelope %d, want %d", no, want)
			}
			if id := f.ID.String(); id <= last {
				t.Fatalf("envelope %d is %s, the one before %s (clock moved by %s)", no, id, last, step)
			} else {
				last = id
			}
			if f.Captured != uint64(b.now.UnixMilli()) || f.Root != no || f.Attempt != 1 || f.BodyOf != no || f.Parent != 0 {
				t.Fatalf("%+v", f)
			}
		}
	}
	b.view(func(v ledger.View) {
		id := b.facts(777).ID.String()
		if no, err := quarantine.Lookup(v, strings.ToLower(id)); err != nil || no != 777 {
			t.Errorf("lookup of %s: %d, %v", id, no, err)
		}
		if n := quarantine.Count(v); n != 1200 {
			t.Errorf("%d envelopes", n)
		}
	})
}

func TestOriginalIsKeptByteForByte(t *testing.T) {
	b := newBook(t)
	weird := append([]byte{0x20, 0x00, 0, 0, 0, 4, 1, 'a', '?'}, 0xff) // headers that no library can read
	large := bytes.Repeat([]byte("0123456789abcdef"), 20_000)          // becomes a blob
	ds := []quarantine.Delivery{
		{Receipt: 1, Queue: "q", Exchange: "e", RoutingKey: "k", Properties: weird, Body: []byte("\x00\xff"), DeliveryCount: -1},
		{Receipt: 2, Queue: "q", Properties: []byte{0, 0}, Body: nil, DeliveryCount: 3, Redelivered: true},
		{Receipt: 3, Queue: "q", Properties: []byte{0, 0}, Body: large, DeliveryCount: -1},
	}
	nos, rc := b.capture(ds...)
	for i, no := range nos {
		o, err := b.original(no)
		if err != nil || !bytes.Equal(o.Properties, ds[i].Properties) || !bytes.Equal(o.Body, ds[i].Body) || o.Exchange != ds[i].Exchange || o.RoutingKey != ds[i].RoutingKey {
			t.Errorf("envelope %d: %v", no, err)
		}
	}
	c, ok := rc.Records[len(rc.Records)-1].Body.(*event.EnvelopeCaptured)
	if !ok || c.Count != 3 || c.Bytes != uint64(len(weird)+2+2+2+len(large)) || c.Queue != "q" || c.Policy != "7" || c.VHost != "/" {
		t.Errorf("recorded %+v", c)
	}
	if f := b.facts(nos[1]); f.DeliveryCount != 3 || f.Redelivered != 1 || b.facts(nos[0]).DeliveryCount != -1 {
		t.Errorf("%+v", f)
	}
}

func death(queue, reason string, at uint64) amqpwire.Death {
	return amqpwire.Death{Queue: queue, Reason: reason, Exchange: "orders", Count: 1, Time: at}
}

// Where the Facts come from, field by field.
func TestIdentityOfMessages(t *testing.T) {
	type facts = quarantine.Facts
	rules := quarantine.DefaultRules()
	at := func(rule *[]quarantine.Expression, list ...string) {
		*rule = nil
		for _, s := range list {
			e, err := quarantine.ParseExpression(s)
			if err != nil {
				t.Fatal(err)
			}
			*rule = append(*rule, e)
		}
	}
	at(&rules.OrderingKey, "header:x-ordering-key", "header:cloudEvents:partitionkey", "body:/customer/id")
	at(&rules.Sequence, "body:/seq", "body:/list/1", "body:/a~1b/c~0d")
	for _, c := range []struct {
		name string
		view amqpwire.View
		body string
		want facts
	}{
		{"nothing", amqpwire.View{}, "", facts{Attempts: -1}},
		{"headers", headers("x-operation-id", "op", "x-event-type", "order.placed", "x-schema-version", "3", "x-ordering-key", "cust",
			"x-producer-version", "p1", "x-consumer-version", "c1", "x-trace-id", "tr", "x-death-reason", "unknown_sku", "x-last-reason", "timeout",
			"x-error-code", "404", "x-retry-count", "5", "x-first-failed-at", "2026-01-02T03:04:05.678Z"), "",
			facts{Operation: "op", OperationFrom: "header:x-operation-id", Type: "order.placed", Schema: "3", OrderingKey: "cust", Producer: "p1", Consumer: "c1",
				TraceID: "tr", Reason: "unknown_sku", LastReason: "timeout", ErrorCode: "404", Attempts: 6, FirstDied: 1767323045678,
				Class: event.Permanent, Owner: "catalog"}},
		{"properties", amqpwire.View{Present: amqpwire.MessageID | amqpwire.Type | amqpwire.AppID | amqpwire.Timestamp, MessageID: "m", Type: "t", AppID: "a", Timestamp: 1_700_000_000}, "",
			facts{Operation: "m", OperationFrom: "property:message_id", MessageID: "m", Type: "t", Producer: "a", FirstSeen: 1_700_000_000_000, Attempts: -1}},
		{"milliseconds where seconds belong", amqpwire.View{Present: amqpwire.Timestamp, Timestamp: 1_700_000_000_000}, "", facts{Attempts: -1}},
		{"cloud events", headers("cloudEvents:id", "ce", "cloudEvents:type", "ct", "cloudEvents:partitionkey", "pk", "traceparent", "00-tp"), "",
			facts{Operation: "ce", OperationFrom: "header:cloudEvents:id", Type: "ct", OrderingKey: "pk", TraceID: "00-tp", Attempts: -1}},
		{"a header of another type", amqpwire.View{Headers: []amqpwire.Field{amqpwire.LongField("x-retry-count", 2), amqpwire.LongField("x-operation-id", 17)}}, "",
			facts{Operation: "17", OperationFrom: "header:x-operation-id", Attempts: 3}},
		{"retry count that is none", headers("x-retry-count", "-3"), "", facts{Attempts: -1}},
		{"the same reason twice", headers("x-death-reason", "timeout", "x-last-reason", "timeout"), "", facts{Reason: "timeout", Class: event.Transient, Attempts: -1}},
		{"body", amqpwire.View{}, `{"customer":{"id":"c7"},"seq":9007199254740993}`, facts{OrderingKey: "c7", Sequence: "9007199254740993", Attempts: -1}},
		{"body with a name like its value", amqpwire.View{}, `{"x":"seq","seq":"seq"}`, facts{Sequence: "seq", Attempts: -1}},
		{"array", amqpwire.View{}, `{"list":[true,1e400,3]}`, facts{Sequence: "1e400", Attempts: -1}},
		{"escaped names", amqpwire.View{}, `{"a\/b":{"c~d":false}}`, facts{Sequence: "false", Attempts: -1}},
		{"no scalar there", amqpwire.View{}, `{"seq":{"a":1},"list":[1,null]}`, facts{Attempts: -1}},
		{"no JSON", amqpwire.View{}, `seq=1`, facts{Attempts: -1}},
		{"JSON that ends early", amqpwire.View{}, `{"seq":"7","b":`, facts{Sequence: "7", Attempts: -1}},
		{"a name twice", amqpwire.View{}, `{"customer":{"id":"a","id":"b"}}`, facts{OrderingKey: "a", Attempts: -1}},
		{"text that is not UTF-8", headers("x-operation-id", "a\xffb"), "", facts{Operation: "a\ufffdb", OperationFrom: "header:x-operation-id", Attempts: -1}},
		{"deaths", amqpwire.View{Headers: []amqpwire.Field{amqpwire.DeathField(death("orders.retry", "expired", 1_700_000_200), death("orders", "rejected", 1_700_000_100))}}, "",
			facts{DiedQueue: "orders", OriginQueue: "orders", Died: 1_700_000_100_000, FirstDied: 1_700_000_100_000, Reason: "rejected", Attempts: -1}},
		{"delivery limit", amqpwire.View{Headers: []amqpwire.Field{amqpwire.DeathField(death("orders", "delivery_limit", 1_700_000_100))}}, "",
			facts{DiedQueue: "orders", OriginQueue: "orders", Died: 1_700_000_100_000, FirstDied: 1_700_000_100_000, Reason: "worker_crash", Attempts: -1}},
		{"overflow", amqpwire.View{Headers: []amqpwire.Field{amqpwire.DeathField(death("orders", "maxlen", 1_700_000_100))}}, "",
			facts{DiedQueue: "orders", OriginQueue: "orders", Died: 1_700_000_100_000, FirstDied: 1_700_000_100_000, Reason: "overflow", Attempts: -1}},
		{"a reason of no broker", amqpwire.View{Headers: []amqpwire.Field{amqpwire.DeathField(death("orders", "bored", 0))}}, "", facts{DiedQueue: "orders", OriginQueue: "orders", Attempts: -1}},
		{"the worker knows better", amqpwire.View{Headers: append(texts("x-death-reason", "unknown_sku", "x-first-failed-at", "1700000050"),
			amqpwire.DeathField(death("orders", "rejected", 1_700_000_100)))}, "",
			facts{DiedQueue: "orders", OriginQueue: "orders", Died: 1_700_000_100_000, FirstDied: 1_700_000_050_000, Reason: "unknown_sku", Class: event.Permanent, Owner: "catalog", Attempts: -1}},
		{"a copy of a worker", headers("x-died-queue", "orders", "x-died-at", "2026-01-02T03:04:05.678Z", "x-origin-exchange", "shop", "x-origin-routing-key", "order.placed"), "",
			facts{DiedQueue: "orders", Died: 1767323045678, OriginExchange: "shop", OriginRoutingKey: "order.placed", OriginKnown: 1, Attempts: -1}},
		{"a copy of a worker that the broker gave up on", amqpwire.View{Headers: append(texts("x-died-queue", "elsewhere", "x-origin-exchange", "shop", "x-origin-routing-key", "order.placed"),
			amqpwire.DeathField(death("orders", "delivery_limit", 1_700_000_100)))}, "",
			facts{DiedQueue: "orders", OriginQueue: "orders", Died: 1_700_000_100_000, FirstDied: 1_700_000_100_000, Reason: "worker_crash",
				OriginExchange: "shop", OriginRoutingKey: "order.placed", OriginKnown: 1, Attempts: -1}},
		{"names that no broker has", headers("x-origin-exchange", strings.Repeat("x", 256), "x-origin-routing-key", "k"), "", facts{Attempts: -1}},
		{"x-death that is no list", headers("x-death", "yes"), "", facts{Attempts: -1}},
		{"first failed in milliseconds", headers("x-first-failed-at", "1700000050123"), "", facts{FirstDied: 1_700_000_050_123, Attempts: -1}},
		{"first failed at no time", headers("x-first-failed-at", "yesterday"), "", facts{Attempts: -1}},
		{"first failed after it was captured", headers("x-first-failed-at", "2090-01-01T00:00:00Z"), "", facts{Attempts: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook(t)
			b.pr.Rules = rules
			nos, _ := b.capture(b.delivery(c.body, c.view))
			f := b.facts(nos[0])
			w := c.want
			w.Cluster, w.VHost, w.Queue, w.Exchange, w.RoutingKey, w.Policy, w.DeliveryCount = "c1", "/", "orders.dlq", "ex", "rk", "7", -1
			w.Captured, w.Root, w.Attempt, w.BodyOf, w.BodySize = uint64(b.now.UnixMilli()), 1, 1, 1, uint64(len(c.body))
			if w.Owner == "" {
				w.Owner = "on-call"
			}
			if w.FirstDied == 0 {
				w.FirstDied = w.Captured // what nobody knows began with the capture
			}
			if d := cmp.Diff(&w, f, cmpopts.IgnoreFields(facts{}, "ID", "Fingerprint", "Wire", "BodyDigest", "PropertiesSize")); d != "" {
				t.Error(d)
			}
			if cell := b.cell(nos[0]); uint64(cell.FirstDied) != f.FirstDied/1000 || cell.Class != f.Class || (cell.Operation == 0) != (f.Operation == "") {
				t.Errorf("%+v", cell)
			}
		})
	}
}

func TestLongValuesAreCut(t *testing.T) {
	b := newBook(t)
	long := strings.Repeat("é", 600)
	nos, _ := b.capture(b.delivery("", headers("x-operation-id", long, "x-event-type", long)))
	if f := b.facts(nos[0]); f.Operation != strings.Repeat("é", 256) || len(f.Type) != 512 {
		t.Errorf("%d and %d bytes", len(f.Operation), len(f.Type))
	}
}

func TestExpressions(t *testing.T) {
	for _, s := range []string{"header:x", "header:a:b", "property:message_id", "property:correlation_id", "property:type", "property:app_id", "body:/a/0/~0~1", "body:/"} {
		if e, err := quarantine.ParseExpression(s); err != nil || e.String() != s {
			t.Errorf("%q: %q, %v", s, e, err)
		}
	}
	for _, s := range []string{"", "header", "header:", "property:", "property:user_id", "body:", "body:a", "body:/~2", "query:x", ":x"} {
		if e, err := quarantine.ParseExpression(s); err == nil {
			t.Errorf("%q is taken as %q", s, e)
		}
	}
}

// The fingerprint is about the meaning: key order and white space do not
// matter, digits and types do.
func TestFingerprint(t *testing.T) {
	b := newBook(t)
	digest := func(typ, body string) [16]byte {
		nos, _ := b.capture(b.delivery(body, headers("x-event-type", typ)))
		return b.facts(nos[0]).Fingerprint
	}
	same := [][]string{
		{`{"a":1,"b":[1,2]}`, "{ \"b\" : [1, 2],\n\"a\":1 }", `{"\u0061":1,"b":[1,2]}`},
		{`{"n":9007199254740993}`, `{ "n": 9007199254740993}`},
		{`{"n":1.50}`, `{"n":1.5}`, `{"n":15e-1}`},
	}
	seen := map[[16]byte]string{}
	for _, group := range same {
		want := digest("t", group[0])
		for _, body := range group[1:] {
			if digest("t", body) != want {
				t.Errorf("%s and %s mean the same", group[0], body)
			}
		}
	}
	for _, c := range [][2]string{{"t", `{"n":9007199254740992}`}, {"t", `{"n":9007199254740993}`}, {"t", `{"n":9007199254740994}`}, {"u", `{"n":9007199254740993}`},
		{"t", `{"n":"9007199254740993"}`}, {"t", `{"n":[1,2]}`}, {"t", `{"n":[2,1]}`}, {"t", ""}, {"t", " "}, {"t", "x"}, {"t", `{"a":1,"a":2}`}, {"t", `{"a":2}`}} {
		p := digest(c[0], c[1])
		if other, taken := seen[p]; taken {
			t.Errorf("%v and %s have the same fingerprint", c, other)
		}
		seen[p] = fmt.Sprint(c)
	}
}

func TestCaptureNeedsRandomness(t *testing.T) {
	b := newBook(t)
	b.orders(1)
	b.pr.Random = bytes.NewReader(make([]byte, 40)) // runs dry between the two secrets
	if _, err := b.pr.Prepare(b.delivery("x", amqpwire.View{}), quarantine.Origin{}, b.now); err == nil {
		t.Error("sealed without a secret")
	}
	b.pr.Random = rand.Reader
}

func TestSecretsAreNeverWritten(t *testing.T) {
	s := quarantine.Secret{1, 2, 3}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s", "%d"} {
		if got := fmt.Sprintf(verb, s); got != "(secret)" {
			t.Errorf("%s writes %s", verb, got)
		}
	}
	if _, err := s.MarshalText(); err == nil {
		t.Error("a secret was marshalled")
	}
}

func TestFilterAndGroups(t *testing.T) {
	b := newBook(t)
	for _, reason := range []string{"unknown_sku", "unknown_sku", "timeout"} {
		b.capture(b.delivery("x", headers("x-death-reason", "retries_exhausted", "x-last-reason", reason, "x-event-type", "order")))
	}
	b.view(func(v ledger.View) {
		for _, c := range []struct {
			f    quarantine.Filter
			want []event.EnvelopeNo
		}{
			{quarantine.Filter{}, []event.EnvelopeNo{1, 2, 3}},
			{quarantine.Filter{Reason: "retries_exhausted"}, []event.EnvelopeNo{1, 2, 3}},
			{quarantine.Filter{Reason: "unknown_sku"}, []event.EnvelopeNo{1, 2}}, // by the last reason
			{quarantine.Filter{Reason: "unknown_sku", AfterNo: 1}, []event.EnvelopeNo{2}},
			{quarantine.Filter{Class: "permanent"}, []event.EnvelopeNo{1, 2}},
			{quarantine.Filter{Owner: "catalog", Type: "order", Queue: "orders.dlq"}, []event.EnvelopeNo{1, 2}},
			{quarantine.Filter{Type: "nothing has this type"}, nil},
			{quarantine.Filter{Nos: []event.EnvelopeNo{3, 99}}, []event.EnvelopeNo{3}},
			{quarantine.Filter{Custody: []event.Custody{event.Purged}}, nil},
			{quarantine.Filter{Held: true}, nil}, {quarantine.Filter{Overdue: true}, nil},
		} {
			got, err := quarantine.List(v, c.f, 10)
			if d := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); err != nil || d != "" {
				t.Errorf("%+v: %v %s", c.f, err, d)
			}
		}
		if _, err := quarantine.List(v, quarantine.Filter{Class: "bad luck"}, 1); err == nil {
			t.Error("a class that does not exist selects nothing and says nothing")
		}
		groups, err := quarantine.Groups(v, quarantine.Filter{})
		want := []quarantine.Group{{Reason: "retries_exhausted", Class: "permanent", Owner: "catalog", Count: 2, Oldest: uint32(b.now.Unix())},
			{Reason: "retries_exhausted", Class: "transient", Owner: "on-call", Count: 1, Oldest: uint32(b.now.Unix())}}
		if d := cmp.Diff(want, groups); err != nil || d != "" {
			t.Errorf("%v %s", err, d)
		}
		if _, err := quarantine.Lookup(v, "#4"); !errors.Is(err, quarantine.ErrNoEnvelope) {
			t.Errorf("%v", err)
		}
	})
}
