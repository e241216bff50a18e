package rabbittest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// holdEnv turns the test binary into a program that starts a node, prints the
// processes it has, and waits to be killed.
const holdEnv = "RABBITTEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		hold(dir)
	}
	os.Exit(Main(m))
}

func hold(dir string) {
	n, err := start(dir)
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	for _, p := range family(n) {
		os.Stdout.WriteString(strconv.Itoa(p.pid) + " " + p.start + "\n")
	}
	os.Stdout.WriteString("ready\n")
	select {}
}

// family lists the node's processes: broker, name server and their helpers.
func family(n *Node) []process {
	var all []process
	for _, c := range []*child{n.server, n.epmd} {
		if _, p, ok := procStat(c.pid); ok {
			all = append(all, p)
		}
		all = append(all, descendants(c.pid)...)
	}
	return all
}

func assertGone(t *testing.T, all []process) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for _, p := range all {
		for {
			_, now, ok := procStat(p.pid)
			if !ok || now != p {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("process %d is still there", p.pid)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func channel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func publish(t *testing.T, ch *amqp.Channel, queue, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false,
		amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := confirm.WaitContext(ctx); !ok || err != nil {
		t.Fatalf("confirm: %v %v", ok, err)
	}
}

func TestSharedNodeGivesEachTestItsOwnVHost(t *testing.T) {
	n := Shared(t)
	if n != Shared(t) {
		t.Fatal("two shared nodes")
	}
	if n.Version() == "" {
		t.Error("the broker did not say its version")
	}
	seen := map[string]bool{n.URL(): true}
	for range vhostBatch + 1 {
		url := n.VHost(t)
		if seen[url] {
			t.Fatalf("%s was given twice", url)
		}
		seen[url] = true
	}
	ch := channel(t, n.VHost(t))
	if _, err := ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	if out := n.Ctl(t, "list_queues", "--vhost", "/"); strings.Contains(out, "q\t") {
		t.Errorf("the queue is in the default vhost too: %s", out)
	}
	if out, err := n.TryCtl("no_such_command"); err == nil {
		t.Errorf("an unknown command succeeded: %s", out)
	}
}

func TestConfirmedMessageOutlivesKillAndRestart(t *testing.T) {
	n := Start(t)
	before := family(n)
	ch := channel(t, n.VHost(t))
	vhostURL := n.url("t1")
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	publish(t, ch, "q", "kept")

	n.SyncDeclarations(t)
	n.Kill(t)
	assertGone(t, withoutEpmd(n, before))
	n.Restart(t)
	ch = channel(t, vhostURL)
	m, ok, err := ch.Get("q", false)
	if err != nil || !ok || string(m.Body) != "kept" {
		t.Fatalf("after the kill: %q %v %v", m.Body, ok, err)
	}
	before = family(n)
	n.Restart(t)
	assertGone(t, withoutEpmd(n, before))
	if q, err := channel(t, vhostURL).QueueDeclarePassive("q", true, false, false, false, nil); err != nil || q.Name != "q" {
		t.Fatalf("after the restart: %v %v", q, err)
	}
}

func TestVersionThatIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		want, is string
		ok       bool
	}{{"", "3.10.8", true}, {"3.10", "3.10.8", true}, {"3.10.8", "3.10.8", true}, {"3.1", "3.10.8", false}, {"4.0", "3.10.8", false}} {
		t.Setenv(VersionEnv, c.want)
		if err := expected(c.is); (err == nil) != c.ok {
			t.Errorf("asked for %q, is %s: %v", c.want, c.is, err)
		}
	}
}

func withoutEpmd(n *Node, all []process) []process {
	var rest []process
	for _, p := range all {
		if p.pid != n.epmd.pid {
			rest = append(rest, p)
		}
	}
	return rest
}

func TestPausedBrokerDoesNotAnswer(t *testing.T) {
	n := Start(t)
	n.Pause(t)
	conn, err := net.DialTimeout("tcp", n.Addr(), time.Second)
	if err != nil {
		t.Fatal(err) // the kernel still accepts
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a paused broker answered: %v", err)
	}
	n.Resume(t)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatalf("after resume: %v", err)
	}
	n.Pause(t) // cleanup must cope with a paused node
}

func TestNothingStaysBehind(t *testing.T) {
	var all []process
	t.Run("node", func(t *testing.T) {
		n := Start(t, WithManagement(), WithConfig("consumer_timeout = 60000"))
		if n.ManagementURL() == "" {
			t.Error("no management address")
		}
		all = family(n)
	})
	if len(all) < 3 {
		t.Fatalf("expected broker, helper and name server, found %d", len(all))
	}
	assertGone(t, all)
}

func TestNodeDiesWithTheTestBinary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holdEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []process
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		pid, start, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, process{pid: n, start: start})
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(all) < 3 {
		t.Fatalf("expected broker, helper and name server, found %d", len(all))
	}
	assertGone(t, all)
}
