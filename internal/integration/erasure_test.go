package integration

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// planted is a message whose parts can be recognised in any file.
type planted struct {
	body, header, messageID, operation, key, failure string
	size                                             int // of the body, which is full of its mark
}

func plant(name string, size int) planted {
	return planted{body: "body-" + name, header: "header-" + name, messageID: "msgid-" + name, operation: "operation-" + name,
		key: "ordering-" + name, failure: "failure-" + name, size: size}
}

func (p planted) content() []byte {
	return bytes.Repeat([]byte(p.body+" "), max(1, p.size/(len(p.body)+1)))
}

func (p planted) message(t testing.TB) local.Message {
	t.Helper()
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.DeliveryMode | amqpwire.MessageID | amqpwire.Headers, DeliveryMode: 2,
		MessageID: p.messageID, Headers: []amqpwire.Field{
			amqpwire.StringField("x-operation-id", p.operation), amqpwire.StringField("x-customer", p.header),
			amqpwire.StringField("x-ordering-key", p.key), amqpwire.StringField("x-last-error", p.failure)}})
	if err != nil {
		t.Fatal(err)
	}
	return local.Message{RoutingKey: "orders.dlq", Properties: props, Body: p.content()}
}

// sealed are the parts that no file may show at any time, identities those by
// which envelopes are found while they are there.
func (p planted) sealed() [][]byte {
	return [][]byte{[]byte(p.body), []byte(p.header), []byte(p.failure)}
}

func (p planted) identities() [][]byte {
	return [][]byte{[]byte(p.messageID), []byte(p.operation), []byte(p.key)}
}

func TestPurgeAndCompactLeaveNothing(t *testing.T) {
	v := newEmbedded(t)
	s := newSite(t, v.config())
	small, large, stays := plant("4e1f77", 100), plant("90ac31", 400<<10), plant("b7d2c8", 100)
	v.with(func(ctx context.Context, b *local.Broker) error {
		_, err := b.Publish(ctx, small.message(t), large.message(t), stays.message(t))
		return err
	})
	s.ok("capture")
	for _, p := range []planted{small, large, stays} {
		if files := s.filesWith(p.sealed()...); len(files) > 0 {
			t.Errorf("%s stands unsealed in %v", p.body, files)
		}
	}
	shown := ask[api.Envelope](s, "envelope", "show", small.messageID, "--payload", "--why", "ticket 7")
	if !strings.Contains(shown.Payload.Text, small.body) {
		t.Errorf("the payload does not show: %+v", shown.Payload)
	}

	// The small one is released and comes back: its child has the same body.
	child := comeBack(t, v, s, small)
	s.ok("envelope", "purge", "#1", "--ticket", "GDPR-1")
	s.ok("store", "compact")
	if e := ask[api.Envelope](s, "envelope", "show", child, "--payload", "--why", "ticket 7"); !strings.Contains(e.Payload.Text, small.body) {
		t.Errorf("purging the parent took the payload of its child")
	}
	s.want(3, "envelope", "show", "#1", "--payload", "--why", "ticket 7")

	s.ok("envelope", "purge", child, "--ticket", "GDPR-1")
	s.ok("envelope", "purge", large.operation, "--ticket", "GDPR-2")
	s.ok("store", "compact")
	for _, p := range []planted{small, large} {
		for _, part := range slices.Concat(p.sealed(), p.identities()) {
			if files := s.filesWith(part); len(files) > 0 {
				t.Errorf("%s was purged and is in %v", part, files)
			}
		}
	}
	for _, id := range []string{"#1", "#2", child} {
		p := s.want(3, "envelope", "show", id, "--payload", "--why", "ticket 7")
		if out := p.out.String() + p.err.String(); strings.Contains(out, "body-") {
			t.Errorf("the refusal shows the payload: %s", out)
		}
		if e := ask[api.Envelope](s, "envelope", "show", id); e.Custody != "purged" || !slices.Contains(e.Flags, "payload_gone") {
			t.Errorf("the tombstone of %s: %s %v", id, e.Custody, e.Flags)
		}
	}
	s.refusesActsOn("#1")
	if e := ask[api.Envelope](s, "envelope", "show", stays.messageID, "--payload", "--why", "ticket 7"); !strings.Contains(e.Payload.Text, stays.body) {
		t.Errorf("another envelope lost its payload")
	}
}

// refusesActsOn tries what people can do with a purged envelope. Words about
// it can still be said; what needs the message is refused.
func (s *site) refusesActsOn(id string) {
	s.t.Helper()
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, []string{"annotate", id, "--note", "late"}}, {0, []string{"classify", id, "--class", "transient", "--why", "late"}},
		{0, []string{"assign", id, "--owner", "nobody", "--why", "late"}}, {3, []string{"hold", id, "--why", "late"}},
		{3, []string{"unhold", id, "--why", "late"}}, {3, []string{"resolve", id, "--why", "late"}}, {3, []string{"purge", id, "--ticket", "late"}},
	} {
		s.want(c.code, append([]string{"envelope"}, c.args...)...)
	}
}

// comeBack releases one envelope, rejects it at the destination, and returns
// the id of its child.
func comeBack(t *testing.T, v *embedded, s *site, p planted) string {
	t.Helper()
	s.ok("generation", "plan", "--id", p.messageID, "--fix", "none", "--to-queue", "orders", "--outcome-deadline", "10m", "--bake", "1ms")
	s.ok("generation", "approve", "1", "--why", "no-stages")
	s.want(5, "generation", "start", "1", "--no-wait")
	v.with(func(ctx context.Context, b *local.Broker) error {
		c, err := b.Consume(ctx, "orders", 1)
		if err != nil {
			return err
		}
		d := <-c.Deliveries()
		if err := c.Reject(ctx, d.Receipt); err != nil {
			return err
		}
		return c.Close(ctx)
	})
	s.ok("capture")
	all := s.envelopes()
	child := all[len(all)-1]
	if child.Lineage.Attempt != 2 || child.Lineage.Stamp != "valid" {
		t.Fatalf("the child: %+v", child.Lineage)
	}
	return child.ID
}
