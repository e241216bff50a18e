package metrics

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// reference is the policy of the reference system.
func reference(t *testing.T) *policy.Policy {
	t.Helper()
	const path = "../../testdata/policies/fulfillment.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// promtool runs Prometheus' own checker. make install-test installs it.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "promtool", args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, path string, r Rules) {
	t.Helper()
	b, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRules gives the rules to Prometheus with series of its own language:
// testdata/alerts.yaml says which alerts fire, and when.
func TestRules(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), Alerts(reference(t)))
	promtool(t, dir, "check", "rules", "rules.yaml")
	cases, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "alerts.yaml"), cases, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "test", "rules", "alerts.yaml")
}

// Names come from people and may hold what a template, a query or YAML obeys.
func TestHostileNames(t *testing.T) {
	const name = "a \"b\" {{ .Value }} 'c': # \\ é"
	p := &policy.Policy{DefaultOwner: name, Reasons: map[string]policy.Reason{name: {Class: event.Permanent, Owner: name}},
		Queues: []policy.Queue{{Name: name, Quarantine: name + ".dlq"}, {Name: "other", Quarantine: name + ".dlq"}, {Name: "third"}}}
	dir := t.TempDir()
	r := Alerts(p)
	write(t, filepath.Join(dir, "rules.yaml"), r)
	promtool(t, dir, "check", "rules", "rules.yaml")
	if len(r.Groups) != 2 {
		t.Errorf("%d groups, want one for each quarantine", len(r.Groups))
	}
	b, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var back Rules
	if err := yaml.NewDecoder(bytes.NewReader(b)).Decode(&back); err != nil || back.Groups[0].Rules[2].Labels[LabelOwner] != literal(name) {
		t.Errorf("what was written is read as %+v, %v", back.Groups, err)
	}
}

// Nobody's alert is without an owner and without words that say what to do.
func TestEveryAlertHasAnOwner(t *testing.T) {
	owners := map[string]string{"schema_invalid": "Orders API team", "unknown_sku": "Catalog team", "downstream_timeout": "Fulfillment team", "unknown": "Fulfillment on-call",
		"db_conflict": "Fulfillment team", "worker_crash": "Fulfillment on-call"}
	told := map[string]bool{}
	for _, r := range Alerts(reference(t)).Groups[0].Rules {
		switch {
		case r.Record != "":
			continue
		case r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels[LabelSeverity] == "":
			t.Errorf("%s says too little: %+v", r.Alert, r)
		case r.Alert == AlertAging || r.Alert == AlertOverdue: // the series says whose
			if !strings.Contains(r.Expr, "by (queue, owner)") {
				t.Errorf("%s loses the owner: %s", r.Alert, r.Expr)
			}
		case r.Alert == AlertReason:
			for reason, owner := range owners {
				if strings.Contains(r.Expr, `reason="`+reason+`"`) {
					told[reason] = r.Labels[LabelOwner] == owner && r.Labels[LabelClass] != ""
				}
			}
			if strings.Contains(r.Expr, "duplicate_order") {
				t.Errorf("what is dropped never lies in quarantine: %s", r.Expr)
			}
		case r.Labels[LabelOwner] != "Fulfillment on-call":
			t.Errorf("%s belongs to %q", r.Alert, r.Labels[LabelOwner])
		}
	}
	for reason := range owners {
		if !told[reason] {
			t.Errorf("the owner of %s is not told", reason)
		}
	}
}
