package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

func TestMain(m *testing.M) { os.Exit(rabbittest.Main(m)) }

// patience bounds every wait in these tests.
const patience = 30 * time.Second

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func mustParse(t testing.TB, url string) Config {
	t.Helper()
	c, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustSource(t testing.TB, c Config) *Source {
	t.Helper()
	s, err := NewSource(within(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Logf("closing the source: %v", err)
		}
	})
	return s
}

func mustReleaser(t testing.TB, c Config) *Releaser {
	t.Helper()
	r, err := NewReleaser(within(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func mustSession(t testing.TB, s *Source, queue string, prefetch int) quarantine.Session {
	t.Helper()
	n, err := s.Open(within(t), quarantine.SessionOptions{Queue: queue, Prefetch: prefetch})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustChannel(t testing.TB, r *Releaser, o redrive.ChannelOptions) redrive.Channel {
	t.Helper()
	c, err := r.Open(within(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// receive takes n deliveries.
func receive(t testing.TB, s quarantine.Session, n int) []quarantine.Delivery {
	t.Helper()
	var ds []quarantine.Delivery
	for len(ds) < n {
		select {
		case d, ok := <-s.Deliveries():
			if !ok {
				t.Fatalf("session over after %d of %d deliveries: %v", len(ds), n, s.Err())
			}
			ds = append(ds, d)
		case <-time.After(patience):
			t.Fatalf("%d of %d deliveries", len(ds), n)
		}
	}
	return ds
}

func receipts(ds []quarantine.Delivery) []quarantine.Receipt {
	var rs []quarantine.Receipt
	for _, d := range ds {
		rs = append(rs, d.Receipt)
	}
	return rs
}

// results takes n results, or with -1 all until the channel is over.
func results(t testing.TB, c redrive.Channel, n int) []redrive.Result {
	t.Helper()
	var rs []redrive.Result
	for len(rs) != n {
		select {
		case r, ok := <-c.Results():
			if !ok {
				if n < 0 {
					return rs
				}
				t.Fatalf("channel over after %d of %d results", len(rs), n)
			}
			rs = append(rs, r)
		case <-time.After(patience):
			t.Fatalf("%d of %d results", len(rs), n)
		}
	}
	return rs
}

// tally counts results by resolution and reason, late ones apart.
func tally(rs []redrive.Result) map[string]int {
	m := map[string]int{}
	for _, r := range rs {
		key := string(r.Resolution)
		if r.Reason != "" {
			key += " " + r.Reason
		}
		if r.Late {
			key = "late " + key
		}
		m[key]++
	}
	return m
}

// eventually polls until ok or patience ends.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// pause stops a broker and waits until it has really stopped: the signal takes
// its time on a busy machine.
func pause(t testing.TB, node *rabbittest.Node) {
	t.Helper()
	c := mustParse(t, node.URL())
	c.RPCTimeout = 200 * time.Millisecond
	src, err := NewSource(within(t), c)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	node.Pause(t)
	eventually(t, "the broker stands still", func() bool {
		_, err := src.Depth(within(t), "absent")
		return errors.Is(err, quarantine.ErrUnreachable)
	})
}

// tune changes a setting of the broker for connections and channels that are
// opened until t ends. A node of its own would take longer to start.
func tune(t testing.TB, node *rabbittest.Node, setting string, value, usual int) {
	t.Helper()
	set := func(n int) {
		// Newer versions keep some settings in the second place.
		node.Ctl(t, "eval", fmt.Sprintf("application:set_env(rabbit, %[1]s, %[2]d), persistent_term:put(%[1]s, %[2]d).", setting, n))
	}
	set(value)
	t.Cleanup(func() { set(usual) })
}

// tuneMessageSize changes the largest body that the broker takes.
func tuneMessageSize(t testing.TB, node *rabbittest.Node, most int) {
	t.Helper()
	usual := 128 << 20
	if !exactBroker(t, node.Version()) {
		usual = 16 << 20
	}
	tune(t, node, "max_message_size", most, usual)
}

func body(i int) []byte { return fmt.Appendf(nil, "message %d", i) }
