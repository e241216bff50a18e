package rabbittest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// user and its password are RabbitMQ's default ones: valid from loopback only.
	user     = "guest"
	password = "guest"

	readyWithin = 2 * time.Minute
	stopWithin  = 15 * time.Second
	ctlWithin   = time.Minute
	attempts    = 3
)

// Node is a private RabbitMQ. Its methods are safe for concurrent use, except
// that Kill, Restart, Pause and Resume need one caller at a time.
type Node struct {
	in   install
	dir  string
	name string
	opts options

	amqpPort, distPort, epmdPort, mgmtPort int

	epmd    *child
	server  *child
	version string

	vhosts vhostPool
	ctlMu  sync.Mutex
}

// Start runs a node of its own for t and stops it when t ends. It fails t when
// no RabbitMQ is installed or none comes up.
func Start(t testing.TB, opts ...Option) *Node {
	t.Helper()
	n, err := start(t.TempDir(), opts...)
	if err != nil {
		t.Fatalf("rabbittest: %v", err)
	}
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Errorf("rabbittest: %v", err)
		}
	})
	return n
}

// start tries a few times, because a port can be taken between its draw and
// its use.
func start(dir string, opts ...Option) (*Node, error) {
	in, err := findInstall()
	if err != nil {
		return nil, err
	}
	var failed error
	for i := range attempts {
		n := &Node{in: in, dir: filepath.Join(dir, strconv.Itoa(i))}
		for _, o := range opts {
			o(&n.opts)
		}
		if err := n.boot(); err != nil {
			failed = errors.Join(failed, err, n.stop())
			continue
		}
		return n, nil
	}
	return nil, failed
}

// boot prepares the node's folder, starts its name server and then the node.
func (n *Node) boot() error {
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	n.amqpPort, n.distPort, n.epmdPort, n.mgmtPort = ports[0], ports[1], ports[2], ports[3]
	n.name = fmt.Sprintf("redrive%08x@localhost", rand.Uint32())
	if err := n.writeFiles(); err != nil {
		return err
	}
	if err := n.startEpmd(); err != nil {
		return err
	}
	if err := n.startServer(); err != nil {
		return err
	}
	return expected(n.version)
}

// startServer starts the broker process and waits until it serves AMQP.
func (n *Node) startServer() error {
	out, err := os.OpenFile(filepath.Join(n.dir, "console"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := n.in.command(n.dir, n.env(), binDir+"/rabbitmq-server")
	cmd.Stdout, cmd.Stderr = out, out
	if n.server, err = startChild(cmd); err != nil {
		return fmt.Errorf("start rabbitmq-server: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	if err := n.awaitReady(ctx); err != nil {
		return fmt.Errorf("node did not come up: %w\n%s", err, n.lastWords())
	}
	return nil
}

// stop ends broker and name server. It is safe on a node that never came up.
func (n *Node) stop() error {
	var err error
	if n.server != nil {
		err = n.server.stop(stopWithin)
	}
	if n.epmd != nil {
		err = errors.Join(err, n.epmd.stop(0))
	}
	return err
}

// Addr is the host:port of the AMQP listener.
func (n *Node) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.amqpPort)) }

// URL is the AMQP address of the default vhost, with credentials. Tests that
// declare anything take VHost instead.
func (n *Node) URL() string { return n.url("%2f") }

func (n *Node) url(vhost string) string {
	return "amqp://" + user + ":" + password + "@" + n.Addr() + "/" + vhost
}

// ManagementURL is the base address of the management API, with credentials.
// It is "" unless the node was started WithManagement.
func (n *Node) ManagementURL() string {
	if !n.opts.mgmt {
		return ""
	}
	return "http://" + user + ":" + password + "@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(n.mgmtPort))
}

// Version is what the broker says about itself, such as "3.10.8".
func (n *Node) Version() string { return n.version }

// Dir is the node's folder, with its data and logs.
func (n *Node) Dir() string { return n.dir }

// SyncDeclarations makes the broker write what was declared to its disk. A
// confirmed message survives a kill, but the declaration of its queue may not:
// on 3.10.8, of 11 kills right after a declaration 2 lost the queue, and none
// of 20 after this call. Tests that declare and kill call it in between.
func (n *Node) SyncDeclarations(t testing.TB) {
	t.Helper()
	n.Ctl(t, "eval", "mnesia:sync_log().")
}

// Kill ends the broker with SIGKILL, without a chance to write anything. The
// data stays; Restart brings it back. See SyncDeclarations.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	if err := n.server.stop(0); err != nil {
		t.Fatalf("rabbittest: kill: %v", err)
	}
}

// Restart brings the broker up again on the same ports and data, stopping it
// cleanly before when it still runs.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	if n.server.alive() {
		if err := n.server.stop(stopWithin); err != nil {
			t.Fatalf("rabbittest: restart: %v", err)
		}
	}
	if err := n.startServer(); err != nil {
		t.Fatalf("rabbittest: restart: %v", err)
	}
}

// Pause stops the broker process without ending it: connections stay open and
// nothing answers any more.
func (n *Node) Pause(t testing.TB) {
	t.Helper()
	if err := n.server.signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("rabbittest: pause: %v", err)
	}
}

// Resume lets a paused broker go on.
func (n *Node) Resume(t testing.TB) {
	t.Helper()
	if err := n.server.signal(syscall.SIGCONT); err != nil {
		t.Fatalf("rabbittest: resume: %v", err)
	}
}

// Ctl runs rabbitmqctl against the node and returns what it prints. It fails t
// when the command does.
func (n *Node) Ctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := n.TryCtl(args...)
	if err != nil {
		t.Fatalf("rabbittest: %v", err)
	}
	return out
}

// TryCtl is Ctl for commands that are expected to fail.
func (n *Node) TryCtl(args ...string) (string, error) {
	// One at a time: each call starts an Erlang machine, which is heavy.
	n.ctlMu.Lock()
	defer n.ctlMu.Unlock()
	var out strings.Builder
	full := append([]string{"--quiet", "--node", n.name}, args...)
	cmd := n.in.command(n.dir, n.env(), binDir+"/rabbitmqctl", full...)
	cmd.Stdout, cmd.Stderr = &out, &out
	c, err := startChild(cmd)
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl: %w", err)
	}
	select {
	case <-c.done:
	case <-time.After(ctlWithin):
		err := c.stop(0)
		return out.String(), errors.Join(fmt.Errorf("rabbitmqctl %s: no answer within %v", strings.Join(args, " "), ctlWithin), err)
	}
	if c.err != nil {
		return out.String(), fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), c.err, out.String())
	}
	return out.String(), nil
}
