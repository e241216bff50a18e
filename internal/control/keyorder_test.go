package control_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// turn is a dead message with a key and a number.
func turn(key, sequence string) quarantine.Delivery {
	view := amqpwire.View{Present: amqpwire.MessageID | amqpwire.Headers, MessageID: key + "-" + sequence,
		Headers: []amqpwire.Field{amqpwire.StringField("x-death-reason", "unknown_sku"), amqpwire.StringField("x-ordering-key", key),
			amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Count: 1, Time: uint64(time.Now().Unix())})}}
	if sequence != "" {
		view.Headers = append(view.Headers, amqpwire.StringField("x-sequence", sequence))
	}
	props, err := amqpwire.Build(view)
	if err != nil {
		panic(err)
	}
	return quarantine.Delivery{Properties: props, Body: []byte(key + sequence), DeliveryCount: -1}
}

// said reads a header of a message that went out, "" when it is not there.
func said(m redrive.Message, name string) string {
	for _, f := range amqpwire.Parse(m.Properties).Headers {
		if f.Name == name {
			return fmt.Sprint(f.Data)
		}
	}
	return ""
}

// perKey is a plan in the order of keys in one stage without a pace.
func perKey(n int, onFailure string) api.PlanRequest {
	return api.PlanRequest{All: true, Rate: 1_000_000, Burst: 4096, Window: 4096, Exposure: 4096, Stages: []uint64{uint64(n)}, Bake: "1ms",
		Evidence: "outcomes", Order: "per-key", OnFailure: onFailure}
}

// serve plays the consumer of what goes out until the shell comes back: what
// fails comes back to quarantine, the rest succeeds.
func (w *world) serve(s *shell, fails func(redrive.Message) bool) []redrive.Message {
	w.Helper()
	served := 0
	for {
		all := w.wire.messages()
		var reports []string
		var back []quarantine.Delivery
		for _, m := range all[served:] {
			if fails(m) {
				back = append(back, quarantine.Delivery{Exchange: m.Dest.Exchange, RoutingKey: "orders.dlq", Properties: m.Properties, Body: m.Body, DeliveryCount: -1})
			} else {
				reports = append(reports, w.reportOf(m, event.OutcomeSucceeded))
			}
		}
		served = len(all)
		if len(reports) > 0 {
			do(w, api.OutcomeReport, api.OutcomeRequest{Via: "command", Reports: reports})
		}
		if len(back) > 0 {
			w.capture("orders.dlq", back...)
		}
		select {
		case <-s.done:
			if len(w.wire.messages()) == served {
				must(w, s.err)
				return all
			}
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// One message of twenty fails, in the middle of its key.
func everyTwentieth(m redrive.Message) bool {
	n, _ := strconv.Atoi(strings.TrimPrefix(said(m, "x-ordering-key"), "k"))
	return n%2 == 0 && said(m, "x-sequence") == strconv.Itoa(n%10+1)
}

// A thousand keys of ten messages, of which one in twenty fails: no key has a
// later message delivered after a failed one, and nobody else waits for that.
func TestParkHoldsBackOnlyTheKeysThatFailed(t *testing.T) {
	const keys, each = 1000, 10
	w := newWorld(t)
	w.thousand(keys, each)
	id := w.planned(perKey(keys*each, "park"))
	sent := w.serve(w.start(id), everyTwentieth)

	failed, last, done := map[string]int{}, map[string]int{}, map[string]int{}
	for _, m := range sent {
		key := said(m, "x-ordering-key")
		n, err := strconv.Atoi(said(m, "x-sequence"))
		must(t, err)
		if at := failed[key]; at > 0 {
			t.Fatalf("%s: message %d went out after message %d had failed", key, n, at)
		}
		if n != last[key]+1 {
			t.Fatalf("%s: message %d went out after message %d", key, n, last[key])
		}
		if last[key] = n; everyTwentieth(m) {
			failed[key] = n
		} else {
			done[key]++
		}
		want := ""
		if n == 1 {
			want = "unknown"
		}
		if gap := said(m, stamp.HeaderGap); gap != want {
			t.Fatalf("%s message %d says %q about missing ones", key, n, gap)
		}
	}
	if len(failed) != keys/2 {
		t.Errorf("%d keys failed", len(failed))
	}
	withheld := uint64(0)
	for k := range keys {
		key := fmt.Sprint("k", k)
		if failed[key] == 0 && done[key] != each {
			t.Errorf("%s did not fail, and %d of its messages succeeded", key, done[key])
		}
		if at := failed[key]; at > 0 {
			withheld += uint64(each - at)
		}
	}
	g := w.show(id)
	if g.Tally["withheld"] != withheld || g.Tally["requarantined"] != keys/2 || g.Tally["succeeded"] != keys*each-keys/2-withheld {
		t.Errorf("%v, want %d withheld", g.Tally, withheld)
	}
}

func (w *world) thousand(keys, each int) {
	w.Helper()
	var ds []quarantine.Delivery
	for k := range keys {
		for n := range each {
			ds = append(ds, turn(fmt.Sprint("k", k), strconv.Itoa(n+1)))
		}
	}
	for part := range slices.Chunk(ds, 1000) {
		w.capture("orders.dlq", part...)
	}
}

// With continue, everything goes, and what follows a failure says so.
func TestContinueStampsEveryGap(t *testing.T) {
	const keys, each = 100, 10
	w := newWorld(t)
	w.thousand(keys, each)
	id := w.planned(perKey(keys*each, "continue"))
	sent := w.serve(w.start(id), everyTwentieth)
	if len(sent) != keys*each {
		t.Fatalf("%d went out", len(sent))
	}
	gaps := 0
	before := map[string]int{} // failed messages since the last one that was done
	for _, m := range sent {
		key, n := said(m, "x-ordering-key"), said(m, "x-sequence")
		want := ""
		switch missing := before[key]; {
		case n == "1":
			want = "unknown"
		case missing == 0:
		case n == "2":
			want = "1+" // what was before the first one is not known
			gaps++
		default:
			want = strconv.Itoa(missing)
			gaps++
		}
		if gap := said(m, stamp.HeaderGap); gap != want {
			t.Errorf("%s message %s says %q about missing ones, want %q", key, n, gap, want)
		}
		if before[key] = 0; everyTwentieth(m) {
			before[key] = 1
		}
	}
	// Every key whose failure was not its last message has one gap.
	want := 0
	for k := 0; k < keys; k += 2 {
		if k%10+1 < each {
			want++
		}
	}
	if gaps != want {
		t.Errorf("%d gaps were stamped, want %d", gaps, want)
	}
}

// What a plan says about keys before anything is written.
func TestPlanShowsKeysAndGaps(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", turn("a", "7"), turn("a", "3"), turn("a", "4"), turn("b", ""), turn("b", "9"), turn("c", "1"), dead("no-key", []byte("x")))
	req := perKey(7, "park")
	req.Stages, req.DryRun = nil, true
	p := do(w, api.GenerationPlan, req)
	o := p.Order
	if o.Keys != 3 || o.Keyed != 6 || o.Unordered != 1 || o.Numeric != 2 || o.Gaps != 1 || o.Unknown != 4 || o.Overtaken != "unknown" {
		t.Errorf("%+v", o)
	}
	if len(o.Examples) != 1 || o.Examples[0].Missing != 2 {
		t.Errorf("examples %+v", o.Examples)
	}
	if !slices.Equal(p.Stages, []uint64{1, 7}) {
		t.Errorf("stages %v", p.Stages)
	}
	if !slices.ContainsFunc(p.Warnings, func(s string) bool { return strings.HasPrefix(s, "1 keys have messages without a sequence") }) {
		t.Errorf("warnings %q", p.Warnings)
	}
}

// What an earlier generation has delivered is not missing, and says when a key
// is overtaken.
func TestPlanKnowsWhatWasDelivered(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", turn("a", "3"), turn("b", "8"))
	w.serve(w.start(w.planned(perKey(2, "park"))), func(redrive.Message) bool { return false })
	w.until("closed", func() bool { return w.state("1") == "closed" })
	w.capture("orders.dlq", turn("a", "5"), turn("b", "6"))
	p := do(w, api.GenerationPlan, perKey(2, "park"))
	if o := p.Order; o.Gaps != 1 || o.Unknown != 1 || o.Overtaken != "1" || len(o.Examples) != 1 || o.Examples[0].Missing != 1 {
		t.Errorf("%+v", o)
	}
}

// Plans that could not keep what they promise are refused.
func TestPlansWithoutOrderAreRefused(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", turn("a", "3"), turn("b", ""))
	for name, change := range map[string]func(*api.PlanRequest){
		"returns_only":            func(r *api.PlanRequest) { r.Evidence = "returns_only" },
		"sequence number":         func(r *api.PlanRequest) { r.OnFailure = "continue" },
		"want block, park":        func(r *api.PlanRequest) { r.OnFailure = "hope" },
		"want none or per-key":    func(r *api.PlanRequest) { r.Order = "by-date" },
		"needs --order":           func(r *api.PlanRequest) { r.Order = "" },
		"declare inbox.horizon":   func(r *api.PlanRequest) { r.Ambiguity = "retry" },
		"want hold or retry":      func(r *api.PlanRequest) { r.Ambiguity = "guess" },
		"a nack is definite only": func(r *api.PlanRequest) { r.RetryNacked, r.ToExchange, r.ToRoutingKey = true, "events", "x" },
	} {
		req := perKey(2, "park")
		change(&req)
		_, err := api.Call(as("ann"), w.c, api.GenerationPlan, req, nil)
		if !refusedWith(err, api.CodeUsage) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A retry needs a consumer that still remembers the oldest message.
func TestPlanHoldsTheOldestMessageAgainstTheInbox(t *testing.T) {
	w := newWorld(t)
	w.cfg.Destinations = append(w.cfg.Destinations, config.Destination{Queue: "orders", Inbox: config.Inbox{Horizon: config.Duration(time.Hour)}})
	old := turn("a", "1")
	v := amqpwire.Parse(old.Properties)
	v.Headers[2] = amqpwire.DeathField(amqpwire.Death{Queue: "orders", Reason: "rejected", Count: 1, Time: uint64(time.Now().Add(-2 * time.Hour).Unix())})
	var err error
	old.Properties, err = amqpwire.Build(v)
	must(t, err)
	w.capture("orders.dlq", turn("a", "2"), turn("a", "3"), old)
	nameless := dead("", []byte("x"))
	nameless.Properties, err = amqpwire.Build(amqpwire.View{Present: amqpwire.Headers, Headers: amqpwire.Parse(nameless.Properties).Headers})
	must(t, err)
	w.capture("orders.dlq", nameless)
	plan := func(ids ...string) (api.Plan, error) {
		return api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{IDs: ids, DryRun: true, Ambiguity: "retry", ToQueue: "orders"}, nil)
	}
	p, err := plan("#1", "#2")
	must(t, err)
	if p.Doubt.Policy != "retry" || p.Doubt.Horizon != "1h0m0s" || p.Doubt.Oldest == nil {
		t.Errorf("%+v", p.Doubt)
	}
	req := api.PlanRequest{IDs: []string{"#1", "#3"}, DryRun: true, ToQueue: "orders"}
	p = do(w, api.GenerationPlan, req)
	if p.Members != 1 || len(p.Excluded) != 1 || p.Excluded[0].Reason != redrive.ReasonBeyondHorizon {
		t.Errorf("%d members, %v", p.Members, p.Excluded)
	}
	req.Force, req.ForceWhy = []string{redrive.ReasonBeyondHorizon}, "the customer waits"
	if p = do(w, api.GenerationPlan, req); p.Members != 2 {
		t.Errorf("forced: %d members, %v", p.Members, p.Excluded)
	}
	req.Ambiguity = "retry"
	if _, err := api.Call(as("ann"), w.c, api.GenerationPlan, req, nil); !refusedWith(err, api.CodeUsage) || !strings.Contains(err.Error(), "may have forgotten it") {
		t.Errorf("forced and retried: %v", err)
	}
	for id, want := range map[string]string{"#3": "may have forgotten them", "#4": "have no message id"} {
		if _, err := plan("#1", id); !refusedWith(err, api.CodeUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
