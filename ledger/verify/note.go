package verify

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redrivehq/redrive/ledger/event"
)

const (
	algEd25519 = 1
	maxNote    = 64 << 20 // a MANIFEST of some 400,000 files
)

var (
	errKey        = errors.New("not a verifier key: want NAME+HASH+BASE64 of an Ed25519 key")
	errNote       = errors.New("not a signed note with exactly one signature line")
	errSignature  = errors.New("the signature does not hold")
	errSigner     = errors.New("signed by another key")
	errCheckpoint = errors.New("not a checkpoint: want origin, size and root, one a line")
)

// key is an Ed25519 verifier key in the form of C2SP signed notes.
type key struct {
	text string // NAME+HASH+BASE64, the only spelling
	name string
	id   uint32
	pub  ed25519.PublicKey
}

func parseKey(text string) (*key, error) {
	name, rest, _ := strings.Cut(text, "+")
	id, b64, ok := strings.Cut(rest, "+")
	raw, err := decode64(b64)
	if !ok || err != nil || !validName(name) || len(raw) != 1+ed25519.PublicKeySize || raw[0] != algEd25519 {
		return nil, errKey
	}
	sum := sha256.Sum256(append([]byte(name+"\n"), raw...))
	if hex.EncodeToString(sum[:4]) != id {
		return nil, errKey
	}
	return &key{text: text, name: name, id: binary.BigEndian.Uint32(sum[:4]), pub: ed25519.PublicKey(raw[1:])}, nil
}

func validName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '+'
	})
}

// decode64 accepts one spelling only: the decoder of the standard library
// skips line breaks, which is why the result is encoded again and compared.
func decode64(s string) ([]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, err
	}
	if base64.StdEncoding.EncodeToString(raw) != s {
		return nil, base64.CorruptInputError(0)
	}
	return raw, nil
}

// note is a signed note: lines of text and one signature over them.
type note struct {
	text []byte // with its last line feed: exactly what is signed
	name string
	id   uint32
	sig  []byte
}

const sigPrefix = "— "

// parseNote splits a note. More than one signature is refused, because a
// signature that nobody checks would be bytes that nobody checks.
func parseNote(msg []byte) (*note, error) {
	if len(msg) > maxNote || !utf8.Valid(msg) || bytes.ContainsFunc(msg, func(r rune) bool { return r < 0x20 && r != '\n' }) {
		return nil, errNote
	}
	cut := bytes.LastIndex(msg, []byte("\n\n"))
	if cut < 0 {
		return nil, errNote
	}
	line, full := strings.CutSuffix(string(msg[cut+2:]), "\n")
	line, marked := strings.CutPrefix(line, sigPrefix)
	name, b64, parted := strings.Cut(line, " ")
	raw, err := decode64(b64)
	if !full || !marked || !parted || err != nil || !validName(name) || len(raw) != 4+ed25519.SignatureSize {
		return nil, errNote
	}
	return &note{text: msg[:cut+1], name: name, id: binary.BigEndian.Uint32(raw), sig: raw[4:]}, nil
}

// check reports whether k signed n.
func (k *key) check(n *note) error {
	if n.name != k.name || n.id != k.id {
		return fmt.Errorf("%w: %s+%08x instead of %s+%08x", errSigner, n.name, n.id, k.name, k.id)
	}
	if !ed25519.Verify(k.pub, n.text, n.sig) {
		return errSignature
	}
	return nil
}

// seal is the inverse of parseNote.
func (k *key) seal(text, sig []byte) []byte {
	raw := append(binary.BigEndian.AppendUint32(nil, k.id), sig...)
	return fmt.Appendf(nil, "%s\n%s%s %s\n", text, sigPrefix, k.name, base64.StdEncoding.EncodeToString(raw))
}

// checkpoint is a note in the form of C2SP tlog-checkpoint without extension
// lines.
type checkpoint struct {
	*note
	origin string
	size   uint64
	root   event.Digest
}

func parseCheckpoint(msg []byte) (*checkpoint, error) {
	n, err := parseNote(msg)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(n.text), "\n")
	if len(lines) != 4 || lines[0] == "" {
		return nil, errCheckpoint
	}
	size, err := parseNumber(lines[1])
	if err != nil || size == 0 {
		return nil, errCheckpoint
	}
	root, err := decode64(lines[2])
	if err != nil || len(root) != sha256.Size {
		return nil, errCheckpoint
	}
	return &checkpoint{note: n, origin: lines[0], size: size, root: event.Digest(root)}, nil
}

// parseNumber accepts decimal digits without sign or leading zero.
func parseNumber(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, errors.New("not a canonical number")
	}
	return n, nil
}
