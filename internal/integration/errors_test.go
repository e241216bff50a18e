package integration

import (
	"encoding/binary"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/internal/api"
)

// fails runs a command that has to fail: with the code, and with a message
// that says what to do.
func (s *site) fails(code int, message string, args ...string) {
	s.t.Helper()
	p := s.want(code, args...)
	text := p.err.String()
	if !regexp.MustCompile(message).MatchString(text) {
		s.t.Errorf("%s: %q does not say %q", p.description, text, message)
	}
	for strings.HasPrefix(text, "warning: ") { // what capture has found out before it failed
		_, text, _ = strings.Cut(text, "\n")
	}
	if !strings.HasPrefix(text, "redrive: ") || strings.Contains(text, "goroutine ") || p.out.String() != "" {
		s.t.Errorf("%s: the error is not one line for people:\n%s%s", p.description, text, p.out.String())
	}
}

// closedPort is an address at which nobody listens.
func closedPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestErrorsOfTheBroker(t *testing.T) {
	r := newRabbit(t)
	r.declareOrders()
	good := r.config("")
	s := newSite(t, good)
	r.publish("orders.dlq", orders(0, 20, "unknown_sku")...)

	s.write("redrive.yaml", strings.Replace(good, r.node.Addr(), closedPort(t), 1))
	s.fails(75, `127\.0\.0\.1:\d+.*refused`, "capture")
	s.want(3, "dlq", "depth", "--queue", "orders.dlq") // unknown is not 0
	s.want(3, "doctor")

	s.write("redrive.yaml", strings.Replace(good, "/"+r.vhost+`"`, `/no-such-vhost"`, 1))
	s.fails(1, `no-such-vhost`, "capture")
	s.write("redrive.yaml", good)

	s.fails(3, `queue "?no-such-queue`, "capture", "--queue", "no-such-queue")
	s.fails(3, `queue "?no-such-queue`, "dlq", "depth", "--queue", "no-such-queue")

	s.write("password", "wrong\n")
	s.fails(1, `user|password`, "capture")
	if err := os.Remove(s.path("password")); err != nil {
		t.Fatal(err)
	}
	s.fails(2, `password_file.*no such file`, "capture")
	s.write("password", canary+"\n")
	if err := os.Chmod(s.path("password"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.fails(2, `password_file.*chmod 600`, "capture")
	if err := os.Chmod(s.path("password"), 0o600); err != nil {
		t.Fatal(err)
	}

	if n := r.ready("orders.dlq"); n != 20 {
		t.Errorf("%d messages are left in the queue, want all 20", n)
	}
	if sum := ask[api.CaptureSummary](s, "capture"); sum.Captured != 20 {
		t.Errorf("captured %+v, want 20", sum)
	}

	// A destination that is not there is found before anything starts.
	s.write("redrive.yaml", good+"destinations: [{queue: gone}]\n")
	s.ok("generation", "plan", "--all", "--fix", "none", "--to-queue", "gone")
	s.ok("generation", "approve", "1", "--why", "no-stages")
	s.fails(3, `queue gone does not exist.*nothing was started`, "generation", "start", "1")
	if g := s.show("1"); g.State != "approved" {
		t.Errorf("the generation is %s", g.State)
	}
}

func TestErrorsOfOperators(t *testing.T) {
	v := newEmbedded(t)
	v.publish("orders.dlq", parcels(0, 10)...)
	good := v.config()
	s := newSite(t, good)
	s.ok("capture")

	s.fails(3, `no-such-envelope`, "envelope", "show", "no-such-envelope")
	s.fails(3, `99`, "generation", "show", "99")
	s.fails(3, `redrive envelope list`, "generation", "plan", "--reason", "nobody_died_of_this", "--fix", "none")
	s.fails(2, `--id, --reason`, "generation", "plan", "--fix", "none")
	s.fails(2, `--help`, "envelope", "show")
	s.fails(2, `--help`, "capture", "--no-such-flag")
	s.fails(2, `no-such-noun`, "no-such-noun")
	s.fails(3, `no-such-queue`, "capture", "--queue", "no-such-queue")
	s.fails(3, `neither.*nor listed`, "generation", "plan", "--all", "--fix", "none", "--to-queue", "elsewhere")
	s.fails(2, `ticket`, "envelope", "purge", "#1")

	for _, c := range []struct{ config, message string }{
		{"version: 1\nbroker: {url: local:x}\nsourcse: []\n", `\[3:1\]`},
		{"version: 1\nlimits:\n  rate: fast\n", `\[3:9\]`},
		{"version: 1\nlimits: {rate: 5\n", `\[\d+:\d+\]`},
		{"version: 7\n", `version 7`},
		{"version: 1\nsources: [{queue: q, prefetch: 5000}]\n", `prefetch 5000: want 1 to 1000`},
	} {
		s.write("redrive.yaml", c.config)
		s.fails(2, c.message, "capture")
	}
	s.write("redrive.yaml", good)
	s.fails(2, `redrive init`, "--config", s.path("no-such-file"), "capture")
	s.fails(3, `redrive init`, "--data", s.path("no-such-directory"), "capture")
}

func TestErrorsOfTheStore(t *testing.T) {
	v := newEmbedded(t)
	v.publish("orders.dlq", parcels(0, 10)...)
	s := newSite(t, v.config())
	s.ok("capture", "--max", "5")

	// Each damage is undone, and every command has left the files as they were.
	damaged := func(name string, change func(path string), code int, message string) {
		t.Helper()
		path := s.path(name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		change(path)
		s.fails(code, message, "capture")
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(path string) { must(t, os.Remove(path)) }
	open := func(path string) { must(t, os.Chmod(path, 0o644)) }
	for _, key := range []string{"kek", "index", "stamp", "signing", "verifier"} {
		damaged("keys/"+key, remove, 3, `keys/`+key+`.*missing.*backup`)
		damaged("keys/"+key, open, 3, `keys/`+key+`.*chmod 600`)
		damaged("keys/"+key, func(path string) { must(t, os.WriteFile(path, []byte("no key"), 0o600)) }, 6, `keys/`+key)
	}
	damaged("store.db", open, 3, `store\.db.*chmod`)
	damaged("store.db", func(path string) { must(t, os.WriteFile(path, []byte("no store at all"), 0o600)) }, 6, `store\.db.*restore a backup`)
	damaged("store.db", func(path string) { must(t, os.Truncate(path, 5000)) }, 6, `store\.db.*restore a backup`)
	damaged("store.db", newerFormat(t), 3, `format 99.*newer`)

	// The second writer is told who holds the store, and asks that process.
	holder := s.hold("capture", "--follow")
	if st := ask[api.StatusInfo](s, "status"); st.PID != holder.cmd.Process.Pid || st.Command != "redrive capture" {
		t.Errorf("held by %d (%s), want %d", st.PID, st.Command, holder.cmd.Process.Pid)
	}
	s.fails(75, `held by process \d+`, "store", "compact")
	eventually(t, "the capture of the rest", func() bool { return len(s.envelopes()) == 10 })
	holder.kill()
	if n := len(s.envelopes()); n != 10 {
		t.Errorf("%d envelopes, want 10", n)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newerFormat makes a store look like one of a later version.
func newerFormat(t testing.TB) func(path string) {
	return func(path string) {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
		must(t, err)
		must(t, db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("format")).Put([]byte("version"), binary.BigEndian.AppendUint32(nil, 99))
		}))
		must(t, db.Close())
	}
}
