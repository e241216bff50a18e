package verify

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

var update = flag.Bool("update", false, "write the golden ledgers that do not exist yet")

// broken is one way to break a law. The record that breaks it is the one that
// build returns; reason is a part of what the verifier must say about it.
type brokenCase struct {
	name   string
	law    Law
	reason string
	build  func(*testing.T) (*book, uint64)
}

// case2 builds on a running generation.
func onRunning(act func(b *book) uint64) func(*testing.T) (*book, uint64) {
	return func(t *testing.T) (*book, uint64) {
		t.Helper()
		b := running(t)
		return b, act(b)
	}
}

func onNew(act func(b *book) uint64) func(*testing.T) (*book, uint64) {
	return func(t *testing.T) (*book, uint64) {
		t.Helper()
		b := newBook(t)
		return b, act(b)
	}
}

func allBroken() []brokenCase {
	var out []brokenCase
	out = append(out, brokenStructure()...)
	out = append(out, brokenSessions()...)
	out = append(out, brokenPlans()...)
	out = append(out, brokenRelease()...)
	out = append(out, brokenBrake()...)
	out = append(out, brokenTries()...)
	out = append(out, brokenOrder()...)
	out = append(out, brokenFacts()...)
	out = append(out, brokenEffects()...)
	out = append(out, brokenRepairs()...)
	return append(out, brokenEnvelopes()...)
}

// TestGoldenLedgers reads ledgers that each break one law and checks that the
// verifier names the law, the record and the reason. The files are a contract:
// with -update new ones are added, and none is ever rewritten.
func TestGoldenLedgers(t *testing.T) {
	for _, c := range allBroken() {
		name := filepath.Join("testdata", "broken", c.name+".txt")
		if _, err := os.Stat(name); err != nil && *update {
			b, seq := c.build(t)
			head := fmt.Sprintf("law: %s\nrecord: %d\nreason: %s\n\n", c.law, seq, c.reason)
			text := append([]byte(head), bytes.Join(b.lines, newline)...)
			if err := os.WriteFile(name, append(text, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob("testdata/broken/*.txt")
	if err != nil || len(files) != len(allBroken()) {
		t.Fatalf("%d files for %d cases: run with -update (%v)", len(files), len(allBroken()), err)
	}
	laws := map[Law]bool{}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want, b := readGolden(t, name)
			laws[want.Law] = true
			rep := b.verify(Options{Replay: true})
			got := rep.First()
			if got == nil || rep.ExitCode() != 1 || rep.Verdict() != "mismatch" {
				t.Fatalf("not found: %+v", rep)
			}
			if got.Law != want.Law || got.Seq != want.Seq || !strings.Contains(got.Reason, want.Reason) {
				t.Errorf("got  %s, record %d: %s\nwant %s, record %d: %s", got.Law, got.Seq, got.Reason, want.Law, want.Seq, want.Reason)
			}
			if rep.Broken != 1 {
				t.Errorf("one breach was reported %d times: %v", rep.Broken, rep.Findings)
			}
		})
	}
	// Checkpoints, payloads and bundles have tests of their own; the sums of the
	// tally cannot be broken by records, only by a defect of the verifier.
	for _, law := range append(append([]Law{LawEnvelope, LawSource}, structural...), generationLaws...) {
		switch law {
		case LawCheckpoint, LawRoot, LawSignature, LawScope, LawTally:
		default:
			if !laws[law] {
				t.Errorf("no golden ledger breaks %s", law)
			}
		}
	}
}

func readGolden(t *testing.T, name string) (Finding, *book) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(text), "\n\n")
	var want Finding
	for line := range strings.SplitSeq(head, "\n") {
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "law":
			want.Law = Law(value)
		case "record":
			want.Seq, err = parseNumber(value)
		case "reason":
			want.Reason = value
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &book{tb: t, key: newSigner(t, 1), objects: map[event.Digest][]byte{}}
	// The objects that the builders make are a function of their text.
	for gen := event.GenerationNo(1); gen <= 3; gen++ {
		b.manifest(gen)
	}
	for n := uint64(1); n <= 14; n++ {
		b.object(fmt.Sprintf("list 1+%d", n))
		b.object(fmt.Sprintf("list %d+1", n))
		b.object(fmt.Sprintf("list %d+2", n))
	}
	b.keyList(9, false)
	b.keyList(10, false)
	b.keyList(10, true)
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		b.raw([]byte(line))
	}
	return want, b
}
