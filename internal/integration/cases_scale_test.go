package integration

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// messagesEnv is how many messages R77 takes; the default is a hundredth of
// what the catalogue asks for.
const messagesEnv = "REDRIVE_TEST_CASE_MESSAGES"

// mostMemory is what a command may have resident, in KiB.
const mostMemory = 300 << 10

func caseR77(c *caseRun) {
	n := c.input[0].count(c.t) / 100
	if text := os.Getenv(messagesEnv); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(c.t, err)
	}
	ms := c.input[0].first(c.t, n)
	for i := range ms {
		ms[i].direct, ms[i].key = true, deadQueue // that they died tells nothing here
	}
	c.open(toWork)
	c.send(ms...)
	eventually(c.t, "the messages", func() bool { return c.r.ready(deadQueue) == len(ms) })
	small := func(code int, words ...string) *process {
		c.t.Helper()
		p := c.s.start(words...)
		peak := 0
		eventually(c.t, p.description+" to end", func() bool {
			peak = max(peak, resident(p.cmd.Process.Pid))
			return p.ended()
		})
		p.exits(code)
		if peak > mostMemory {
			c.t.Errorf("%s had %d KiB resident", p.description, peak)
		}
		return p
	}
	p := small(0, "capture", "--json")
	if sum := answer[api.CaptureSummary](p); sum.Captured != uint64(len(ms)) {
		c.t.Fatalf("captured %+v", sum)
	}
	if !strings.Contains(p.err.String(), " captured") {
		c.t.Errorf("no progress is visible: %q", p.err.String())
	}
	small(0, "envelope", "list", "--groups")
	small(0, "envelope", "list", "--limit", "500")
	plan := answer[api.Plan](small(0, "generation", "plan", "--all", "--to-queue", workQueue, "--fix", "none", "--rate", "100000", "--window", "1000",
		"--stages", "1000000", "--bake", "1ms", "--outcome-deadline", "10ms", "--json"))
	id := utoa(uint64(plan.Generation.Number))
	small(0, "generation", "approve", id, "--why", "no-stages")
	g := answer[api.Generation](small(5, "generation", "start", id, "--json"))
	checkTally(c.t, g, uint64(len(ms)), map[string]uint64{"missing": uint64(len(ms))})
	if n := c.r.ready(workQueue); n != len(ms) {
		c.t.Errorf("%d arrived, want %d", n, len(ms))
	}
	small(0, "generation", "report", id)
}

// resident is the most memory that a process has had in use, in KiB, 0 when it
// has ended. What the kernel counts for a child when it ends includes what its
// parent had.
func resident(pid int) (kib int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err = strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				return 0
			}
		}
	}
	return kib
}

func caseR78(c *caseRun) {
	ms := c.messages()
	c.open("retention: {deadline: 1s, payload_age: 1s}")
	c.seed(ms...)
	c.capture(len(ms))
	id, plan := c.plan("--all")
	if plan.Members != uint64(len(ms)) {
		c.t.Fatalf("%d members", plan.Members)
	}
	eventually(c.t, "all to be past their deadline", func() bool { return len(c.s.envelopes("--overdue")) == len(ms) })
	for _, e := range c.s.envelopes() {
		if e.Custody != "quarantined" || slices.Contains(e.Flags, "payload_gone") {
			c.t.Errorf("%s is open and was touched: %s %v", e.Identity.MessageID, e.Custody, e.Flags)
		}
	}
	c.s.want(5, "generation", "start", id)
	c.unchanged(workQueue, ms...)
	// What was settled by a person loses its payload, the others keep theirs.
	c.s.ok("envelope", "resolve", ms[0].id(), "--why", "the shop has it")
	eventually(c.t, "the payload of the settled one to go", func() bool {
		return slices.Contains(ask[api.Envelope](c.s, "envelope", "show", ms[0].id()).Flags, "payload_gone")
	})
	for _, m := range ms[1:] {
		c.stored(m.id(), m)
	}
}

func caseR80(c *caseRun) {
	ms := c.messages()
	c.open("")
	c.seedMany(ms...)
	c.capture(len(ms))
	w := c.taker()
	id, plan := c.plan("--all", "--rate", "1000", "--burst", "1", "--window", "1")
	if plan.Members != uint64(len(ms)) {
		c.t.Fatalf("%d members", plan.Members)
	}
	rnd := newRand(c.t)
	p := c.s.hold("generation", "start", id)
	c.s.underway(id, 100)
	if !killSoon(p, rnd, 50*time.Millisecond) {
		c.t.Fatalf("it ended before it was killed: exit %d", p.code)
	}
	p = c.s.hold("generation", "resume", id, "--why", "after a restart")
	c.s.underway(id, 250)
	c.s.ok("generation", "abort", id, "--why", "the rest later")
	p.wait()
	g := c.s.show(id)
	if g.Tally["ambiguous_publish"] > 1 {
		c.t.Errorf("one is on its way at a time, and %d are in doubt", g.Tally["ambiguous_publish"])
	}
	rest := len(c.s.envelopes("--custody", "quarantined"))
	more, plan := c.plan("--all", "--window", "1")
	if plan.Members != uint64(rest) || rest == 0 {
		c.t.Fatalf("%d of %d can be planned again: %+v", plan.Members, rest, plan.Excluded)
	}
	c.s.want(5, "generation", "start", more)
	arrived := len(ms) - int(g.Tally["ambiguous_publish"])
	eventually(c.t, "the consumer to have all", func() bool { n, _ := w.counts(); return n >= arrived })
	w.stop()
	last := int32(-1)
	for _, d := range w.taken {
		seq, _ := d.Headers["seq"].(int32)
		if seq <= last {
			c.t.Errorf("%d came after %d", seq, last)
		}
		last = seq
	}
	c.heldBackByKey(ms)
}

// heldBackByKey releases in the order of keys: what comes after the one of its
// key that fails is not sent, and all others are.
func (c *caseRun) heldBackByKey(ms []message) {
	c.t.Helper()
	c.on(newRabbit(c.t))
	c.declare()
	c.s = newSite(c.t, strings.Replace(c.r.config("destinations: [{queue: "+workQueue+", evidence: outcomes}]\n"), "prefetch: 100}",
		`prefetch: 100, identity: {ordering_key: ["header:key"], sequence: ["header:seq"]}}`, 1))
	outcomes := c.r.declareOutcomes()
	c.seedMany(ms...)
	c.capture(len(ms))
	got := map[string][]int32{}
	w := c.r.work(workQueue, func(ch *amqp.Channel, d amqp.Delivery) verdict {
		key, _ := d.Headers["key"].(string)
		seq, _ := d.Headers["seq"].(int32)
		got[key] = append(got[key], seq)
		if d.MessageId == "sq-100" {
			return refuse
		}
		outcomes.report(ch, d, "succeeded")
		return take
	})
	id, _ := c.plan("--all", "--order", "per-key", "--on-failure", "park", "--outcome-deadline", "10m",
		"--burst", "100", "--window", "500", "--exposure", "2000", "--threshold", "requarantined=50%")
	g := answer[api.Generation](c.s.want(5, "generation", "start", id, "--json"))
	w.stop()
	const parked = 57 // of k2, with the numbers 107 to 499
	checkTally(c.t, g, uint64(len(ms)), map[string]uint64{"succeeded": uint64(len(ms) - 1 - parked), "requarantined": 1, "withheld": parked})
	for key, seqs := range got {
		if !slices.IsSorted(seqs) || key == "k2" && seqs[len(seqs)-1] != 100 {
			c.t.Errorf("%s: %v", key, seqs)
		}
	}
}

func caseR81(c *caseRun) {
	ms := c.messages()
	c.open("")
	c.seedMany(ms...)
	c.capture(len(ms))
	id, plan := c.plan("--all", "--rate", "500", "--burst", "10", "--outcome-deadline", "2s",
		"--threshold", "requarantined=100%", "--threshold", "abort=100%") // three of ten fail, and all are to go
	if plan.Members != uint64(len(ms)) {
		c.t.Fatalf("%d members", plan.Members)
	}
	gen := plan.Generation.ID
	times := map[string]int{} // by the only consumer, whose goroutine it is
	w := c.r.work(workQueue, func(_ *amqp.Channel, d amqp.Delivery) verdict {
		if d.Headers["x-redrive-generation"] != gen {
			return refuse // one of the new failures
		}
		times[d.MessageId]++
		if k, _ := strconv.Atoi(strings.TrimPrefix(d.MessageId, "sh-")); k%10 < 3 {
			return refuse
		}
		return take
	})
	p := c.s.hold("generation", "start", id)
	n := 0
	stop := c.publishing(500, 50*time.Millisecond, func() message {
		n++
		return c.plain(fmt.Sprint("fresh-", n))
	})
	for !p.ended() {
		c.pages(len(ms))
	}
	fresh := stop()
	p.exits(5)
	g := c.s.show(id)
	back := uint64(len(ms) * 3 / 10)
	checkTally(c.t, g, uint64(len(ms)), map[string]uint64{"requarantined": back, "missing": uint64(len(ms)) - back})
	eventually(c.t, "the new failures to be dead", func() bool { return c.r.ready(workQueue) == 0 })
	w.stop()
	for _, m := range ms {
		if times[m.id()] != 1 {
			c.t.Errorf("%s was delivered %d times by this generation", m.id(), times[m.id()])
		}
		delete(times, m.id())
	}
	if len(times) > 0 {
		c.t.Errorf("the generation delivered what was not in it: %v", times)
	}
	c.t.Logf("%d new failures meanwhile", fresh)
}

// pages walks through the list while the set changes: no number is left out or
// shown twice.
func (c *caseRun) pages(least int) {
	c.t.Helper()
	seen := uint64(0)
	for cursor := uint64(0); ; {
		page := ask[api.EnvelopePage](c.s, "envelope", "list", "--limit", "50", "--cursor", utoa(cursor))
		for _, e := range page.Envelopes {
			if e.Number != seen+1 {
				c.t.Fatalf("after envelope %d the list has %d", seen, e.Number)
			}
			seen = e.Number
		}
		if cursor = page.Next; cursor == 0 {
			break
		}
	}
	if seen < uint64(least) {
		c.t.Errorf("the list ends after %d of at least %d", seen, least)
	}
}
