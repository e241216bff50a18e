package verify

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	sumnote "golang.org/x/mod/sumdb/note"
)

// TestNotesAgree reads what the note package writes, writes what it reads, and
// refuses what it refuses.
func TestNotesAgree(t *testing.T) {
	s := newSigner(t, 1)
	k, err := parseKey(s.pub)
	if err != nil {
		t.Fatal(err)
	}
	text := "a\nb\n\nc – d\n"
	msg, err := sumnote.Sign(&sumnote.Note{Text: text}, s)
	if err != nil {
		t.Fatal(err)
	}
	n, err := parseNote(msg)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.check(n); err != nil || string(n.text) != text {
		t.Fatalf("%q: %v", n.text, err)
	}
	if again := k.seal(n.text, n.sig); !bytes.Equal(again, msg) {
		t.Errorf("sealed again:\n%s\nwant\n%s", again, msg)
	}
	other, err := parseKey(newSigner(t, 2).pub)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.check(n); !errors.Is(err, errSigner) {
		t.Errorf("another key: %v", err)
	}
	n.sig[9] ^= 1
	if err := k.check(n); !errors.Is(err, errSignature) {
		t.Errorf("another signature: %v", err)
	}
	verifier, err := sumnote.NewVerifier(s.pub)
	if err != nil {
		t.Fatal(err)
	}
	if verifier.Name() != k.name || verifier.KeyHash() != k.id {
		t.Errorf("key %s+%08x, the oracle says %s+%08x", k.name, k.id, verifier.Name(), verifier.KeyHash())
	}
}

// TestOneSpelling flips each bit of a key and of a note: none may be read, or
// the note must not hold any more.
func TestOneSpelling(t *testing.T) {
	s := newSigner(t, 1)
	k, err := parseKey(s.pub)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(s.pub) * 8 {
		bad := []byte(s.pub)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := parseKey(string(bad)); err == nil {
			t.Errorf("bit %d of the key: accepted %q", i, bad)
		}
	}
	b := newBook(t)
	b.checkpoint()
	for i := range len(b.notes[0]) * 8 {
		bad := bytes.Clone(b.notes[0])
		bad[i/8] ^= 1 << (i % 8)
		if c, err := parseCheckpoint(bad); err == nil && k.check(c.note) == nil {
			t.Errorf("bit %d of the checkpoint: accepted %q", i, bad)
		}
	}
}

func TestCheckpointRefuses(t *testing.T) {
	b := newBook(t)
	root := b.root().String()
	good := origin + "\n2\n" + root + "\n"
	if _, err := parseCheckpoint(b.signed(good)); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"extension":    good + "more\n",
		"no origin":    "\n2\n" + root + "\n",
		"no root":      origin + "\n2\n",
		"size 0":       origin + "\n0\n" + root + "\n",
		"leading zero": origin + "\n02\n" + root + "\n",
		"sign":         origin + "\n+2\n" + root + "\n",
		"short root":   origin + "\n2\n" + base64.StdEncoding.EncodeToString(raw[:31]) + "\n",
		"raw base64":   origin + "\n2\n" + strings.TrimRight(root, "=") + "\n",
	} {
		if _, err := parseCheckpoint(b.signed(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	msg := string(b.signed(good))
	two, err := sumnote.Sign(&sumnote.Note{Text: good}, b.key, newSigner(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty":           "",
		"no signature":    good,
		"no signature 2":  good + "\n",
		"two signatures":  string(two),
		"trailing":        msg + "x",
		"trailing line":   msg + "\n",
		"unfinished":      strings.TrimSuffix(msg, "\n"),
		"control":         strings.Replace(msg, "2\n", "2\t\n", 1),
		"not UTF-8":       "\xff" + msg,
		"dash":            strings.Replace(msg, "—", "-", 1),
		"two spaces":      strings.Replace(msg, "— ", "—  ", 1),
		"line in base64":  msg[:len(msg)-9] + "\r" + msg[len(msg)-9:],
		"short signature": msg[:len(msg)-5] + "\n",
	} {
		if _, err := parseCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%s: accepted %q", name, bad)
		}
	}
}

// FuzzNotes checks that what is read is written again as it was, and that the
// note package agrees about every signature.
func FuzzNotes(f *testing.F) {
	b := newBook(f)
	b.checkpoint()
	f.Add(b.notes[0])
	f.Add([]byte(b.key.pub))
	f.Add(b.signed("redrive-bundle/1\n"))
	k, err := parseKey(b.key.pub)
	if err != nil {
		f.Fatal(err)
	}
	verifier, err := sumnote.NewVerifier(b.key.pub)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if k, err := parseKey(string(msg)); err == nil {
			if v, err := sumnote.NewVerifier(string(msg)); err != nil || v.KeyHash() != k.id {
				t.Fatalf("key %q: the note package does not agree: %v", msg, err)
			}
		}
		n, err := parseNote(msg)
		if err != nil {
			if c, err := parseCheckpoint(msg); err == nil || c != nil {
				t.Fatal("a checkpoint that is no note")
			}
			return
		}
		same := &key{name: n.name, id: n.id}
		if again := same.seal(n.text, n.sig); !bytes.Equal(again, msg) {
			t.Fatalf("not the identity:\n in %q\nout %q", msg, again)
		}
		_, err = sumnote.Open(msg, sumnote.VerifierList(verifier))
		if ours := k.check(n); (ours == nil) != (err == nil) {
			t.Fatalf("we say %v, the note package says %v", ours, err)
		}
	})
}
