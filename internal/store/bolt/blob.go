package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/redrivehq/redrive/ledger"
)

// PutBlob makes a large value durable under a name before a transaction refers
// to it. Names are made by the caller from digits and letters only. Writing
// the same name again replaces the value.
func (s *Store) PutBlob(name string, value []byte) error {
	path, err := s.blobPath(name)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write a large body: %w", err)
	}
	_, err = f.Write(value)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("%w: %w", err, ledger.ErrNoSpace)
		}
		return errors.Join(fmt.Errorf("write a large body: %w", err), os.Remove(tmp))
	}
	return install(tmp, path)
}

// Blob reads what PutBlob wrote.
func (s *Store) Blob(name string) ([]byte, error) {
	path, err := s.blobPath(name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a large body: %w", err)
	}
	return b, nil
}

// DeleteBlob removes a blob. Removing an absent one is not an error.
func (s *Store) DeleteBlob(name string) error {
	path, err := s.blobPath(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a large body: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// Blobs lists the names of all blobs.
func (s *Store) Blobs() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, blobDir))
	if err != nil {
		return nil, fmt.Errorf("list large bodies: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".new") { // a leftover, removed by Open
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (s *Store) blobPath(name string) (string, error) {
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return "", fmt.Errorf("blob name %q: only digits, lower-case letters and dashes", name)
		}
	}
	if name == "" {
		return "", errors.New("blob without a name")
	}
	return filepath.Join(s.dir, blobDir, name), nil
}

// removeLeftovers removes what an interrupted PutBlob left: nothing refers to
// it.
func (s *Store) removeLeftovers() error {
	left, err := filepath.Glob(filepath.Join(s.dir, blobDir, "*.new"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
