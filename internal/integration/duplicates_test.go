package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
)

// copies counts the envelopes of each body: those that stand for a message of
// their own, and those that may only be a second record of one.
func (c *capturing) copies(bodies ...string) (originals, flagged map[string]int) {
	c.t.Helper()
	k := &killing{t: c.t, site: c.site}
	for _, b := range bodies {
		k.sent = append(k.sent, parcel{name: b})
	}
	originals, flagged = k.names(), map[string]int{}
	all := map[string]int{}
	for _, e := range c.site.envelopes() {
		for _, b := range bodies {
			if digest(b) == e.Identity.BodySHA256 {
				all[b]++
			}
		}
	}
	for b, n := range all {
		flagged[b] = n - originals[b]
	}
	return originals, flagged
}

// TestCutsBetweenCommitAndSettlement cuts the connection between the store's
// commit and the settlement, again and again, and ten of the messages are the
// same. Each message is in the store once, and what may be a second record of
// one is flagged: a plan over all releases each once.
func TestCutsBetweenCommitAndSettlement(t *testing.T) {
	want := int64(cuts(t, 12))
	var c *capturing
	c = newCapturing(t, func(l *link, f frame) verb {
		if f.up && f.is(basic, ack) && l.queue != "" && l.acks > 0 && c.wire.cuts.Load() < want {
			return stop // the first settlement passed, so the queue gets on
		}
		return pass
	})
	const twin = `{"parcel":"the same"}`
	var bodies []string
	for i := range int(4 * want) {
		if i%4 == 3 && i < 40 {
			c.r.publish("orders.dlq", parcel{name: twin})
		}
		p := parcels(i, 1)[0]
		c.r.publish("orders.dlq", p)
		bodies = append(bodies, p.name)
	}
	sum := ask[api.CaptureSummary](c.site, "capture", "--queue", "orders.dlq")
	if n := c.wire.cuts.Load(); n != want {
		t.Fatalf("%d connections were cut, want %d", n, want)
	}
	originals, flagged := c.copies(append(bodies, twin)...)
	marked := 0
	for _, b := range bodies {
		marked += flagged[b]
		if originals[b] != 1 {
			t.Errorf("%s is in the store %d times and %d times flagged", b, originals[b], flagged[b])
		}
	}
	// Which of equal messages comes back nobody can say; none of them is missing.
	if originals[twin] > 10 || originals[twin]+flagged[twin] < 10 {
		t.Errorf("of ten equal messages %d are in the store, and %d flagged", originals[twin], flagged[twin])
	}
	t.Logf("%d cuts: %d captured, %d merged, %d flagged; of ten equal ones %d, and %d flagged", want, sum.Captured, sum.Merged, marked, originals[twin], flagged[twin])

	selected := uint64(len(bodies) + originals[twin])
	plan := ask[api.Plan](c.site, "generation", "plan", "--all", "--fix", "none", "--to-queue", "orders", "--bake", "1ms",
		"--outcome-deadline", "10ms", "--rate", "10000")
	if plan.Members != selected {
		t.Errorf("the plan has %d members and excludes %+v, want %d", plan.Members, plan.Excluded, selected)
	}
	c.site.ok("generation", "approve", "1", "--why", "no-stages")
	c.site.want(5, "generation", "start", "1")
	times := map[string]int{}
	for _, f := range c.r.drain("orders") {
		times[f.name]++
	}
	for _, b := range bodies {
		if times[b] != 1 {
			t.Errorf("%s was released %d times", b, times[b])
		}
	}
	if times[twin] != originals[twin] {
		t.Errorf("the equal messages were released %d times, want %d", times[twin], originals[twin])
	}
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}
