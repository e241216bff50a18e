package integration

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redrivehq/redrive/internal/api"
)

// canary is the password of the broker user. It stands nowhere else.
const canary = "canary-5f1d8e02c7b94a36"

// site is one data directory with its configuration, and everything that the
// program ever said about it.
type site struct {
	t    testing.TB
	data string
	env  []string

	mu     sync.Mutex
	spoken []*process
}

// newSite makes a store with a configuration, and audits it when t ends.
func newSite(t testing.TB, config string) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, data: filepath.Join(dir, "data")}
	if err := os.Mkdir(s.data, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("redrive.yaml", configOf(t, config))
	s.write("password", canary+"\n")
	s.ok("init")
	t.Cleanup(func() {
		if t.Failed() {
			s.tell()
		}
		s.audit()
	})
	return s
}

// tell logs the end of the ledger, for whoever looks at a failure.
func (s *site) tell() {
	p := s.run("ledger", "tail", "--limit", "12")
	s.t.Logf("the end of the ledger:\n%s%s", p.out.String(), p.err.String()) // one record per line
}

func (s *site) path(name string) string { return filepath.Join(s.data, name) }

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// command prepares the program. Nothing of the environment that configures it
// is inherited.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(programOf(s.t), append([]string{"--data", s.data}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REDRIVE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// Built with the race detector, a program sleeps for a second at its end.
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

// start runs the program beside the test.
func (s *site) start(args ...string) *process {
	s.t.Helper()
	p := startProcess(s.t, s.command(args...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoken = append(s.spoken, p)
	return p
}

// hold starts the program and waits until it holds the store, or has ended.
// A command that comes before would hold it instead.
func (s *site) hold(args ...string) *process {
	s.t.Helper()
	p := s.start(args...)
	eventually(s.t, p.description+" to hold the store", func() bool { return p.ended() || s.holder() == p.cmd.Process.Pid })
	return p
}

// holder is the process that answers on the control socket, 0 when there is
// none. The kernel says it, not the process.
func (s *site) holder() int {
	c, err := net.Dial("unix", s.path("control.sock"))
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}

// run runs the program to its end.
func (s *site) run(args ...string) *process {
	s.t.Helper()
	p := s.start(args...)
	p.wait()
	return p
}

// want runs the program and fails t unless it ends with code.
func (s *site) want(code int, args ...string) *process {
	s.t.Helper()
	p := s.run(args...)
	p.exits(code)
	return p
}

// exits waits for the end of p and fails the test unless its code is the one.
func (p *process) exits(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Fatalf("%s: exit %d, want %d\nstdout:\n%s\nstderr:\n%s", p.description, got, code, p.out.String(), p.err.String())
	}
}

func (s *site) ok(args ...string) *process {
	s.t.Helper()
	return s.want(0, args...)
}

// ask runs a command with --json that has to succeed, and decodes its answer.
func ask[T any](s *site, args ...string) T {
	s.t.Helper()
	return answer[T](s.ok(append(args, "--json")...))
}

// answer decodes the JSON document that a command printed.
func answer[T any](p *process) T {
	p.t.Helper()
	var v T
	p.wait()
	if err := json.Unmarshal([]byte(p.out.String()), &v); err != nil {
		p.t.Fatalf("%s: %v in:\n%s\nstderr:\n%s", p.description, err, p.out.String(), p.err.String())
	}
	return v
}

// audit is what every test ends with.
func (s *site) audit() {
	s.t.Helper()
	s.sound()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spoken {
		for _, form := range leaks() {
			if strings.Contains(p.out.String()+p.err.String(), string(form)) {
				s.t.Errorf("%s printed the broker's password", p.description)
			}
		}
	}
	for _, name := range s.filesWith(leaks()...) {
		if name != "password" {
			s.t.Errorf("the broker's password is in %s of the data directory", name)
		}
	}
}

// sound lets the program look for anything wrong in its data.
func (s *site) sound() {
	s.t.Helper()
	verify := []string{"ledger", "verify", "--replay", "--payloads"}
	verified := 0
	if ask[api.StatusInfo](s, "status").Records == 0 {
		verified = 3 // nothing was written yet, so nothing can be verified
	} else {
		verify = append(verify, "--pub", s.path("keys/verifier"))
	}
	for _, c := range []struct {
		code int
		args []string
	}{{verified, verify}, {0, []string{"store", "check"}}, {0, []string{"store", "rebuild", "--check"}}} {
		if p := s.run(c.args...); p.code != c.code {
			s.t.Errorf("%s: exit %d, want %d\n%s%s", p.description, p.code, c.code, p.out.String(), p.err.String())
		}
	}
}

// filesWith lists the files of the data directory that contain one of the
// needles.
func (s *site) filesWith(needles ...[]byte) []string {
	s.t.Helper()
	var found []string
	err := filepath.WalkDir(s.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, n := range needles {
			if bytes.Contains(b, n) {
				name, err := filepath.Rel(s.data, path)
				found = append(found, name)
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}
