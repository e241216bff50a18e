package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/local"
)

// child runs the program as a process of its own.
func (p *place) child(args ...string) (*exec.Cmd, *output) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), hang)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{"redrive", "--data", p.data}, args...)
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// output collects what a process prints.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// holder starts a capture that goes on until it is interrupted, and waits until
// it holds the store.
func (p *place) holder() (*exec.Cmd, *output) {
	p.t.Helper()
	cmd, out := p.child("capture", "--follow")
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	// The lock file is read, because a command that asks would hold the store
	// for a moment itself, again and again, and the other one could starve.
	p.await("the store to be held", func() bool {
		b, err := os.ReadFile(filepath.Join(p.data, "LOCK"))
		return err == nil && strings.Contains(string(b), fmt.Sprintf(`"pid":%d,`, cmd.Process.Pid))
	})
	p.await("the socket of who holds it", func() bool {
		_, err := os.Stat(filepath.Join(p.data, "control.sock"))
		return err == nil
	})
	return cmd, out
}

func (p *place) await(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(hang); !ok(); {
		if time.Now().After(deadline) {
			p.t.Fatalf("still waiting for %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// shopPlace has the broker of the shop, with n dead messages.
func shopPlace(t *testing.T, n int) *place {
	t.Helper()
	p := newPlace(t)
	p.seed(n)
	return p
}

func (p *place) seed(n int) {
	p.t.Helper()
	p.t.Setenv("REDRIVE_DATA", p.data)
	err := withBroker(func(b *local.Broker) error {
		for _, q := range []local.QueueSpec{{Name: "orders.dlq"}, {Name: "orders", DeadLetter: local.ToQueue("orders.dlq")}, {Name: "elsewhere"}} {
			if err := b.Declare(p.t.Context(), q); err != nil {
				return err
			}
		}
		m := seedMessage{Queue: "orders", Repeat: n, ID: "order-%d", Operation: "op-%d", Reason: "unknown_sku", Body: "{}"}
		return m.publish(p.t.Context(), b)
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestRaceToOpen lets several shells come at the same moment: one holds the
// store, the others talk to it or hold it after it. Who is told to try again
// has changed nothing.
func TestRaceToOpen(t *testing.T) {
	p := shopPlace(t, 3)
	p.ok("capture")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for {
				cmd, out := p.child("envelope", "annotate", "#1", "--note", fmt.Sprintf("shell %d", i))
				err := cmd.Run()
				if code := cmd.ProcessState.ExitCode(); code == exitTemporary {
					continue
				}
				if err != nil {
					t.Errorf("shell %d: %v: %s", i, err, out.String())
				}
				return
			}
		})
	}
	wg.Wait()
	if n := strings.Count(p.ok("envelope", "show", "#1"), "note  "); n != 6 {
		t.Errorf("%d notes, want 6", n)
	}
}

func TestSecondCommandWhileFirstHolds(t *testing.T) {
	p := shopPlace(t, 3)
	first, out := p.holder()
	p.await("the capture", func() bool { return strings.Contains(p.ok("status"), "3 envelopes") })
	for _, args := range [][]string{{"envelope", "annotate", "#1", "--note", "x"}, {"envelope", "list"}, {"generation", "plan", "--all", "--to-queue", "elsewhere"},
		{"ledger", "verify", "--replay", "--payloads"}, {"store", "check"}, {"dlq", "depth", "--queue", "orders.dlq"}, {"doctor"}} {
		p.ok(args...)
	}
	// What needs the store for itself says who has it.
	p.fails(exitTemporary, []string{fmt.Sprintf("held by process %d", first.Process.Pid), "redrive capture"}, "store", "compact")
	p.fails(exitRefused, []string{"is capturing this queue already"}, "capture")

	// Interrupted, it ends in order: its socket is gone, and the next one goes on.
	if err := first.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // its exit code is checked with its words
	if code := first.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("the interrupted capture ended with %d: %s", code, out.String())
	}
	if _, err := os.Lstat(filepath.Join(p.data, "control.sock")); !os.IsNotExist(err) {
		t.Errorf("the control socket is left: %v", err)
	}
	p.ok("ledger", "verify", "--replay", "--payloads")
}

// TestStaleSocket kills the holder: its socket is left, and nobody minds.
func TestStaleSocket(t *testing.T) {
	p := shopPlace(t, 2)
	first, _ := p.holder()
	p.await("the capture", func() bool { return strings.Contains(p.ok("status"), "2 envelopes") })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	if _, err := os.Lstat(filepath.Join(p.data, "control.sock")); err != nil {
		t.Fatalf("there is no stale socket: %v", err)
	}
	if out := p.ok("status"); !strings.Contains(out, "nobody holds") {
		t.Errorf("status says %s", out)
	}
	p.ok("envelope", "annotate", "#1", "--note", "x")
	p.ok("ledger", "verify", "--replay", "--payloads")
}

// TestLongPath puts the data where the path of a socket does not fit into its
// address.
func TestLongPath(t *testing.T) {
	p := newPlace(t)
	p.data = filepath.Join(t.TempDir(), strings.Repeat("long/", 8)+strings.Repeat("x", 120), "data")
	if err := os.MkdirAll(filepath.Dir(p.data), 0o700); err != nil {
		t.Fatal(err)
	}
	p.ok("init")
	shop, err := os.ReadFile(filepath.Join("testdata", "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p.write("redrive.yaml", string(shop))
	p.seed(2)
	first, _ := p.holder()
	p.await("the capture", func() bool { return strings.Contains(p.ok("status"), "2 envelopes") })
	p.ok("envelope", "annotate", "#1", "--note", "x")
	if err := first.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // what it left is looked at
	if _, err := os.Lstat(filepath.Join(p.data, "control.sock")); !os.IsNotExist(err) {
		t.Errorf("the control socket is left: %v", err)
	}
	p.ok("envelope", "list")
}

// TestInterruptedClient interrupts the shell that looks on at the release of
// another one: the release does not care.
func TestInterruptedClient(t *testing.T) {
	p := shopPlace(t, 4)
	holder, _ := p.holder()
	p.await("the capture", func() bool { return strings.Contains(p.ok("status"), "4 envelopes") })
	p.ok("generation", "plan", "--all", "--to-queue", "elsewhere", "--stages", "4", "--rate", "1", "--outcome-deadline", "1h")
	p.ok("generation", "approve", "1")
	client, out := p.child("generation", "start", "1")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	moved := func(n uint64) func() bool {
		return func() bool {
			var g api.Generation
			if err := json.Unmarshal([]byte(p.ok("generation", "show", "1", "--json")), &g); err != nil {
				t.Fatal(err)
			}
			return g.Funnel.Moved >= n
		}
	}
	p.await("the release", moved(1))
	if err := client.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = client.Wait() // its exit code is checked with its words
	if code := client.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(out.String(), "interrupted; what was decided stays decided") {
		t.Errorf("the interrupted client ended with %d: %s", code, out.String())
	}
	if out := p.ok("status"); !strings.Contains(out, fmt.Sprintf("held by process %d", holder.Process.Pid)) {
		t.Errorf("the holder went too: %s", out)
	}
	p.ok("generation", "abort", "1", "--why", "seen enough")
	p.ok("ledger", "verify", "--replay", "--payloads")
}

// TestSocketIsPrivate looks at the modes, speaks nonsense to the socket, and
// lets somebody else try.
func TestSocketIsPrivate(t *testing.T) {
	p := shopPlace(t, 1)
	p.holder()
	sock := filepath.Join(p.data, "control.sock")
	for path, want := range map[string]os.FileMode{sock: 0o600, p.data: 0o700, filepath.Join(p.data, "LOCK"): 0o600} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %#o, want %#o", path, st.Mode().Perm(), want)
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", sock)
	}}}
	for name, body := range map[string]string{"envelope.list": "{not json", "no.such.op": "{}", "envelope.show": `{"id": 7}`, "generation.plan": "[]"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://control/op/"+name, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var line struct {
			Error *api.Error `json:"error"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&line); err != nil || line.Error == nil || line.Error.Code != api.CodeUsage {
			t.Errorf("%s %s: %v, %+v", name, body, err, line.Error)
		}
		_ = resp.Body.Close()
	}
	if os.Getuid() != 0 {
		return // only root can be somebody else
	}
	// The folders of the test are closed to others; here they are opened, so
	// that the mode of the data directory alone keeps them out.
	for _, dir := range []string{filepath.Dir(p.data), filepath.Dir(filepath.Dir(p.data))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const nobody = 65534
	cmd := exec.CommandContext(t.Context(), "cat", sock, filepath.Join(p.data, "store.db"), filepath.Join(p.data, "keys", "kek"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(out), "Permission denied") != 3 {
		t.Errorf("somebody else got: %v, %.300s", err, out)
	}
}
