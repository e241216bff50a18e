package ledger

import (
	"fmt"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/redrivehq/redrive/ledger/event"
)

// addLeaf adds the leaf of record seq to the Merkle tree.
func addLeaf(w Writer, seq uint64, leaf event.Digest) error {
	n := int64(seq - 1)
	hashes, err := tlog.StoredHashesForRecordHash(n, tlog.Hash(leaf), hashReader(w))
	if err != nil {
		return fmt.Errorf("tree of the ledger at %d: %w", seq, err)
	}
	at := tlog.StoredHashIndex(0, n)
	for i, h := range hashes {
		if err := w.Put(bucketTree, Key(uint64(at)+uint64(i)), h[:]); err != nil {
			return err
		}
	}
	return nil
}

func hashReader(r Reader) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, x := range indexes {
			h := r.Get(bucketTree, Key(uint64(x)))
			if len(h) != len(out[i]) {
				return nil, fmt.Errorf("hash %d is missing: %w", x, ErrIntegrity)
			}
			out[i] = tlog.Hash(h)
		}
		return out, nil
	})
}

// root is the tree hash over the first size records.
func root(r Reader, size uint64) (event.Digest, error) {
	h, err := tlog.TreeHash(int64(size), hashReader(r))
	return event.Digest(h), err
}

// signTree makes and stores a checkpoint over the first size records.
func signTree(w Writer, o Options, size uint64) ([]byte, error) {
	h, err := root(w, size)
	if err != nil {
		return nil, err
	}
	text := log.Checkpoint{Origin: o.Origin, Size: size, Hash: h[:]}.Marshal()
	signed, err := note.Sign(&note.Note{Text: string(text)}, o.Signer)
	if err != nil {
		return nil, fmt.Errorf("sign the checkpoint over %d records: %w", size, err)
	}
	return signed, w.Put(bucketCheckpoint, Key(size), signed)
}
