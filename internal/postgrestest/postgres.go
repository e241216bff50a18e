// Package postgrestest starts a private PostgreSQL for a test: of Debian's
// package postgresql, in a folder of its own, reached by a socket in that
// folder, and gone when the test ends.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a running server with an empty database shop.
type Server struct {
	dir  string
	bin  string
	cred *syscall.Credential // as whom it runs: it refuses to run as root
}

// startWithin bounds how long a start may take.
const startWithin = time.Minute

// Start starts a server.
func Start(tb testing.TB) *Server {
	tb.Helper()
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(bins) == 0 {
		tb.Fatal("postgresql is not installed; run `make test`, which installs it (internal/ci/install-debian)")
	}
	s := &Server{bin: filepath.Dir(slices.Max(bins))}
	// Not the folder of the test: only its owner can go through that.
	if s.dir, err = os.MkdirTemp("/tmp", "redrive-pg-"); err != nil { //nolint:usetesting // see above
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(s.dir) }) // of a temporary folder
	if err := s.own(); err != nil {
		tb.Fatal(err)
	}
	data := filepath.Join(s.dir, "data")
	ctx, cancel := context.WithTimeout(tb.Context(), startWithin)
	defer cancel()
	s.must(tb, ctx, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	s.must(tb, ctx, "pg_ctl", "-D", data, "-w", "-t", "50", "-l", filepath.Join(s.dir, "log"), "-o",
		fmt.Sprintf("-k %s -c listen_addresses='' -c fsync=off -c shared_buffers=8MB", s.dir), "start")
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startWithin)
		defer cancel()
		if out, err := s.command(ctx, "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop").CombinedOutput(); err != nil {
			tb.Errorf("stop postgresql: %v\n%s", err, out)
		}
	})
	s.must(tb, ctx, "createdb", "-h", s.dir, "-U", "postgres", "shop")
	return s
}

// own gives the folder to the user as whom the server runs.
func (s *Server) own() error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return fmt.Errorf("as whom should postgresql run: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.dir, int(uid), int(gid))
}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.dir, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

func (s *Server) must(tb testing.TB, ctx context.Context, name string, args ...string) { //nolint:revive // the test comes first
	tb.Helper()
	// The server inherits what its starter has: a pipe would never be closed.
	out, err := os.CreateTemp(s.dir, "out")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = out.Close() }() // was read by its name
	cmd := s.command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		tb.Fatalf("%s: %v\n%s", name, err, text)
	}
}

// Address is the URL of the database shop for a user.
func (s *Server) Address(as string) string {
	return "postgres://" + url.PathEscape(as) + "@/shop?host=" + url.QueryEscape(s.dir)
}

// Exec runs statements in the database as its owner and returns what they
// print, unaligned.
func (s *Server) Exec(tb testing.TB, sql string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startWithin)
	defer cancel()
	cmd := s.command(ctx, "psql", "-h", s.dir, "-U", "postgres", "-d", "shop", "-v", "ON_ERROR_STOP=1", "-qAt", "-f", "-")
	cmd.Stdin = strings.NewReader(sql)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Passwords makes the server ask for passwords from now on.
func (s *Server) Passwords(tb testing.TB) {
	tb.Helper()
	hba := filepath.Join(s.dir, "data", "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("local all postgres trust\nlocal all all scram-sha-256\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.Exec(tb, "SELECT pg_reload_conf()")
}
