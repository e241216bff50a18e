package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
)

// site is a data directory between processes.
type site struct {
	*testing.T
	s Settings
}

func newSite(t *testing.T) *site {
	t.Helper()
	w := &site{t, Settings{Data: filepath.Join(t.TempDir(), "data"), Command: "test", Version: "test"}}
	w.must(Init(w.s))
	w.config()
	return w
}

// config points to a broker of its own, which nothing here asks.
func (w *site) config() {
	w.Helper()
	w.must(os.WriteFile(filepath.Join(w.s.Data, ConfigFile), []byte("version: 1\nbroker:\n  url: local:broker.db\nstore:\n  min_free_mib: 1\n"), 0o600))
}

func (w *site) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// grow is a process that writes something to the ledger, signs it and ends.
func (w *site) grow() {
	w.Helper()
	s, err := Connect(w.Context(), w.s)
	w.must(err)
	// A bundle is the record that needs no message.
	_, err = api.Call(w.Context(), s, api.LedgerExport, api.ExportRequest{Dir: filepath.Join(w.TempDir(), "bundle")}, nil)
	w.must(err)
	w.must(s.Close(w.Context()))
}

// opens says whether a process can open the store.
func (w *site) opens() error {
	s, err := Connect(context.Background(), w.s)
	if err == nil {
		err = s.Close(context.Background())
	}
	return err
}

func (w *site) path(names ...string) string {
	return filepath.Join(append([]string{w.s.Data}, names...)...)
}

func (w *site) read(path string) []byte {
	w.Helper()
	b, err := os.ReadFile(path)
	w.must(err)
	return b
}

// newest is the file of the newest exported checkpoint.
func (w *site) newest() string {
	w.Helper()
	names, err := filepath.Glob(w.path("checkpoints", "*"))
	w.must(err)
	if len(names) == 0 {
		w.Fatal("no checkpoint was exported")
	}
	return slices.Max(names)
}

func (w *site) refuses(text string) {
	w.Helper()
	err := w.opens()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeIntegrity || !strings.Contains(e.Message, text) {
		w.Errorf("opened with %v, want a refusal that says %q", err, text)
	}
}

// An older copy of the store that is put back is refused: what was done since
// would be done again.
func TestAnOlderStoreIsRefused(t *testing.T) {
	w := newSite(t)
	w.grow()
	old := w.read(w.path("store.db"))
	w.grow()
	current := w.read(w.path("store.db"))
	w.must(os.WriteFile(w.path("store.db"), old, 0o600))
	w.refuses("older copy")
	w.must(os.WriteFile(w.path("store.db"), current, 0o600))
	w.must(w.opens())
}

// A store that was made anew beside the keys and checkpoints of another one is
// behind them as well.
func TestAnEmptyStoreIsRefused(t *testing.T) {
	w := newSite(t)
	w.grow()
	w.must(os.Remove(w.path("store.db")))
	w.must(Init(w.s))
	w.refuses("older copy")
}

// An older copy that grew on elsewhere is of the same size, and not the same
// ledger.
func TestAForkedStoreIsRefused(t *testing.T) {
	w := newSite(t)
	w.grow()
	old, checkpoint := w.read(w.path("store.db")), w.newest()
	w.grow()
	w.grow()
	newer, text := w.newest(), w.read(w.newest())
	w.must(os.WriteFile(w.path("store.db"), old, 0o600))
	names, err := filepath.Glob(w.path("checkpoints", "*"))
	w.must(err)
	for _, name := range names {
		if name > checkpoint {
			w.must(os.Remove(name))
		}
	}
	for range 4 {
		w.grow() // nobody can know yet
	}
	names, err = filepath.Glob(w.path("checkpoints", "*"))
	w.must(err)
	for _, name := range names {
		if name > newer {
			w.must(os.Remove(name))
		}
	}
	w.must(os.WriteFile(newer, text, 0o600))
	w.refuses("are not those of")
}

// What stands among the checkpoints and is none of this ledger is refused, and
// the refusal names the file; moved away, it is no matter.
func TestAForeignCheckpointIsRefused(t *testing.T) {
	other := newSite(t)
	other.grow()
	for name, text := range map[string]func() []byte{
		"of another ledger": func() []byte { return other.read(other.newest()) },
		"empty":             func() []byte { return nil },
		"garbage":           func() []byte { return []byte("garbage\n") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newSite(t)
			w.grow()
			foreign := w.path("checkpoints", strings.Repeat("9", 20))
			w.must(os.WriteFile(foreign, text(), 0o600))
			w.refuses(foreign)
			w.must(os.Remove(foreign))
			w.must(w.opens())
		})
	}
}

// A normal restart is not refused, nor one after a crash while a checkpoint was
// exported, or before it was.
func TestRestartsAreNotRefused(t *testing.T) {
	w := newSite(t)
	w.must(w.opens()) // nothing was ever written
	for range 3 {
		w.grow()
		w.must(w.opens())
	}
	newest := w.newest()
	w.must(os.WriteFile(newest+".new", []byte("half of a ch"), 0o600))
	w.must(w.opens())
	w.must(os.Remove(newest))
	w.must(w.opens())
	w.grow()
	if got := w.newest(); got <= newest {
		t.Errorf("the newest exported checkpoint is %s, before it was %s", got, newest)
	}
}

// Each checkpoint that is signed is exported, as it stands in the store.
func TestCheckpointsAreExported(t *testing.T) {
	w := newSite(t)
	w.grow()
	p, err := open(w.Context(), w.s.withDefaults())
	w.must(err)
	n := 0
	w.must(p.store.View(func(r ledger.Reader) error {
		ledger.Checkpoints(r, func(size uint64, signed []byte) bool {
			n++
			if path := w.path("checkpoints", zeros(size)); string(w.read(path)) != string(signed) {
				w.Errorf("%s is not the checkpoint of the store", path)
			}
			return true
		})
		return nil
	}))
	if n < 2 {
		t.Errorf("%d checkpoints: nothing was tested", n)
	}
	w.must(p.close(w.Context()))
}

func zeros(n uint64) string { return fmt.Sprintf("%020d", n) }
