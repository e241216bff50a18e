package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/ledger/verify"
	"github.com/redrivehq/redrive/quarantine"
)

// StoreSource lets the verifier read a store, page by page, up to the size
// that it had at the beginning. It implements verify.Source and
// verify.Payloads.
type StoreSource struct {
	kv     ledger.KV
	keys   quarantine.Keys
	blobs  quarantine.Blobs
	origin string
	key    string
	size   uint64
	epoch  uint64
}

// readPage is how many records one read transaction yields to the verifier.
const readPage = 1000

// NewStoreSource takes the extent of a store.
func NewStoreSource(kv ledger.KV, keys quarantine.Keys, blobs quarantine.Blobs, origin, key string) (*StoreSource, error) {
	s := &StoreSource{kv: kv, keys: keys, blobs: blobs, origin: origin, key: key}
	err := kv.View(func(r ledger.Reader) error { return s.extent(r, ledger.Size(r)) })
	return s, err
}

func (s *StoreSource) extent(r ledger.Reader, size uint64) error {
	s.size, s.epoch = size, 0
	if size == 0 {
		return nil
	}
	err := ledger.Records(r, size, func(rec *event.Record) bool {
		s.epoch = rec.Epoch
		return false
	})
	if errors.Is(err, ledger.ErrIntegrity) || errors.Is(err, event.ErrFuture) {
		return nil // the verifier says what is wrong with the last record
	}
	return err
}

// cutAtCheckpoint takes only what the newest checkpoint covers.
func (s *StoreSource) cutAtCheckpoint() error {
	return s.kv.View(func(r ledger.Reader) error {
		var size uint64
		ledger.Checkpoints(r, func(n uint64, _ []byte) bool { size = n; return true })
		return s.extent(r, size)
	})
}

// Extent implements verify.Source.
func (s *StoreSource) Extent() verify.Extent {
	if s.size == 0 {
		return verify.Extent{}
	}
	return verify.Extent{Origin: s.origin, First: 1, Last: s.size, Size: s.size, Epoch: s.epoch, Records: s.size}
}

// Key implements verify.Source.
func (s *StoreSource) Key() string { return s.key }

// Hashes implements verify.Source: every record is there, so none are needed.
func (s *StoreSource) Hashes(context.Context) iter.Seq2[event.Digest, error] { return nil }

// Records implements verify.Source.
func (s *StoreSource) Records(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for from := uint64(1); from <= s.size; {
			var page [][]byte
			err := s.kv.View(func(r ledger.Reader) error {
				ledger.Lines(r, from, func(seq uint64, line []byte) bool {
					if seq > s.size {
						return false
					}
					page = append(page, bytes.Clone(line))
					from = seq + 1
					return len(page) < readPage
				})
				return ctx.Err()
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, line := range page {
				if !yield(line, nil) {
					return
				}
			}
			if len(page) == 0 {
				return // what is missing, the verifier finds
			}
		}
	}
}

// Checkpoints implements verify.Source.
func (s *StoreSource) Checkpoints(context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var all [][]byte
		err := s.kv.View(func(r ledger.Reader) error {
			ledger.Checkpoints(r, func(size uint64, signed []byte) bool {
				if size <= s.size {
					all = append(all, bytes.Clone(signed))
				}
				return true
			})
			return nil
		})
		if err != nil {
			yield(nil, err)
			return
		}
		for _, c := range all {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// Object implements verify.Source.
func (s *StoreSource) Object(_ context.Context, d event.Digest) ([]byte, error) {
	var b []byte
	err := s.kv.View(func(r ledger.Reader) error {
		b = bytes.Clone(r.Get(ledger.BucketObject, d[:]))
		return nil
	})
	if err == nil && b == nil {
		return nil, verify.ErrNoObject
	}
	return b, err
}

// Commitments implements verify.Payloads.
func (s *StoreSource) Commitments(_ context.Context, r *event.Record, list []byte) iter.Seq2[verify.Commitment, error] {
	return func(yield func(verify.Commitment, error) bool) {
		entries, err := quarantine.ParseCaptureList(list)
		if err != nil {
			yield(verify.Commitment{}, err)
			return
		}
		for i, e := range entries {
			c := verify.Commitment{Env: r.Subj.Env + event.EnvelopeNo(i), Part: "original", Sum: e.Commitment}
			err := s.kv.View(func(rd ledger.Reader) error {
				secret, content, err := quarantine.CommitmentContent(rd, s.keys, s.blobs, c.Env)
				switch {
				case errors.Is(err, quarantine.ErrErased):
					c.Erased = true
					return nil
				case err != nil:
					// What cannot be opened cannot hold: the verifier reports it.
					c.Key, c.Content = []byte("unreadable"), fmt.Append(nil, err)
					return nil
				}
				c.Key, c.Content = secret[:], content
				return nil
			})
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}
