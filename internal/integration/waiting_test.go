package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/rabbittest"
)

// following is a capture that goes on until it is told to end.
func (c *capturing) following() *process {
	c.t.Helper()
	return c.site.hold("capture", "--follow")
}

// stored waits until n messages of a queue are in the store and none is left
// outside.
func (c *capturing) stored(queue string, n uint64) {
	c.t.Helper()
	eventually(c.t, fmt.Sprint(n, " messages of ", queue, " to be captured"), func() bool {
		d := ask[api.DepthInfo](c.site, "dlq", "depth", "--queue", queue)
		return d.StoreOpen >= n && d.BrokerReady != nil && *d.BrokerReady == 0
	})
}

// state is how status shows a capture.
func (c *capturing) state(queue string) api.CaptureState {
	c.t.Helper()
	for _, s := range ask[api.StatusInfo](c.site, "status").Captures {
		if s.Queue == queue {
			return s
		}
	}
	return api.CaptureState{}
}

// TestDeletedQueue deletes a queue that is followed. That is a state, which
// status shows; the other queue is captured meanwhile; and when the queue is
// there again, it goes on by itself.
func TestDeletedQueue(t *testing.T) {
	c := newCapturing(t, nil)
	c.publish("orders.dlq", 10)
	c.publish("others.dlq", 10)
	p := c.following()
	c.stored("orders.dlq", 10)
	c.stored("others.dlq", 10)
	if s := c.state("others.dlq"); s.State != "capturing" {
		t.Errorf("status shows %+v", s)
	}
	_, err := c.r.channel().QueueDelete("others.dlq", false, false, false)
	must(t, err)
	eventually(t, "status to show that the queue is waited for", func() bool {
		s := c.state("others.dlq")
		return s.State == "waiting" && strings.Contains(s.Detail, "queue does not exist")
	})
	if text := c.site.ok("status").out.String(); !strings.Contains(text, "queue others.dlq: waiting since ") || !strings.Contains(text, "queue orders.dlq: capturing since ") {
		t.Errorf("status says\n%s", text)
	}
	c.send("orders.dlq", 10)
	c.stored("orders.dlq", 20)
	opened := c.wire.opened.Load()
	c.declareOthers()
	c.send("others.dlq", 10)
	c.stored("others.dlq", 20)
	if p.ended() {
		t.Fatalf("the capture ended: exit %d\n%s", p.code, p.err.String())
	}
	if n := c.wire.opened.Load() - opened; n > 10 {
		t.Errorf("%d connections after the queue was there again", n)
	}
	p.signal(syscall.SIGTERM)
	p.exits(0)
	if !strings.Contains(p.err.String(), "others.dlq is waited for") {
		t.Errorf("the capture said\n%s", p.err.String())
	}
	c.whole()
}

// TestConsumerTimeout lets a capture stand still for longer than the broker
// waits for settlements, in two ways. The broker takes the messages back; when
// the capture can work again, it goes on without a loop.
func TestConsumerTimeout(t *testing.T) {
	node := rabbittest.Start(t)
	node.Ctl(t, "eval", "application:set_env(rabbit, consumer_timeout, 2000), application:set_env(rabbit, channel_tick_interval, 1000).")
	t.Run("the program stands still", func(t *testing.T) {
		var ended atomic.Int64
		var victim atomic.Pointer[process]
		c := newCapturingOn(t, node, func(l *link, f frame) verb {
			switch {
			case f.up || l.queue == "":
			case f.is(basic, deliver):
				if p := victim.Swap(nil); p != nil {
					p.signal(syscall.SIGSTOP) // with this message in flight
				}
			case f.is(channelClass, channelClose):
				ended.Add(1)
			}
			return pass
		})
		c.publish("orders.dlq", 5)
		p := c.following()
		c.stored("orders.dlq", 5)
		opened := c.wire.opened.Load()
		victim.Store(p)
		c.send("orders.dlq", 50)
		eventually(t, "the broker to take them back", func() bool { return ended.Load() > 0 })
		p.signal(syscall.SIGCONT)
		c.stored("orders.dlq", 55)
		if n := c.wire.opened.Load() - opened; n > 4 {
			t.Errorf("%d connections after it", n)
		}
		p.signal(syscall.SIGTERM)
		p.exits(0)
		c.whole()
	})
	t.Run("the disk is full", func(t *testing.T) { fullDiskWhileFollowing(t, node) })
}

// followOnSmallDisk runs a capture that is followed in a mount namespace of its
// own, with the data directory $1 on a small file system of its own, and brings
// the data back to $2 when it has ended.
const followOnSmallDisk = `set -eu
data=$1 copy=$2 program=$3
mount -t tmpfs -o mode=700,size=96m tmpfs "$data"
cp -a "$copy/." "$data/"
"$program" --data "$data" capture --follow &
child=$!
trap 'kill -TERM $child' TERM
echo > "$data/ready"
code=0
while :; do wait $child && code=0 || code=$?; kill -0 $child 2> /dev/null || break; done
rm -f "$data/filler" "$data/ready"
cp -a "$data/." "$copy/"
exit $code
`

func fullDiskWhileFollowing(t *testing.T, node *rabbittest.Node) {
	c := newCapturingOn(t, node, nil)
	c.publish("orders.dlq", 5)
	copied := filepath.Join(t.TempDir(), "copy")
	must(t, os.Mkdir(copied, 0o700))
	must(t, exec.Command("cp", "-a", c.site.data+"/.", copied).Run())
	cmd := exec.Command("/bin/sh", "-c", followOnSmallDisk, "sh", c.site.data, copied, program)
	cmd.Env = os.Environ()
	cmd.SysProcAttr = ownMounts()
	p := startProcess(t, cmd)
	c.site.spoken = append(c.site.spoken, p)
	inside := func(name string) string {
		return filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid), "root", c.site.data, name)
	}
	eventually(t, "the capture to begin", func() bool { _, err := os.Stat(inside("ready")); return err == nil || p.ended() })
	eventually(t, "the first messages to be captured", func() bool { return c.r.ready("orders.dlq") == 0 || p.ended() })

	// All but 8 MiB are taken, where 16 have to be free.
	var fs syscall.Statfs_t
	must(t, syscall.Statfs(inside("."), &fs))
	must(t, os.WriteFile(inside("filler"), make([]byte, int64(fs.Bavail)*fs.Bsize-8<<20), 0o600))
	c.send("orders.dlq", 20)
	eventually(t, "the capture to wait for room", func() bool {
		return strings.Contains(p.err.String(), "orders.dlq is waited for") && strings.Contains(p.err.String(), "MiB free") || p.ended()
	})
	opened := c.wire.opened.Load()
	eventually(t, "what was in flight to come back", func() bool { return c.r.ready("orders.dlq") >= 20 })
	must(t, os.Remove(inside("filler")))
	eventually(t, "the rest to be captured", func() bool { return c.r.ready("orders.dlq") == 0 || p.ended() })
	if n := c.wire.opened.Load() - opened; n > 4 {
		t.Errorf("%d connections after the disk was full", n)
	}
	p.signal(syscall.SIGTERM)
	p.exits(0)
	must(t, os.RemoveAll(c.site.data))
	must(t, os.Rename(copied, c.site.data))
	most := int64(0)
	for _, e := range c.site.envelopes() {
		most = max(most, e.DeliveryCount)
	}
	// Once by the session that met the full disk; the broker may have been first.
	if most > 2 {
		t.Errorf("a message was delivered %d times in vain", most)
	}
	c.whole()
}
