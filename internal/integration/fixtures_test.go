package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// fixture is a message, how it dies, and what "envelope show --json" has to say
// about it, by the path of the field. Null stands for a field that is not
// there, "*" for one that is there and not empty.
type fixture struct {
	Why     string `json:"why"`
	How     string `json:"how"` // reject, expire, crash; publish: it does not die
	Queue   string `json:"queue"`
	Message struct {
		MessageID   string         `json:"message_id"`
		Type        string         `json:"type"`
		AppID       string         `json:"app_id"`
		Timestamp   int64          `json:"timestamp"`
		ContentType string         `json:"content_type"`
		Expiration  string         `json:"expiration"`
		Headers     map[string]any `json:"headers"`
		Body        string         `json:"body"`
		BodyHex     string         `json:"body_hex"`
	} `json:"message"`
	Expect map[string]any `json:"expect"`

	name string
}

func fixtures(t testing.TB) []*fixture {
	t.Helper()
	names, err := filepath.Glob("testdata/fixtures/*.json")
	if err != nil || len(names) != 10 {
		t.Fatalf("%d fixtures, want 10: %v", len(names), err)
	}
	var out []*fixture
	for _, name := range names {
		b, err := os.ReadFile(name)
		must(t, err)
		f := &fixture{name: filepath.Base(name)}
		dec := json.NewDecoder(strings.NewReader(string(b)))
		dec.UseNumber()
		dec.DisallowUnknownFields()
		if err := dec.Decode(f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, f)
	}
	return out
}

func (f *fixture) body(t testing.TB) []byte {
	t.Helper()
	if f.Message.BodyHex == "" {
		return []byte(f.Message.Body)
	}
	b, err := hex.DecodeString(f.Message.BodyHex)
	must(t, err)
	return b
}

func (f *fixture) publishing(t testing.TB) amqp.Publishing {
	t.Helper()
	m := &f.Message
	p := amqp.Publishing{MessageId: m.MessageID, Type: m.Type, AppId: m.AppID, ContentType: m.ContentType, Expiration: m.Expiration,
		Headers: amqp.Table{}, Body: f.body(t)}
	if m.Timestamp > 0 {
		p.Timestamp = time.Unix(m.Timestamp, 0)
	}
	for name, v := range m.Headers {
		if n, ok := v.(json.Number); ok {
			i, err := n.Int64()
			must(t, err)
			v = i
		}
		p.Headers[name] = v
	}
	return p
}

// dies lets the message die in its way.
func (f *fixture) dies(t testing.TB, r *rabbit) {
	t.Helper()
	m := f.publishing(t)
	before := r.ready(f.Queue)
	switch f.How {
	case "publish":
		r.publish(f.Queue, m)
	case "expire":
		r.publish("orders", m)
	case "reject":
		r.die("orders", m)
	case "crash":
		r.publish("orders", m)
		for r.ready(f.Queue) == before {
			// A worker that takes it and goes away, as one that is killed does.
			conn := r.dial()
			ch, err := conn.Channel()
			must(t, err)
			eventually(t, "the delivery", func() bool {
				_, ok, err := ch.Get("orders", false)
				must(t, err)
				return ok || r.ready(f.Queue) > before
			})
			must(t, conn.Close())
		}
	default:
		t.Fatalf("%s: how %q", f.name, f.How)
	}
	eventually(t, f.name+" to be in its queue", func() bool { return r.ready(f.Queue) == before+1 })
}

// TestEveryField captures ten messages and looks at every field of each.
func TestEveryField(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	ch := r.channel()
	if _, err := ch.QueueDeclare("billing.dlq", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, strings.Replace(r.config(""), "sources:\n",
		"sources:\n  - {queue: billing.dlq, identity: {operation: [\"body:/order_id\"], ordering_key: [\"body:/sku\"], sequence: [\"body:/quantity\"]}}\n", 1))
	from := time.Now()
	all := map[string]map[string]any{}
	for i, f := range fixtures(t) {
		f.dies(t, r)
		s.ok("capture", "--queue", f.Queue)
		shown := ask[map[string]any](s, "envelope", "show", fmt.Sprint("#", i+1))
		all[f.name] = shown
		for path, want := range f.Expect {
			if path == "redelivered" && f.counted4(r) {
				want = true
			}
			checkField(t, f.name, shown, path, want)
		}
		e := ask[api.Envelope](s, "envelope", "show", fmt.Sprint("#", i+1))
		f.checkAlways(t, r, &e, from)
		if t.Failed() {
			t.Fatalf("%s (%s) is shown as\n%v", f.name, f.Why, shown)
		}
	}
	for name, secret := range map[string]string{"01-full.json": "s3cr3t-4711", "07-secrets.json": "hunter2"} {
		text := all[name]["diagnostic"].(string)
		if strings.Contains(text, secret) || len(text) > 512 {
			t.Errorf("%s: the diagnostic is not sanitized: %q", name, text)
		}
	}

	s.ok("envelope", "hold", "m-1", "--why", "legal asked", "--ticket", "T-9")
	s.ok("envelope", "annotate", "m-1", "--note", "looks like the outage", "--ticket", "T-10")
	s.ok("envelope", "assign", "m-1", "--owner", "Legal", "--why", "T-9")
	s.ok("envelope", "classify", "m-1", "--class", "permanent", "--reason", "outage", "--why", "T-10")
	e := ask[api.Envelope](s, "envelope", "show", "m-1")
	if !slices.Contains(e.Flags, "held") || e.Owner != "Legal" || e.Class != "permanent" || e.Reason != "outage" ||
		len(e.Notes) != 1 || e.Notes[0].Text != "looks like the outage" || e.Notes[0].Ticket != "T-10" {
		t.Errorf("after the annotations: %+v", e)
	}
}

// counted4 tells whether RabbitMQ 4 says of the message that it was delivered
// before, although it was not in this queue: it carries the count of the quorum
// queue in which a message was rejected or killed its consumer on to the next
// one. (Measured with 4.0.5; 3.10.8 does not.)
func (f *fixture) counted4(r *rabbit) bool {
	return f.How != "publish" && strings.HasPrefix(r.node.Version(), "4.")
}

// checkAlways checks what holds for every envelope.
func (f *fixture) checkAlways(t testing.TB, r *rabbit, e *api.Envelope, from time.Time) {
	t.Helper()
	body := f.body(t)
	sum := sha256.Sum256(body)
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"id", len(e.ID) == 26},
		{"size", e.Size == uint64(len(body)) && e.PropertySize > 0},
		{"body_sha256", e.Identity.BodySHA256 == hex.EncodeToString(sum[:])},
		{"commitment", len(e.Commitment) == 64},
		{"wire_digest", len(e.Identity.WireDigest) == 32},
		{"root", e.Lineage.Root == e.ID && e.Lineage.Parent == "" && e.Lineage.Attempt == 1},
		{"cluster", e.Broker.Cluster == r.conn.Properties["cluster_name"]},
		{"vhost", e.Broker.VHost == r.vhost},
		{"queue", e.Broker.Queue == f.Queue},
		{"captured", e.Times.Captured.After(from.Add(-time.Second)) && e.Times.Captured.Before(time.Now().Add(time.Second))},
		{"retention", e.Times.FirstDied != nil && e.Times.Deadline.Equal(e.Times.FirstDied.Add(14*24*time.Hour))},
		{"delivery_count", e.DeliveryCount == 0 || e.DeliveryCount == -1 || e.DeliveryCount <= 6 && f.counted4(r)},
		{"settled", slices.Contains(e.Flags, "settled")},
		{"overdue", slices.Contains(e.Flags, "overdue") == e.Times.Deadline.Before(time.Now())},
		{"no payload", e.Payload == nil},
	} {
		if !c.ok {
			t.Errorf("%s: %s is wrong", f.name, c.what)
		}
	}
}

func checkField(t testing.TB, name string, shown map[string]any, path string, want any) {
	t.Helper()
	var got any = shown
	for part := range strings.SplitSeq(path, ".") {
		m, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: there is no %s", name, path)
			return
		}
		got = m[part]
	}
	if n, ok := want.(json.Number); ok {
		f, err := n.Float64()
		must(t, err)
		want = f
	}
	if want == "*" && got != nil && got != "" {
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %s is %v, want %v", name, path, got, want)
	}
}
