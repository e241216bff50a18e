package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

func caseR45(c *caseRun) {
	ms := c.messages()
	c.open("")
	c.seed(ms...)
	c.capture(len(ms))
	all := c.s.envelopes()
	for i, e := range all {
		if e.Identity.MessageID != "" || e.Identity.Operation != "" || e.Lineage.DuplicateOf != "" || i > 0 && e.ID == all[i-1].ID {
			c.t.Errorf("envelope %d is not one of its own: %+v", i+1, e)
		}
	}
	if _, open := c.depth(deadQueue); len(all) != len(ms) || open != uint64(len(ms)) {
		c.t.Errorf("%d envelopes, %d open, want %d", len(all), open, len(ms))
	}
	c.replay(ms...)
}

func caseR46(c *caseRun) {
	ms := c.messages()
	c.open("")
	c.seed(ms...)
	c.capture(len(ms))
	same := ms[0].id()
	all := c.s.envelopes()
	for _, words := range [][]string{{"envelope", "show", same}, {"generation", "plan", "--fix", "none", "--id", same}} {
		p := c.s.want(3, words...)
		for _, e := range all {
			if !strings.Contains(p.err.String(), e.ID) {
				c.t.Errorf("%s: candidate %s is not named: %s", p.description, e.ID, p.err.String())
			}
		}
	}
	if len(all) != 3 {
		c.t.Errorf("%d envelopes, want 3", len(all))
	}
	c.replay(ms...)
}

// scaled multiplies a number of kills or trials as the environment asks.
func scaled(t testing.TB, n int) int {
	t.Helper()
	if text := os.Getenv(killsEnv); text != "" {
		k, err := strconv.Atoi(text)
		must(t, err)
		n *= k
	}
	return n
}

// killSoon kills a process at a random moment of the next limit, and reports
// whether it had not ended before.
func killSoon(p *process, rnd *rand.Rand, limit time.Duration) bool {
	select {
	case <-p.done:
	case <-time.After(time.Duration(rnd.Int64N(int64(limit)))): // the random moment
	}
	p.kill()
	return p.code == -1
}

// Each message has a body of its own, which tells also those without an id
// apart.
func caseR49(c *caseRun) {
	const load = 300 // for a few kills
	rnd := newRand(c.t)
	c.open("")
	named, nameless := c.input[0].messages(c.t)[0], c.input[0].messages(c.t)[1]
	var ms []message
	for kills := scaled(c.t, 8); kills > 0; {
		for i := range load {
			m := named
			if i%10 == 0 {
				m = nameless
			} else {
				m = m.with(c.t, func(v *amqpwire.View) { v.MessageID = "cr-" + strconv.Itoa(len(ms)) })
			}
			m.body = fmt.Appendf(nil, "%s, number %d", m.body, len(ms))
			ms = append(ms, m)
		}
		c.seedMany(ms[len(ms)-load:]...)
		for p := c.s.start("capture", "--prefetch", "5"); killSoon(p, rnd, 200*time.Millisecond); p = c.s.start("capture", "--prefetch", "5") {
			if kills--; kills == 0 || c.r.ready(deadQueue) == 0 {
				break // a process that has nothing to do tells nothing when it dies
			}
		}
	}
	c.s.ok("capture")
	if n := c.r.ready(deadQueue); n != 0 {
		c.t.Errorf("%d are left in the queue", n)
	}
	times, doubles := map[string]int{}, 0
	for _, e := range c.s.envelopes() {
		switch {
		case e.Lineage.DuplicateOf == "":
			times[e.Identity.BodySHA256]++
		case e.Identity.MessageID != "" || !slices.Contains(e.Flags, "possible_duplicate"):
			c.t.Errorf("%s is captured twice, as %s: %v", e.Identity.MessageID, e.ID, e.Flags)
		default:
			doubles++
		}
	}
	for _, m := range ms {
		sum := sha256.Sum256(m.body)
		if n := times[hex.EncodeToString(sum[:])]; n != 1 {
			c.t.Errorf("%s was captured %d times", m.body, n)
		}
	}
	id, plan := c.plan("--all")
	if plan.Members != uint64(len(ms)) || plan.Selected != plan.Members+uint64(doubles) {
		c.t.Fatalf("%d of %d would move, want %d; possible duplicates: %d", plan.Members, plan.Selected, len(ms), doubles)
	}
	c.s.want(5, "generation", "start", id)
	arrived := map[string]int{}
	for _, m := range c.raw.Drain(workQueue) {
		arrived[string(m.Body)]++
	}
	for _, m := range ms {
		if arrived[string(m.body)] != 1 {
			c.t.Errorf("%s arrived %d times", m.body, arrived[string(m.body)])
		}
	}
	if len(arrived) != len(ms) {
		c.t.Errorf("%d different messages arrived, want %d", len(arrived), len(ms))
	}
	c.t.Logf("%d messages in %d batches; %d batches had some that were known, %d are possible duplicates", len(ms),
		len(of(c.s.tail(), "envelope.captured")), len(of(c.s.tail(), "envelope.merged")), doubles)
}
