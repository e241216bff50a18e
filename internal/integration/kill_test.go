package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
)

// killWindow is the window of the releases that are killed: no kill leaves more
// than that many messages in doubt.
const killWindow = 8

// A release of killMembers lasts for a second at least, so that it is still
// under way when it is killed for the third time, each within killMoment. With
// one intent after the other, one of them is almost always on its way.
const (
	killMembers = 600
	killRate    = 600
	killMoment  = 300 * time.Millisecond
)

// killsEnv multiplies the kills; the default is 1.
const killsEnv = "REDRIVE_TEST_KILLS"

// TestKillsOnTheEmbeddedBroker kills captures 15 times and releases 15 times.
func TestKillsOnTheEmbeddedBroker(t *testing.T) {
	killed(t, 5, 3, 3, func(t testing.TB) venue { return newEmbedded(t) })
}

// TestKillsOnRabbitMQ kills captures 8 times and releases 12 times.
func TestKillsOnRabbitMQ(t *testing.T) {
	killed(t, 4, 2, 3, func(t testing.TB) venue { return newGenuine(t) })
}

func killed(t *testing.T, rounds, captures, releases int, open func(testing.TB) venue) {
	if text := os.Getenv(killsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q: want a number from 1 on", killsEnv, text)
		}
		rounds *= n
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("REDRIVE_TEST_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("seed %d", seed)
	for i := range rounds {
		t.Run(fmt.Sprint("round ", i), func(t *testing.T) {
			t.Parallel() // each has a broker and a store of its own, and waits most of the time
			v := open(t)
			k := &killing{t: t, venue: v, site: newSite(t, v.config()), rnd: rand.New(rand.NewPCG(seed, uint64(i))), copies: map[string]int{}}
			for range captures {
				k.capture()
			}
			k.captureAll()
			k.release(releases)
			k.settle()
		})
	}
}

// killing is one round: a store that lives through several kills.
type killing struct {
	t      *testing.T
	venue  venue
	site   *site
	rnd    *rand.Rand
	sent   []parcel
	kills  int
	copies map[string]int // of each parcel at the destination
	// selected is what the plan found: each parcel, and possible duplicates.
	selected uint64
}

// killWithin kills p at a random moment of the next limit. It reports false
// when p had ended by itself.
func (k *killing) killWithin(p *process, limit time.Duration) bool {
	select {
	case <-p.done:
	case <-time.After(time.Duration(k.rnd.Int64N(int64(limit)))): // the random moment
	}
	p.kill()
	if p.code != -1 {
		return false
	}
	k.kills++
	return true
}

// capture kills one capture of many small batches.
func (k *killing) capture() {
	k.t.Helper()
	for {
		ps := parcels(len(k.sent), 60)
		k.venue.publish("orders.dlq", ps...)
		k.sent = append(k.sent, ps...)
		p := k.site.start("capture", "--prefetch", "3")
		if !k.killWithin(p, 400*time.Millisecond) {
			continue // it was faster: once more with new messages
		}
		// Whatever was captured is in the store, and the rest at the source.
		have := len(k.names())
		if left := k.venue.ready("orders.dlq"); have+left < len(k.sent) {
			eventually(k.t, "what was in flight to come back", func() bool { return have+k.venue.ready("orders.dlq") >= len(k.sent) })
		}
		k.site.sound()
		return
	}
}

// names counts the envelopes of each parcel in the store that are no later
// attempt of another one.
func (k *killing) names() map[string]int {
	k.t.Helper()
	sums := map[string]string{}
	for _, p := range k.sent {
		sum := sha256.Sum256([]byte(p.name))
		sums[hex.EncodeToString(sum[:])] = p.name
	}
	out := map[string]int{}
	for _, e := range k.site.envelopes() {
		name, ok := sums[e.Identity.BodySHA256]
		if !ok {
			k.t.Fatalf("envelope %s is of a message that nobody sent", e.ID)
		}
		if e.Lineage.DuplicateOf == "" {
			out[name]++
		} else if e.Identity.MessageID != "" {
			k.t.Errorf("envelope %s has a message id and is only a possible duplicate", e.ID)
		}
	}
	return out
}

// captureAll captures what is left. Every parcel is in the store then, once;
// further envelopes of it are marked as possible duplicates.
func (k *killing) captureAll() {
	k.t.Helper()
	more := parcels(len(k.sent), max(0, killMembers-len(k.sent)))
	k.venue.publish("orders.dlq", more...)
	k.sent = append(k.sent, more...)
	k.site.ok("capture", "--prefetch", "200")
	if n := k.venue.ready("orders.dlq"); n != 0 {
		k.t.Errorf("%d messages are left at the source", n)
	}
	names := k.names()
	for _, p := range k.sent {
		if names[p.name] != 1 {
			k.t.Errorf("%s is in the store %d times", p.name, names[p.name])
		}
	}
}

// release starts a generation, and kills whoever drives it.
func (k *killing) release(kills int) {
	k.t.Helper()
	n := uint64(len(k.sent))
	plan := ask[api.Plan](k.site, "generation", "plan", "--all", "--fix", "none", "--to-queue", "orders", "--bake", "1ms",
		"--outcome-deadline", "1s", "--rate", strconv.Itoa(killRate), "--burst", "1", "--window", strconv.Itoa(killWindow))
	if plan.Members != n {
		k.t.Fatalf("the plan has %d members and excludes %+v, want all %d", plan.Members, plan.Excluded, n)
	}
	k.selected = plan.Selected // with those that are only possible duplicates
	k.site.ok("generation", "approve", "1", "--why", "no-stages")
	p := k.site.start("generation", "start", "1")
	for {
		if !k.killWithin(p, killMoment) {
			k.t.Fatalf("the release ended before it was killed: exit %d\n%s", p.code, p.err.String())
		}
		if k.site.show("1").State == "approved" { // killed before it began
			p = k.site.start("generation", "start", "1")
			continue
		}
		k.recovered()
		kills--
		if kills == 0 {
			break
		}
		p = k.site.start("generation", "resume", "1", "--why", "after a kill")
	}
	k.site.want(5, "generation", "resume", "1", "--why", "to the end")
}

// recovered looks at the generation after a kill.
func (k *killing) recovered() {
	k.t.Helper()
	g := k.site.show("1")
	checkSums(k.t, g, k.selected)
	if g.Tally["in_flight"] != 0 {
		k.t.Errorf("%d are in flight, and nobody is there", g.Tally["in_flight"])
	}
	if amb := int(g.Tally["ambiguous_publish"]); amb > killWindow*k.kills {
		k.t.Errorf("%d are ambiguous after %d kills with a window of %d", amb, k.kills, killWindow)
	}
	k.site.sound()
}

// settle holds the ledger against the destination, rules what is in doubt by
// what is really there, and releases what is not.
func (k *killing) settle() {
	k.t.Helper()
	confirmed, doubtful := k.resolutions()
	there := k.drained()
	for intent, n := range there {
		if n != 1 || !confirmed[intent] && !doubtful[intent] {
			k.t.Errorf("%d copies of intent %s: confirmed %v, ambiguous %v", n, intent, confirmed[intent], doubtful[intent])
		}
	}
	for intent := range confirmed {
		if there[intent] != 1 {
			k.t.Errorf("intent %s was confirmed and is there %d times", intent, there[intent])
		}
	}
	missing := uint64(0)
	for intent := range doubtful {
		word := "--delivered"
		if there[intent] == 0 {
			word = "--not-delivered"
			missing++
		}
		k.site.ok("generation", "rule", "--intent", "1/"+intent, word, "--why", "looked at the queue")
	}
	k.t.Logf("%d kills left %d intents in doubt, %d of them were not delivered; %d possible duplicates",
		k.kills, len(doubtful), missing, k.selected-uint64(len(k.sent)))
	k.finish(missing)
	for _, p := range k.sent {
		if k.copies[p.name] != 1 {
			k.t.Errorf("%s is at the destination %d times", p.name, k.copies[p.name])
		}
		delete(k.copies, p.name)
	}
	if len(k.copies) > 0 {
		k.t.Errorf("at the destination, and never sent: %v", k.copies)
	}
}

// resolutions reads from the ledger how each intent ended, and that each ended.
func (k *killing) resolutions() (confirmed, doubtful map[string]bool) {
	k.t.Helper()
	confirmed, doubtful = map[string]bool{}, map[string]bool{}
	open := map[string]bool{}
	for _, r := range k.site.tail("--generation", "1") {
		if r.Kind != "member.intended" && r.Kind != "member.resolved" {
			continue
		}
		for pos := range r.positions().All() {
			intent := fmt.Sprintf("%d/%d", pos, r.Body.Try)
			switch {
			case r.Kind == "member.intended":
				open[intent] = true
				continue
			case r.Body.Resolution == "confirmed":
				confirmed[intent] = true
			case r.Body.Resolution == "ambiguous" && r.Body.Reason == "restart":
				doubtful[intent] = true
			default:
				k.t.Errorf("intent %s ended as %s (%s)", intent, r.Body.Resolution, r.Body.Reason)
			}
			if !open[intent] {
				k.t.Errorf("intent %s is resolved and was not open", intent)
			}
			delete(open, intent)
		}
	}
	if len(open) > 0 {
		k.t.Errorf("intents without a resolution: %v", open)
	}
	return confirmed, doubtful
}

// drained takes out what is at the destination, by intent.
func (k *killing) drained() map[string]int {
	k.t.Helper()
	out := map[string]int{}
	for _, f := range k.venue.drain("orders") {
		k.copies[f.name]++
		out[f.intent]++
	}
	return out
}

// finish closes the generation and releases what did not arrive.
func (k *killing) finish(missing uint64) {
	k.t.Helper()
	var g api.Generation
	eventually(k.t, "the outcomes to be overdue", func() bool { g = k.site.show("1"); return g.Tally["pending"] == 0 })
	if g.Tally["undelivered"] != missing || g.Tally["ambiguous_publish"] != 0 {
		k.t.Errorf("ruled: %v, want %d undelivered", g.Tally, missing)
	}
	k.site.ok("generation", "close", "1", "--accept", fmt.Sprintf("missing=%d,withheld=%d", g.Tally["missing"], g.Tally["withheld"]),
		"--why", "all were seen in the queue")
	if missing == 0 {
		return
	}
	plan := ask[api.Plan](k.site, "generation", "plan", "--all", "--fix", "none", "--to-queue", "orders", "--bake", "1ms",
		"--outcome-deadline", "10ms", "--rate", "1000")
	if plan.Members != missing {
		k.t.Errorf("%d can be planned again and %+v not, want %d", plan.Members, plan.Excluded, missing)
	}
	k.site.ok("generation", "approve", "2", "--why", "no-stages")
	k.site.want(5, "generation", "start", "2")
	k.drained()
}
