package bolt

import (
	"go.etcd.io/bbolt"

	"github.com/redrivehq/redrive/ledger"
)

// tx adapts a bbolt transaction, opening each bucket once.
type tx struct {
	tx      *bbolt.Tx
	buckets map[string]*bbolt.Bucket
}

func newTx(t *bbolt.Tx) *tx { return &tx{tx: t, buckets: map[string]*bbolt.Bucket{}} }

// bucket returns nil for a bucket that does not exist.
func (t *tx) bucket(b ledger.Bucket) *bbolt.Bucket {
	if h, ok := t.buckets[b.Name]; ok {
		return h
	}
	h := t.tx.Bucket([]byte(b.Name))
	if h != nil {
		if b.Append {
			h.FillPercent = 1 // pages of ascending keys are never split again
		}
		t.buckets[b.Name] = h
	}
	return h
}

func (t *tx) Get(b ledger.Bucket, key []byte) []byte {
	h := t.bucket(b)
	if h == nil {
		return nil
	}
	return h.Get(key)
}

func (t *tx) Scan(b ledger.Bucket, from []byte, fn func(k, v []byte) bool) {
	h := t.bucket(b)
	if h == nil {
		return
	}
	c := h.Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		if !fn(k, v) {
			return
		}
	}
}

func (t *tx) Last(b ledger.Bucket) (k, v []byte) {
	h := t.bucket(b)
	if h == nil {
		return nil, nil
	}
	return h.Cursor().Last()
}

func (t *tx) Put(b ledger.Bucket, key, value []byte) error {
	h := t.bucket(b)
	if h == nil {
		if _, err := t.tx.CreateBucketIfNotExists([]byte(b.Name)); err != nil {
			return err
		}
		h = t.bucket(b)
	}
	// bbolt keeps the value until the commit, so it must be a copy.
	return h.Put(key, append(make([]byte, 0, len(value)), value...))
}

func (t *tx) Delete(b ledger.Bucket, key []byte) error {
	h := t.bucket(b)
	if h == nil {
		return nil
	}
	return h.Delete(key)
}
