package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/metrics"
)

// stories names for each command the script that tells its story.
var stories = map[string]string{
	"init": "init", "doctor": "doctor", "version": "version", "status": "secondshell", "demo": "demo",
	"capture": "capture", "source pin": "pin", "dlq depth": "dlq", "dlq peek": "dlqpeek", "dlq purge": "dlqpeek", "dlq replay": "dlqreplay",
	"envelope list": "envelope_list", "envelope show": "envelope_show", "envelope annotate": "envelope_change",
	"envelope classify": "classify", "envelope assign": "envelope_change", "envelope hold": "envelope_hold",
	"envelope unhold": "envelope_hold", "envelope repair": "repair", "envelope compare": "repair", "envelope resolve": "envelope_change", "envelope purge": "purge",
	"generation plan": "plan", "generation list": "approve", "generation show": "approve", "generation approve": "approve",
	"generation reject": "approve", "generation start": "release", "generation pause": "secondshell",
	"generation resume": "secondshell", "generation abort": "abort", "generation limit": "limit", "generation rule": "rule",
	"generation watch": "watch", "generation close": "release", "generation report": "report", "generation reconcile": "reconcile",
	"outcome report": "outcome", "outcome import": "release",
	"policy show": "policy_show", "policy schema": "policy_show", "policy apply": "policy_apply", "policy check": "policy_apply", "policy alerts": "policy_alerts",
	"worker":      "worker",
	"ledger tail": "ledger", "ledger verify": "ledger", "ledger export": "ledger", "ledger checkpoint": "ledger",
	"store check": "store", "store rebuild": "store", "store compact": "purge",
}

const scripts = "testdata/script"

// commands lists the paths of all commands that do something.
func commands(cmd *cobra.Command) []string {
	if !cmd.HasSubCommands() {
		return []string{strings.TrimPrefix(cmd.CommandPath(), "redrive ")}
	}
	var out []string
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			out = append(out, commands(sub)...)
		}
	}
	return out
}

func TestEveryCommandHasAStory(t *testing.T) {
	known := map[string]bool{}
	for _, path := range commands(newRoot(&command{})) {
		known[path] = true
		story := stories[path]
		if story == "" {
			t.Errorf("redrive %s has no story", path)
			continue
		}
		text, err := os.ReadFile(filepath.Join(scripts, story+".txtar"))
		if err != nil {
			t.Error(err)
			continue
		}
		// A story shows what people read and what programs read. A worker prints
		// nothing but its log, which is JSON.
		if !regexp.MustCompile(`(?m)redrive ` + path + `( |$)`).Match(text) {
			t.Errorf("the story %s does not run redrive %s", story, path)
		}
		if !regexp.MustCompile(`(?m)redrive `+path+` .*--json`).Match(text) && path != "ledger tail" && path != "demo" && path != "init" && path != "worker" {
			t.Errorf("the story %s does not run redrive %s with --json", story, path)
		}
	}
	for path := range stories {
		if !known[path] {
			t.Errorf("there is no command redrive %s", path)
		}
	}
}

// shapes are the documents that --json prints, by their names in scripts.
var shapes = map[string]any{
	"init": map[string]string{}, "version": map[string]string{}, "compact": map[string]int64{},
	"status": api.StatusInfo{}, "doctor": api.DoctorReport{}, "capture": api.CaptureSummary{}, "pin": api.PinResult{}, "depth": api.DepthInfo{},
	"peek": api.Peek{}, "replay": api.Replay{},
	"page": api.EnvelopePage{}, "groups": api.EnvelopeGrouping{}, "envelope": api.Envelope{}, "changed": api.Changed{}, "classified": api.Classified{}, "repair": api.Repair{}, "comparison": api.Comparison{},
	"plan": api.Plan{}, "generation": api.Generation{}, "generations": api.GenerationPage{}, "paused": api.Paused{},
	"report": api.Report{}, "reconciliation": api.Reconciliation{}, "outcomes": api.OutcomeResult{}, "verify": api.VerifyResult{}, "export": api.ExportResult{},
	"policy": api.PolicyShow{}, "policy_plan": api.PolicyPlan{}, "policy_check": api.PolicyCheck{}, "rules": metrics.Rules{},
	"checkpoint": api.CheckpointInfo{}, "check": api.StoreReport{}, "rebuild": api.RebuildReport{},
}

func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: scripts,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"shop": shop, "shape": shape, "record": record, "replace": replace, "held": held,
		},
		Setup: func(env *testscript.Env) error {
			data := filepath.Join(env.WorkDir, "data")
			env.Setenv("REDRIVE_DATA", data)
			env.Setenv("GORACE", raceOptions)
			// Whatever a story did: the book of its store is whole.
			env.Defer(func() { verifies(env.T(), data) })
			return nil
		},
	})
}

func verifies(t testscript.T, data string) {
	if _, err := os.Stat(filepath.Join(data, "store.db")); err != nil {
		return
	}
	var out, stderr bytes.Buffer
	code := Run(context.Background(), []string{"--data", data, "ledger", "verify", "--replay", "--payloads"}, &out, &stderr)
	if code != 0 && !strings.Contains(out.String(), "there are no records") {
		t.Fatal(fmt.Sprintf("the ledger does not verify: %d\n%s%s", code, out.String(), stderr.String()))
	}
}

// shop makes the data directory of a small shop: its configuration and, on the
// embedded broker, twelve dead messages of three reasons, one of them a second
// copy of an operation. "shop captured" captures them too.
func shop(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("redrive", "init"))
	for _, f := range []struct{ from, to string }{{"shop.yaml", "data/redrive.yaml"}, {"shop.json", "shop.json"}} {
		text, err := os.ReadFile(filepath.Join("testdata", f.from))
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(f.to), text, 0o600))
	}
	ts.Check(ts.Exec("seed", ts.MkAbs("shop.json")))
	if len(args) > 0 {
		ts.Check(ts.Exec("redrive", "capture"))
	}
}

// record NAME REGEXP sets a variable to the first group that matches what the
// last command printed.
func record(ts *testscript.TestScript, _ bool, args []string) {
	m := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("%s does not match", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// held COMMAND waits until a process that runs this command holds the store. It
// reads the lock file: a command that asks would hold the store for a moment
// itself, again and again, and the other one could starve.
func held(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); {
		b, err := os.ReadFile(ts.MkAbs("data/LOCK"))
		if err == nil && strings.Contains(string(b), `"command":"`+args[0]+`"`) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	ts.Fatalf("%s does not hold the store", args[0])
}

// replace FILE OLD NEW changes a file; \n in NEW begins a line.
func replace(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not contain %s", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(text, args[1], strings.ReplaceAll(args[2], `\n`, "\n"))), 0o600))
}

// shape NAME holds what the last command printed against the type of that
// name: one document, every field that the type promises, and no other.
// "shape NAME stream" takes several documents.
func shape(ts *testscript.TestScript, _ bool, args []string) {
	want, ok := shapes[args[0]]
	if !ok {
		ts.Fatalf("no shape %q", args[0])
	}
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	n := 0
	for dec.More() {
		var doc any
		ts.Check(dec.Decode(&doc))
		if faults := differs(reflect.TypeOf(want), doc, args[0]); len(faults) > 0 {
			ts.Fatalf("%s", strings.Join(faults, "\n"))
		}
		n++
	}
	if n != 1 && len(args) == 1 || n == 0 {
		ts.Fatalf("%d documents", n)
	}
}

// differs lists where a document is not what its type promises. A list that is
// null is a fault: readers iterate.
func differs(t reflect.Type, doc any, at string) (faults []string) {
	if t == reflect.TypeFor[time.Time]() {
		text, _ := doc.(string)
		if v, err := time.Parse(time.RFC3339, text); err != nil || v.Location() != time.UTC {
			faults = append(faults, fmt.Sprintf("%s: %v is no RFC 3339 time in UTC", at, doc))
		}
		return faults
	}
	switch t.Kind() {
	case reflect.Pointer:
		if doc == nil && t.Elem().Kind() == reflect.Int {
			return nil // a number that is not known
		}
		return differs(t.Elem(), doc, at)
	case reflect.Slice:
		list, ok := doc.([]any)
		if !ok {
			return append(faults, fmt.Sprintf("%s: %v is no list", at, doc))
		}
		for i, x := range list {
			faults = append(faults, differs(t.Elem(), x, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case reflect.Map:
		m, ok := doc.(map[string]any)
		if !ok {
			return append(faults, fmt.Sprintf("%s: %v is no object", at, doc))
		}
		for k, x := range m {
			faults = append(faults, differs(t.Elem(), x, at+"."+k)...)
		}
	case reflect.Struct:
		m, ok := doc.(map[string]any)
		if !ok {
			return append(faults, fmt.Sprintf("%s: %v is no object", at, doc))
		}
		known := map[string]bool{}
		faults = append(faults, fields(t, m, at, known)...)
		for k := range m {
			if !known[k] {
				faults = append(faults, fmt.Sprintf("%s: field %s is not documented", at, k))
			}
		}
	default:
		if doc == nil || reflect.TypeOf(doc).Kind() == reflect.String != (t.Kind() == reflect.String) {
			faults = append(faults, fmt.Sprintf("%s: %v is no %s", at, doc, t.Kind()))
		}
	}
	return faults
}

func fields(t reflect.Type, m map[string]any, at string, known map[string]bool) (faults []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			faults = append(faults, fields(f.Type, m, at, known)...)
			continue
		}
		known[name] = true
		x, ok := m[name]
		switch {
		case ok:
			faults = append(faults, differs(f.Type, x, at+"."+name)...)
		case options != "omitempty":
			faults = append(faults, fmt.Sprintf("%s: field %s is missing", at, name))
		}
	}
	return faults
}
