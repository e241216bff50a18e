package redrive

import (
	"encoding/binary"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// OrderPerKey is the value of Manifest.Order under which the messages of one
// ordering key go one after the other. OrderNone is the other one.
const (
	OrderNone   = "none"
	OrderPerKey = "per-key"
)

// What a failure of one message does to the later ones of its key.
const (
	OnFailureBlock    = "block"    // the whole generation stands still
	OnFailurePark     = "park"     // they are withheld, other keys go on
	OnFailureContinue = "continue" // they go on, with the gap stamped
	OnFailureRebuild  = "rebuild"  // they are withheld, for their owner to rebuild
)

// NoPosition stands in a Link for no member.
const NoPosition = event.Position(0xffffffff)

// UnknownGap is the number of missing predecessors that nobody knows. Unknown
// is never none.
const UnknownGap = uint32(0xffffffff)

// Link is the place of a member in its key.
type Link struct {
	Prev, Next event.Position // neighbours in the key, NoPosition for none
	// Missing is how many messages of the key lie before this one and after the
	// one before it (or the last one that is known to be delivered) and are not
	// in the cohort. UnknownGap when nothing tells. It is 0 for members without
	// a key.
	Missing uint32
}

// linkSize is the length of an encoded link: previous, next, missing, each in
// 32 bits, big endian. A key list has one for each position, in objects of
// ChunkSize; their digests stand one behind the other in the index, whose
// digest the manifest names.
const linkSize = 12

// KeyObjects makes the key list of a cohort, with the digest of its index.
func KeyObjects(links []Link) (objects []event.Object, index string) {
	var digests []byte
	for len(links) > 0 {
		n := min(len(links), ChunkSize)
		b := make([]byte, 0, n*linkSize)
		for _, l := range links[:n] {
			b = binary.BigEndian.AppendUint32(b, uint32(l.Prev))
			b = binary.BigEndian.AppendUint32(b, uint32(l.Next))
			b = binary.BigEndian.AppendUint32(b, l.Missing)
		}
		o, d := ledger.ObjectOf(b)
		objects, digests = append(objects, o), append(digests, d[:]...)
		links = links[n:]
	}
	o, d := ledger.ObjectOf(digests)
	return append(objects, o), d.String()
}

// KeyLists reads the digests that an index lists.
func KeyLists(index []byte) ([]event.Digest, error) {
	const size = len(event.Digest{})
	if len(index)%size != 0 {
		return nil, fmt.Errorf("index of a key list: %d bytes are no digests: %w", len(index), ledger.ErrIntegrity)
	}
	var out []event.Digest
	for ; len(index) > 0; index = index[size:] {
		out = append(out, event.Digest(index[:size]))
	}
	return out, nil
}

// keyList reads links, keeping the object of the last one.
type keyList struct {
	index []byte
	held  int // number of the object in data, plus one
	data  []byte
}

// at reads the link of a position.
func (l *keyList) at(r ledger.Reader, g *Generation, pos event.Position) (Link, error) {
	if l.index == nil {
		b, err := ledger.GetObject(r, g.Keys)
		if err != nil {
			return Link{}, fmt.Errorf("index of the key list: %w", err)
		}
		l.index = b
	}
	i := int(pos) / ChunkSize
	if l.held != i+1 {
		const size = len(event.Digest{})
		if (i+1)*size > len(l.index) {
			return Link{}, fmt.Errorf("position %d is beyond the key list: %w", pos, ledger.ErrIntegrity)
		}
		b, err := ledger.GetObject(r, event.Digest(l.index[i*size:(i+1)*size]).String())
		if err != nil {
			return Link{}, fmt.Errorf("key list: %w", err)
		}
		l.held, l.data = i+1, b
	}
	off := int(pos) % ChunkSize * linkSize
	if off+linkSize > len(l.data) {
		return Link{}, fmt.Errorf("position %d is beyond the key list: %w", pos, ledger.ErrIntegrity)
	}
	e, b := binary.BigEndian, l.data[off:]
	return Link{Prev: event.Position(e.Uint32(b)), Next: event.Position(e.Uint32(b[4:])), Missing: e.Uint32(b[8:])}, nil
}
