package verify

import (
	"crypto/sha256"

	"github.com/redrivehq/redrive/ledger/event"
)

// tree is an RFC 6962 Merkle tree of which only the roots of the full subtrees
// are kept: peaks[i] is the i-th from the left, one for each bit of size.
type tree struct {
	size  uint64
	peaks []event.Digest
}

// add appends a leaf hash.
func (t *tree) add(leaf event.Digest) {
	t.peaks = append(t.peaks, leaf)
	for n := t.size; n&1 == 1; n >>= 1 {
		k := len(t.peaks) - 2
		t.peaks = append(t.peaks[:k], node(t.peaks[k], t.peaks[k+1]))
	}
	t.size++
}

// root is the hash of the whole tree; of an empty one, that of no bytes.
func (t *tree) root() event.Digest {
	if len(t.peaks) == 0 {
		return sha256.Sum256(nil)
	}
	sum := t.peaks[len(t.peaks)-1]
	for i := len(t.peaks) - 2; i >= 0; i-- {
		sum = node(t.peaks[i], sum)
	}
	return sum
}

func node(left, right event.Digest) event.Digest {
	var buf [1 + 2*sha256.Size]byte
	buf[0] = 1
	copy(buf[1:], left[:])
	copy(buf[1+sha256.Size:], right[:])
	return sha256.Sum256(buf[:])
}
