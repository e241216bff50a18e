package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// mustFail returns the message of a configuration that is refused.
func mustFail(t *testing.T, text string) string {
	t.Helper()
	c, err := config.Parse("redrive.yaml", []byte(text))
	if !errors.Is(err, config.ErrInvalid) || c != nil {
		t.Fatalf("%q is taken: %v", text, err)
	}
	return err.Error()
}

// A mistake in the text is named with line and column.
func TestMistakesHaveAPlace(t *testing.T) {
	for _, c := range []struct{ text, at, says string }{
		{"version: 1\nbrokr:\n  url: x\n", "[2:1]", `unknown field "brokr"`},
		{"version: 1\nbroker:\n  url: x\n  usr: y\n", "[4:3]", `unknown field "usr"`},
		{"version: one\n", "[1:10]", "cannot unmarshal"},
		{"version: 1\nsources: 3\n", "[2:10]", "sequence"},
		{"version: 1\nsources:\n  - queue: q\n    prefetch: many\n", "[4:15]", "cannot unmarshal"},
		{"version: 1\nlimits:\n  rate: fast\n", "[3:9]", "cannot unmarshal"},
		{"version: 1\nlimits:\n  window: -1\n", "[3:11]", "overflow"},
		{"version: 1\nbroker: [\n", "[2:9]", ""},
		{"version: 1\nbroker:\n\turl: x\n", "[3:1]", "cannot start any token"},
		{"version: 1\nsources:\n  - queue: q\n    identity: {operation: [header:x]}\n", "[4:34]", "quotes"},
		{"version: 1\nversion: 1\n", "[2:1]", "already"},
		{"version: 1\npolicy:\n  reasons:\n    a: {class: permanent, onwer: me}\n", "[4:27]", `unknown field "onwer"`},
	} {
		msg := mustFail(t, c.text)
		if !strings.Contains(msg, c.at) || !strings.Contains(msg, c.says) || !strings.HasPrefix(msg, "redrive.yaml: ") {
			t.Errorf("%q\n%s\nwant %s %s", c.text, msg, c.at, c.says)
		}
	}
}

func TestMistakesOfSense(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "redrive.yaml"}, {"version: 2\n", "version 2"}, {"version: 0\n", "version 0"},
		{"version: 1\nsources:\n  - retention: 1d\n", "sources[0]: queue is required"},
		{"version: 1\nsources:\n  - queue: q\n  - queue: q\n", `sources[1]: queue "q" is listed twice`},
		{"version: 1\nsources:\n  - queue: q\n    prefetch: 1001\n", "prefetch 1001"},
		{"version: 1\nsources:\n  - queue: q\n    prefetch: -1\n", "prefetch -1"},
		{"version: 1\nsources:\n  - queue: q\n    identity:\n      colour: [header:x]\n", "identity.colour is unknown"},
		{"version: 1\nsources:\n  - queue: q\n    identity:\n      operation: [heder:x]\n", `expression "heder:x"`},
		{"version: 1\nsources:\n  - queue: q\n    retention: soon\n", "duration"},
		{"version: 1\nretention:\n  deadline: -5m\n", "duration"},
		{"version: 1\ndestinations:\n  - evidence: outcomes\n", "either queue or exchange"},
		{"version: 1\ndestinations:\n  - queue: a\n    exchange: b\n", "either queue or exchange"},
		{"version: 1\ndestinations:\n  - queue: a\n    evidence: faith\n", `evidence "faith"`},
		{"version: 1\nlimits:\n  rate: -1\n", "rate -1"}, {"version: 1\nlimits:\n  rate: .nan\n", "rate NaN"},
		{"version: 1\nlimits:\n  rate: .inf\n", "rate +Inf"}, {"version: 1\nlimits:\n  rate: 1000001\n", "rate"},
		{"version: 1\npolicy:\n  reasons:\n    a: {class: bad luck}\n", `class "bad luck"`},
		{"version: 1\nbroker: {management_user: u, management_password_file: f}\n", "need management, the address"},
		{"version: 1\nbroker: {management: 'http://127.0.0.1', management_user: u}\n", "need each other"},
		{"version: 1\nbroker: {management: 'http://127.0.0.1', management_password_file: f}\n", "need each other"},
		{"version: 1\nbroker: {url: 'local:x', management: 'http://127.0.0.1'}\n", "no management API"},
		{"version: 1\nbrake: {back_off: [0s]}\n", "back_off[0] is 0s"},
		{"version: 1\nbrake: {back_off: [5m, 1m]}\n", "back_off[1] is 1m0s"},
		{"version: 1\nbrake: {back_off: [1m, 1m, 1m, 1m, 1m, 1m, 1m, 1m, 1m]}\n", "at most 8"},
		{"version: 1\nbrake: {clear_for: -5m}\n", "duration"},
		{"version: 1\nmasks:\n  - name: m\n    pattern: '('\n", "mask m"},
	} {
		if msg := mustFail(t, c.text); !strings.Contains(msg, c.says) {
			t.Errorf("%q\n%s\nwant %s", c.text, msg, c.says)
		}
	}
}

func TestDefaults(t *testing.T) {
	c, err := config.Parse("x", []byte("version: 1\nsources:\n  - queue: q\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*config.Config{c, config.Default()} {
		if c.Limits.Rate != 50 || c.Limits.Window != 64 || c.Limits.Exposure != 200 || c.Limits.Cohort != 1_000_000 ||
			time.Duration(c.Limits.ConfirmDeadline) != 30*time.Second || c.Approvals.PlannerUpTo != 10 || time.Duration(c.Approvals.TTL) != 24*time.Hour ||
			time.Duration(c.Retention.Deadline) != 1_209_600*time.Second || c.Retention.PayloadAge != 0 {
			t.Errorf("%+v", c)
		}
	}
	if c.Sources[0].Prefetch != 200 || c.Source("other").Prefetch != 200 || c.Source("other").Queue != "other" {
		t.Errorf("%+v", c.Sources)
	}
	if e, err := config.ParseEvidence(""); err != nil || e != redrive.EvidenceReturns {
		t.Errorf("%s %v", e, err)
	}
}

// The example that init writes is a configuration, and what it shows as
// defaults are the defaults.
func TestExample(t *testing.T) {
	c, err := config.Parse("example.yaml", config.Example)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Sources) != 1 || len(c.Policy.Reasons) != 5 {
		t.Errorf("%+v", c)
	}
	shown := regexp.MustCompile(`(?m)^# (limits|thresholds|brake|approvals|retention|destinations|outcomes|masks|schemas|probes|store):.*\n(#   ?.*\n)+`).FindAllString(string(config.Example), -1)
	if len(shown) != 11 {
		t.Fatalf("%d sections are commented out", len(shown))
	}
	whole := "version: 1\n"
	for _, s := range shown {
		whole += regexp.MustCompile(`(?m)^# `).ReplaceAllString(s, "")
	}
	all, err := config.Parse("shown", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if d := config.Default(); all.Limits != d.Limits || all.Approvals != d.Approvals || all.Retention.Deadline != d.Retention.Deadline {
		t.Errorf("shown %+v, default %+v", all, d)
	}
}

func TestEnvironmentOverrides(t *testing.T) {
	for k, v := range map[string]string{"REDRIVE_BROKER_URL": "amqps://b", "REDRIVE_BROKER_USER": "u", "REDRIVE_BROKER_PASSWORD_FILE": "/p", "REDRIVE_MIN_FREE_MIB": "7"} {
		t.Setenv(k, v)
	}
	c, err := config.Parse("x", []byte("version: 1\nbroker:\n  url: amqp://a\n  user: a\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Broker.URL != "amqps://b" || c.Broker.User != "u" || c.Broker.PasswordFile != "/p" || c.Store.MinFreeMiB != 7 {
		t.Errorf("%+v", c)
	}
	t.Setenv("REDRIVE_MIN_FREE_MIB", "much")
	if msg := mustFail(t, "version: 1\n"); !strings.Contains(msg, "environment") {
		t.Error(msg)
	}
}

func TestDurations(t *testing.T) {
	for s, want := range map[string]time.Duration{"90s": 90 * time.Second, "5m": 5 * time.Minute, "14d": 14 * 24 * time.Hour, "1.5s": 1500 * time.Millisecond,
		"1h30m": 90 * time.Minute, "0": 0, "2w": 14 * 24 * time.Hour, "250ms": 250 * time.Millisecond} {
		if d, err := config.ParseDuration(s); err != nil || d != want {
			t.Errorf("%s: %s, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "5", "soon", "-5m", "-1.5s", "1e9d", "9999999999h", "d"} {
		if d, err := config.ParseDuration(s); err == nil || d != 0 {
			t.Errorf("%q is taken as %s", s, d)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := config.Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "redrive init") {
		t.Errorf("%v", err)
	}
	path := filepath.Join(dir, "redrive.yaml")
	if err := os.WriteFile(path, config.Example, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Load(path); err != nil || c.Version != config.Version {
		t.Errorf("%v", err)
	}
	if _, err := config.Load(dir); err == nil || errors.Is(err, config.ErrInvalid) {
		t.Errorf("a directory: %v", err)
	}
}

func TestPolicyMasksAndRules(t *testing.T) {
	c, err := config.Parse("x", []byte(`version: 1
policy: {version: "9", default_owner: us, reasons: {a: {class: transient, owner: them}}}
masks: [{name: iban, pattern: 'DE\d+'}]
sources: [{queue: q, retention: 2d, identity: {operation: ["body:/id", "header:x"], trace_id: []}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.BuildPolicy()
	if err != nil {
		t.Fatal(err)
	}
	if class, owner := p.Classify("a"); class != event.Transient || owner != "them" || p.Version != "9" || p.DefaultOwner != "us" {
		t.Errorf("%+v", p)
	}
	masks, err := c.BuildMasks()
	if err != nil || quarantine.ApplyMasks("DE123 token=a", masks) != "*** token=***" {
		t.Errorf("%q %v", quarantine.ApplyMasks("DE123 token=a", masks), err)
	}
	src := c.Source("q")
	rules, err := src.Rules()
	if err != nil || len(rules.Operation) != 2 || rules.Operation[0].String() != "body:/id" || len(rules.TraceID) != 0 || len(rules.Type) == 0 {
		t.Errorf("%+v %v", rules, err)
	}
}

func TestAllowList(t *testing.T) {
	c, err := config.Parse("x", []byte("version: 1\ndestinations:\n  - queue: a\n  - exchange: e\n    routing_key: k\n  - exchange: any\n"))
	if err != nil {
		t.Fatal(err)
	}
	for d, want := range map[redrive.Destination]bool{{RoutingKey: "a"}: true, {RoutingKey: "b"}: false, {Exchange: "e", RoutingKey: "k"}: true,
		{Exchange: "e", RoutingKey: "l"}: false, {Exchange: "any", RoutingKey: "x"}: true, {Exchange: "a"}: false, {}: false} {
		if _, ok := c.Destination(d); ok != want {
			t.Errorf("%+v: %v", d, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(config.Example)
	f.Add([]byte("version: 1\nbroker: {url: [}"))
	f.Add([]byte("version: 1\nsources: [{queue: q, identity: {operation: [body:/a]}}]"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := config.Parse("redrive.yaml", b)
		if (err == nil) != (c != nil) {
			t.Errorf("%v and %v", c, err)
		}
		if err != nil && !errors.Is(err, config.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}

// Mistakes in what is asked before a start are found when the file is read.
func TestMistakesInTheContract(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"schemas: [{type: A}]", "schemas[0]: type and file are required"},
		{"probes: [{name: A, url: https://a}]", `probes[0]: name "A"`},
		{"probes: [{name: a}]", "probes[0]: a: url is required"},
		{"probes: [{name: a, url: https://a}, {name: a, url: https://a}]", `probes[1]: name "a" is there twice`},
		{"probes: [{name: a, url: https://a, query: up}]", "either above or below"},
		{"probes: [{name: a, url: https://a, query: up, above: 1, below: 1}]", "either above or below"},
		{"probes: [{name: a, url: https://a, above: 1}]", "need query"},
		{"probes: [{name: a, url: https://a, allow: [10.0.0.0]}]", `allow "10.0.0.0"`},
		{"destinations: [{queue: q, probes: [a]}]", `destinations[0]: probe "a" is not listed`},
		{"destinations: [{queue: q, max_depth: -1}]", "max_depth -1"},
		{"destinations: [{queue: q, authorize: {allow: []}}]", "authorize: url is required"},
		{"destinations: [{queue: q, version_probe: {url: https://a, pointer: version}}]", `pointer "version"`},
	} {
		if msg := mustFail(t, "version: 1\n"+c.text+"\n"); !strings.Contains(msg, c.says) {
			t.Errorf("%s: %s, want %s", c.text, msg, c.says)
		}
	}
}
