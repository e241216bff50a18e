package integration

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
)

// elsewhere is a well-formed id of a generation that this store never had.
const elsewhere = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// flipped is a MAC with one bit changed.
func flipped(mac string) string {
	last := map[bool]string{true: "1", false: "0"}[mac[len(mac)-1] == '0']
	return mac[:len(mac)-1] + last
}

// TestForgeries lets somebody who sees the messages, but not the key, report
// outcomes and send back copies. Nothing of it counts.
func TestForgeries(t *testing.T) {
	const n = 20
	r, s, _ := released(t, n)
	queue := r.declareOutcomes()
	seen := make(chan amqp.Delivery, n)
	r.work("orders", func(_ *amqp.Channel, d amqp.Delivery) verdict {
		seen <- d
		return take
	})
	id, _ := s.planned("--evidence", "outcomes", "--rate", "1000", "--outcome-deadline", "10m")
	first := s.hold("generation", "start", id, "--json")
	s.underway(id, n)
	var released [n]amqp.Delivery
	for range n {
		d := <-seen
		released[position(d)] = d
	}

	bad := forgedReports(released[:])
	want := map[string]uint64{}
	ch := r.channel()
	for _, f := range bad {
		queue.send(ch, f.report)
		want[f.counted]++
	}
	queue.send(ch, map[string]string{"outcome": "succeeded"}) // no stamp at all
	want["malformed"]++
	eventually(t, "the reports to be counted apart", func() bool { return maps.Equal(unmatched(s), want) })
	s.refusesReports(t, bad)
	g := s.show(id)
	checkTally(t, g, n, map[string]uint64{"pending": n})
	if g.Contradictions != 0 || len(of(s.tail(), "outcome.reported")) != 0 {
		t.Errorf("a forged report was taken: %+v", g)
	}

	forgedReturns(t, r, s, id, released[:])

	// The genuine ones count, also after all that.
	for i, d := range released {
		if i != 5 {
			queue.report(ch, d, "succeeded")
		}
	}
	first.exits(5)
	checkTally(t, answer[api.Generation](first), n, map[string]uint64{"succeeded": n - 1, "requarantined": 1})
}

type forgery struct {
	report  map[string]string
	counted string // as what
}

// forgedReports are made from what a consumer sees.
func forgedReports(genuine []amqp.Delivery) []forgery {
	change := func(name, value string) map[string]string {
		m := stampOf(genuine[3], "succeeded")
		m[name] = value
		return m
	}
	return []forgery{
		{change("mac", flipped(stampOf(genuine[3], "")["mac"])), "forged"},
		{change("mac", strings.Repeat("0", 32)), "forged"},
		{change("mac", stampOf(genuine[4], "")["mac"]), "forged"},
		{change("envelope", stampOf(genuine[4], "")["envelope"]), "forged"},
		{change("intent", "4/1"), "forged"},
		{change("intent", "3/2"), "forged"}, // a try that was never made
		{change("intent", "999/1"), "unknown"},
		{change("generation", elsewhere), "unknown"},
		{change("intent", "03/1"), "malformed"},
	}
}

// unmatched sums the reports that were counted apart.
func unmatched(s *site) map[string]uint64 {
	out := map[string]uint64{}
	for _, r := range of(s.tail(), "outcome.unmatched") {
		out[r.Body.Reason] += r.Body.Count
	}
	return out
}

// refusesReports tries the same through the command line.
func (s *site) refusesReports(t *testing.T, bad []forgery) {
	t.Helper()
	var file strings.Builder
	want := map[string]uint64{}
	for _, f := range bad {
		line, err := json.Marshal(f.report)
		if err != nil {
			t.Fatal(err)
		}
		file.Write(append(line, '\n'))
		want[f.counted]++
	}
	path := filepath.Join(t.TempDir(), "outcomes.ndjson")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	res := answer[api.OutcomeResult](s.want(3, "outcome", "import", path, "--json"))
	if res.Taken != 0 || res.Known != 0 || !maps.Equal(res.Unmatched, want) {
		t.Errorf("import of forgeries: %+v, want %v", res, want)
	}
	var args []string
	for _, name := range slices.Sorted(maps.Keys(bad[0].report)) {
		args = append(args, "--"+strings.ReplaceAll(name, "_", "-"), bad[0].report[name])
	}
	res = answer[api.OutcomeResult](s.want(3, append([]string{"outcome", "report", "--json"}, args...)...))
	if res.Taken != 0 || res.Unmatched["forged"] != 1 {
		t.Errorf("report of a forgery: %+v", res)
	}
}

// forgedReturns sends copies to the dead-letter queue, and at the end two that
// are genuine.
func forgedReturns(t *testing.T, r *rabbit, s *site, id string, released []amqp.Delivery) {
	t.Helper()
	back := func(d amqp.Delivery, body []byte, change amqp.Table) {
		headers := maps.Clone(d.Headers)
		maps.Copy(headers, change)
		r.publish("orders.dlq", amqp.Publishing{Headers: headers, Body: body, MessageId: d.MessageId, Type: d.Type})
	}
	d, other := released[5], released[6]
	mac := d.Headers["x-redrive-mac"].(string)
	known := len(s.envelopes())
	for i, f := range []struct {
		flag   string
		body   []byte
		change amqp.Table
	}{
		{"stamp_invalid", d.Body, amqp.Table{"x-redrive-mac": flipped(mac)}},
		{"stamp_invalid", d.Body, amqp.Table{"x-redrive-mac": nil}},
		{"stamp_invalid", d.Body, amqp.Table{"x-redrive-envelope": other.Headers["x-redrive-envelope"]}},
		{"stamp_invalid", d.Body, amqp.Table{"x-redrive-intent": "5/2"}},
		{"stamp_invalid", d.Body, amqp.Table{"x-redrive-intent": other.Headers["x-redrive-intent"]}},
		{"stamp_unknown", d.Body, amqp.Table{"x-redrive-generation": elsewhere}},
		{"stamp_unknown", d.Body, amqp.Table{"x-redrive-intent": "999/1"}},
		{"derived", append(slices.Clone(d.Body), ' '), nil},
		{"derived", other.Body, nil},
	} {
		back(d, f.body, f.change)
		var e api.Envelope
		eventually(t, "the copy to be captured", func() bool {
			all := s.envelopes()
			e = all[len(all)-1]
			return len(all) == known+i+1
		})
		if !slices.Contains(e.Flags, f.flag) || e.Lineage.Parent != "" || e.Lineage.Attempt != 1 || e.Lineage.Root != e.ID {
			t.Errorf("copy %d: flags %v, want %s; lineage %+v", i, e.Flags, f.flag, e.Lineage)
		}
	}
	known += 9
	checkTally(t, s.show(id), uint64(len(released)), map[string]uint64{"pending": uint64(len(released))})

	// Two returns of one intent are two children, and one fact.
	for i := range 2 {
		back(d, d.Body, nil)
		var e api.Envelope
		eventually(t, "the return to be captured", func() bool {
			all := s.envelopes()
			e = all[len(all)-1]
			return len(all) == known+i+1
		})
		if e.Lineage.Stamp != "valid" || e.Lineage.Attempt != 2 || e.Lineage.Parent == "" {
			t.Errorf("return %d: %+v", i, e.Lineage)
		}
		checkTally(t, s.show(id), uint64(len(released)), map[string]uint64{"pending": uint64(len(released)) - 1, "requarantined": 1})
	}
}
