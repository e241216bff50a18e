package keyfile_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/quarantine"
)

var names = []string{"kek", "index", "stamp", "signing", "verifier"}

func create(t *testing.T) (dir string, path func(name string) string) {
	t.Helper()
	dir = t.TempDir()
	if err := keyfile.Create(dir, "test.example/keys"); err != nil {
		t.Fatal(err)
	}
	return dir, func(name string) string { return filepath.Join(dir, "keys", name) }
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	dir, path := create(t)
	for _, name := range append([]string{""}, names...) {
		st, err := os.Stat(path(name))
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o600)
		if name == "" {
			want = 0o700
		}
		if st.Mode().Perm() != want {
			t.Errorf("%q has mode %o", name, st.Mode().Perm())
		}
		if err := os.Chmod(path(name), want|0o040); err != nil {
			t.Fatal(err)
		}
		if k, err := keyfile.Open(dir); !errors.Is(err, keyfile.ErrUnsafe) || k != nil || !strings.Contains(err.Error(), "chmod") {
			t.Errorf("%q open to the group: %v", name, err)
		}
		if err := os.Chmod(path(name), want); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(path("")); err != nil || len(entries) != len(names) {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestMissingAndDamagedKeys(t *testing.T) {
	for _, name := range names {
		dir, path := create(t)
		text, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		for what, damaged := range map[string]string{"empty": "", "cut": string(text[:len(text)/2]), "of another kind": "no key at all\n"} {
			if err := os.WriteFile(path(name), []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			k, err := keyfile.Open(dir)
			if !errors.Is(err, keyfile.ErrDamaged) || k != nil || !strings.Contains(err.Error(), path(name)) {
				t.Errorf("%s is %s: %v", name, what, err)
			}
			if err != nil && len(damaged) > 20 && strings.Contains(err.Error(), damaged) {
				t.Errorf("%s is %s: the error quotes it", name, what)
			}
		}
		if err := os.Remove(path(name)); err != nil {
			t.Fatal(err)
		}
		if k, err := keyfile.Open(dir); !errors.Is(err, keyfile.ErrMissing) || k != nil {
			t.Errorf("%s is missing: %v", name, err)
		}
		if err := os.Symlink("/dev/null", path(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := keyfile.Open(dir); !errors.Is(err, keyfile.ErrUnsafe) {
			t.Errorf("%s is a link: %v", name, err)
		}
	}
}

func TestVerifierOfAnotherStore(t *testing.T) {
	dir, path := create(t)
	_, other := create(t)
	b, err := os.ReadFile(other("verifier"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("verifier"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.Open(dir); !errors.Is(err, keyfile.ErrDamaged) {
		t.Errorf("%v", err)
	}
}

func TestKeysAreNeverReplaced(t *testing.T) {
	dir, path := create(t)
	before, err := os.ReadFile(path("kek"))
	if err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Create(dir, "test.example/keys"); err == nil {
		t.Error("created twice")
	}
	if after, err := os.ReadFile(path("kek")); err != nil || string(after) != string(before) {
		t.Errorf("the key was replaced: %v", err)
	}
}

// No verb and no encoder writes a key.
func TestKeysAreNeverPrinted(t *testing.T) {
	dir, path := create(t)
	k, err := keyfile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	printed := ""
	for _, v := range []any{k, *k, k.Stamp, &k.Stamp, k.Signer} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s", "%q", "%d"} {
			printed += fmt.Sprintf(verb, v) + "\n"
		}
		if b, err := json.Marshal(v); err == nil {
			printed += string(b) + "\n"
		}
	}
	for _, name := range []string{"kek", "index", "stamp", "signing"} {
		b, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		key := strings.TrimSpace(string(b))
		if parts := strings.SplitN(key, "+", 5); len(parts) == 5 {
			key = parts[4] // behind PRIVATE, KEY, name and hash
		}
		for _, spelling := range []string{key, key[:16], strings.ToUpper(key[:16])} {
			if strings.Contains(printed, spelling) {
				t.Errorf("%s is printed", name)
			}
		}
		raw, err := hex.DecodeString(key)
		if err != nil {
			continue // the signing key is base64
		}
		numbers := strings.Trim(fmt.Sprintf("%d", raw[:8]), "[]")
		if strings.Contains(printed, numbers) {
			t.Errorf("%s is printed as numbers", name)
		}
	}
}

func TestWrap(t *testing.T) {
	dir, _ := create(t)
	k, err := keyfile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	secret := quarantine.Secret{1, 2, 3}
	a, errA := k.Wrap(secret)
	b, errB := k.Wrap(secret)
	if errA != nil || errB != nil || string(a) == string(b) {
		t.Fatalf("wrapped twice alike: %v %v", errA, errB)
	}
	if got, err := k.Unwrap(a); err != nil || got != secret {
		t.Errorf("%v", err)
	}
	for i := range a {
		a[i] ^= 1
		if _, err := k.Unwrap(a); !errors.Is(err, ledger.ErrIntegrity) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
		a[i] ^= 1
	}
	if _, err := k.Unwrap(a[:5]); !errors.Is(err, ledger.ErrIntegrity) {
		t.Errorf("too short: %v", err)
	}
	otherDir, _ := create(t)
	other, err := keyfile.Open(otherDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Unwrap(a); !errors.Is(err, ledger.ErrIntegrity) {
		t.Errorf("under another key: %v", err)
	}
	first := k.Index("op")
	if k.Index("op") != first || first == k.Index("oq") || first == other.Index("op") || first == 0 {
		t.Error("the index is no keyed hash")
	}
}

func TestSignerAndVerifierBelongTogether(t *testing.T) {
	dir, _ := create(t)
	k, err := keyfile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(k.Verifier)
	if err != nil || v.Name() != "test.example/keys" || k.Origin != v.Name() {
		t.Fatalf("%v %v", k.Origin, err)
	}
	signed, err := note.Sign(&note.Note{Text: "size\n"}, k.Signer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open(signed, note.VerifierList(v)); err != nil {
		t.Error(err)
	}
}
