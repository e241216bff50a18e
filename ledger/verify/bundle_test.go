package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

var scopes = map[string]Scope{
	"all":        {},
	"generation": {Gen: 1},
	"time":       {From: 1_700_000_001_000, To: 1_700_000_001_999},
}

// export writes a bundle and returns its directory.
func export(t *testing.T, b *book, s Scope) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bundle")
	if err := WriteBundle(context.Background(), dir, b, Export{Scope: s, Sign: b.key.sign, References: followed}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func verifyBundle(t *testing.T, dir string, opt Options) *Report {
	t.Helper()
	rep, err := CheckBundle(context.Background(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// list returns the names of all files below dir, sorted.
func list(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestBundleRoundTrip(t *testing.T) {
	for name, s := range scopes {
		b := lived(t)
		// A reader of one generation can replay it; of a time, it cannot.
		replay := s.To == 0
		rep := verifyBundle(t, export(t, b, s), Options{Pub: b.key.pub, Replay: replay, References: followed})
		if rep.ExitCode() != 0 || len(rep.Warnings) > 0 || rep.Leaves != uint64(len(b.lines)) || rep.Matched != 3 || rep.Root != event.Digest(b.root()).String() {
			t.Errorf("%s: %+v", name, rep)
		}
		if replay && (len(rep.Generations) == 0 || rep.Generations[0].State != event.Closed || rep.Generations[0].Moved != 2) {
			t.Errorf("%s: replayed %+v", name, rep.Generations)
		}
		if got := slices.Contains(rep.Laws, LawEnvelope); got != (name == "all") {
			t.Errorf("%s: laws %v", name, rep.Laws)
		}
	}
	b := lived(t)
	if rep := verifyBundle(t, export(t, b, scopes["time"]), Options{Replay: true}); rep.ExitCode() != 3 {
		t.Errorf("a time was replayed: %+v", rep)
	}
	if rep := verifyBundle(t, export(t, b, scopes["all"]), Options{Payloads: true}); rep.ExitCode() != 3 {
		t.Errorf("payloads of a bundle: %+v", rep)
	}
}

// TestBundleScopes names the records that each scope takes.
func TestBundleScopes(t *testing.T) {
	b := lived(t)
	b.add(0, &event.LedgerRekeyed{Key: newSigner(t, 2).pub, Why: "yearly"})
	b.key = newSigner(t, 2)
	b.next.TS += 5000
	b.add(0, filler())
	b.checkpoint()
	for name, want := range map[string][]event.Kind{
		"generation": {event.KindLedgerCreated, event.KindLedgerOpened, event.KindGenerationPlanned, event.KindLedgerClosed, event.KindLedgerRekeyed},
		"time":       {event.KindLedgerCreated, event.KindGenerationPlanned, event.KindLedgerClosed, event.KindLedgerRekeyed},
	} {
		s := Scope{Gen: 2}
		if name == "time" {
			s = Scope{From: 1_700_000_002_000, To: 1_700_000_003_000}
		}
		bundle, err := OpenBundle(export(t, b, s))
		if err != nil {
			t.Fatal(err)
		}
		var got []event.Kind
		for line, err := range bundle.Records(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			r, err := event.ParseRecord(line)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Body.Kind())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
		bundle.Close()
	}
}

// TestEveryBit flips single bits in all files of bundles and wants each one
// found, with the place.
func TestEveryBit(t *testing.T) {
	const flips = 10_000
	rnd := rand.New(rand.NewPCG(3, 4))
	for name, s := range scopes {
		dir := export(t, lived(t), s)
		files := map[string][]byte{}
		names := list(t, dir)
		for _, f := range names {
			data, err := os.ReadFile(filepath.Join(dir, f))
			if err != nil {
				t.Fatal(err)
			}
			files[f] = data
		}
		flip := func(f string, bit int) {
			t.Helper()
			bad := bytes.Clone(files[f])
			bad[bit/8] ^= 1 << (bit % 8)
			path := filepath.Join(dir, f)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			rep := verifyBundle(t, dir, Options{})
			if first := rep.First(); rep.ExitCode() != 1 || first.Place != f && f != fileKey {
				t.Fatalf("%s: bit %d of %s: exit %d, %v", name, bit, f, rep.ExitCode(), first)
			}
			if err := os.WriteFile(path, files[f], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range flips / len(scopes) {
			f := names[rnd.IntN(len(names))]
			flip(f, rnd.IntN(len(files[f])*8))
		}
		if name == "all" { // what vouches for all the rest: every bit
			for bit := range len(files[fileKey]) * 8 {
				flip(fileKey, bit)
			}
			sealed := files[fileManifest]
			for bit := (bytes.LastIndex(sealed, []byte("\n\n"))) * 8; bit < len(sealed)*8; bit++ {
				flip(fileManifest, bit)
			}
		}
		if rep := verifyBundle(t, dir, Options{}); rep.ExitCode() != 0 {
			t.Fatalf("%s: not restored: %+v", name, rep)
		}
	}
}

func TestBundleMustBeComplete(t *testing.T) {
	dir := export(t, lived(t), scopes["generation"])
	for _, f := range list(t, dir) {
		path := filepath.Join(dir, f)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, damage := range map[string]func() error{
			"truncated": func() error { return os.Truncate(path, int64(len(data)-1)) },
			"empty":     func() error { return os.Truncate(path, 0) },
			"longer":    func() error { return os.WriteFile(path, append(data, '\n'), 0o600) },
			"removed":   func() error { return os.Remove(path) },
			"a link":    func() error { return errors.Join(os.Remove(path), os.Symlink("/dev/null", path)) },
			"a folder":  func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			rep := verifyBundle(t, dir, Options{})
			if first := rep.First(); rep.ExitCode() != 1 || first.Place != f && f != fileKey {
				t.Errorf("%s %s: exit %d, %v", f, what, rep.ExitCode(), first)
			}
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, extra := range []string{"README", ".hidden", "objects/more", "objects/" + strings.Repeat("0", 64)} {
		path := filepath.Join(dir, extra)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if rep := verifyBundle(t, dir, Options{}); rep.ExitCode() != 1 || rep.First().Place != extra {
			t.Errorf("extra file %s: %v", extra, rep.First())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if rep := verifyBundle(t, dir, Options{}); rep.ExitCode() != 1 {
		t.Error("an extra folder was not found")
	}
	if _, err := CheckBundle(context.Background(), filepath.Join(dir, "nowhere"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no bundle: %v", err)
	}
}

// TestBundleSignedAnew has the owner of the key lie: what the manifest says is
// then true, but not of this ledger.
func TestBundleSignedAnew(t *testing.T) {
	for name, c := range map[string]struct {
		exit     int
		old, new string
	}{
		"newer format":        {3, "redrive-bundle/1", "redrive-bundle/2"},
		"other thing":         {1, "redrive-bundle/1", "reload-bundle/1"},
		"size":                {1, "\nsize 20\n", "\nsize 21\n"},
		"records":             {1, "\nrecords 20\n", "\nrecords 19\n"},
		"epoch":               {1, "\nepoch 1\n", "\nepoch 2\n"},
		"origin":              {1, "\norigin ", "\norigin x"},
		"no origin":           {1, "\norigin " + origin, "\norigin "},
		"scope":               {1, "\nscope all\n", "\nscope everything\n"},
		"scope of others":     {1, "\nscope all\n", "\nscope generation 1\n"},
		"range":               {1, "\nrange 1-20\n", "\nrange 1-19\n"},
		"leading zero":        {1, "\nsize 20\n", "\nsize 020\n"},
		"name":                {1, " records\n", " record\n"},
		"way out":             {1, " records\n", " ../records\n"},
		"not what was listed": {1, " key\n", " hashes\n"},
		"order":               {1, "\norigin " + origin + "\nscope all\n", "\nscope all\norigin " + origin + "\n"},
		"more words":          {1, " key\n", " key key\n"},
		"unchanged":           {0, "\nscope all\n", "\nscope all\n"},
	} {
		b := lived(t)
		dir := export(t, b, Scope{})
		resign(t, b, dir, func(text string) string {
			if !strings.Contains(text, c.old) {
				t.Fatalf("%s: %q is not in %s", name, c.old, text)
			}
			return strings.Replace(text, c.old, c.new, 1)
		})
		rep := verifyBundle(t, dir, Options{})
		if rep.ExitCode() != c.exit || (len(rep.Incomplete) > 0) != (c.exit == 3) {
			t.Errorf("%s: exit %d: %v %v", name, rep.ExitCode(), rep.First(), rep.Incomplete)
		}
	}
	b := lived(t)
	for _, text := range []string{"redrive-bundle/1\n", "redrive-bundle/1\norigin x\nscope all\nrange 1-1\nrecords 1\nsize 1\n"} {
		dir := export(t, b, Scope{})
		resign(t, b, dir, func(string) string { return text })
		if rep := verifyBundle(t, dir, Options{}); rep.ExitCode() != 1 || rep.First().Place != fileManifest {
			t.Errorf("%q: %v", text, rep.First())
		}
	}
}

// TestSignedNonsense has files that are as the manifest says, and yet not what
// they should be.
func TestSignedNonsense(t *testing.T) {
	for name, c := range map[string]struct{ file, text string }{
		"no line feed":   {fileRecords, "{}"},
		"no record":      {fileRecords, "{}\n"},
		"a long line":    {fileRecords, strings.Repeat("x", 100_000) + "\n"},
		"half a note":    {fileCheckpoints, "a\n\nb\n"},
		"no note":        {fileCheckpoints, "a\n\nb\n\n"},
		"a third empty":  {fileCheckpoints, "\n\n\n\n"},
		"no checkpoints": {fileCheckpoints, ""},
	} {
		b := lived(t)
		dir := export(t, b, Scope{})
		path := filepath.Join(dir, c.file)
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		entry := func(data []byte) string { return fmt.Sprintf("file %x %d ", sha256.Sum256(data), len(data)) }
		resign(t, b, dir, func(text string) string { return strings.Replace(text, entry(old), entry([]byte(c.text)), 1) })
		want := 1
		if c.text == "" {
			want = 3
		}
		if rep := verifyBundle(t, dir, Options{Pub: b.key.pub}); rep.ExitCode() != want || want == 1 && rep.First().Law == LawScope {
			t.Errorf("%s: exit %d, %v", name, rep.ExitCode(), rep.First())
		}
	}
}

// TestSignedExtras lists and signs files that have no place in a bundle: an
// object whose name is not its hash, and a file of another kind.
func TestSignedExtras(t *testing.T) {
	for name, reason := range map[string]string{
		"objects/" + strings.Repeat("0", 64): "does not hash to its name",
		"notes":                              "no place",
	} {
		b := lived(t)
		dir := export(t, b, Scope{})
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		resign(t, b, dir, func(text string) string {
			before, after, _ := strings.Cut(text, " key\n")
			return before + " key\n" + fmt.Sprintf("file %x 1 %s\n", sha256.Sum256([]byte("x")), name) + after
		})
		if rep := verifyBundle(t, dir, Options{}); rep.ExitCode() != 1 || !strings.Contains(rep.First().Reason, reason) {
			t.Errorf("%s: %v", name, rep.First())
		}
	}
}

func resign(t *testing.T, b *book, dir string, edit func(text string) string) {
	t.Helper()
	path := filepath.Join(dir, fileManifest)
	msg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := parseNote(msg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.signed(edit(string(n.text))), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWriteBundleRefuses(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "bundle")
	write := func(b *book, s Scope, sign func([]byte) ([]byte, error)) error {
		return WriteBundle(context.Background(), dir, b, Export{Scope: s, Sign: sign})
	}
	b := lived(t)
	without := lived(t)
	clear(without.objects)
	uncovered := lived(t)
	uncovered.add(0, filler())
	for name, err := range map[string]error{
		"a foreign key":    write(b, Scope{}, newSigner(t, 2).sign),
		"a failing key":    write(b, Scope{}, func([]byte) ([]byte, error) { return nil, errors.New("no") }),
		"a short answer":   write(b, Scope{}, func([]byte) ([]byte, error) { return []byte("x"), nil }),
		"both scopes":      write(b, Scope{Gen: 1, To: 5}, b.key.sign),
		"a time backwards": write(b, Scope{From: 2, To: 1}, b.key.sign),
		"missing objects":  write(without, Scope{}, b.key.sign),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := write(uncovered, Scope{}, b.key.sign); !errors.Is(err, ErrUnsigned) {
		t.Errorf("no checkpoint at the end: %v", err)
	}
	for _, s := range []Scope{{Gen: 9}, {From: 1, To: 2}} {
		if err := write(b, s, b.key.sign); !errors.Is(err, ErrEmptyScope) {
			t.Errorf("empty scope: %v", err)
		}
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := write(b, Scope{}, b.key.sign); err != nil {
		t.Fatal(err)
	}
	if err := write(b, Scope{}, b.key.sign); !errors.Is(err, ErrExists) {
		t.Errorf("a second time: %v", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
}

// TestGoldenBundle reads a bundle of the first version of the format. It is
// never written again: what was exported once must stay readable.
func TestGoldenBundle(t *testing.T) {
	dir := filepath.Join("testdata", "bundle-v1")
	b := lived(t)
	if _, err := os.Stat(dir); err != nil && *update {
		if err := WriteBundle(context.Background(), dir, b, Export{Scope: Scope{Gen: 1}, Sign: b.key.sign}); err != nil {
			t.Fatal(err)
		}
	}
	rep := verifyBundle(t, dir, Options{Pub: newSigner(t, 1).pub, Replay: true, References: followed})
	if rep.ExitCode() != 0 || rep.Extent.Gen != 1 || rep.Generations[0].Moved != 2 {
		t.Errorf("%+v", rep)
	}
}

// FuzzManifest checks that what is read is written again as it was.
func FuzzManifest(f *testing.F) {
	m := manifest{Extent: Extent{Origin: origin, First: 1, Last: 3, Size: 3, Records: 3, Epoch: 1},
		files: []file{{name: fileKey}, {name: fileRecords, size: 5}, {name: fileCheckpoints}}}
	f.Add(m.text())
	m.Gen, m.files = 4, append(m.files, file{name: fileHashes, size: 96}, file{name: dirObjects + "/" + strings.Repeat("0", 64)})
	f.Add(m.text())
	m.Scope = Scope{From: 1, To: 9}
	f.Add(m.text())
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			if m != nil {
				t.Fatal("a result beside an error")
			}
			return
		}
		if again := m.text(); !bytes.Equal(again, text) {
			t.Fatalf("not the identity:\n in %q\nout %q", text, again)
		}
	})
}
