package quarantine

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Keys wraps the secrets of envelopes under a key-encryption key that is kept
// outside the store: a file, later a key service. Implementations are safe for
// concurrent use.
type Keys interface {
	// Wrap returns a form of the secret that is useless without the
	// key-encryption key.
	Wrap(secret Secret) ([]byte, error)
	// Unwrap is the inverse of Wrap. It fails when the key-encryption key is
	// another one or the bytes were changed.
	Unwrap(wrapped []byte) (Secret, error)
	// Index returns a keyed hash of a text, the same for the same text, for
	// finding an identity without storing it in the open. Never 0 for a text
	// that is not empty.
	Index(text string) uint64
}

// Blobs keeps bodies that are too large for the store's own file.
type Blobs interface {
	PutBlob(name string, value []byte) error
	Blob(name string) ([]byte, error)
	DeleteBlob(name string) error
}

// Secret is the key material of one envelope or body. Whoever drops it erases
// what it seals and leaves every commitment valid.
type Secret [32]byte

// Format writes a fixed word for every verb: a secret is never printed.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(secret)") }

// MarshalText refuses, so that no encoder writes a secret by accident.
func (Secret) MarshalText() ([]byte, error) {
	return nil, errors.New("a secret is never written down")
}

// ErrErased is returned when a payload was removed by a purge or by retention.
var ErrErased = errors.New("payload was erased")

// Buckets of the sealed originals and their secrets: primary data, written
// once, removed only by a purge or by retention.
var (
	bucketSecret     = ledger.Bucket{Name: "envelope.secret", Append: true}
	bucketProperties = ledger.Bucket{Name: "envelope.properties", Append: true}
	bucketBodySecret = ledger.Bucket{Name: "body.secret", Append: true}
	bucketBody       = ledger.Bucket{Name: "body.sealed", Append: true}
)

// Labels keep the uses of one secret apart.
const (
	labelSealProperties = "redrive seal properties v1"
	labelSealBody       = "redrive seal body v1"
	labelCommit         = "redrive commit v1"
)

func derive(s Secret, label string) []byte {
	m := hmac.New(sha256.New, s[:])
	m.Write([]byte(label))
	return m.Sum(nil)
}

func aead(s Secret, label string) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derive(s, label))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// seal encrypts plain under a key that is used for this one message only, so
// the nonce can be fixed: nonce 0, as RFC 8439 section 4 and NIST SP 800-38D
// allow for a key with a single invocation.
func seal(s Secret, label string, plain []byte) ([]byte, error) {
	a, err := aead(s, label)
	if err != nil {
		return nil, err
	}
	return a.Seal(nil, make([]byte, a.NonceSize()), plain, []byte(label)), nil
}

func unseal(s Secret, label string, sealed []byte) ([]byte, error) {
	a, err := aead(s, label)
	if err != nil {
		return nil, err
	}
	plain, err := a.Open(nil, make([]byte, a.NonceSize()), sealed, []byte(label))
	if err != nil {
		return nil, fmt.Errorf("sealed content does not open: %w", ledger.ErrIntegrity)
	}
	return plain, nil
}

// commit binds an envelope to its facts, properties and body without telling
// anything about them to whoever lacks the secret.
func commit(s Secret, facts []byte, propertiesDigest, bodyDigest [32]byte) event.Digest {
	m := hmac.New(sha256.New, s[:])
	m.Write(commitContent(s, facts, propertiesDigest, bodyDigest))
	return event.Digest(m.Sum(nil))
}

// commitContent is what a commitment authenticates: each part is committed on
// its own first, so that one can be disclosed without the others.
func commitContent(s Secret, facts []byte, propertiesDigest, bodyDigest [32]byte) []byte {
	out := []byte(labelCommit)
	for _, part := range []struct {
		label string
		value []byte
	}{{"facts", facts}, {"properties", propertiesDigest[:]}, {"body", bodyDigest[:]}} {
		m := hmac.New(sha256.New, s[:])
		m.Write([]byte(labelCommit + " " + part.label))
		m.Write(part.value)
		out = m.Sum(out)
	}
	return out
}

// Original is a message exactly as it was on the wire.
type Original struct {
	Exchange   string
	RoutingKey string
	Properties []byte
	Body       []byte
}

// blobMark begins the value of a body that lives in a blob: the mark, then its
// name. A sealed body never is this short.
const blobMark = "blob:"

// GetOriginal opens the sealed original of an envelope. It returns ErrErased
// for one that was purged or whose payload has expired.
func GetOriginal(r ledger.Reader, keys Keys, blobs Blobs, no event.EnvelopeNo) (*Original, error) {
	f, err := GetFacts(r, no)
	if err != nil {
		return nil, err
	}
	props, err := open(r, keys, no, bucketSecret, bucketProperties, labelSealProperties)
	if err != nil {
		return nil, err
	}
	body, err := openBody(r, keys, blobs, f.BodyOf)
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(body) != f.BodyDigest {
		return nil, fmt.Errorf("body of envelope %d is not the captured one: %w", no, ledger.ErrIntegrity)
	}
	return &Original{Exchange: f.Exchange, RoutingKey: f.RoutingKey, Properties: props, Body: body}, nil
}

func open(r ledger.Reader, keys Keys, no event.EnvelopeNo, secrets, sealed ledger.Bucket, label string) ([]byte, error) {
	s, err := getSecret(r, keys, secrets, no)
	if err != nil {
		return nil, err
	}
	b, err := unseal(s, label, r.Get(sealed, ledger.Key(uint64(no))))
	if err != nil {
		return nil, fmt.Errorf("envelope %d: %w", no, err)
	}
	return b, nil
}

func getSecret(r ledger.Reader, keys Keys, b ledger.Bucket, no event.EnvelopeNo) (Secret, error) {
	wrapped := r.Get(b, ledger.Key(uint64(no)))
	if wrapped == nil {
		return Secret{}, fmt.Errorf("envelope %d: %w", no, ErrErased)
	}
	s, err := keys.Unwrap(wrapped)
	if err != nil {
		return Secret{}, fmt.Errorf("secret of envelope %d: %w", no, err)
	}
	return s, nil
}

func openBody(r ledger.Reader, keys Keys, blobs Blobs, no event.EnvelopeNo) ([]byte, error) {
	v := r.Get(bucketBody, ledger.Key(uint64(no)))
	if len(v) <= len(blobMark) || string(v[:len(blobMark)]) != blobMark {
		return open(r, keys, no, bucketBodySecret, bucketBody, labelSealBody)
	}
	s, err := getSecret(r, keys, bucketBodySecret, no)
	if err != nil {
		return nil, err
	}
	sealed, err := blobs.Blob(string(v[len(blobMark):]))
	if err != nil {
		return nil, err
	}
	return unseal(s, labelSealBody, sealed)
}

const labelSealReport = "redrive seal report v1"

// SealReport seals what a consumer reported about an envelope under the
// envelope's secret, with a commitment for the ledger: erasing the envelope
// erases it too. The nonce is derived from the content, so that equal reports
// are equal and different ones never share a nonce.
func SealReport(r ledger.Reader, keys Keys, no event.EnvelopeNo, plain []byte) (sealed []byte, commitment event.Digest, err error) {
	s, err := getSecret(r, keys, bucketSecret, no)
	if errors.Is(err, ErrErased) {
		return []byte{}, commitment, nil // nothing is kept about an erased envelope
	}
	if err != nil {
		return nil, commitment, err
	}
	m := hmac.New(sha256.New, derive(s, labelSealReport+" commitment"))
	m.Write(plain)
	commitment = event.Digest(m.Sum(nil))
	a, err := aead(s, labelSealReport)
	if err != nil {
		return nil, commitment, err
	}
	nonce := commitment[:a.NonceSize()]
	return a.Seal(append([]byte(nil), nonce...), nonce, plain, []byte(labelSealReport)), commitment, nil
}

// Commitment derives the commitment of an envelope from its stored facts and
// original, to be compared with the one in its capture list.
func Commitment(r ledger.Reader, keys Keys, blobs Blobs, no event.EnvelopeNo) (event.Digest, error) {
	s, content, err := CommitmentContent(r, keys, blobs, no)
	if err != nil {
		return event.Digest{}, err
	}
	m := hmac.New(sha256.New, s[:])
	m.Write(content)
	return event.Digest(m.Sum(nil)), nil
}

// CommitmentContent returns the secret of an envelope and what its commitment
// authenticates, made from the stored facts and the opened original.
func CommitmentContent(r ledger.Reader, keys Keys, blobs Blobs, no event.EnvelopeNo) (Secret, []byte, error) {
	s, err := getSecret(r, keys, bucketSecret, no)
	if err != nil {
		return s, nil, err
	}
	f, err := GetFacts(r, no)
	if err != nil {
		return s, nil, err
	}
	props, err := unseal(s, labelSealProperties, r.Get(bucketProperties, ledger.Key(uint64(no))))
	if err != nil {
		return s, nil, fmt.Errorf("envelope %d: %w", no, err)
	}
	body, err := openBody(r, keys, blobs, f.BodyOf)
	if err != nil {
		return s, nil, err
	}
	// The facts as they are stored: an earlier version wrote them otherwise.
	facts := r.Get(bucketFacts, ledger.Key(uint64(no)))
	return s, commitContent(s, facts, sha256.Sum256(props), sha256.Sum256(body)), nil
}

// CaptureListEntry is one entry of a capture list.
type CaptureListEntry struct {
	ID         [16]byte // ULID
	Commitment event.Digest
}

// ParseCaptureList reads the object that an envelope.captured record names.
func ParseCaptureList(b []byte) ([]CaptureListEntry, error) {
	const entry = 16 + sha256.Size
	if len(b) < len(captureListHead) || string(b[:len(captureListHead)]) != captureListHead || (len(b)-len(captureListHead))%entry != 0 {
		return nil, fmt.Errorf("not a capture list: %w", ledger.ErrIntegrity)
	}
	b = b[len(captureListHead):]
	out := make([]CaptureListEntry, 0, len(b)/entry)
	for ; len(b) > 0; b = b[entry:] {
		out = append(out, CaptureListEntry{ID: [16]byte(b[:16]), Commitment: event.Digest(b[16:entry])})
	}
	return out, nil
}

// BlobNames lists the blobs that bodies refer to.
func BlobNames(r ledger.Reader) map[string]bool {
	used := map[string]bool{}
	r.Scan(bucketBody, nil, func(_, v []byte) bool {
		if len(v) > len(blobMark) && string(v[:len(blobMark)]) == blobMark {
			used[string(v[len(blobMark):])] = true
		}
		return true
	})
	return used
}
