package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/internal/policing"
)

// The embedded broker serves one process: another one has to wait, and is told
// so. Nothing of this needs a store.
func TestPolicyWhileTheBrokerIsTaken(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"redrive.yaml": "version: 1\nbroker: {url: \"local:broker.db\"}\n", "p.yaml": "format: 1\nversion: \"1\"\nqueues: [{queue: q}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := local.Open(filepath.Join(dir, "broker.db"), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, p := Settings{Data: dir}, PolicyChoice{File: filepath.Join(dir, "p.yaml")}
	_, err = PolicyCheck(t.Context(), s, p, policing.Options{})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeTemporary || !strings.Contains(e.Message, "one process at a time") {
		t.Errorf("a taken broker: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	plan, err := PolicyApply(t.Context(), s, p, true)
	if err != nil || plan.Steps[0].State != api.StepMade {
		t.Fatalf("a free broker: %+v, %v", plan, err)
	}
	check, err := PolicyCheck(t.Context(), s, p, policing.Options{WithoutWorkers: true})
	if err != nil || check.Result != api.NoDrift {
		t.Errorf("after it was made: %+v, %v", check, err)
	}
}
