package integration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/app"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// TestRepairedMessage corrects a message, releases it, lets it die once more and
// releases it again. The broker hands over exactly the repaired bytes both
// times, what came back is an attempt of the same lineage, and the original is
// what it was.
func TestRepairedMessage(t *testing.T) {
	c := &caseRun{t: t, group: &caseGroup{t: t}}
	m := c.plain("repair-1")
	m.body = []byte(`{"id":9007199254740993, "amount":1.10, "sku":"SKU-<88>"}`)
	const fixed = `{"id":9007199254740993,"amount":1.10,"sku":"SKU-89"}`
	c.open("")
	c.seed(m)
	c.capture(1)
	before := c.stored(nth(1), m)

	c.s.write("fix.json", `[{"op":"replace","path":"/sku","value":"SKU-89"}]`)
	r := ask[api.Repair](c.s, "envelope", "repair", nth(1), "--patch", c.s.path("fix.json"), "--why", "renamed")
	sum := sha256.Sum256([]byte(fixed))
	if !r.Live || r.SHA256 != hex.EncodeToString(sum[:]) {
		t.Fatalf("%+v", r)
	}
	plan := ask[api.Plan](c.s, slices.Concat([]string{"generation", "plan"}, quick, []string{"--all"})...)
	id := utoa(uint64(plan.Generation.Number))
	c.s.fails(3, "another content", "generation", "approve", id, "--digest", plan.Generation.Manifest, "--why", "no-stages")
	c.approvedBy("bob", id, plan.Generation.Manifest)
	c.s.want(5, "generation", "start", id)

	got, ok := c.raw.Get(workQueue)
	if !ok || string(got.Body) != fixed {
		t.Fatalf("the broker hands over %q", got.Body)
	}
	if v, have := amqpwire.Parse(m.props), amqpwire.Parse(got.Properties); have.MessageID != v.MessageID || have.ContentType != v.ContentType {
		t.Errorf("properties %+v", have)
	}
	// It is rejected again, and comes back with the stamp that it went out with.
	c.raw.Publish("", workQueue, got.Properties, got.Body)
	c.raw.Reject(workQueue)
	eventually(t, "the dead letter", func() bool { return c.r.ready(deadQueue) == 1 })
	c.capture(1)
	kid := c.look(nth(2))
	if kid.Lineage.Attempt != 2 || kid.Lineage.Parent != before.ID || kid.Lineage.Stamp != "valid" || kid.Identity.BodySHA256 != r.SHA256 {
		t.Errorf("what came back is %+v of body %s", kid.Lineage, kid.Identity.BodySHA256)
	}
	if after := c.stored(nth(1), m); after.Commitment != before.Commitment || len(after.Repairs) != 1 {
		t.Errorf("the original has %s and %+v, before %s", after.Commitment, after.Repairs, before.Commitment)
	}
	c.release(1, "--id", nth(2), "--to-queue", workQueue)
	if got, ok := c.raw.Get(workQueue); !ok || string(got.Body) != fixed {
		t.Errorf("the second time the broker hands over %q", got.Body)
	}
	c.s.audit()
}

// approvedBy approves a plan as another user of the operating system.
func (c *caseRun) approvedBy(who, id, digest string) {
	c.t.Helper()
	ctx := context.Background()
	caller, err := app.Connect(ctx, app.Settings{Data: c.s.data, Command: "test", Actor: event.Actor{Auth: "os", Role: "operator", Subject: "os:" + who}})
	must(c.t, err)
	_, err = api.Call(ctx, caller, api.GenerationApprove, api.ApproveRequest{ID: id, Digest: digest, Why: "looked at; no-stages"}, nil)
	must(c.t, errors.Join(err, caller.Close(ctx)))
}
