package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/redrivehq/redrive/ledger"
)

// Room implements ledger.KV.
func (s *Store) Room(urgent bool) error {
	free, total, err := space(s.dir)
	if err != nil {
		return err
	}
	limit := s.o.MinFree
	if limit == 0 {
		limit = max(total/20, min(total/10, 2<<30))
	}
	if free >= limit {
		return nil
	}
	if urgent {
		if free >= s.o.UrgentFree {
			return nil // the reserve is for when there is really nothing else
		}
		return s.dropReserve()
	}
	return fmt.Errorf("%d MiB free in %s, %d MiB needed; make room and try again: %w", free>>20, s.dir, limit>>20, ledger.ErrNoSpace)
}

// Refill makes the reserve again once there is room for it.
func (s *Store) Refill() error {
	if err := s.Room(false); errors.Is(err, ledger.ErrNoSpace) {
		return nil // later
	} else if err != nil {
		return err
	}
	return s.makeReserve()
}

func space(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("ask for free space in %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}

// makeReserve allocates the reserve when it is missing. Without room for it the
// store still opens: it is better to serve than to insist.
func (s *Store) makeReserve() error {
	s.reserve.Lock()
	defer s.reserve.Unlock()
	path := filepath.Join(s.dir, reserveName)
	if st, err := os.Lstat(path); err == nil && st.Size() >= s.o.Reserve {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return nil
		}
		return fmt.Errorf("make the space reserve: %w", err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, s.o.Reserve); err != nil {
		return errors.Join(f.Close(), os.Remove(path))
	}
	return f.Close()
}

func (s *Store) dropReserve() error {
	s.reserve.Lock()
	defer s.reserve.Unlock()
	err := os.Remove(filepath.Join(s.dir, reserveName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("give up the space reserve: %w", err)
	}
	return nil
}
