package local

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// crashEnv holds the number of the first message and turns the test binary
// into a process that publishes and consumes until it is killed, and says on standard output what it was told:
//
//	sending N   message N is about to be published
//	stored N    it was confirmed
//	seen N C R  it was delivered, with delivery count and redelivered mark
//	acking N    it is about to be settled
//	acked N     it was settled
//	rejecting N, rejected N  the same for a dead-lettering
const crashEnv = "LOCAL_BROKER_CRASH"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(crashEnv) != "":
		fmt.Fprintln(os.Stderr, live(os.Getenv(crashEnv)))
		os.Exit(1)
	case os.Getenv(lockEnv) != "":
		_, err := Open("broker", Options{})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// live runs on the file named "broker" in its folder until it is killed; it
// returns only with an error. The first message has the number first.
func live(first string) error {
	ctx := context.Background()
	b, err := Open("broker", Options{})
	if err != nil {
		return err
	}
	for _, s := range []QueueSpec{{Name: "dead"}, {Name: "q", DeadLetter: ToQueue("dead")}} {
		if err := b.Declare(ctx, s); err != nil {
			return err
		}
	}
	from, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- keepPublishing(ctx, b, from) }()
	go func() { failed <- keepConsuming(ctx, b) }()
	return <-failed
}

// say writes a line in one write, so that a kill never leaves half of one that
// matters.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }

func keepPublishing(ctx context.Context, b *Broker, from int) error {
	for n := from; ; n += 8 {
		ms := make([]Message, 8)
		for i := range ms {
			ms[i] = Message{RoutingKey: "q", Body: []byte(strconv.Itoa(n + i))}
			say("sending %d", n+i)
		}
		out, err := b.Publish(ctx, ms...)
		if err != nil {
			return err
		}
		for i, o := range out {
			if o.Resolution != event.Confirmed {
				return fmt.Errorf("message %d: %+v", n+i, o)
			}
			say("stored %d", n+i)
		}
	}
}

func keepConsuming(ctx context.Context, b *Broker) error {
	c, err := b.Consume(ctx, "q", 5)
	if err != nil {
		return err
	}
	for d := range c.Deliveries() {
		say("seen %s %d %v", d.Body, d.DeliveryCount, d.Redelivered)
		n, err := strconv.Atoi(string(d.Body))
		if err != nil {
			return err
		}
		switch {
		case n%4 == 0:
			say("rejecting %d", n)
			if err := c.Reject(ctx, d.Receipt); err != nil {
				return err
			}
			say("rejected %d", n)
		case n%4 == 1 && d.DeliveryCount < 2:
			if err := c.Return(ctx, []quarantine.Receipt{d.Receipt}); err != nil {
				return err
			}
		case n%16 == 2 && d.DeliveryCount == 0:
			// A session that ends with its window unsettled.
			if err := c.Close(ctx); err != nil {
				return err
			}
			return keepConsuming(ctx, b)
		default:
			say("acking %d", n)
			if err := c.Ack(ctx, d.Receipt); err != nil {
				return err
			}
			say("acked %d", n)
		}
	}
	return c.Err()
}

// told is what all lives together were told, by message.
type told struct {
	sending, stored, acking, acked, rejecting, rejected map[int]bool
	seen                                                map[int]int // how often
}

func newTold() *told {
	m := func() map[int]bool { return map[int]bool{} }
	return &told{m(), m(), m(), m(), m(), m(), map[int]int{}}
}

// hear notes one line.
func (w *told) hear(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	n, err := strconv.Atoi(words[1])
	must(t, err)
	set := map[string]map[int]bool{
		"sending": w.sending, "stored": w.stored, "acking": w.acking, "acked": w.acked,
		"rejecting": w.rejecting, "rejected": w.rejected,
	}
	if words[0] != "seen" {
		set[words[0]][n] = true
		return
	}
	count, err := strconv.Atoi(words[2])
	must(t, err)
	// More deliveries than we heard of are possible: some were handed over in
	// the moment of the kill. Fewer are not.
	if count < w.seen[n] || (count > 0) != (words[3] == "true") {
		t.Errorf("message %d: count %s, redelivered %s, seen %d times before", n, words[2], words[3], w.seen[n])
	}
	if w.acked[n] || w.rejected[n] {
		t.Errorf("message %d was delivered after it was settled", n)
	}
	w.seen[n] = count + 1
}

// life runs one process and kills it after some lines.
func (w *told) life(t *testing.T, path string, from, lines int) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(within(t), self)
	cmd.Env = append(os.Environ(), crashEnv+"="+strconv.Itoa(from))
	cmd.Dir = filepath.Dir(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	in := bufio.NewReader(out)
	for i := 0; ; i++ {
		line, err := in.ReadString('\n')
		if err != nil {
			break // what is after the last end of line was never said
		}
		w.hear(t, strings.TrimSpace(line))
		if i == lines {
			must(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("the process ended by itself: %s", stderr.String())
	}
}

func TestKilledAtAnyPoint(t *testing.T) {
	const lives = 25
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "broker")
	w := newTold()
	for i := range lives {
		w.life(t, path, i*1_000_000, random.IntN(400))
	}
	wantSound(t, path)
	b := open(t, path, Options{})
	where := map[int][]string{}
	for _, q := range []string{"q", "dead"} {
		for _, d := range drain(t, b, q) {
			n, err := strconv.Atoi(string(d.Body))
			must(t, err)
			where[n] = append(where[n], q)
			if q == "dead" {
				wantDeaths(t, d, "q/rejected/1")
			} else if d.DeliveryCount < w.seen[n] {
				t.Errorf("message %d: count %d, seen %d times", n, d.DeliveryCount, w.seen[n])
			}
		}
	}
	w.wantPlaces(t, where)
	t.Logf("%d messages confirmed, %d settled, %d dead-lettered", len(w.stored), len(w.acked), len(w.rejected))
	if len(w.stored) == 0 || len(w.acked) == 0 || len(w.rejected) == 0 {
		t.Error("nothing happened between the kills")
	}
}

// wantPlaces compares where messages are with what was told about them.
func (w *told) wantPlaces(t *testing.T, where map[int][]string) {
	t.Helper()
	for n, queues := range where {
		if len(queues) != 1 {
			t.Errorf("message %d is in %v", n, queues)
		}
		if !w.sending[n] {
			t.Errorf("message %d was never sent", n)
		}
		if w.acked[n] || queues[0] == "q" && w.rejected[n] || queues[0] == "dead" && !w.rejecting[n] {
			t.Errorf("message %d is in %v, acked %v, rejected %v", n, queues, w.acked[n], w.rejected[n])
		}
	}
	for n := range w.stored {
		if len(where[n]) == 0 && !w.acking[n] {
			t.Errorf("message %d was confirmed and is gone", n)
		}
	}
	for n := range w.rejected {
		if len(where[n]) == 0 {
			t.Errorf("message %d was dead-lettered and is gone", n)
		}
	}
}

// wantSound checks the file's own structure.
func wantSound(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	must(t, db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	}))
}
