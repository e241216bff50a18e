package local

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// formatVersion is what this code reads and writes.
const formatVersion = 1

var (
	bucketMeta      = []byte("meta")
	bucketExchanges = []byte("exchanges")
	bucketQueues    = []byte("queues")
	bucketBindings  = []byte("bindings")
	bucketMessages  = []byte("messages")
	bucketHanded    = []byte("handed")

	keyFormat  = []byte("format")
	keyCluster = []byte("cluster")
)

// Open opens the broker file at path, making it when there is none. One Broker
// at a time can have a file open: ErrLocked is returned when another one has.
// Close it when done.
func Open(path string, o Options) (*Broker, error) {
	o2 := o.WithDefaults()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := create(path, o2.Rand); err != nil {
			return nil, fmt.Errorf("make broker file %s: %w", path, err)
		}
	}
	db, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("open broker file %s: %w", path, err)
	}
	b := &Broker{
		db: db, opts: o2, polled: o.Clock != nil,
		inbox: newInbox(), over: make(chan struct{}),
		exchanges: map[string]*exchange{}, queues: map[string]*queue{},
	}
	if err := b.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open broker file %s: %w", path, err), db.Close())
	}
	go b.loop()
	return b, nil
}

// openFile opens a bbolt file. That library panics on some damaged files.
func openFile(path string) (db *bbolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("%w: damaged: %v", ErrFormat, p)
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: time.Second, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 64 << 20,
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, ErrLocked
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return db, err
}

// create makes a complete file under another name and links it to path, so
// that a crash leaves either nothing or all of it. When two processes make it
// at once, the first one wins and both go on to open it.
func create(path string, random io.Reader) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".broker-*.tmp")
	if err != nil {
		return err
	}
	name := tmp.Name()
	defer func() { _ = os.Remove(name) }()
	if err := tmp.Close(); err != nil {
		return err
	}
	var id [16]byte
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return err
	}
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { return writeSchema(tx, hex.EncodeToString(id[:])) })
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Link(name, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

func writeSchema(tx *bbolt.Tx, cluster string) error {
	for _, name := range [][]byte{bucketMeta, bucketExchanges, bucketQueues, bucketBindings, bucketMessages, bucketHanded} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	err := meta.Put(keyFormat, binary.BigEndian.AppendUint64(nil, formatVersion))
	return errors.Join(err, meta.Put(keyCluster, []byte(cluster)))
}

// syncDir makes a new directory entry durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load reads the state that the loop keeps in memory.
func (b *Broker) load() error {
	return b.db.View(func(tx *bbolt.Tx) error {
		if err := b.loadMeta(tx); err != nil {
			return err
		}
		for _, step := range []struct {
			bucket []byte
			each   func(k, v []byte) error
		}{
			{bucketExchanges, b.loadExchange},
			{bucketQueues, func(_, v []byte) error { return b.loadQueue(tx, v) }},
			{bucketBindings, b.loadBinding},
		} {
			if err := tx.Bucket(step.bucket).ForEach(step.each); err != nil {
				return err
			}
		}
		slices.SortFunc(b.order, func(x, y *queue) int { return int(x.number) - int(y.number) })
		return nil
	})
}

func (b *Broker) loadMeta(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketExchanges, bucketQueues, bucketBindings, bucketMessages, bucketHanded} {
		if tx.Bucket(name) == nil {
			return fmt.Errorf("%w: no %s", ErrFormat, name)
		}
	}
	meta := tx.Bucket(bucketMeta)
	if v := meta.Get(keyFormat); len(v) != 8 || binary.BigEndian.Uint64(v) != formatVersion {
		return fmt.Errorf("%w: format %x, this program knows %d; use the program that wrote it", ErrFormat, v, formatVersion)
	}
	b.cluster = string(meta.Get(keyCluster))
	return nil
}

func (b *Broker) loadExchange(_, v []byte) error {
	var s ExchangeSpec
	if err := json.Unmarshal(v, &s); err != nil {
		return fmt.Errorf("%w: exchange: %w", ErrFormat, err)
	}
	b.exchanges[s.Name] = &exchange{spec: s}
	return nil
}

func (b *Broker) loadBinding(k, _ []byte) error {
	var bd Binding
	if err := json.Unmarshal(k, &bd); err != nil {
		return fmt.Errorf("%w: binding: %w", ErrFormat, err)
	}
	x := b.exchanges[bd.Exchange]
	if x == nil || b.queues[bd.Queue] == nil {
		return fmt.Errorf("%w: binding of %q to %q leads nowhere", ErrFormat, bd.Exchange, bd.Queue)
	}
	x.bindings = append(x.bindings, bd)
	return nil
}

func (b *Broker) loadQueue(tx *bbolt.Tx, v []byte) error {
	var s storedQueue
	if err := json.Unmarshal(v, &s); err != nil {
		return fmt.Errorf("%w: queue: %w", ErrFormat, err)
	}
	q := &queue{spec: s.QueueSpec, number: s.Number}
	b.queues[s.Name] = q
	b.order = append(b.order, q)
	messages := tx.Bucket(bucketMessages).Bucket(q.key())
	handed := tx.Bucket(bucketHanded).Bucket(q.key())
	if messages == nil || handed == nil {
		return fmt.Errorf("%w: queue %q has no messages bucket", ErrFormat, s.Name)
	}
	return messages.ForEach(func(k, v []byte) error {
		expires, err := recordExpires(v)
		if err != nil || len(k) != 8 {
			return fmt.Errorf("queue %q: %w", s.Name, errors.Join(ErrFormat, err))
		}
		e := &entry{seq: binary.BigEndian.Uint64(k), expires: expires}
		if n := handed.Get(k); len(n) == 4 {
			e.handed = binary.BigEndian.Uint32(n)
		}
		q.push(e)
		return nil
	})
}
