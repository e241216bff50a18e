package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// socketName is the control socket in the data directory, and closingName what
// it is called while its process ends.
const (
	socketName  = "control.sock"
	closingName = "control.sock.closing"
)

// drainPatience bounds the wait for who is at the door.
const drainPatience = 5 * time.Second

// drain takes the socket away from newcomers and lets in who has come before:
// they stand in a queue, so once a call made last is answered, all of them are
// served. Only who had found the socket and not yet knocked is cut off still,
// and told to try again. It is a courtesy and has no error.
func drain(ctx context.Context, dir string) {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	closing := filepath.Join(dir, closingName)
	if os.Rename(filepath.Join(dir, socketName), closing) != nil {
		return
	}
	_, _ = dialSocket(ctx, dir, closingName)
	_ = os.Remove(closing)
}

// maxSocketPath is the longest path that fits into a socket address.
const maxSocketPath = 100

// socketPath returns a path of the control socket that is short enough: a long
// directory is reached through its file descriptor.
func socketPath(dir, name string) (path string, release func(), err error) {
	path = filepath.Join(dir, name)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("open the data directory: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), func() { _ = d.Close() }, nil
}

// listen makes the control socket. Whoever holds the store may remove a
// leftover: its owner is gone. The socket gets its name when it has its mode, so
// that nobody finds it open.
func listen(dir string) (net.Listener, error) {
	path, release, err := socketPath(dir, socketName)
	if err != nil {
		return nil, err
	}
	defer release()
	made, releaseMade, err := socketPath(dir, socketName+".new")
	if err != nil {
		return nil, err
	}
	defer releaseMade()
	for _, leftover := range []string{path, made} {
		if err := os.Remove(leftover); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove the leftover control socket: %w", err)
		}
	}
	l, err := net.Listen("unix", made)
	if err != nil {
		return nil, fmt.Errorf("make the control socket: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it has another name soon, or a path by descriptor, which is no path any more then
	}
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("protect the control socket: %w", err), l.Close())
	}
	return &listener{l, filepath.Join(dir, socketName)}, nil
}

// listener removes its socket when it is closed.
type listener struct {
	net.Listener
	path string
}

// Close implements net.Listener.
func (l *listener) Close() error {
	err := l.Listener.Close()
	if e := os.Remove(l.path); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
