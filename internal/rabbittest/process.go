package rabbittest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// attributes puts a child into a process group of its own, so that an
// interrupt typed at the terminal reaches the test first, and has the kernel
// kill it when the thread that started it dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// attributesNewMounts is attributes plus a private mount namespace.
func attributesNewMounts() *syscall.SysProcAttr {
	a := attributes()
	a.Unshareflags = syscall.CLONE_NEWNS
	return a
}

// child is a running process of ours.
type child struct {
	pid  int
	done chan struct{} // closed when it was waited for
	err  error         // its exit, valid once done is closed
}

// startChild starts cmd from a goroutine that keeps its thread until the child
// has ended: the parent-death signal is tied to the thread, not the process.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.pid = cmd.Process.Pid
		started <- nil
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// alive reports whether the child has not been waited for yet.
func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// signal sends s to the child. A child that has ended is not an error.
func (c *child) signal(s syscall.Signal) error {
	if !c.alive() {
		return nil
	}
	if err := syscall.Kill(c.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to process %d: %w", s, c.pid, err)
	}
	return nil
}

// stop ends the child and waits until neither it nor a process that it had
// started is left. With grace 0 it kills at once; otherwise it asks first and
// kills after grace.
func (c *child) stop(grace time.Duration) error {
	family := descendants(c.pid)
	var err error
	if grace > 0 {
		err = errors.Join(c.signal(syscall.SIGTERM), c.signal(syscall.SIGCONT))
		select {
		case <-c.done:
		case <-time.After(grace):
		}
		family = append(family, descendants(c.pid)...)
	}
	err = errors.Join(err, c.signal(syscall.SIGKILL))
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		return errors.Join(err, fmt.Errorf("process %d does not end", c.pid))
	}
	return errors.Join(err, awaitGone(family, 5*time.Second))
}

// process identifies a process beyond the reuse of its number.
type process struct {
	pid   int
	start string // start time in clock ticks since boot
}

// procStat reads parent and start time of pid; ok is false when it is gone or
// only waits to be reaped.
func procStat(pid int) (parent int, p process, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, process{}, false
	}
	// The name in parentheses may hold spaces; the numbers follow the last ')'.
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, process{}, false
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, process{pid: pid, start: fields[19]}, err == nil
}

// descendants lists the processes below pid at this moment.
func descendants(pid int) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]process{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, p, ok := procStat(n); ok {
			children[parent] = append(children[parent], p)
		}
	}
	var all []process
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			all = append(all, p)
			queue = append(queue, p.pid)
		}
	}
	return all
}

// awaitGone waits for processes that end by themselves when their parent does,
// and kills by number and start time those that do not.
func awaitGone(family []process, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, p := range family {
		for {
			_, now, ok := procStat(p.pid)
			if !ok || now != p {
				break
			}
			if time.Now().After(deadline) {
				if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					return fmt.Errorf("process %d stays behind: %w", p.pid, err)
				}
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}
