package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/redrivehq/redrive/ledger"
)

// Format is the version of the store that this code writes, and the newest it
// reads.
const Format = 1

const (
	fileName    = "store.db"
	reserveName = "reserve"
	blobDir     = "blobs"
)

// Errors of opening a store.
var (
	// ErrMissing is returned when there is no store. Run: redrive init.
	ErrMissing = errors.New("no store here")
	// ErrNewer is returned for a store of a newer format. Use the version of
	// redrive that wrote it.
	ErrNewer = errors.New("store has a newer format")
	// ErrUnsafe is returned when files are open to others. Change their mode.
	ErrUnsafe = errors.New("store is open to other users")
	// ErrUnreadable is returned when the file is no store or is damaged.
	// Restore a backup.
	ErrUnreadable = errors.New("store cannot be read")
)

// Options says how to open a store.
type Options struct {
	// Command names this process to others that find the store held.
	Command string
	// MinFree is the free space below which work is refused. Defaults to
	// max(5 %, min(10 %, 2 GiB)) of the file system.
	MinFree uint64
	// Reserve is the space kept for stops. Defaults to 64 MiB.
	Reserve int64
	// UrgentFree is the free space below which a stop uses the reserve.
	// Defaults to 64 MiB.
	UrgentFree uint64
}

// Store implements ledger.KV.
type Store struct {
	dir  string
	o    Options
	db   *bbolt.DB
	lock *os.File
	// gate keeps read transactions from beginning during a commit.
	gate sync.RWMutex

	reserve sync.Mutex
}

var (
	_ ledger.KV = (*Store)(nil)

	bucketFormat = []byte("format")
	keyVersion   = []byte("version")
)

// Create makes an empty store in dir, which is created when missing. It
// refuses a directory that already holds one.
func Create(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	if err := checkMode(dir, true); err != nil {
		return err
	}
	path := filepath.Join(dir, fileName)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s already holds a store", dir)
	}
	if err := os.MkdirAll(filepath.Join(dir, blobDir), 0o700); err != nil {
		return fmt.Errorf("create the blob directory: %w", err)
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a leftover of an interrupted creation: %w", err)
	}
	db, err := bbolt.Open(tmp, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return fmt.Errorf("create the store: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketFormat)
		if err != nil {
			return err
		}
		return b.Put(keyVersion, binary.BigEndian.AppendUint32(nil, Format))
	})
	if err = errors.Join(err, db.Sync(), db.Close()); err != nil {
		return fmt.Errorf("create the store: %w", err)
	}
	return install(tmp, path)
}

// install renames a finished file into place and makes the name durable.
func install(tmp, path string) error {
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("put the new store in place: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Exists reports whether dir holds a store.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, fileName))
	return err == nil
}

// Open opens the store in dir for this process alone. When another process
// holds it the error is a *HeldError.
func Open(dir string, o Options) (*Store, error) {
	if o.Reserve == 0 {
		o.Reserve = 64 << 20
	}
	if o.UrgentFree == 0 {
		o.UrgentFree = 64 << 20
	}
	if !Exists(dir) {
		return nil, fmt.Errorf("%s: %w", dir, ErrMissing)
	}
	if err := checkFS(dir); err != nil {
		return nil, err
	}
	for _, name := range []string{"", fileName, blobDir} {
		if err := checkMode(filepath.Join(dir, name), name != fileName); err != nil {
			return nil, err
		}
	}
	lock, err := acquire(dir, o.Command)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, o: o, lock: lock}
	if s.db, err = openDB(filepath.Join(dir, fileName)); err == nil {
		err = checkFormat(s.db)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := errors.Join(s.removeLeftovers(), s.makeReserve()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openDB(path string) (db *bbolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil { // bbolt panics on some damage
			db, err = nil, fmt.Errorf("%s: %v: %w", path, p, ErrUnreadable)
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s is open in another program: %w", path, err)
	case err != nil && !errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%s: %w: %w", path, err, ErrUnreadable)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return db, nil
}

func checkFormat(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketFormat)
		if b == nil || len(b.Get(keyVersion)) != 4 {
			return fmt.Errorf("%s: not a store of redrive: %w", db.Path(), ErrUnreadable)
		}
		if v := binary.BigEndian.Uint32(b.Get(keyVersion)); v > Format {
			return fmt.Errorf("%s: format %d, this version reads up to %d: %w", db.Path(), v, Format, ErrNewer)
		}
		return nil
	})
}

// Close releases the store. It is not called after a failed commit: the
// process must end instead.
func (s *Store) Close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	return errors.Join(err, s.lock.Close())
}

// Dir is where the store lives.
func (s *Store) Dir() string { return s.dir }

// View implements ledger.KV.
func (s *Store) View(fn func(ledger.Reader) error) error {
	s.gate.RLock()
	tx, err := s.db.Begin(false)
	s.gate.RUnlock()
	if err != nil {
		return fmt.Errorf("begin to read the store: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a read transaction cannot fail to end
	return fn(newTx(tx))
}

// Update implements ledger.KV.
func (s *Store) Update(fn func(ledger.Writer) error) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("begin to write the store: %w", err)
	}
	committed := false
	defer func() {
		if !committed {
			_ = tx.Rollback() // nothing was written to the file yet
		}
	}()
	if err := fn(newTx(tx)); err != nil {
		return err
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	committed = true
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrCommit, err)
	}
	return nil
}
