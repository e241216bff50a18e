package control_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/evidence"
	"github.com/redrivehq/redrive/internal/postgrestest"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/ledger/verify"
	"github.com/redrivehq/redrive/redrive"
)

// businessData opens what a request names, as the program does.
func businessData(ctx context.Context, req api.ReconcileRequest) (redrive.Effects, error) {
	if req.File != "" {
		return evidence.Open(req.File)
	}
	return evidence.Connect(ctx, evidence.Query{Address: req.Address, SQL: req.Query})
}

// half releases the first stage of n of all orders, waits until nobody has
// reported any, and aborts the rest.
func (w *world) half(n, all int) string {
	w.Helper()
	req := fast(w.orders(all)...)
	req.Stages, req.Bake, req.OutcomeDeadline, req.Expected = []uint64{uint64(n)}, "1h", "1ms", []string{"succeeded"}
	id := w.planned(req)
	w.start(id)
	w.until("the stage is out", func() bool { return w.wire.count() == n && w.show(id).Tally["missing"] == uint64(n) })
	do(w, api.GenerationAbort, api.GenerationAct{ID: id, Why: "the rest another day"})
	w.until("nothing is in flight", func() bool { return w.state(id) == "settling" })
	return id
}

// found lists the positions with a finding.
func found(r api.Reconciliation, finding string) (out []uint64) {
	for _, m := range r.Members {
		if m.Finding == finding {
			out = append(out, m.Position)
		}
	}
	return out
}

const shipments = "SELECT order_id, count(*), min(status) FROM shipments WHERE order_id = ANY($1) GROUP BY order_id"

// Reconciling against a table with planted missing, double and unexpected
// effects finds exactly those, and the numbers of the statement are those of the
// ledger and of the database.
func TestReconcileAgainstATable(t *testing.T) {
	pg := postgrestest.Start(t)
	w := newWorld(t)
	id := w.half(100, 110)
	missing, double, unexpected := []uint64{3, 17, 44, 99}, []uint64{5, 60}, []uint64{104, 109}
	var sql strings.Builder
	sql.WriteString("CREATE TABLE shipments (order_id text, status text);\n")
	for pos := range uint64(110) {
		n := 1
		switch {
		case slices.Contains(missing, pos), pos >= 100 && !slices.Contains(unexpected, pos):
			n = 0
		case slices.Contains(double, pos):
			n = int(pos%3 + 2)
		}
		for range n {
			// Released in the order of capture: position 0 is order 1.
			fmt.Fprintf(&sql, "INSERT INTO shipments VALUES ('order-%d', 'shipped');\n", pos+1)
		}
	}
	sql.WriteString("INSERT INTO shipments VALUES ('of another day', 'shipped');")
	pg.Exec(t, sql.String())

	req := api.ReconcileRequest{ID: id, Address: pg.Address("postgres"), Query: shipments, DryRun: true}
	dry := do(w, api.GenerationReconcile, req)
	before := w.show(id)
	if !dry.DryRun || dry.NotEffected != 4 || before.Tally["missing"] != 100 {
		t.Fatalf("a dry run: %+v, %v", dry, before.Tally)
	}
	req.DryRun, req.Close, req.Why = false, true, "the warehouse sends the four by hand"
	r := do(w, api.GenerationReconcile, req)
	for finding, want := range map[string][]uint64{"not_effected": missing, "double": double, "disputed": nil} {
		if d := cmp.Diff(want, found(r, finding)); d != "" {
			t.Errorf("%s: %s", finding, d)
		}
	}
	if d := cmp.Diff([]string{"order-105", "order-110"}, r.UnexpectedOperations); d != "" {
		t.Error(d)
	}

	// The database says the same.
	count := func(query string) string { return pg.Exec(t, query) }
	inCohort := "order_id IN (SELECT 'order-' || i FROM generate_series(1, 100) i)"
	for what, pair := range map[string][2]string{
		"effected": {fmt.Sprint(r.Effected), count("SELECT count(*) FROM (SELECT 1 FROM shipments WHERE " + inCohort + " GROUP BY order_id HAVING count(*) = 1) x")},
		"double":   {fmt.Sprint(r.Double), count("SELECT count(*) FROM (SELECT 1 FROM shipments WHERE " + inCohort + " GROUP BY order_id HAVING count(*) > 1) x")},
		"missing":  {fmt.Sprint(r.NotEffected), count("SELECT 100 - count(DISTINCT order_id) FROM shipments WHERE " + inCohort)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: the statement says %s, the database %s", what, pair[0], pair[1])
		}
	}

	// So does whoever reads the ledger without us.
	rep := w.verified()
	counts := rep.Generations[0].Counts
	if counts[event.Succeeded] != 96 || counts[event.Missing] != 4 || counts[event.Waiting] != 10 || rep.Generations[0].State != event.Closed {
		t.Errorf("the verifier counts %v, %s", counts, rep.Generations[0].State)
	}
	for _, want := range []string{
		"Generation 1 is closed.", "96 succeeded, 4 missing", "10 never sent and free again", "96 of 110 members ended so",
		"Business data (sql) was asked about 100 members: 94 have their effect, 2 have it more than once, 4 have none although they should; 0 could not be checked, 2 effects belong to nothing that was released.",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the statement lacks %q:\n%s", want, r.Text)
		}
	}
	for _, rec := range w.records(id) {
		line, err := rec.AppendLine(nil)
		must(t, err)
		if strings.Contains(string(line), "order-") {
			t.Errorf("an operation is in the ledger: %s", line)
		}
	}
	// What had no effect is free, and its next plan counts the risk.
	plan := do(w, api.GenerationPlan, api.PlanRequest{All: true, DryRun: true})
	if plan.Members != 14 || plan.DuplicateRisk != 4 {
		t.Errorf("the next plan has %d members, %d of them a risk", plan.Members, plan.DuplicateRisk)
	}
}

// verified reads the whole ledger with the independent verifier.
func (w *world) verified() *verify.Report {
	w.Helper()
	must(w, w.c.Checkpoint(context.Background()))
	src, err := control.NewStoreSource(w.store, w.keys, w.store, w.keys.Origin, w.keys.Verifier)
	must(w, err)
	rep, err := verify.Verify(context.Background(), src, verify.Options{Pub: w.keys.Verifier, Replay: true, Payloads: true, References: control.References})
	must(w, err)
	if rep.ExitCode() != 0 {
		w.Errorf("verify: %s: %v %v", rep.Verdict(), rep.Findings, rep.Incomplete)
	}
	return rep
}

func (w *world) file(text string) string {
	w.Helper()
	path := filepath.Join(w.TempDir(), "effects.csv")
	must(w, os.WriteFile(path, []byte("operation,count\n"+text), 0o600))
	return path
}

// Business data that contradicts a report is shown; it changes nobody's answer
// by itself.
func TestReconcileDisputes(t *testing.T) {
	w := newWorld(t)
	id := w.half(3, 4)
	ms := w.wire.messages()
	for i, o := range []event.Outcome{event.OutcomeSucceeded, event.OutcomeRejected} {
		do(w, api.OutcomeReport, api.OutcomeRequest{Reports: []string{w.reportOf(ms[i], o)}, Via: "import"})
	}
	r := do(w, api.GenerationReconcile, api.ReconcileRequest{ID: id, File: w.file("order-2,1\norder-3,1\n")})
	if d := cmp.Diff([]uint64{0, 1}, found(r, "disputed")); d != "" {
		t.Error(d)
	}
	g := w.show(id)
	if g.Disputes != 2 || g.Tally["succeeded"] != 2 || g.Tally["rejected"] != 1 {
		t.Errorf("%d disputes, %v", g.Disputes, g.Tally)
	}
	if text := do(w, api.GenerationReport, api.GenerationRef{ID: id}).Text; !strings.Contains(text, "About 2 members business data says otherwise") {
		t.Errorf("the statement hides the disputes:\n%s", text)
	}
}

// What cannot be closed yet is refused before anything is recorded.
func TestReconcileAndCloseTooEarly(t *testing.T) {
	w := newWorld(t)
	req := fast(w.orders(4)...)
	req.Stages, req.Bake = []uint64{2}, "1h"
	id := w.planned(req)
	w.start(id)
	w.until("the stage is out", func() bool { return w.wire.count() == 2 && w.show(id).Tally["pending"] == 2 })
	refused := func(file, want string) {
		t.Helper()
		before := len(w.records(id))
		err := try(w, "ann", api.GenerationReconcile, api.ReconcileRequest{ID: id, File: w.file(file), Close: true, Why: "enough"})
		if !refusedWith(err, api.CodeRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if n := len(w.records(id)) - before; n != 0 {
			t.Errorf("%d records were written", n)
		}
	}
	refused("order-1,1\norder-2,1\n", "is running")
	do(w, api.GenerationAbort, api.GenerationAct{ID: id, Why: "the rest another day"})
	w.until("nothing is in flight", func() bool { return w.state(id) == "settling" })
	refused("order-1,1\n", "still waits for 1 outcomes")
	if r := do(w, api.GenerationReconcile, api.ReconcileRequest{ID: id, File: w.file("order-1,1\norder-2,1\n"), Close: true, Why: "enough"}); r.Generation.State != "closed" {
		t.Errorf("%s", r.Generation.State)
	}
}

func TestReconcileRefusals(t *testing.T) {
	w := newWorld(t)
	id := w.half(1, 2)
	for name, c := range map[string]struct {
		req  api.ReconcileRequest
		code api.Code
		want string
	}{
		"no source":      {api.ReconcileRequest{ID: id}, api.CodeUsage, "one source of evidence"},
		"two sources":    {api.ReconcileRequest{ID: id, File: "x.csv", Address: "postgres://x/y"}, api.CodeUsage, "one source of evidence"},
		"dry close":      {api.ReconcileRequest{ID: id, File: "x.csv", DryRun: true, Close: true, Why: "w"}, api.CodeUsage, "cannot close"},
		"silent close":   {api.ReconcileRequest{ID: id, File: "x.csv", Close: true}, api.CodeUsage, "--why"},
		"no file":        {api.ReconcileRequest{ID: id, File: "/nowhere/x.csv"}, api.CodeUsage, "no such file"},
		"malformed":      {api.ReconcileRequest{ID: id, File: w.file("order-1,x\n")}, api.CodeUsage, "line 2 of the evidence"},
		"no generation":  {api.ReconcileRequest{ID: "9", File: w.file("")}, api.CodeNotFound, "no such generation"},
		"without a name": {api.ReconcileRequest{File: w.file("")}, api.CodeUsage, "which generation"},
	} {
		before := len(w.records(id))
		if _, err := api.Call(as("ann"), w.c, api.GenerationReconcile, c.req, nil); !refusedWith(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s with %q", name, err, c.code, c.want)
		}
		if len(w.records(id)) != before {
			t.Errorf("%s: it wrote", name)
		}
	}
}

// The rows of a report are all members once, and identities are on record
// before they leave.
func TestMembersPages(t *testing.T) {
	w := newWorld(t)
	id := w.half(5, 12)
	var got []uint64
	for from, more := uint64(0), true; more; {
		page := do(w, api.GenerationMembers, api.MembersRequest{ID: id, From: from, Limit: 5})
		for _, m := range page.Members {
			got = append(got, m.Position)
			if m.Operation+m.MessageID != "" || (m.Disposition == "missing") != (m.Position < 5) {
				t.Errorf("%+v", m)
			}
		}
		from, more = page.Next, page.Next > 0
	}
	if len(got) != 12 || !slices.IsSorted(got) {
		t.Errorf("%v", got)
	}
	page := do(w, api.GenerationMembers, api.MembersRequest{ID: id, WithIdentity: true, Why: "which orders?"})
	if page.Members[3].MessageID != "order-4" {
		t.Errorf("%+v", page.Members[3])
	}
	tail := do(w, api.LedgerTail, api.TailRequest{Limit: 1})
	if !strings.Contains(string(tail.Records[0]), `"what":"identity","why":"which orders?"`) {
		t.Errorf("%s", tail.Records[0])
	}
	if _, err := api.Call(as("ann"), w.c, api.GenerationMembers, api.MembersRequest{ID: id, WithIdentity: true}, nil); !refusedWith(err, api.CodeUsage) {
		t.Errorf("without a reason: %v", err)
	}
}

// The course in a report is that of the ledger: every intent, confirm and
// outcome is in one bucket.
func TestReportTellsTheCourse(t *testing.T) {
	w := newWorld(t)
	id := w.half(40, 50)
	do(w, api.OutcomeReport, api.OutcomeRequest{Reports: []string{w.reportOf(w.wire.messages()[7], event.OutcomeSucceeded)}, Via: "import"})
	r := do(w, api.GenerationReport, api.GenerationRef{ID: id})
	var sum api.Point
	for _, p := range r.Series.Points {
		sum.Intents += p.Intents
		sum.Confirmed += p.Confirmed
		sum.Missed += p.Missed
		sum.Succeeded += p.Succeeded
	}
	if want := (api.Point{Intents: 40, Confirmed: 40, Missed: 40, Succeeded: 1}); sum != want {
		t.Errorf("%+v", sum)
	}
	var kinds []string
	for _, m := range r.Timeline {
		kinds = append(kinds, strings.TrimPrefix(m.Kind, "generation."))
	}
	for _, want := range []string{"planned", "approved", "started", "aborted", "settling"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("the timeline %v lacks %s", kinds, want)
		}
	}
	if x := r.Expectation; x == nil || x.Met != 1 || x.Unmet != 49 || x.Otherwise["missing"] != 39 || x.Otherwise["waiting"] != 10 {
		t.Errorf("%+v", x)
	}
}
