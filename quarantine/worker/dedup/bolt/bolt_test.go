package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/quarantine/worker/dedup/bolt"
	"github.com/redrivehq/redrive/quarantine/worker/dedup/deduptest"
)

func TestSuite(t *testing.T) {
	files := map[*testing.T]string{}
	var last *bolt.Store
	deduptest.Run(t, func(t *testing.T, horizon time.Duration) deduptest.Store {
		if files[t] == "" {
			files[t] = filepath.Join(t.TempDir(), "inbox")
		} else if err := last.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := bolt.Open(files[t], horizon)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		last = s
		return s
	})
}

// TestStrangeFiles are refused and left as they are.
func TestStrangeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inbox")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("somebody else's"))
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.Open(path, time.Hour); !errors.Is(err, bolt.ErrFormat) {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has changed (%v)", err)
	}
	if _, err := bolt.Open(path+"2", 0); err == nil {
		t.Error("a horizon of nothing was taken")
	}
}
