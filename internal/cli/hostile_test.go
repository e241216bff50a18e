package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redrivehq/redrive/internal/broker/local"
)

// evil moves the cursor, sets titles, hides and turns text around, and begins
// new lines; in a table or a message it must do none of that.
const evil = "a\x1b[2J\x1b]0;owned\x07\x1b]8;;http://x\x1b\\b\r\nFAKE LINE\u202egnp\u200b\u009b31m\u0085\x7f\x00\U000e0041z"

// evilShop has one message that is evil in every place.
func evilShop(t *testing.T) *place {
	t.Helper()
	p := newPlace(t)
	t.Setenv("REDRIVE_DATA", p.data) // for withBroker
	err := withBroker(func(b *local.Broker) error {
		for _, q := range []local.QueueSpec{{Name: "orders.dlq"}, {Name: "orders", DeadLetter: local.ToQueue("orders.dlq")}, {Name: "elsewhere"}} {
			if err := b.Declare(t.Context(), q); err != nil {
				return err
			}
		}
		m := seedMessage{Queue: "orders", ID: "id" + evil, Operation: "op" + evil, Type: "type" + evil, Reason: "reason" + evil, Error: "error" + evil,
			Headers: map[string]string{"x-consumer-version": evil, "x-trace-id": evil, "x-last-reason": evil, "x-error-code": evil, "x-" + evil: evil}, Body: evil}
		return m.publish(t.Context(), b)
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// harmless fails when a control character, a bidi override or an invisible one
// is in what was printed.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u200b' || r == '\U000e0041' {
			t.Errorf("%s: %U at %d of %q", what, r, i, text)
			return
		}
	}
	// The body of a message is shown with its lines, below everything else.
	text, _, _ = strings.Cut(text, "\n  body:\n")
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "FAKE LINE") {
			t.Errorf("%s: a message began a line of its own: %q", what, text)
		}
	}
}

func TestHostileText(t *testing.T) {
	p := evilShop(t)
	run := func(args ...string) (int, string) {
		t.Helper()
		code, out, errs := p.run(args...)
		harmless(t, fmt.Sprintf("%q", args), out)
		harmless(t, fmt.Sprintf("%q (stderr)", args), errs)
		for dec := json.NewDecoder(strings.NewReader(out)); args[len(args)-1] == "--json" && dec.More(); {
			if err := dec.Decode(new(any)); err != nil {
				t.Errorf("%q prints no JSON: %v: %s", args, err, out)
				break
			}
		}
		return code, out
	}
	good := func(args ...string) {
		t.Helper()
		for _, more := range [][]string{nil, {"--verbose"}, {"--json"}} {
			if code, out := run(append(args, more...)...); code != 0 {
				t.Errorf("%q ended with %d: %s", args, code, out)
			}
		}
	}
	good("capture")
	good("envelope", "list")
	good("envelope", "list", "--groups")
	good("envelope", "show", "#1")
	good("envelope", "show", "#1", "--payload", "--why", "look "+evil)
	good("envelope", "show", "#1", "--payload", "--raw", "--why", evil)
	good("envelope", "annotate", "#1", "--note", evil, "--ticket", evil, "--as", evil)
	good("envelope", "classify", "#1", "--reason", evil, "--why", evil)
	good("envelope", "assign", "#1", "--owner", evil, "--why", evil)
	good("envelope", "show", "#1")
	good("generation", "plan", "--id", "id"+evil, "--to-queue", "elsewhere", "--fix", evil, "--code", evil, "--consumer", evil, "--dry-run")
	good("envelope", "list", "--owner", evil, "--reason", evil)
	for _, args := range [][]string{
		{"generation", "plan", "--id", "id" + evil, "--to-queue", "elsewhere", "--fix", evil},
		{"generation", "approve", "1", "--why", evil, "--as", evil},
		{"generation", "pause", "--all", "--why", evil},
	} {
		if code, out := run(args...); code != 0 {
			t.Errorf("%q ended with %d: %s", args, code, out)
		}
	}
	for _, args := range [][]string{
		{"generation", "list"}, {"generation", "show", "1"}, {"generation", "report", "1"}, {"ledger", "tail", "--limit", "500"},
		{"ledger", "verify", "--replay", "--payloads"}, {"store", "check"}, {"status"}, {"doctor"},
	} {
		good(args...)
	}
	for _, args := range [][]string{{"--format", "html"}, {"--format", "csv"}, {"--format", "csv", "--with-identity", "--why", evil}} {
		code, out := run(append([]string{"generation", "report", "1"}, args...)...)
		if code != 0 || !strings.Contains(out, "\\u202e") {
			t.Errorf("a report as %q ended with %d and hides what is there: %s", args, code, out)
		}
	}
	// Evil words on the command line come back in messages.
	for _, args := range [][]string{
		{"envelope", "show", evil}, {"generation", "show", evil}, {evil}, {"envelope", evil}, {"--" + evil},
		{"capture", "--queue", evil}, {"dlq", "depth", "--queue", evil}, {"generation", "plan", "--reason", evil}, {"generation", "plan", "--class", evil},
		{"generation", "plan", "--id", "#1", "--to-queue", evil}, {"generation", "plan", "--id", "#1", "--bake", evil}, {"generation", "plan", "--id", "#1", "--rate", evil},
		{"generation", "approve", "1", "--digest", evil}, {"generation", "rule", "--intent", evil, "--delivered", "--why", "x"},
		{"generation", "close", "1", "--accept", evil}, {"envelope", "list", "--custody", evil}, {"ledger", "verify", "--pub", "/" + evil},
		{"generation", "reconcile", "1", "--evidence", "/" + evil + ".csv"}, {"generation", "reconcile", "1", "--evidence-sql", evil, "--query", "$1" + evil},
		{"generation", "report", "1", "--format", evil}, {"generation", "report", "1", "--out", "/" + evil + "/x"},
		{"outcome", "import", "/" + evil}, {"ledger", "export", "--out", "x", "--from", evil}, {"--data", "/nothere" + evil, "status"},
		{"--config", "/nothere" + evil, "status"},
	} {
		if code, out := run(args...); code == 0 {
			t.Errorf("%q ended with 0: %s", args, out)
		}
	}
	p.write("redrive.yaml", "version: 1\nbroker: {url: "+`"`+"amqp://\x1b[31m/"+`"`+"}\n"+evil+": x\n")
	if code, _ := run("status"); code != exitUsage {
		t.Errorf("an evil configuration ended with %d", code)
	}
}

// TestHostileTextOnATerminal lets the program draw on a terminal: the only
// sequences that arrive are its own.
func TestHostileTextOnATerminal(t *testing.T) {
	p := evilShop(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"capture"}, {"envelope", "list"}, {"envelope", "show", "#1", "--payload", "--why", "look"},
		{"generation", "plan", "--all", "--to-queue", "elsewhere", "--outcome-deadline", "1s", "--bake", "1ms"}, {"generation", "approve", "1"},
		{"generation", "start", "1"}} {
		text := onTerminal(t, self, append([]string{"--data", p.data}, args...)...)
		// One line that is rewritten is erased like this.
		text = strings.ReplaceAll(text, "\r\x1b[K", "")
		harmless(t, fmt.Sprintf("%q", args), strings.ReplaceAll(text, "\r\n", "\n"))
	}
}

// onTerminal runs the program with a pseudo-terminal as stdout and stderr.
func onTerminal(t *testing.T, self string, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = master.Close() }()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{"redrive"}, args...) // TestMain goes by this name
	cmd.Stdout, cmd.Stderr = slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close() // the child has it; its end ends the reading
	var out bytes.Buffer
	_, _ = io.Copy(&out, master) // ends with EIO when the child has ended
	_ = cmd.Wait()               // what it printed is looked at, however it ended
	return out.String()
}
