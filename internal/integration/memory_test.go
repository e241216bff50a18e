package integration

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// largeEnv is how many messages of 1 MiB are captured at once.
const largeEnv = "REDRIVE_TEST_LARGE"

// memoryBound is what a capture of messages of 1 MiB may need, however many
// there are. It is a wide bound: 32 MiB are in flight, and garbage waits for
// its collection. Without a bound in bytes 250 of them took 502 MiB.
const memoryBound = 300 << 20

// TestLargeMessagesDoNotFillMemory captures many messages of 1 MiB with the
// largest prefetch.
func TestLargeMessagesDoNotFillMemory(t *testing.T) {
	n := 250
	if text := os.Getenv(largeEnv); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(t, err)
	}
	c := newCapturing(t, nil)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	ms := make([]amqp.Publishing, n)
	for i := range ms {
		ms[i] = amqp.Publishing{MessageId: strconv.Itoa(i), Body: body}
	}
	c.r.rabbit.publish("orders.dlq", ms...)
	p := c.site.hold("capture", "--queue", "orders.dlq", "--prefetch", "1000", "--follow")
	c.stored("orders.dlq", uint64(n))
	peak := p.peak()
	p.signal(syscall.SIGTERM)
	p.exits(0)
	t.Logf("%d MiB captured with at most %d MiB of memory", n, peak>>20)
	if peak > memoryBound {
		t.Errorf("the capture of %d MiB needed %d MiB, want at most %d", n, peak>>20, memoryBound>>20)
	}
}

// peak is the most memory that p has had at once so far.
func (p *process) peak() int {
	p.t.Helper()
	for line := range strings.Lines(read(p.t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			must(p.t, err)
			return n << 10
		}
	}
	p.t.Fatal("the kernel does not say")
	return 0
}
