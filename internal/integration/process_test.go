package integration

import (
	"bytes"
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hang is the deadline of everything that is awaited. It measures nothing.
const hang = 3 * time.Minute

// eventually polls until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(hang)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("still waiting for %s after %v", what, hang)
		}
	}
}

// output collects what a process prints, while it prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a child that runs beside the test.
type process struct {
	t           testing.TB
	cmd         *exec.Cmd
	out, err    output
	done        chan struct{} // closed once it was waited for
	code        int           // valid then; -1 when a signal ended it
	description string
}

// startProcess starts cmd and ends it, should it still run, with the test. The
// kernel ends it when the test binary dies: the parent-death signal is tied to
// the thread, which therefore waits.
func startProcess(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan struct{}), description: cmd.String()}
	cmd.Stdout, cmd.Stderr = &p.out, &p.err
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the exit code says it
		p.code = cmd.ProcessState.ExitCode()
		close(p.done)
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", p.description, err)
	}
	t.Cleanup(p.kill)
	return p
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for the end of the process and returns its exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(hang):
		p.kill()
		p.t.Fatalf("%s did not end within %v\nstdout:\n%s\nstderr:\n%s", p.description, hang, p.out.String(), p.err.String())
	}
	return p.code
}

// kill ends the process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) signal(s syscall.Signal) {
	if p.ended() {
		return
	}
	// The process is waited for only by its own goroutine, after which done is
	// closed; the window in between is one in which the id is not used again.
	if err := syscall.Kill(p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		p.t.Errorf("signal %v to %s: %v", s, p.description, err)
	}
}
