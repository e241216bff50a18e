package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
)

// lived is a site with a history: captures, notes, a release.
func lived(t *testing.T) *site {
	t.Helper()
	v := newEmbedded(t)
	v.publish("orders.dlq", parcels(0, 40)...)
	s := newSite(t, v.config())
	s.ok("capture")
	s.ok("envelope", "annotate", "#3", "--note", "seen", "--ticket", "T-1")
	s.ok("generation", "plan", "--all", "--fix", "none", "--to-queue", "orders", "--bake", "1ms", "--rate", "1000")
	s.ok("generation", "approve", "1", "--why", "no-stages")
	s.want(5, "generation", "start", "1", "--no-wait")
	s.ok("store", "compact") // no second copy of anything is left in its file
	return s
}

// flip changes one bit of a file, and undo restores it.
func flip(t testing.TB, path string, at int, bit uint) (undo func()) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[at] ^= 1 << bit
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(changed)
	return func() { write(whole) }
}

func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestFlippedBitsInABundle(t *testing.T) {
	s := lived(t)
	rnd := newRand(t)
	dir := filepath.Join(t.TempDir(), "bundle")
	s.ok("ledger", "export", "--out", dir)
	verify := []string{"ledger", "verify", "--bundle", dir, "--replay", "--pub", s.path("keys/verifier"), "--json"}
	if r := answer[api.VerifyResult](s.ok(verify...)); r.Records == 0 || len(r.Warnings) > 0 {
		t.Fatalf("verify: %+v", r)
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 4 {
		t.Fatalf("files of the bundle: %v, %v", files, err)
	}
	for i := range 40 {
		path := files[i%len(files)]
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() == 0 {
			continue
		}
		at, bit := rnd.IntN(int(st.Size())), uint(rnd.IntN(8))
		undo := flip(t, path, at, bit)
		p := s.run(verify...)
		if p.code != 1 {
			t.Errorf("bit %d of byte %d of %s: exit %d\n%s%s", bit, at, path, p.code, p.out.String(), p.err.String())
		} else if r := answer[api.VerifyResult](p); !strings.Contains(strings.Join(r.Mismatches, "\n"), filepath.Base(path)) {
			t.Errorf("bit %d of byte %d of %s: the place is not named: %q", bit, at, path, r.Mismatches)
		}
		undo()
	}
	s.ok(verify...)
}

func TestFlippedBitsInTheStore(t *testing.T) {
	s := lived(t)
	rnd := newRand(t)
	lines := strings.Split(strings.TrimSpace(s.ok("ledger", "tail", "--from", "1", "--limit", "500").out.String()), "\n")
	whole, err := os.ReadFile(s.path("store.db"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		n := rnd.IntN(len(lines))
		switch i {
		case 0:
			n = 0
		case 1:
			n = len(lines) - 1
		}
		line := []byte(lines[n])
		if got := bytes.Count(whole, line); got != 1 {
			t.Fatalf("record %d is in the file %d times", n+1, got)
		}
		at, bit := bytes.Index(whole, line)+rnd.IntN(len(line)), uint(rnd.IntN(8))
		undo := flip(t, s.path("store.db"), at, bit)
		p := s.run("ledger", "verify", "--json")
		if p.code != 1 {
			t.Errorf("a bit of record %d of %d: exit %d\n%s%s", n+1, len(lines), p.code, p.out.String(), p.err.String())
		} else if r := answer[api.VerifyResult](p); !strings.Contains(strings.Join(r.Mismatches, "\n"), fmt.Sprintf("record %d", n+1)) {
			t.Errorf("a bit of record %d: the record is not named: %q", n+1, r.Mismatches)
		}
		undo()
	}
	s.ok("ledger", "verify")
}
