// Package bolt remembers operations and parked keys of a worker in one file. It
// serves the replicas within one process; several processes need the store of
// package postgres.
//
// # Format
//
// A bbolt file with the buckets "meta" ("format" = 1), "operations", "times" and
// "keys". An operation is, by its id: state (1 begun, 2 done), fingerprint
// (16 bytes), milliseconds since 1970 (8 bytes, big endian), effect. Times holds
// milliseconds and id as a key, so that the oldest come first. Keys holds the
// length of the queue's name (2 bytes), that name and the ordering key, with the
// milliseconds since when it is parked.
package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/quarantine/worker"
)

// formatVersion is what this code reads and writes.
const formatVersion = "1"

// ErrFormat is returned by Open for a file of another kind or a newer version.
var ErrFormat = errors.New("not an inbox file of this version")

// openWithin is how long Open waits for a process that has the file open.
const openWithin = 5 * time.Second

// sweepAtOnce bounds the operations that one Begin forgets.
const sweepAtOnce = 32

var (
	bucketMeta  = []byte("meta")
	bucketOps   = []byte("operations")
	bucketTimes = []byte("times")
	bucketKeys  = []byte("keys")
	keyFormat   = []byte("format")
)

const (
	stateBegun = 1
	stateDone  = 2
)

// Store implements worker.Inbox and worker.Keys.
type Store struct {
	db      *bbolt.DB
	horizon time.Duration
}

var (
	_ worker.Inbox = (*Store)(nil)
	_ worker.Keys  = (*Store)(nil)
)

// Open opens the file at path, and makes it when there is none. Operations are
// forgotten when nothing was heard of them for the horizon, which must be longer
// than a message can be on its way, in quarantine included.
func Open(path string, horizon time.Duration) (*Store, error) {
	if horizon <= 0 {
		return nil, fmt.Errorf("inbox file %s: the horizon %v is not positive", path, horizon)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: openWithin})
	if err != nil {
		return nil, fmt.Errorf("open inbox file %s: %w", path, err)
	}
	if err := db.Update(prepare); err != nil {
		return nil, errors.Join(fmt.Errorf("open inbox file %s: %w", path, err), db.Close())
	}
	return &Store{db: db, horizon: horizon}, nil
}

// prepare makes the buckets of a new file and refuses a strange one.
func prepare(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if k, _ := tx.Cursor().First(); k != nil {
			return ErrFormat
		}
	} else if got := meta.Get(keyFormat); string(got) != formatVersion {
		return fmt.Errorf("format %q: %w", got, ErrFormat)
	}
	for _, name := range [][]byte{bucketMeta, bucketOps, bucketTimes, bucketKeys} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketMeta).Put(keyFormat, []byte(formatVersion))
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// entry is what is stored of an operation.
type entry struct {
	state       byte
	fingerprint [16]byte
	at          int64 // milliseconds
	effect      string
}

const entryHead = 1 + 16 + 8

func (e *entry) encode() []byte {
	b := append([]byte{e.state}, e.fingerprint[:]...)
	return append(binary.BigEndian.AppendUint64(b, uint64(e.at)), e.effect...)
}

func decode(b []byte) (e entry, ok bool) {
	if len(b) < entryHead {
		return entry{}, false
	}
	e.state = b[0]
	copy(e.fingerprint[:], b[1:])
	e.at = int64(binary.BigEndian.Uint64(b[17:]))
	e.effect = string(b[entryHead:])
	return e, true
}

func timeKey(at int64, id string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at)), id...)
}

// put replaces what is stored of an operation.
func put(tx *bbolt.Tx, id string, e entry) error {
	if err := remove(tx, id); err != nil {
		return err
	}
	if err := tx.Bucket(bucketOps).Put([]byte(id), e.encode()); err != nil {
		return err
	}
	return tx.Bucket(bucketTimes).Put(timeKey(e.at, id), nil)
}

func remove(tx *bbolt.Tx, id string) error {
	e, ok := decode(tx.Bucket(bucketOps).Get([]byte(id)))
	if !ok {
		return nil
	}
	if err := tx.Bucket(bucketTimes).Delete(timeKey(e.at, id)); err != nil {
		return err
	}
	return tx.Bucket(bucketOps).Delete([]byte(id))
}

// sweep forgets some of the operations of which nothing was heard since before
// the horizon.
func (s *Store) sweep(tx *bbolt.Tx, now time.Time) error {
	oldest := now.Add(-s.horizon).UnixMilli()
	var ids []string
	c := tx.Bucket(bucketTimes).Cursor()
	for k, _ := c.First(); k != nil && len(ids) < sweepAtOnce; k, _ = c.Next() {
		if len(k) < 8 || int64(binary.BigEndian.Uint64(k)) >= oldest {
			break
		}
		ids = append(ids, string(k[8:]))
	}
	for _, id := range ids {
		if err := remove(tx, id); err != nil {
			return err
		}
	}
	return nil
}

// known returns what is stored of an operation and is younger than the horizon.
func (s *Store) known(tx *bbolt.Tx, op worker.Operation) (entry, bool) {
	e, ok := decode(tx.Bucket(bucketOps).Get([]byte(op.ID)))
	return e, ok && e.at >= op.Now.Add(-s.horizon).UnixMilli()
}

// Begin implements worker.Inbox.
func (s *Store) Begin(ctx context.Context, op worker.Operation) (seen worker.Seen, err error) {
	err = s.update(ctx, func(tx *bbolt.Tx) error {
		e, ok := s.known(tx, op)
		switch {
		case !ok:
			seen.State = worker.SeenNew
		case e.fingerprint != op.Fingerprint:
			seen.State = worker.SeenConflict
			return nil
		case e.state == stateDone:
			seen = worker.Seen{State: worker.SeenDone, Effect: e.effect}
			return nil
		default:
			seen.State = worker.SeenBegun
		}
		if err := s.sweep(tx, op.Now); err != nil {
			return err
		}
		return put(tx, op.ID, entry{state: stateBegun, fingerprint: op.Fingerprint, at: op.Now.UnixMilli()})
	})
	if err != nil {
		return worker.Seen{}, err
	}
	return seen, nil
}

// Done implements worker.Inbox.
func (s *Store) Done(ctx context.Context, op worker.Operation, effect string) error {
	return s.update(ctx, func(tx *bbolt.Tx) error {
		if e, ok := s.known(tx, op); ok && e.state == stateDone {
			return nil // the first word about an effect stands
		}
		return put(tx, op.ID, entry{state: stateDone, fingerprint: op.Fingerprint, at: op.Now.UnixMilli(), effect: effect})
	})
}

// Forget implements worker.Inbox.
func (s *Store) Forget(ctx context.Context, op worker.Operation) error {
	return s.update(ctx, func(tx *bbolt.Tx) error {
		if e, ok := s.known(tx, op); ok && (e.state == stateDone || e.fingerprint != op.Fingerprint) {
			return nil
		}
		return remove(tx, op.ID)
	})
}

// Shared implements worker.Keys: other processes cannot open the file.
func (s *Store) Shared() bool { return false }

func parkedKey(queue, key string) []byte {
	return append(append(binary.BigEndian.AppendUint16(nil, uint16(len(queue))), queue...), key...)
}

// Parked implements worker.Keys.
func (s *Store) Parked(ctx context.Context, queue, key string) (parked bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		parked = tx.Bucket(bucketKeys).Get(parkedKey(queue, key)) != nil
		return nil
	})
	return parked, err
}

// Park implements worker.Keys.
func (s *Store) Park(ctx context.Context, queue, key string, now time.Time) error {
	return s.update(ctx, func(tx *bbolt.Tx) error {
		k := parkedKey(queue, key)
		if tx.Bucket(bucketKeys).Get(k) != nil {
			return nil
		}
		return tx.Bucket(bucketKeys).Put(bytes.Clone(k), binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli())))
	})
}

// Clear implements worker.Keys.
func (s *Store) Clear(ctx context.Context, queue, key string) error {
	return s.update(ctx, func(tx *bbolt.Tx) error { return tx.Bucket(bucketKeys).Delete(parkedKey(queue, key)) })
}

func (s *Store) update(ctx context.Context, f func(*bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.Update(f)
}
