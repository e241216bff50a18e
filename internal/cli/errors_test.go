package cli

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/store/bolt"
)

// place is a data directory that was made by init.
type place struct {
	t    *testing.T
	data string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	// Only what a test says counts.
	for _, name := range []string{"REDRIVE_DATA", "REDRIVE_CONFIG", "REDRIVE_BROKER_URL", "REDRIVE_BROKER_USER", "REDRIVE_BROKER_PASSWORD_FILE", "REDRIVE_MIN_FREE_MIB"} {
		t.Setenv(name, "")
		_ = os.Unsetenv(name) // Setenv puts it back; an empty one would override the file
	}
	p := &place{t, filepath.Join(t.TempDir(), "data")}
	p.ok("init")
	shop, err := os.ReadFile(filepath.Join("testdata", "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p.write("redrive.yaml", string(shop))
	return p
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.data, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) run(args ...string) (code int, stdout, stderr string) {
	return p.bare(append([]string{"--data", p.data}, args...)...)
}

// bare runs a command with nothing added.
func (p *place) bare(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(p.t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func (p *place) ok(args ...string) string {
	p.t.Helper()
	code, out, errs := p.run(args...)
	if code != 0 {
		p.t.Fatalf("redrive %s ended with %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// fails runs a command that has to end with that code, say all the words on
// stderr, and nothing on stdout.
func (p *place) fails(code int, words []string, args ...string) {
	p.t.Helper()
	got, out, errs := p.run(args...)
	if got != code || out != "" {
		p.t.Errorf("redrive %s ended with %d, want %d; stdout %q, stderr %q", strings.Join(args, " "), got, code, out, errs)
	}
	for _, w := range words {
		if !strings.Contains(errs, w) {
			p.t.Errorf("redrive %s: the message lacks %q: %s", strings.Join(args, " "), w, errs)
		}
	}
}

func TestMalformedConfiguration(t *testing.T) {
	p := newPlace(t)
	before := p.ok("ledger", "tail")
	valid := string(config.Example)
	for name, x := range map[string]struct {
		text  string
		words []string // a place in the text, or the name of the field
	}{
		"a tab":               {"version: 1\n\tbroker: {}\n", []string{"[2:1]"}},
		"an unknown field":    {"version: 1\nbrokers: {url: x}\n", []string{"[2:1]", "brokers"}},
		"a nested unknown":    {"version: 1\nbroker:\n  urll: x\n", []string{"[3:3]", "urll"}},
		"a list for a text":   {"version: 1\nbroker: {url: [a]}\n", []string{"[2:"}},
		"a text for a number": {"version: 1\nlimits: {window: many}\n", []string{"[2:"}},
		"a duration":          {"version: 1\nretention: {deadline: soon}\n", []string{`duration "soon"`}},
		"a key twice":         {"version: 1\nversion: 1\n", []string{"[2:1]"}},
		"another version":     {"version: 7\n", []string{"version 7", "reads version 1"}},
		"no version":          {"broker: {url: 'local:x'}\n", []string{"version"}},
		"a source twice":      {"version: 1\nsources: [{queue: a}, {queue: a}]\n", []string{"sources[1]", `"a" is listed twice`}},
		"a prefetch":          {"version: 1\nsources: [{queue: a, prefetch: 1001}]\n", []string{"sources[0]", "prefetch 1001", "1 to 1000"}},
		"an expression":       {"version: 1\nsources:\n- queue: a\n  identity:\n    operation: [head:x]\n", []string{"sources[0]", "identity.operation", "head:x"}},
		"an identity":         {"version: 1\nsources:\n- queue: a\n  identity:\n    colour: [header:x]\n", []string{"sources[0]", "identity.colour"}},
		"an evidence mode":    {"version: 1\ndestinations: [{queue: a, evidence: hope}]\n", []string{"destinations[0]", `"hope"`, "outcomes"}},
		"a destination":       {"version: 1\ndestinations: [{evidence: outcomes}]\n", []string{"destinations[0]", "queue or exchange"}},
		"a class":             {"version: 1\npolicy: {reasons: {a: {class: nice}}}\n", []string{"policy.reasons.a", `"nice"`}},
		"a rate":              {"version: 1\nlimits: {rate: -1}\n", []string{"limits", "rate -1"}},
		"a mask":              {"version: 1\nmasks: [{name: m, pattern: '('}]\n", []string{"m", "missing closing )"}},
		"no YAML at all":      {"\x00\x01\x02", []string{"redrive.yaml"}},
	} {
		p.write("redrive.yaml", x.text)
		t.Run(name, func(t *testing.T) {
			q := &place{t, p.data}
			q.fails(2, append(x.words, "redrive.yaml"), "envelope", "list")
		})
	}
	p.write("redrive.yaml", valid)
	if after := p.ok("ledger", "tail"); after != before {
		t.Errorf("the ledger grew: %s", after)
	}
}

func TestStoreThatCannotBeOpened(t *testing.T) {
	here := func(p *place, name string) string { return filepath.Join(p.data, name) }
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		damage func(t *testing.T, p *place)
		code   int
		words  []string
	}{
		"no store":    {func(_ *testing.T, p *place) { p.data += "-elsewhere" }, 3, []string{"no store here", "redrive init --data DIR"}},
		"no config":   {func(t *testing.T, p *place) { must(t, os.Remove(here(p, "redrive.yaml"))) }, 2, []string{"does not exist", "redrive init"}},
		"garbage":     {func(_ *testing.T, p *place) { p.write("store.db", strings.Repeat("no store", 4096)) }, 6, []string{"store.db", "restore a backup"}},
		"cut off":     {func(t *testing.T, p *place) { must(t, os.Truncate(here(p, "store.db"), 5000)) }, 6, []string{"store.db", "restore a backup"}},
		"open file":   {func(t *testing.T, p *place) { must(t, os.Chmod(here(p, "store.db"), 0o644)) }, 3, []string{"chmod 600", "store.db"}},
		"open data":   {func(t *testing.T, p *place) { must(t, os.Chmod(p.data, 0o755)) }, 3, []string{"chmod 700"}},
		"no key":      {func(t *testing.T, p *place) { must(t, os.Remove(here(p, "keys/kek"))) }, 3, []string{"keys/kek", "backup"}},
		"no signing":  {func(t *testing.T, p *place) { must(t, os.Remove(here(p, "keys/signing"))) }, 3, []string{"keys/signing", "backup"}},
		"open key":    {func(t *testing.T, p *place) { must(t, os.Chmod(here(p, "keys/stamp"), 0o640)) }, 3, []string{"chmod 600", "keys/stamp"}},
		"open keys":   {func(t *testing.T, p *place) { must(t, os.Chmod(here(p, "keys"), 0o755)) }, 3, []string{"chmod 700", "keys"}},
		"garbled key": {func(_ *testing.T, p *place) { p.write("keys/kek", "short") }, 6, []string{"keys/kek"}},
		"newer store": {func(t *testing.T, p *place) { must(t, setFormat(here(p, "store.db"), bolt.Format+1)) }, 3, []string{"newer", "use the version of redrive that wrote it"}},
		"store is link": {func(t *testing.T, p *place) {
			must(t, os.Rename(here(p, "store.db"), here(p, "s")))
			must(t, os.Symlink("s", here(p, "store.db")))
		}, 3, []string{"symbolic link"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			x.damage(t, p)
			p.fails(x.code, x.words, "envelope", "list", "--json")
			p.fails(x.code, x.words, "capture")
		})
	}
}

// TestBrokerOutOfReach plants a password and looks for it in everything that is
// said.
func TestBrokerOutOfReach(t *testing.T) {
	const canary = "canary-8d1f"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String() // nobody listens there any more
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		broker string
		code   int
		words  []string
	}{
		"none":              {"{}", 2, []string{"no broker is configured", "broker.url", "REDRIVE_BROKER_URL"}},
		"closed port":       {`{url: "amqp://user:` + canary + `@` + closed + `/"}`, 75, []string{closed}},
		"no scheme":         {`{url: "` + canary + `@somewhere"}`, 2, []string{"broker.url"}},
		"half a URL":        {`{url: "amqp://user:` + canary + `@"}`, 2, []string{"broker"}},
		"bad escape":        {`{url: "amqp://user:` + canary + `%zz@` + closed + `/"}`, 2, []string{"broker.url"}},
		"a port of letters": {`{url: "amqp://user:` + canary + `@127.0.0.1:http/"}`, 2, []string{"broker", "port"}},
		"plaintext":         {`{url: "amqp://user:` + canary + `@broker.example/"}`, 2, []string{"allow_plaintext"}},
		"TLS without TLS":   {`{url: "amqp://user:` + canary + `@` + closed + `/", ca_file: x}`, 2, []string{"amqps://"}},
		"password file":     {`{url: "amqp://user@` + closed + `/", password_file: nothere}`, 2, []string{"broker.password_file", "nothere"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.write("redrive.yaml", "version: 1\nbroker: "+x.broker+"\nsources: [{queue: q}]\n")
			p.fails(x.code, x.words, "capture")
			for _, args := range [][]string{{"capture", "--verbose"}, {"doctor", "--verbose"}, {"doctor", "--json"}, {"dlq", "depth", "--queue", "q"},
				{"dlq", "depth", "--queue", "q", "--json"}, {"status"}, {"generation", "plan", "--all"}} {
				if _, out, errs := p.run(args...); strings.Contains(out+errs, canary) {
					t.Errorf("redrive %v tells the password: %s%s", args, out, errs)
				}
			}
			if tail := p.ok("ledger", "tail"); tail != "" {
				t.Errorf("the ledger has records: %s", tail)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	p := newPlace(t)
	for _, x := range []struct {
		words string
		args  []string
	}{
		{"unknown command", []string{"letter"}},
		{`unknown command "lst"; see: redrive envelope --help`, []string{"envelope", "lst"}},
		{"unknown flag: --que; see: redrive capture --help", []string{"capture", "--que", "x"}},
		{"flag needs an argument", []string{"capture", "--queue"}},
		{"accepts 1 arg(s), received 0; see: redrive generation show --help", []string{"generation", "show"}},
		{"accepts 1 arg(s), received 2", []string{"generation", "start", "1", "2"}},
		{"accepts at most 1 arg(s)", []string{"generation", "pause", "1", "2"}},
		{"accepts 1 arg(s)", []string{"outcome", "import"}},
		{`required flag(s) "queue" not set`, []string{"dlq", "depth"}},
		{"invalid argument", []string{"dlq", "depth", "--queue", "q", "--fail-above", "x"}},
		{"invalid argument", []string{"demo", "--seed", "-1"}},
		{"unknown command", []string{"ledger", "tail", "5"}},
	} {
		p.fails(2, []string{x.words}, x.args...)
	}
	// A noun alone shows what there is.
	for _, noun := range []string{"envelope", "generation", "ledger", "store", "outcome", "dlq"} {
		if code, out, _ := p.run(noun); code != 2 || !strings.Contains(out, "Available Commands:") {
			t.Errorf("redrive %s ended with %d: %s", noun, code, out)
		}
	}
	if tail := p.ok("ledger", "tail"); tail != "" {
		t.Errorf("the ledger has records: %s", tail)
	}
}

// setFormat makes a store say that it has another version.
func setFormat(path string, version uint32) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("format")).Put([]byte("version"), binary.BigEndian.AppendUint32(nil, version))
	})
	return errors.Join(err, db.Close())
}
