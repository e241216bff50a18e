package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// crash lets a command die with a core file, where the kernel writes one, and
// says whether it did.
func crash(t *testing.T, cmd *exec.Cmd, ready func(p *process) bool) (*process, bool) {
	t.Helper()
	dir := t.TempDir()
	cmd.Args = append([]string{"sh", "-c", `ulimit -c unlimited; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.Dir = "/bin/sh", dir
	p := startProcess(t, cmd)
	eventually(t, "the process to be ready", func() bool { return p.ended() || ready(p) })
	p.signal(syscall.SIGABRT)
	p.wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		t.Fatal("no wait status")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*core*"))
	must(t, err)
	return p, status.CoreDump() || len(files) > 0
}

// TestNoCoreFile lets the program die while it has the password in its memory:
// neither what it prints nor what the kernel writes holds it.
func TestNoCoreFile(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	s := newSite(t, r.config(""))
	// All goroutines, and the signal that makes a core file.
	cmd := s.command("capture", "--queue", "orders.dlq", "--follow")
	cmd.Env = append(cmd.Env, "GOTRACEBACK=crash")
	p, dumped := crash(t, cmd, func(p *process) bool { return s.holder() == p.cmd.Process.Pid && r.consumers("orders.dlq") == 1 })
	if dumped {
		t.Error("the kernel wrote a core file of the program, with its keys in it")
	}
	said := p.out.String() + p.err.String()
	if !bytes.Contains([]byte(said), []byte("goroutine ")) {
		t.Fatalf("the program did not crash with a trace:\n%s", said)
	}
	if bytes.Contains([]byte(said), []byte(canary)) {
		t.Error("the trace of the crash shows the broker's password")
	}

	// Another program in the same place shows whether this machine writes any.
	_, dumps := crash(t, exec.Command("sleep", "600"), func(p *process) bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.cmd.Process.Pid))
		return string(name) == "sleep\n"
	})
	t.Logf("this machine writes core files: %v", dumps)
}
