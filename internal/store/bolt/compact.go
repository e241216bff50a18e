package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// Compact rewrites the store so that nothing of deleted values is left in the
// file, and returns its size before and after. Nobody may hold the store. A
// crash leaves the old file or the new one, each whole.
func Compact(dir string) (before, after int64, err error) {
	s, err := Open(dir, Options{Command: "store compact"})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	path := filepath.Join(dir, fileName)
	if before, err = size(path); err != nil {
		return 0, 0, err
	}
	free, _, err := space(dir)
	if err != nil {
		return 0, 0, err
	}
	if free < uint64(before) {
		return 0, 0, fmt.Errorf("compacting needs up to %d MiB, %d MiB are free; make room and try again", before>>20, free>>20)
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, fmt.Errorf("remove a leftover of an interrupted compaction: %w", err)
	}
	dst, err := bbolt.Open(tmp, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return 0, 0, fmt.Errorf("compact the store: %w", err)
	}
	err = bbolt.Compact(dst, s.db, 16<<20)
	if err = errors.Join(err, dst.Sync(), dst.Close()); err != nil {
		return 0, 0, errors.Join(fmt.Errorf("compact the store: %w", err), os.Remove(tmp))
	}
	if err := install(tmp, path); err != nil {
		return 0, 0, err
	}
	after, err = size(path)
	return before, after, err
}

func size(path string) (int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("size of the store: %w", err)
	}
	return st.Size(), nil
}

// Snapshot writes the last durable state as a store of its own into dir, which
// must not exist yet. Writers go on meanwhile.
func (s *Store) Snapshot(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for the snapshot: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, blobDir), 0o700); err != nil {
		return fmt.Errorf("make a directory for the snapshot: %w", err)
	}
	s.gate.RLock()
	tx, err := s.db.Begin(false)
	s.gate.RUnlock()
	if err != nil {
		return fmt.Errorf("begin to read the store: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a read transaction cannot fail to end
	if err := tx.CopyFile(filepath.Join(dir, fileName), 0o600); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	return nil
}
