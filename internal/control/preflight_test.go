package control_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/schema"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// oracle answers probes as a test says.
type oracle struct {
	mu     sync.Mutex
	status int
	answer func(asked []string) string // for questions about operations
	asked  []string
}

func (o *oracle) say(status int, answer func([]string) string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status, o.answer = status, answer
}

// none lists nothing.
func none([]string) string { return `{"listed":[]}` }

func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var q struct {
		Operations []struct{ Envelope, Operation, Type string }
	}
	var ids []string
	if json.NewDecoder(r.Body).Decode(&q) == nil {
		for _, op := range q.Operations {
			ids = append(ids, op.Envelope)
			o.asked = append(o.asked, op.Operation)
		}
	}
	w.WriteHeader(o.status)
	_, _ = io.WriteString(w, o.answer(ids))
}

// ask starts an oracle and returns where it is.
func ask(t *testing.T, answer func([]string) string) (*oracle, *config.Target) {
	t.Helper()
	o := &oracle{status: 200, answer: answer}
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	return o, &config.Target{URL: s.URL, Allow: []string{"127.0.0.0/8"}}
}

// result is what a list of checks says about one.
func result(list []api.Check, name string) string {
	for _, c := range list {
		if c.Name == name {
			return c.Result
		}
	}
	return "not made"
}

// startRefused is the message of a start that its checks refuse.
func (w *world) startRefused(id string) string {
	w.Helper()
	before := w.wire.count()
	_, err := api.Call(as("ann"), w.c, api.GenerationStart, api.RunRequest{ID: id, NoWait: true}, nil)
	if !refusedWith(err, api.CodeRefused) {
		w.Fatalf("a start that its checks should refuse: %v", err)
	}
	if s := w.state(id); s != string(event.Approved) || w.wire.count() != before {
		w.Fatalf("a refused start leaves the generation %s, and %d messages went out", s, w.wire.count()-before)
	}
	return err.Error()
}

// What breaks the contract of today is withheld, each for its own reason, and
// the plan says how many.
func TestContractWithholds(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "order.json")
	must(t, os.WriteFile(path, []byte(`{"required":["sku"],"properties":{"sku":{"type":"string"}}}`), 0o600))
	set, err := schema.Load([]schema.File{{Type: "OrderPlaced", Path: path}})
	must(t, err)
	denied, authorize := ask(t, none)
	_, seen := ask(t, none)
	w.cfg.Destinations = []config.Destination{{Queue: "orders", Authorize: authorize, InboxProbe: seen}}
	w.contract = set
	w.crash()
	body := func(text string) []byte { return []byte(text) }
	good, broken, unknown := typed("good", "OrderPlaced", body(`{"sku":"A"}`)), typed("broken", "OrderPlaced", body(`{"sku":SECRET}`)), typed("other", "Other", body("?"))
	w.capture("orders.dlq", good, broken, unknown, typed("denied", "OrderPlaced", body(`{"sku":"B"}`)))
	// The oracle lists the last one that it is asked about.
	denied.say(200, func(ids []string) string { return fmt.Sprintf(`{"listed":[%q]}`, ids[len(ids)-1]) })

	p := do(w, api.GenerationPlan, api.PlanRequest{All: true, DryRun: true})
	want := map[string]uint64{redrive.ReasonSchema: 1, redrive.ReasonNotAuthorized: 1}
	for _, x := range p.Excluded {
		if want[x.Reason] != x.Count {
			t.Errorf("%d stay for %s, want %d", x.Count, x.Reason, want[x.Reason])
		}
		delete(want, x.Reason)
	}
	if len(want) > 0 || p.Members != 2 || p.Selected != 4 {
		t.Fatalf("%d of %d are members; nobody stays for %v", p.Members, p.Selected, want)
	}
	for name, want := range map[string]string{"schema": "failed", "authorization": "failed", "inbox": "ok", "lineage": "ok", "route": "ok", "consumer_version": "unknown"} {
		if got := result(p.Checks, name); got != want {
			t.Errorf("check %s: %s, want %s", name, got, want)
		}
	}
	if text := fmt.Sprint(p.Checks); strings.Contains(text, "SECRET") {
		t.Errorf("a check repeats the message: %s", text)
	}

	// It is frozen and recorded so; and a start finds a contract that changed.
	id := w.planned(api.PlanRequest{All: true, Bake: "1ms"})
	if g := w.show(id); g.Checked != "plan" || result(g.Checks, "schema") != "failed" {
		t.Errorf("the checks of phase %q: %v", g.Checked, g.Checks)
	}
	if msg := w.startRefused(id); !strings.Contains(msg, "authorization") || !strings.Contains(msg, "plan again") {
		t.Errorf("%s", msg)
	}
	denied.say(200, none)
	if g := w.end(w.start(id)); g.Funnel.Moved != 2 || g.Checked != "start" {
		t.Errorf("moved %d after the checks of %q", g.Funnel.Moved, g.Checked)
	}
	for _, r := range w.records(id) {
		if line, err := r.AppendLine(nil); err != nil || strings.Contains(string(line), "SECRET") {
			t.Errorf("record %d holds the message (%v)", r.Seq, err)
		}
	}
}

// An answer that cannot be read is no answer, and without one nothing starts.
func TestNoAnswerIsNeverGood(t *testing.T) {
	w := newWorld(t)
	auth, authorize := ask(t, none)
	health, url := ask(t, none)
	version, at := ask(t, func([]string) string { return `{"version":"2"}` })
	w.cfg.Probes = []config.Probe{{Name: "catalog", Target: *url}}
	w.cfg.Destinations = []config.Destination{{Queue: "orders", Authorize: authorize, Probes: []string{"catalog"}, VersionProbe: &config.VersionProbe{Target: *at}, MaxDepth: 10}}
	w.times = control.ProbeTimes{Every: time.Millisecond}
	w.crash()
	w.orders(3)
	id := w.planned(api.PlanRequest{All: true, Consumer: "2", Bake: "1ms"})
	for _, c := range []struct {
		check, result string
		spoil, mend   func()
	}{
		{"authorization", "unknown", func() { auth.say(200, func([]string) string { return "garbage" }) }, func() { auth.say(200, none) }},
		{"authorization", "unknown", func() { auth.say(503, none) }, func() { auth.say(200, none) }},
		{"probe.catalog", "failed", func() { health.say(503, none) }, func() { health.say(204, func([]string) string { return "" }) }},
		{"probe.catalog", "unknown", func() { health.say(302, none) }, func() { health.say(200, none) }},
		{"consumer_version", "failed", func() { version.say(200, func([]string) string { return `{"version":"1"}` }) }, func() { version.say(200, func([]string) string { return `{"version":"2"}` }) }},
		{"consumer_version", "unknown", func() { version.say(200, none) }, func() { version.say(200, func([]string) string { return `{"version":"2"}` }) }},
		{"depth", "failed", func() { w.wire.rest(11, false) }, func() { w.wire.rest(10, false) }},
	} {
		c.spoil()
		if msg := w.startRefused(id); !strings.Contains(msg, c.check+": ") || !strings.HasSuffix(msg, "nothing was started") {
			t.Errorf("%s: %s", c.check, msg)
		}
		if got := result(w.show(id).Checks, c.check); got != c.result {
			t.Errorf("%s is %s, want %s", c.check, got, c.result)
		}
		c.mend()
	}
	// Nobody consumes: that warns, and is the brake's to watch.
	w.wire.rest(0, true)
	g := w.end(w.start(id))
	if result(g.Checks, "consumers") != "failed" || g.Started == nil {
		t.Errorf("%+v", g.Checks)
	}
}

// A message that fails in every generation stops at the cap, and its lineage
// holds one original.
func TestPoisonStopsAtTheCap(t *testing.T) {
	w := newWorld(t)
	w.cfg.Limits.Attempts = 2
	w.orders(1)
	for attempt := 1; attempt <= 2; attempt++ {
		w.comesBack(t, w.planned(fast(fmt.Sprintf("#%d", attempt))))
	}
	_, err := api.Call(as("ann"), w.c, api.GenerationPlan, api.PlanRequest{All: true}, nil)
	if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), redrive.ReasonAttemptLimit) {
		t.Fatalf("a third release of a message that failed twice: %v", err)
	}
}
