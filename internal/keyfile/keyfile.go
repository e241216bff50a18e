// Package keyfile keeps the keys of a store in files of their own, so that a
// copy of the store without them reveals nothing and proves nothing new.
//
//	DIR/keys/          0700
//	DIR/keys/kek       wraps the secrets of envelopes
//	DIR/keys/index     keys the hashes by which identities are found
//	DIR/keys/stamp     signs released messages
//	DIR/keys/signing   signs checkpoints and bundles (note signer key)
//	DIR/keys/verifier  the public half, to be given to auditors
//
// Each file is 0600, is made whole under another name, synced and renamed, and
// is refused when others could read it.
package keyfile

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// Errors of key files.
var (
	// ErrMissing is returned when a key is not there. Put it back from its
	// backup: a store without its keys can be neither read nor continued.
	ErrMissing = errors.New("key file is missing")
	// ErrUnsafe is returned when a key file is open to others. Run chmod 600.
	ErrUnsafe = errors.New("key file is open to other users")
	// ErrDamaged is returned when a key file does not hold a key.
	ErrDamaged = errors.New("key file is damaged")
)

const folder = "keys"

// Create makes all keys of a new store, all of them or none. Origin names its
// ledger. It refuses a directory that has keys: a key is never replaced.
func Create(dir, origin string) error {
	path := filepath.Join(dir, folder)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already; a key is never replaced", path)
	}
	files := map[string]string{}
	var err error
	if files["signing"], files["verifier"], err = note.GenerateKey(rand.Reader, origin); err != nil {
		return fmt.Errorf("make the signing key: %w", err)
	}
	for _, name := range []string{"kek", "index", "stamp"} {
		var k [32]byte
		if _, err := rand.Read(k[:]); err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
		files[name] = hex.EncodeToString(k[:])
	}
	tmp, err := os.MkdirTemp(dir, folder+"-*.new")
	if err != nil {
		return fmt.Errorf("make the key directory: %w", err)
	}
	for name, text := range files {
		if err := write(filepath.Join(tmp, name), text); err != nil {
			return errors.Join(err, os.RemoveAll(tmp))
		}
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("put the keys in place: %w", err)
	}
	return syncDir(dir)
}

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	_, err = f.WriteString(text + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Keys are the opened keys of a store. They implement quarantine.Keys.
type Keys struct {
	Signer   note.Signer
	Verifier string // verifier key in note form
	Origin   string
	Stamp    stamp.Key

	wrap  cipher.AEAD
	index []byte
}

var _ quarantine.Keys = (*Keys)(nil)

// Open reads all keys of a store.
func Open(dir string) (*Keys, error) {
	path := filepath.Join(dir, folder)
	if st, err := os.Stat(path); err == nil && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %#o; run: chmod 700 %s: %w", path, st.Mode().Perm(), path, ErrUnsafe)
	}
	signing, err := read(path, "signing")
	if err != nil {
		return nil, err
	}
	k := &Keys{}
	if k.Signer, err = note.NewSigner(signing); err != nil {
		// The library's error would quote the key.
		return nil, fmt.Errorf("%s: %w", filepath.Join(path, "signing"), ErrDamaged)
	}
	k.Origin = k.Signer.Name()
	if k.Verifier, err = read(path, "verifier"); err != nil {
		return nil, err
	}
	if v, err := note.NewVerifier(k.Verifier); err != nil || v.KeyHash() != k.Signer.KeyHash() {
		return nil, fmt.Errorf("%s does not belong to the signing key: %w", filepath.Join(path, "verifier"), ErrDamaged)
	}
	kek, err := readKey(path, "kek")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(kek[:])
	if err != nil {
		return nil, err
	}
	if k.wrap, err = cipher.NewGCM(block); err != nil {
		return nil, err
	}
	index, err := readKey(path, "index")
	if err != nil {
		return nil, err
	}
	k.index = index[:]
	st, err := readKey(path, "stamp")
	if err != nil {
		return nil, err
	}
	k.Stamp = stamp.Key(st)
	return k, nil
}

// Format writes a fixed word for every verb: keys are never printed.
func (Keys) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("keyfile.Keys(hidden)")) }

func read(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%s: %w; put it back from its backup", path, ErrMissing)
	case err != nil:
		return "", fmt.Errorf("read a key: %w", err)
	case st.Mode()&os.ModeSymlink != 0 || st.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s has mode %s; run: chmod 600 %s: %w", path, st.Mode(), path, ErrUnsafe)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read a key: %w", err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

func readKey(dir, name string) (k [32]byte, err error) {
	text, err := read(dir, name)
	if err != nil {
		return k, err
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(k) {
		return k, fmt.Errorf("%s: %w", filepath.Join(dir, name), ErrDamaged)
	}
	return [32]byte(b), nil
}

// Wrap implements quarantine.Keys.
func (k *Keys) Wrap(s quarantine.Secret) ([]byte, error) {
	nonce := make([]byte, k.wrap.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("wrap a secret: %w", err)
	}
	return k.wrap.Seal(nonce, nonce, s[:], nil), nil
}

// Unwrap implements quarantine.Keys.
func (k *Keys) Unwrap(wrapped []byte) (quarantine.Secret, error) {
	n := k.wrap.NonceSize()
	if len(wrapped) < n {
		return quarantine.Secret{}, fmt.Errorf("a wrapped secret is too short: %w", ledger.ErrIntegrity)
	}
	b, err := k.wrap.Open(nil, wrapped[:n], wrapped[n:], nil)
	if err != nil || len(b) != len(quarantine.Secret{}) {
		return quarantine.Secret{}, fmt.Errorf("a secret does not open with this key-encryption key: %w", ledger.ErrIntegrity)
	}
	return quarantine.Secret(b), nil
}

// Index implements quarantine.Keys.
func (k *Keys) Index(text string) uint64 {
	m := hmac.New(sha256.New, k.index)
	m.Write([]byte(text))
	n := binary.BigEndian.Uint64(m.Sum(nil))
	if n == 0 {
		return 1
	}
	return n
}
