package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/redrivehq/redrive/ledger/event"
)

// rebuildBatch is how many records one transaction of a rebuild applies.
const rebuildBatch = 2000

// Difference says where rebuilt state departs from the live one.
type Difference struct {
	Projector string
	Bucket    string
	Key       []byte // first key that differs
}

// Rebuild replays all records of live through the projectors into scratch,
// which must be empty. Primary data (objects, originals) is read from live.
func Rebuild(ctx context.Context, live, scratch KV, projectors []Projector) error {
	owned := map[string]bool{}
	for _, p := range projectors {
		for _, b := range p.Buckets() {
			owned[b.Name] = true
		}
	}
	for seq := uint64(1); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := rebuildSome(live, scratch, projectors, owned, seq)
		if err != nil || n == 0 {
			return err
		}
		seq += n
	}
}

func rebuildSome(live, scratch KV, projectors []Projector, owned map[string]bool, seq uint64) (n uint64, err error) {
	err = live.View(func(primary Reader) error {
		return scratch.Update(func(w Writer) error {
			o := overlay{Writer: w, primary: primary, owned: owned}
			var applyErr error
			err := Records(primary, seq, func(r *event.Record) bool {
				for _, p := range projectors {
					if applyErr = p.Apply(o, r); applyErr != nil {
						applyErr = fmt.Errorf("%s cannot apply record %d (%s): %w", p.Name(), r.Seq, r.Body.Kind(), applyErr)
						return false
					}
				}
				n++
				return n < rebuildBatch
			})
			if err == nil {
				err = applyErr
			}
			return err
		})
	})
	return n, err
}

// overlay reads what projectors own from the scratch store and everything else
// from the live one.
type overlay struct {
	Writer
	primary Reader
	owned   map[string]bool
}

func (o overlay) of(b Bucket) Reader {
	if o.owned[b.Name] {
		return o.Writer
	}
	return o.primary
}

func (o overlay) Get(b Bucket, key []byte) []byte { return o.of(b).Get(b, key) }

func (o overlay) Scan(b Bucket, from []byte, fn func(k, v []byte) bool) { o.of(b).Scan(b, from, fn) }

func (o overlay) Last(b Bucket) (k, v []byte) { return o.of(b).Last(b) }

// Compare returns the first difference of each bucket that the projectors own.
func Compare(a, b KV, projectors []Projector) ([]Difference, error) {
	var out []Difference
	err := a.View(func(ra Reader) error {
		return b.View(func(rb Reader) error {
			for _, p := range projectors {
				for _, bucket := range p.Buckets() {
					if key, differs := firstDifference(ra, rb, bucket); differs {
						out = append(out, Difference{p.Name(), bucket.Name, key})
					}
				}
			}
			return nil
		})
	})
	return out, err
}

// firstDifference compares page by page, so that neither side has to be held
// in memory.
func firstDifference(a, b Reader, bucket Bucket) (key []byte, differs bool) {
	const page = 1024
	from := []byte(nil)
	for {
		ka, va := pairs(a, bucket, from, page)
		kb, vb := pairs(b, bucket, from, page)
		for i := range max(len(ka), len(kb)) {
			switch {
			case i >= len(ka):
				return kb[i], true
			case i >= len(kb) || !bytes.Equal(ka[i], kb[i]) || !bytes.Equal(va[i], vb[i]):
				return ka[i], true
			}
		}
		if len(ka) < page {
			return nil, false
		}
		from = append(bytes.Clone(ka[len(ka)-1]), 0)
	}
}

func pairs(r Reader, b Bucket, from []byte, limit int) (keys, values [][]byte) {
	r.Scan(b, from, func(k, v []byte) bool {
		keys, values = append(keys, bytes.Clone(k)), append(values, bytes.Clone(v))
		return len(keys) < limit
	})
	return keys, values
}

// StateDigest is one hash over everything that the projectors own: two stores
// with the same records have the same one.
func StateDigest(r Reader, projectors []Projector) event.Digest {
	h := sha256.New()
	put := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, p := range projectors {
		for _, b := range p.Buckets() {
			put([]byte(b.Name))
			r.Scan(b, nil, func(k, v []byte) bool {
				put(k)
				put(v)
				return true
			})
		}
	}
	return event.Digest(h.Sum(nil))
}
