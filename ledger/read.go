package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger/event"
)

// Lines visits the lines of records from seq on, until fn returns false. The
// line is valid only inside fn.
func Lines(r Reader, seq uint64, fn func(seq uint64, line []byte) bool) {
	r.Scan(bucketLog, Key(seq), func(k, v []byte) bool { return fn(Unkey(k), v) })
}

// Records visits parsed records from seq on, until fn returns false.
func Records(r Reader, seq uint64, fn func(*event.Record) bool) error {
	var err error
	Lines(r, seq, func(n uint64, line []byte) bool {
		rec, e := parse(n, line)
		if e != nil {
			err = e
			return false
		}
		return fn(rec)
	})
	return err
}

// parse reads the record that is stored as n. One that cannot be read is a
// contradiction, unless it says that a newer version wrote it.
func parse(n uint64, line []byte) (*event.Record, error) {
	rec, err := event.ParseRecord(line)
	switch {
	case errors.Is(err, event.ErrFuture):
		return nil, fmt.Errorf("record %d: %w", n, err)
	case err != nil:
		return nil, fmt.Errorf("record %d: %w: %w", n, err, ErrIntegrity)
	case rec.Seq != n:
		return nil, fmt.Errorf("record %d is stored as %d: %w", rec.Seq, n, ErrIntegrity)
	}
	return rec, nil
}

// Checkpoints visits the signed checkpoints in order of size, until fn returns
// false.
func Checkpoints(r Reader, fn func(size uint64, signed []byte) bool) {
	r.Scan(bucketCheckpoint, nil, func(k, v []byte) bool { return fn(Unkey(k), v) })
}

// Size is the number of records, and Root the tree hash over all of them.
func Size(r Reader) uint64 {
	if k, _ := r.Last(bucketLog); k != nil {
		return Unkey(k)
	}
	return 0
}

// Root is the RFC 6962 tree hash over the first size records.
func Root(r Reader, size uint64) (event.Digest, error) { return root(r, size) }

// ObjectOf makes an object that is stored under its own digest.
func ObjectOf(value []byte) (event.Object, event.Digest) {
	d := event.Digest(sha256.Sum256(value))
	return event.Object{Bucket: BucketObject, Key: d[:], Value: value}, d
}

// GetObject returns an object after checking it against its digest.
func GetObject(r Reader, digest string) ([]byte, error) {
	d, err := event.ParseDigest(digest)
	if err != nil {
		return nil, err
	}
	v := r.Get(BucketObject, d[:])
	if v == nil {
		return nil, fmt.Errorf("object %s is missing: %w", digest, ErrIntegrity)
	}
	if event.Digest(sha256.Sum256(v)) != d {
		return nil, fmt.Errorf("object %s does not match its digest: %w", digest, ErrIntegrity)
	}
	return v, nil
}
