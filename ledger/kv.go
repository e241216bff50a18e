package ledger

import (
	"encoding/binary"
	"errors"

	"github.com/redrivehq/redrive/ledger/event"
)

// Bucket names a key space of the KV.
type Bucket = event.Bucket

// Reader reads within one transaction. Slices that it returns are valid until
// the transaction ends and must not be changed.
type Reader interface {
	// Get returns the value, nil when the key is absent.
	Get(b Bucket, key []byte) []byte
	// Scan visits keys ≥ from in ascending order until fn returns false.
	Scan(b Bucket, from []byte, fn func(key, value []byte) bool)
	// Last returns the largest key and its value, nil when b is empty.
	Last(b Bucket) (key, value []byte)
}

// Writer is a Reader that sees its own changes.
type Writer interface {
	Reader
	// Put keeps no reference to key and value.
	Put(b Bucket, key, value []byte) error
	// Delete of an absent key is not an error.
	Delete(b Bucket, key []byte) error
}

// KV is an ordered, durable key-value store with one writer. Drivers are in
// internal/store and pass the suite in internal/store/storetest.
type KV interface {
	// View runs fn on the last durable state. It must be short: a long one
	// keeps pages from being used again.
	View(fn func(Reader) error) error
	// Update runs fn in the only write transaction. An error of fn rolls it
	// back and is returned as it is. When the commit itself fails the error
	// wraps ErrCommit, and whether the changes are visible is unknown.
	Update(fn func(Writer) error) error
	// Room returns an error wrapping ErrNoSpace while free space is short.
	// With urgent it first gives up the reserve, so that a stop always fits.
	Room(urgent bool) error
}

// Errors of a KV and of the Log above it.
var (
	// ErrCommit is returned when a transaction failed to commit. End the
	// process and start again: only a fresh start reads the truth.
	ErrCommit = errors.New("commit failed, its outcome is unknown until the store is opened again")
	// ErrNoSpace is returned when free space is short. Make room; nothing was
	// changed.
	ErrNoSpace = errors.New("not enough free space")
	// ErrClosed is returned after Close, or after the Log has died.
	ErrClosed = errors.New("ledger is closed")
	// ErrIntegrity is returned when stored data contradicts itself. Stop, and
	// run: redrive ledger verify.
	ErrIntegrity = errors.New("stored data contradicts itself")
)

// Buckets of the ledger itself. Log, tree, checkpoints and objects are primary
// data: everything else can be rebuilt from them.
var (
	bucketLog        = Bucket{Name: "log", Append: true}
	bucketTree       = Bucket{Name: "tree", Append: true}
	bucketCheckpoint = Bucket{Name: "checkpoint", Append: true}
	// BucketObject holds side objects under their SHA-256 digest.
	BucketObject = Bucket{Name: "object"}
)

// Key is the big-endian form of n, so that keys sort as numbers do.
func Key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// Key2 joins two numbers into one key, ordered by the first, then the second.
func Key2(a, b uint64) []byte {
	return binary.BigEndian.AppendUint64(Key(a), b)
}

// Unkey reads the number at the start of a key of Key or Key2.
func Unkey(key []byte) uint64 { return binary.BigEndian.Uint64(key) }
