package integration

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// taker is a consumer of the work queue that takes everything.
func (c *caseRun) taker() *worker {
	c.t.Helper()
	return c.r.work(workQueue, func(*amqp.Channel, amqp.Delivery) verdict { return take })
}

// takenOnce waits until a consumer has everything, and checks that it has each
// message once.
func (c *caseRun) takenOnce(w *worker, ms []message) {
	c.t.Helper()
	eventually(c.t, "the consumer to get everything", func() bool { n, _ := w.counts(); return n >= len(ms) })
	w.stop()
	var found []string
	for id, n := range w.ids() {
		for range n {
			found = append(found, id)
		}
	}
	c.once(ms, found)
}

func caseR51(c *caseRun) {
	ms := c.messages()
	wire := c.openThrough("")
	c.seedMany(ms...)
	c.capture(len(ms))
	w := c.taker()
	id, _ := c.plan("--all", "--rate", "10", "--burst", "1")
	first := c.s.hold("generation", "start", id)
	wire.sent(3)
	c.s.fails(3, `1 reserved.*redrive generation list`, "generation", "plan", "--fix", "by hand", "--id", "m-15")
	second := []string{"generation", "plan", "--fix", "once more"}
	for i := 10; i < 20; i++ {
		second = append(second, "--id", "m-"+strconv.Itoa(i))
	}
	c.s.fails(3, `10 .*reserved`, second...)
	first.exits(5)
	c.takenOnce(w, ms)
	if n := len(ask[api.GenerationPage](c.s, "generation", "list").Generations); n != 1 {
		c.t.Errorf("there are %d generations", n)
	}
}

// refused runs a command that has to be refused, whatever else it mentions
// before.
func (c *caseRun) refused(message string, words ...string) {
	c.t.Helper()
	p := c.s.want(3, words...)
	if !regexp.MustCompile(message).MatchString(p.err.String()) {
		c.t.Errorf("%s: %q does not say %q", p.description, p.err.String(), message)
	}
}

func caseR52(c *caseRun) {
	ms := c.messages()
	wire := c.openThrough("")
	for trial := range scaled(c.t, 3) {
		for i := range ms {
			ms[i] = ms[i].with(c.t, func(v *amqpwire.View) { v.MessageID = fmt.Sprintf("d-%d-%d", trial, i) })
		}
		c.seedMany(ms...)
		c.capture(len(ms))
		w := c.taker()
		id, _ := c.plan("--all", "--rate", "1000")
		shells := []*process{c.s.start("generation", "start", id), c.s.start("generation", "start", id)}
		codes := []int{shells[0].wait(), shells[1].wait()}
		if slices.Sort(codes); !slices.Equal(codes, []int{3, 5}) {
			c.t.Errorf("trial %d: the shells ended with %v\n%s\n%s", trial, codes, shells[0].err.String(), shells[1].err.String())
		}
		c.takenOnce(w, ms)
		if n := len(of(c.s.tail("--generation", id), "generation.started")); n != 1 {
			c.t.Errorf("trial %d: it was started %d times", trial, n)
		}
		c.refused(`settling, started, by os:`, "generation", "start", id)
	}
	// Nor while it is paused, or after it was aborted.
	more := []message{c.plain("late-1"), c.plain("late-2"), c.plain("late-3"), c.plain("late-4")}
	c.seed(more...)
	c.capture(len(more))
	id, _ := c.plan("--all", "--rate", "2", "--burst", "1")
	sent := wire.published.Load()
	first := c.s.hold("generation", "start", id)
	wire.sent(sent + 1)
	c.s.ok("generation", "pause", id, "--why", "wait")
	c.refused(`paused.*generation resume`, "generation", "start", id)
	c.s.ok("generation", "abort", id, "--why", "enough")
	first.wait()
	c.refused(`started, by os:`, "generation", "start", id)
	if n := len(of(c.s.tail("--generation", id), "generation.started")); n != 1 {
		c.t.Errorf("it was started %d times", n)
	}
}

func caseR53(c *caseRun) {
	old := c.messages()
	c.open("")
	c.seedMany(old...)
	c.capture(len(old))
	id, plan := c.plan("--reason", "rejected", "--died", workQueue)
	if plan.Members != uint64(len(old)) {
		c.t.Fatalf("%d members", plan.Members)
	}
	var late []message
	for i := range 50 {
		late = append(late, c.plain(fmt.Sprint("new-", i)))
	}
	c.seedMany(late...)
	c.capture(len(late))
	g := answer[api.Generation](c.s.want(5, "generation", "start", id, "--json"))
	checkTally(c.t, g, 12, map[string]uint64{"missing": 12})
	c.once(old, ids(c.raw.Drain(workQueue)))
	report := ask[api.Report](c.s, "generation", "report", id)
	if report.Newer != 50 || !strings.Contains(report.Text, "50 that match") {
		c.t.Errorf("the report does not say that 50 newer ones were left (%d):\n%s", report.Newer, report.Text)
	}

	// Twelve were looked at, and twelve are purged, whatever else matches.
	words := []string{"envelope", "purge", "--ticket", "T-1"}
	for i := range 12 {
		words = append(words, late[i].id())
	}
	if r := ask[api.Changed](c.s, words...); r.Envelopes != 12 {
		c.t.Errorf("%d were purged", r.Envelopes)
	}
	if n := len(c.s.envelopes("--custody", "quarantined")); n != 38 {
		c.t.Errorf("%d are left, want 38", n)
	}

	// What changed after the approval stays, and the run says so.
	id, _ = c.plan("--all")
	c.s.fails(3, `generation`, "envelope", "purge", late[20].id(), "--ticket", "T-2")
	c.s.ok("envelope", "hold", late[20].id(), "--why", "legal asked")
	g = answer[api.Generation](c.s.want(5, "generation", "start", id, "--json"))
	checkTally(c.t, g, 38, map[string]uint64{"missing": 37, "withheld": 1})
	c.once(slices.Concat(late[12:20], late[21:]), ids(c.raw.Drain(workQueue)))
	if report := ask[api.Report](c.s, "generation", "report", id); !strings.Contains(report.Text, "1 withheld") {
		c.t.Errorf("the report does not say that one stayed:\n%s", report.Text)
	}
}

func caseR55(c *caseRun) {
	in := c.input[0]
	ms := in.first(c.t, min(in.count(c.t), scaled(c.t, 400)))
	wire := c.openThrough("")
	for i, stop := range []func(first *process, id string){
		func(first *process, id string) {
			c.s.ok("generation", "abort", id, "--why", "the wrong button")
			first.exits(5)
		},
		func(first *process, id string) {
			first.kill()
			c.s.ok("generation", "abort", id, "--why", "after a kill")
		},
	} {
		for k := range ms {
			ms[k] = ms[k].with(c.t, func(v *amqpwire.View) { v.MessageID += strings.Repeat("-again", i) })
		}
		c.seedMany(ms...)
		c.capture(len(ms))
		id, _ := c.plan("--all", "--rate", "200", "--burst", "1", "--window", "8")
		sent := wire.published.Load()
		first := c.s.hold("generation", "start", id)
		wire.sent(sent + 100)
		stop(first, id)
		g := c.s.show(id)
		checkSums(c.t, g, uint64(len(ms)))
		got := c.raw.Drain(workQueue)
		c.accounted(ms, got, int(g.Tally["ambiguous_publish"]), 8)
		c.ruled(g, got)
		rest := len(c.s.envelopes("--custody", "quarantined"))
		if rest == 0 || len(got)+rest != len(ms) {
			c.t.Errorf("%d arrived and %d are open, of %d", len(got), rest, len(ms))
		}
		c.release(rest, "--all")
		c.once(ms, append(ids(got), ids(c.raw.Drain(workQueue))...))
	}
}

// accounted checks after a stop that every message has arrived or is open, and
// that it is both or neither only when it is in doubt, which at most a window
// is.
func (c *caseRun) accounted(ms []message, got []rawamqp.Message, doubt, window int) {
	c.t.Helper()
	places := map[string]int{}
	for _, id := range ids(got) {
		places[id]++
	}
	for _, e := range c.s.envelopes("--custody", "quarantined") {
		places[e.Identity.MessageID]++
	}
	odd := 0
	for _, m := range ms {
		if places[m.id()] != 1 {
			odd++
		}
		delete(places, m.id())
	}
	if odd > doubt || doubt > window || len(places) > 0 {
		c.t.Errorf("%d are in no place or in two, %d are in doubt, at most %d may be; unknown: %v", odd, doubt, window, places)
	}
}

func caseR57(c *caseRun) {
	const window, kills = 10, 5
	ms := c.messages()
	rnd := newRand(c.t)
	c.open("")
	c.seedMany(ms...)
	c.capture(len(ms))
	id, _ := c.plan("--all", "--rate", "200", "--burst", "1", "--window", strconv.Itoa(window))
	words := []string{"generation", "start", id}
	for done := 0; done < kills; {
		p := c.s.hold(words...)
		if !killSoon(p, rnd, 250*time.Millisecond) {
			c.t.Fatalf("it ended before it was killed: exit %d\n%s", p.code, p.err.String())
		}
		if c.s.show(id).State == "approved" {
			continue // killed before it began
		}
		done++
		words = []string{"generation", "resume", id, "--why", "after a kill"}
	}
	g := c.through(id)
	checkSums(c.t, g, uint64(len(ms)))
	got := c.raw.Drain(workQueue)
	doubt := int(g.Tally["ambiguous_publish"])
	if doubt > window*kills || g.Tally["in_flight"]+g.Tally["waiting"]+g.Tally["undelivered"] != 0 {
		c.t.Errorf("after %d kills: %v", kills, g.Tally)
	}
	c.accounted(ms, got, doubt, window*kills)
	absent := c.ruled(g, got)
	g = c.s.show(id)
	c.s.ok("generation", "close", id, "--accept", fmt.Sprintf("missing=%d", g.Tally["missing"]), "--why", "all were seen")
	if g = c.s.show(id); g.State != "closed" {
		c.t.Errorf("it is %s", g.State)
	}
	if absent > 0 {
		c.release(int(absent), "--all")
	}
	c.once(ms, append(ids(got), ids(c.raw.Drain(workQueue))...))
	c.t.Logf("%d kills left %d in doubt, %d of them had not arrived", kills, doubt, absent)
}

func caseR58(c *caseRun) {
	c.open("destinations: [{exchange: nope}]")
	for _, window := range []string{"1", "10"} {
		ms := c.messages()
		for i := range ms {
			id := ms[i].id()
			ms[i] = ms[i].with(c.t, func(v *amqpwire.View) {
				v.MessageID += "-window-" + window
				if id == "pb-7" { // it fits until the stamp is on
					v.Present |= amqpwire.Headers
					v.Headers = []amqpwire.Field{amqpwire.StringField("x-trace", strings.Repeat("s", headerRoom-100))}
				}
				if id == "pb-31" { // published by another user
					v.Present |= amqpwire.UserID
					v.UserID = "guest"
				}
			})
		}
		c.seed(ms...)
		c.capture(len(ms))
		id, _ := c.plan("--all", "--window", window)
		g := c.through(id)
		checkTally(c.t, g, 50, map[string]uint64{"missing": 49, "undelivered": 1})
		poison := ms[7]
		c.once(slices.Delete(slices.Clone(ms), 7, 8), ids(c.raw.Drain(workQueue)))
		c.undelivered(id, "header_too_large", poison)

		// One that has nowhere to go holds nobody up either.
		nowhere, _ := c.plan("--all", "--to-exchange", "nope", "--to-routing-key", "k")
		c.s.want(3, "generation", "start", nowhere)
		next := c.plain("next-" + window)
		c.seed(next)
		c.capture(1)
		c.release(1, "--id", next.id())
		c.unchanged(workQueue, next)
		c.s.ok("generation", "reject", nowhere, "--why", "there is no such exchange")
		c.s.ok("envelope", "resolve", poison.id(), "--why", "the trace is of no use")
	}
	c.quietLog()
}

func caseR60(c *caseRun) {
	in := c.input[0]
	c.on(c.ownNode())
	c.declare()
	p := newProxy(c.t, c.r.node.Addr())
	c.s = newSite(c.t, c.r.configAt(p.addr(), ""))
	ms := in.messages(c.t)[:60]
	c.seedMany(ms...)
	c.capture(len(ms))
	for _, rate := range in.Rates {
		words := []string{"generation", "plan", "--all", "--dry-run", "--rate", fmt.Sprint(rate)}
		if _, number := rate.(json.Number); !number {
			c.s.fails(2, `rate`, words...)
			continue
		}
		plan := ask[api.Plan](c.s, words...)
		if want := fmt.Sprint(rate); strconv.FormatFloat(plan.Limits.Rate, 'g', -1, 64) != want {
			c.t.Errorf("a rate of %s is planned as %v", want, plan.Limits.Rate)
		}
	}
	const rate = 20
	for i, window := range in.Concurrency {
		half := ms[i*30 : i*30+30]
		words := []string{"--rate", strconv.Itoa(rate), "--burst", "1", "--window", strconv.Itoa(window)}
		for _, m := range half {
			words = append(words, "--id", m.id())
		}
		id, _ := c.plan(words...)
		sent := p.published.Load()
		first := c.s.hold("generation", "start", id)
		p.sent(sent + 8)
		c.s.ok("generation", "pause", id, "--why", "a cup of tea")
		again := c.s.start("generation", "resume", id, "--why", "had it")
		p.sent(sent + 14)
		// A broker that stands still, until nothing more may be on its way.
		c.r.node.Pause(c.t)
		stuck := uint64(min(window, 10))
		eventually(c.t, "the broker's silence to be felt", func() bool { return c.s.show(id).Tally["in_flight"] >= stuck })
		c.r.node.Resume(c.t)
		first.exits(5)
		again.exits(5)
		c.keepsRate(id, rate, 1)
		c.once(half, ids(c.raw.Drain(workQueue)))
	}
}

// keepsRate reads the moments of all intents from the ledger: no span of time
// has more of them than the rate allows, and the burst.
func (c *caseRun) keepsRate(id string, rate, burst float64) {
	c.t.Helper()
	var at []float64 // seconds
	p := c.s.ok("ledger", "tail", "--limit", "500", "--from", "1", "--generation", id)
	for line := range strings.Lines(p.out.String()) {
		var r struct {
			TS uint64 `json:"ts"`
		}
		var rec record
		must(c.t, json.Unmarshal([]byte(line), &rec))
		if rec.Kind != "member.intended" {
			continue
		}
		must(c.t, json.Unmarshal([]byte(line), &r))
		for range rec.positions().Count() {
			at = append(at, float64(r.TS)/1000)
		}
	}
	if len(at) == 0 {
		c.t.Fatal("no intents in the ledger")
	}
	for i := range at {
		for j := i; j < len(at); j++ {
			// A millisecond is what the moments are rounded to.
			if most := rate*(at[j]-at[i]+0.001) + burst; float64(j-i+1) > most+1e-6 {
				c.t.Errorf("%d intents within %.3f s", j-i+1, at[j]-at[i])
				return
			}
		}
	}
}

func caseR63(c *caseRun) {
	ms := c.messages()
	c.open("")
	n := 0 // a number for each further message
	next := func() message {
		m := c.plain("mv-" + strconv.Itoa(n))
		m.exchange, m.key, m.direct = "", deadQueue, true
		n++
		return m
	}
	fill := func() (present int) {
		var more []message
		left := c.r.ready(deadQueue)
		for range len(ms) - left {
			more = append(more, next())
		}
		c.send(more...)
		eventually(c.t, "the queue to be full", func() bool { return c.r.ready(deadQueue) == left+len(more) })
		return left + len(more)
	}
	c.s.fails(2, `--max 0`, "capture", "--max", "0")
	captured := 0
	for _, t := range []struct{ max, prefetch int }{
		// With a prefetch of one, each message is a commit of its own.
		{1, 1}, {1, 1000}, {99, 1}, {999, 1000}, {1000, 1000}, {1001, 1000}, {2000, 1000}, {5000, 1000},
	} {
		present := fill()
		stop := c.publishing(40, 5*time.Millisecond, next)
		p := c.s.ok("capture", "--max", strconv.Itoa(t.max), "--prefetch", strconv.Itoa(t.prefetch), "--json")
		added := stop()
		sum := answer[api.CaptureSummary](p)
		least, most := min(t.max, present), min(t.max, present+added)
		if got := int(sum.Captured); got < least || got > most || sum.Merged != 0 {
			c.t.Errorf("max %d, prefetch %d: %+v of %d and %d more", t.max, t.prefetch, sum, present, added)
		}
		captured += int(sum.Captured)
		eventually(c.t, "the rest to be in the queue", func() bool { return c.r.ready(deadQueue) == present+added-int(sum.Captured) })
	}
	if n := len(of(c.s.tail(), "envelope.merged")); n != 0 {
		c.t.Errorf("%d messages were met twice", n)
	}
	seen := map[string]bool{}
	for _, e := range c.s.envelopes() {
		if seen[e.Identity.MessageID] {
			c.t.Errorf("%s is there twice", e.Identity.MessageID)
		}
		seen[e.Identity.MessageID] = true
	}
	if len(seen) != captured {
		c.t.Errorf("%d envelopes, %d were captured", len(seen), captured)
	}
}

// publishing publishes messages one after the other, at most so many and so
// often, until it is stopped; stop returns how many it were.
func (c *caseRun) publishing(most int, every time.Duration, next func() message) (stop func() int) {
	c.t.Helper()
	var wg sync.WaitGroup
	end := make(chan struct{})
	added := 0
	raw := rawamqp.Dial(c.t, c.r.url)
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for added < most {
			select {
			case <-tick.C:
				m := next()
				raw.Publish(m.exchange, m.key, m.props, m.body)
				added++
			case <-end:
				return
			}
		}
	})
	return func() int {
		close(end)
		wg.Wait()
		return added
	}
}

func caseR64(c *caseRun) {
	m := c.messages()[0]
	c.open("")
	outcomes := c.r.declareOutcomes()
	c.seed(m)
	c.capture(1)
	open := func(want uint64) {
		c.t.Helper()
		if ready, open := c.depth(deadQueue); open != want || ready != 0 {
			c.t.Errorf("open %d and %d at the broker, want %d and 0", open, ready, want)
		}
	}
	open(1)
	fixes := []string{"first guess", "second guess", "the cause"}
	for i, fix := range fixes {
		w := c.r.work(workQueue, func(ch *amqp.Channel, d amqp.Delivery) verdict {
			if i < 2 {
				return refuse
			}
			outcomes.report(ch, d, "succeeded")
			return take
		})
		words := []string{"--all", "--fix", fix, "--outcome-deadline", "1h"}
		code := 5
		if i == 2 {
			words, code = append(words, "--evidence", "outcomes"), 0
		}
		id, _ := c.plan(words...)
		p := c.s.run("generation", "start", id, "--as", "operator-"+strconv.Itoa(i))
		if p.code == 4 { // the one of its stage came back
			p = c.s.run("generation", "resume", id, "--why", "looked at", "--digest", c.s.show(id).Manifest)
		}
		p.exits(code)
		w.stop()
		open([]uint64{1, 1, 0}[i])
	}
	history := c.s.envelopes("--lineage", m.id())
	if len(history) != len(fixes) {
		c.t.Fatalf("the lineage has %d attempts, want %d", len(history), len(fixes))
	}
	gens := map[uint32]api.Generation{}
	for _, g := range ask[api.GenerationPage](c.s, "generation", "list").Generations {
		gens[g.Number] = g
	}
	for i, custody := range []string{"returned", "returned", "resolved"} {
		e := history[i]
		g := gens[e.Generation]
		if e.Lineage.Attempt != uint64(i+1) || e.Custody != custody || e.Lineage.Root != history[0].ID || e.Reason != "rejected" {
			c.t.Errorf("attempt %d: %s, %+v", i+1, e.Custody, e.Lineage)
		}
		if g.Fix != fixes[i] || g.Started == nil || g.Started.By == "" || g.Started.As != "operator-"+strconv.Itoa(i) || g.Started.At.IsZero() {
			c.t.Errorf("attempt %d was made by generation %d: %q, %+v", i+1, g.Number, g.Fix, g.Started)
		}
	}
}
