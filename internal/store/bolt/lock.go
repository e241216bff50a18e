package bolt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// HeldError says who holds the store. It is returned by Open; ask that process
// through its control socket, or wait until it ends.
type HeldError struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return "the store is held by another process"
	}
	return fmt.Sprintf("the store is held by process %d (%s) since %s", e.PID, e.Command, e.Since.UTC().Format(time.RFC3339))
}

// acquire takes the lock of dir and writes down who holds it. The lock goes
// with the file descriptor, so a killed process leaves none behind.
func acquire(dir, command string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the store: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }() // was only read
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock the store: %w", err)
		}
		held := &HeldError{}
		if b, err := io.ReadAll(io.LimitReader(f, 4096)); err == nil {
			_ = json.Unmarshal(b, held) // the holder may be just writing it
		}
		return nil, held
	}
	b, err := json.Marshal(HeldError{PID: os.Getpid(), Command: command, Since: time.Now().UTC()})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the lock of the store: %w", err), f.Close())
	}
	return f, nil
}

// checkMode refuses files that other users could read or replace.
func checkMode(path string, dir bool) error {
	st, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("check the store: %w", err)
	}
	want := "chmod 600"
	if dir {
		want = "chmod 700"
	}
	switch {
	case st.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link; use the real path: %w", path, ErrUnsafe)
	case st.IsDir() != dir:
		return fmt.Errorf("%s: not what belongs there: %w", path, ErrUnreadable)
	case owner(st) != uint32(os.Geteuid()):
		return fmt.Errorf("%s belongs to another user (uid %d): run redrive as that user: %w", path, owner(st), ErrUnsafe)
	case st.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s has mode %#o; run: %s %s: %w", path, st.Mode().Perm(), want, path, ErrUnsafe)
	}
	return nil
}

// remoteFS are file systems on which locks and memory maps do not hold what
// this store needs of them, by their numbers in statfs(2).
var remoteFS = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", unix.V9FS_MAGIC: "9p",
}

func checkFS(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask for the file system of %s: %w", dir, err)
	}
	if name, remote := remoteFS[st.Type&0xffffffff]; remote {
		return fmt.Errorf("%s is on a network file system (%s), where a store is not safe; use a local disk: %w", dir, name, ErrUnsafe)
	}
	return nil
}

// owner is the user to whom a file belongs. Another one, root included, would
// leave files behind that the owner cannot open.
func owner(st os.FileInfo) uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Uid
	}
	return uint32(os.Geteuid())
}
