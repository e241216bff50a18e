package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planted stands in the body, the headers and the error text of the shop's
// messages, and must stay there.
var planted = []string{"BODYCANARY", "HEADERCANARY", "hunter2", "+491712345678"}

// plantedPlace is the shop with its messages captured, and everything that was
// said on the way.
func plantedPlace(t *testing.T) (*place, *strings.Builder) {
	t.Helper()
	p := newPlace(t)
	t.Setenv("REDRIVE_DATA", p.data)
	if err := seed(t.Context(), []string{filepath.Join("testdata", "shop.json")}); err != nil {
		t.Fatal(err)
	}
	said := &strings.Builder{}
	p.says(said, 0, "capture")
	return p, said
}

// says runs a command with --verbose and keeps what it says.
func (p *place) says(said *strings.Builder, want int, args ...string) {
	p.t.Helper()
	code, out, errs := p.run(append(args, "--verbose")...)
	if code != want {
		p.t.Errorf("redrive %s ended with %d, want %d: %s", strings.Join(args, " "), code, want, errs)
	}
	said.WriteString(out + errs)
}

func TestContentStaysInside(t *testing.T) {
	p, said := plantedPlace(t)
	for _, json := range []string{"--json=false", "--json"} {
		for _, args := range [][]string{{"envelope", "list"}, {"envelope", "list", "--groups"}, {"envelope", "show", "#1"}, {"envelope", "show", "#12"},
			{"generation", "plan", "--all", "--to-queue", "elsewhere", "--dry-run"}, {"status"}, {"doctor"}, {"store", "check"}, {"store", "rebuild", "--check"},
			{"envelope", "compare", "#1", "#2"}, {"envelope", "repair", "#1", "--set-header", "x-fixed=1", "--dry-run"},
			{"envelope", "list", "--where", `has(body.note) && body.note.startsWith("BODY")`},
			{"dlq", "depth", "--queue", "orders.dlq"}} {
			p.says(said, 0, append(args, json)...)
		}
		p.says(said, exitRefused, "envelope", "show", "op-1", json) // several
		p.says(said, exitUsage, "envelope", "show", "#1", "--payload", json)
		for _, where := range []string{`has(body.note) && int(body.note) == 1`, `body[string(headers["x-secret"])] == 1`, `has(body.phone) && timestamp(body.phone) > now`} {
			p.says(said, exitUsage, "generation", "plan", "--where", where, "--to-queue", "elsewhere", json)
		}
	}
	p.says(said, 0, "generation", "plan", "--all", "--to-queue", "elsewhere", "--stages", "11", "--outcome-deadline", "1s", "--bake", "1ms", "--rate", "1000")
	p.write("redrive.yaml", strings.Replace(string(mustRead(t, filepath.Join("testdata", "shop.yaml"))), "policy:", "approvals: {planner_up_to: 20}\npolicy:", 1))
	p.says(said, 0, "generation", "reject", "1", "--why", "planned under other rules")
	p.says(said, 0, "generation", "plan", "--all", "--to-queue", "elsewhere", "--stages", "11", "--outcome-deadline", "1s", "--bake", "1ms", "--rate", "1000")
	p.says(said, 0, "generation", "approve", "2", "--why", "no-stages")
	p.says(said, exitUnfinished, "generation", "start", "2")
	p.says(said, 0, "generation", "report", "2", "--json")
	p.says(said, 0, "generation", "report", "2", "--format", "html")
	p.says(said, 0, "generation", "report", "2", "--format", "csv")
	p.says(said, 0, "ledger", "tail", "--limit", "500")
	p.says(said, 0, "ledger", "verify", "--replay", "--payloads")
	p.says(said, 0, "ledger", "export", "--out", filepath.Join(p.data, "bundle"))
	for _, canary := range planted {
		if i := strings.Index(said.String(), canary); i >= 0 {
			t.Errorf("%s was printed: …%s…", canary, said.String()[max(0, i-200):min(said.Len(), i+80)])
		}
	}
	// Neither does it stand in a file, sealed as it is. The broker's own file
	// holds what was not captured from it, or was released to it.
	err := filepath.WalkDir(p.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "broker.db" || d.Name() == "reserve" || d.Type() != 0 {
			return err
		}
		b, err := os.ReadFile(path)
		for _, canary := range planted {
			if bytes.Contains(b, []byte(canary)) {
				t.Errorf("%s is in %s", canary, path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestViewThatCannotBeRecorded shows nothing: the record comes before the
// bytes.
func TestViewThatCannotBeRecorded(t *testing.T) {
	p, _ := plantedPlace(t)
	shop := string(mustRead(t, filepath.Join("testdata", "shop.yaml")))
	p.write("redrive.yaml", strings.Replace(shop, "min_free_mib: 16", "min_free_mib: 1000000000", 1))
	p.fails(exitTemporary, []string{"make room"}, "envelope", "show", "#1", "--payload", "--why", "look")
	p.fails(exitTemporary, []string{"make room"}, "envelope", "show", "#1", "--payload", "--raw", "--why", "look", "--json")
	p.ok("envelope", "show", "#1")
	p.write("redrive.yaml", shop)
	if tail := p.ok("ledger", "tail", "--limit", "500"); strings.Contains(tail, "envelope.viewed") {
		t.Errorf("a view was recorded: %s", tail)
	}
	out := p.ok("envelope", "show", "#1", "--payload", "--why", "look")
	if tail := p.ok("ledger", "tail", "--limit", "500"); strings.Count(tail, "envelope.viewed") != 1 || !strings.Contains(out, "BODYCANARY") {
		t.Errorf("the view is not recorded, or showed nothing: %s", out)
	}
}
