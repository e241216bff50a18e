package bolt_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/internal/store/storetest"
	"github.com/redrivehq/redrive/ledger"
)

var small = bolt.Options{Command: "test", MinFree: 1, Reserve: 4096}

func create(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := bolt.Create(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustOpen(t *testing.T, dir string, o bolt.Options) *bolt.Store {
	t.Helper()
	s, err := bolt.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (ledger.KV, func() ledger.KV) {
		dir := create(t)
		s := mustOpen(t, dir, small)
		t.Cleanup(func() { _ = s.Close() })
		return s, func() ledger.KV {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, dir, small)
			return s
		}
	})
}

func TestSecondWriterIsToldWhoHoldsIt(t *testing.T) {
	dir := create(t)
	s := mustOpen(t, dir, small)
	_, err := bolt.Open(dir, small)
	var held *bolt.HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || held.Command != "test" || held.Since.IsZero() {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, dir, small).Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := bolt.Open(t.TempDir(), small); !errors.Is(err, bolt.ErrMissing) {
		t.Errorf("no store: %v", err)
	}
	for name, c := range map[string]struct {
		harm func(t *testing.T, dir string)
		want error
	}{
		"directory open to others": {func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o755)) }, bolt.ErrUnsafe},
		"file open to others":      {func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, "store.db"), 0o644)) }, bolt.ErrUnsafe},
		"symbolic link": {func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "store.db"), filepath.Join(dir, "x")))
			must(t, os.Symlink("x", filepath.Join(dir, "store.db")))
		}, bolt.ErrUnsafe},
		"garbage": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "store.db"), []byte("this is no store"), 0o600))
		}, bolt.ErrUnreadable},
		"cut": {func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, "store.db"), 5000)) }, bolt.ErrUnreadable},
		"newer": {func(t *testing.T, dir string) {
			setFormat(t, dir, bolt.Format+1)
		}, bolt.ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			dir := create(t)
			c.harm(t, dir)
			if s, err := bolt.Open(dir, small); !errors.Is(err, c.want) || s != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func setFormat(t *testing.T, dir string, v uint32) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "store.db"), 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("format")).Put([]byte("version"), binary.BigEndian.AppendUint32(nil, v))
	}))
	must(t, db.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCreateTwiceIsRefused(t *testing.T) {
	dir := create(t)
	if err := bolt.Create(dir); err == nil {
		t.Error("a store was created over another")
	}
}

func TestRoomAndReserve(t *testing.T) {
	dir := create(t)
	s := mustOpen(t, dir, bolt.Options{MinFree: 1 << 62, Reserve: 1 << 20, UrgentFree: 1 << 62})
	defer func() { must(t, s.Close()) }()
	reserve := filepath.Join(dir, "reserve")
	if st, err := os.Stat(reserve); err != nil || st.Size() != 1<<20 {
		t.Fatalf("reserve: %v %v", st, err)
	}
	if err := s.Room(false); !errors.Is(err, ledger.ErrNoSpace) {
		t.Errorf("short of space: %v", err)
	}
	if err := s.Room(true); err != nil {
		t.Errorf("a stop was refused: %v", err)
	}
	if _, err := os.Stat(reserve); !errors.Is(err, os.ErrNotExist) {
		t.Error("the reserve was not given up")
	}
	must(t, s.Refill())
	if _, err := os.Stat(reserve); !errors.Is(err, os.ErrNotExist) {
		t.Error("the reserve was made again while space is short")
	}
}

func TestReserveIsKeptWhileThereIsOtherSpace(t *testing.T) {
	dir := create(t)
	s := mustOpen(t, dir, bolt.Options{MinFree: 1 << 62, Reserve: 1 << 20, UrgentFree: 1})
	defer func() { must(t, s.Close()) }()
	must(t, s.Room(true))
	if _, err := os.Stat(filepath.Join(dir, "reserve")); err != nil {
		t.Errorf("the reserve was given up early: %v", err)
	}
}

func TestBlobs(t *testing.T) {
	s := mustOpen(t, create(t), small)
	defer func() { must(t, s.Close()) }()
	must(t, s.PutBlob("b-1", []byte("large")))
	if b, err := s.Blob("b-1"); err != nil || string(b) != "large" {
		t.Errorf("%q %v", b, err)
	}
	must(t, s.DeleteBlob("b-1"))
	must(t, s.DeleteBlob("b-1"))
	if names, err := s.Blobs(); err != nil || len(names) != 0 {
		t.Errorf("%v %v", names, err)
	}
	for _, bad := range []string{"", "../x", "a/b", "A", "."} {
		if err := s.PutBlob(bad, nil); err == nil {
			t.Errorf("name %q was accepted", bad)
		}
	}
}

func TestCompactRemovesDeletedBytes(t *testing.T) {
	dir := create(t)
	s := mustOpen(t, dir, small)
	b, secret := ledger.Bucket{Name: "b"}, []byte("a secret that must go away")
	must(t, s.Update(func(w ledger.Writer) error {
		return errors.Join(w.Put(b, []byte("gone"), secret), w.Put(b, []byte("kept"), []byte("still here")))
	}))
	must(t, s.Update(func(w ledger.Writer) error { return w.Delete(b, []byte("gone")) }))
	must(t, s.Close())
	if !contains(t, dir, secret) {
		t.Fatal("the test proves nothing: the secret left the file without compaction")
	}
	if _, _, err := bolt.Compact(dir); err != nil {
		t.Fatal(err)
	}
	if contains(t, dir, secret) {
		t.Error("a deleted value is still in the file")
	}
	s = mustOpen(t, dir, small)
	defer func() { must(t, s.Close()) }()
	must(t, s.View(func(r ledger.Reader) error {
		if string(r.Get(b, []byte("kept"))) != "still here" {
			t.Error("a value was lost")
		}
		return nil
	}))
}
