package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// written makes a configuration with a policy file beside it and loads it.
func written(t *testing.T, conf, policy string) (*config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "policies"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"redrive.yaml": conf, "policies/p.yaml": policy} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config.Load(filepath.Join(dir, "redrive.yaml"))
}

const withFile = "version: 1\npolicy: {file: policies/p.yaml}\n"

func TestPolicyFile(t *testing.T) {
	c, err := written(t, withFile+`
sources:
  - {queue: q.dlq, identity: {reason: ["header:x-mine"]}}
  - {queue: r.dlq, retention: 3d}
masks: [{name: own, pattern: 'zz+'}]
`, `format: 1
version: "8"
reasons: {a: {class: permanent, owner: them}}
masks: [{name: tail, pattern: '\b(\d{2})\d{6,11}(\d{2})\b'}]
queues:
  - {queue: q, retention: 2d, headers: {reason: x-why, attempts: x-tries}, operation: "body:/id"}
  - {queue: r}
  - {queue: s, retention: 5d}
`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.BuildPolicy()
	if err != nil || p.Version != "8" {
		t.Fatalf("%+v, %v", p, err)
	}
	if class, owner := p.Classify("a"); class != event.Permanent || owner != "them" {
		t.Errorf("%s, %s", class, owner)
	}
	masks, err := c.BuildMasks()
	if got := quarantine.ApplyMasks("call 919812345678 zzz", masks); err != nil || got != "call 91***78 ***" {
		t.Errorf("%q %v", got, err)
	}
	q, s := c.Source("q.dlq"), c.Source("s.dlq")
	rules, err := q.Rules()
	if err != nil || rules.Reason[0].String() != "header:x-mine" || rules.Attempts[0].String() != "header:x-tries" || len(rules.Attempts) != 1 ||
		rules.Operation[0].String() != "body:/id" || len(rules.Operation) < 3 {
		t.Errorf("%+v %v", rules, err)
	}
	for name, want := range map[string]time.Duration{"q.dlq": 2 * 24 * time.Hour, "r.dlq": 3 * 24 * time.Hour, "s.dlq": 5 * 24 * time.Hour, "x": 0} {
		if x := c.Source(name); time.Duration(x.Retention) != want {
			t.Errorf("%s: retention %s, want %s", name, time.Duration(x.Retention), want)
		}
	}
	if rules, err = s.Rules(); err != nil || rules.Reason[0].String() != "header:x-death-reason" {
		t.Errorf("%+v %v", rules, err)
	}
}

func TestMistakesWithPolicyFiles(t *testing.T) {
	for _, x := range []struct{ conf, policy, says string }{
		{withFile, "format: 1\n", "p.yaml: [1:1] version: is required"},
		{withFile, "format: 1\nversion: v\nqueues:\n  - {queue: q, operation: 'property:nothing'}\n", "p.yaml: [4:27] queues[0].operation: expression"},
		{withFile, "format: 1\nversion: v\nqueues:\n  - {queue: q, ordering: {key: 'body:/~2'}}\n", "p.yaml: [4:32] queues[0].ordering.key: expression"},
		{withFile, "format: 1\nversion: v\nqueues:\n  - {queue: q, retries: many}\n", "p.yaml: [4:25] want a whole number"},
		{"version: 1\npolicy: {file: other.yaml}\n", "", "other.yaml does not exist"},
		{"version: 1\npolicy: {file: policies/p.yaml, version: \"1\"}\n", "format: 1\nversion: v\n", "belongs into that file"},
		{"version: 1\npolicy: {file: policies/p.yaml, reasons: {a: {class: transient}}}\n", "format: 1\nversion: v\n", "belongs into that file"},
		{withFile, strings.Repeat("#\n", 1<<20), "at most"},
	} {
		_, err := written(t, x.conf, x.policy)
		if err == nil || !strings.Contains(err.Error(), x.says) || !errors.Is(err, config.ErrInvalid) {
			t.Errorf("%.60q, %.60q: %v; want %s", x.conf, x.policy, err, x.says)
		}
	}
	if _, err := written(t, "version: 1\npolicy: {file: policies}\n", ""); err == nil || errors.Is(err, config.ErrInvalid) {
		t.Errorf("a directory: %v", err)
	}
}
