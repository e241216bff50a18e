package quarantine

import (
	"encoding/binary"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Cell is the part of an envelope that changes, and what selections look at:
// 64 bytes each, in blocks, so that a scan over a million envelopes reads them
// in order and needs no index.
type Cell struct {
	Custody    event.Custody
	Class      event.Class
	Flags      Flags
	Reason     Word // code of the failure
	LastReason Word
	Owner      Word
	Queue      Word // where it was received
	Died       Word // queue in which it died
	Type       Word
	Schema     Word
	Attempt    uint16
	Gen        event.GenerationNo // latest generation that moved it, 0 for none
	Parent     event.EnvelopeNo
	Root       event.EnvelopeNo
	Operation  uint64 // keyed hash of the operation identity, 0 for none
	Meaning    uint64 // first bytes of the fingerprint
	FirstDied  uint32 // seconds since 1970 UTC, 0 when unknown
	Captured   uint32
}

// Flags are the yes-or-no facts about an envelope.
type Flags uint16

// Flags of an envelope.
const (
	Held             Flags = 1 << iota // no release, no purge
	Overdue                            // open past its retention deadline
	PayloadGone                        // payload removed by retention or purge
	Settled                            // the broker has removed the message from the source
	FlagStampInvalid                   // see StampInvalid
	FlagStampUnknown
	FlagDerived
	FlagPossibleDuplicate
	FlagSettledByPerson // resolved by a person's word, which no fact takes back
	FlagRepaired        // a repair goes out in its place, see GetRepairs
	FlagDuplicateRisk   // was released before, and its effect was looked for and not found: it may still come
)

// Has reports whether all of the flags are set.
func (f Flags) Has(want Flags) bool { return f&want == want }

const (
	cellSize = 64
	// blockCells is how many cells share a value: with its key and headers a
	// block fills one page of 4096 bytes.
	blockCells = 62
)

var (
	bucketCell  = ledger.Bucket{Name: "envelope.cell", Append: true}
	bucketFacts = ledger.Bucket{Name: "envelope.facts", Append: true}
)

func (c *Cell) put(b []byte) {
	e := binary.BigEndian
	b[0], b[1] = byte(c.Custody), byte(c.Class)
	e.PutUint16(b[2:], uint16(c.Flags))
	for i, w := range []Word{c.Reason, c.LastReason, c.Owner, c.Queue, c.Died, c.Type, c.Schema} {
		e.PutUint16(b[4+2*i:], uint16(w))
	}
	e.PutUint16(b[18:], c.Attempt)
	e.PutUint32(b[20:], uint32(c.Gen))
	e.PutUint64(b[24:], uint64(c.Parent))
	e.PutUint64(b[32:], uint64(c.Root))
	e.PutUint64(b[40:], c.Operation)
	e.PutUint64(b[48:], c.Meaning)
	e.PutUint32(b[56:], c.FirstDied)
	e.PutUint32(b[60:], c.Captured)
}

func (c *Cell) get(b []byte) {
	e := binary.BigEndian
	c.Custody, c.Class = event.Custody(b[0]), event.Class(b[1])
	c.Flags = Flags(e.Uint16(b[2:]))
	for i, w := range []*Word{&c.Reason, &c.LastReason, &c.Owner, &c.Queue, &c.Died, &c.Type, &c.Schema} {
		*w = Word(e.Uint16(b[4+2*i:]))
	}
	c.Attempt = e.Uint16(b[18:])
	c.Gen = event.GenerationNo(e.Uint32(b[20:]))
	c.Parent = event.EnvelopeNo(e.Uint64(b[24:]))
	c.Root = event.EnvelopeNo(e.Uint64(b[32:]))
	c.Operation, c.Meaning = e.Uint64(b[40:]), e.Uint64(b[48:])
	c.FirstDied, c.Captured = e.Uint32(b[56:]), e.Uint32(b[60:])
}

func cellAt(no event.EnvelopeNo) (block uint64, offset int) {
	n := uint64(no - 1)
	return n / blockCells, int(n%blockCells) * cellSize
}

// GetCell reads the cell of an envelope; ok is false when there is no such
// envelope.
func GetCell(r ledger.Reader, no event.EnvelopeNo) (c Cell, ok bool) {
	if no == 0 {
		return c, false
	}
	block, off := cellAt(no)
	b := r.Get(bucketCell, ledger.Key(block))
	if len(b) < off+cellSize {
		return c, false
	}
	c.get(b[off:])
	return c, c.Custody != 0
}

// ScanCells visits cells from number no on, until fn returns false.
func ScanCells(r ledger.Reader, no event.EnvelopeNo, fn func(event.EnvelopeNo, *Cell) bool) {
	block, skip := cellAt(max(no, 1))
	var c Cell
	r.Scan(bucketCell, ledger.Key(block), func(k, v []byte) bool {
		first := event.EnvelopeNo(ledger.Unkey(k)*blockCells + 1)
		for off := skip; off+cellSize <= len(v); off += cellSize {
			c.get(v[off:])
			if !fn(first+event.EnvelopeNo(off/cellSize), &c) {
				return false
			}
		}
		skip = 0
		return true
	})
}

// Count is the number of envelopes, and the number of the latest one.
func Count(r ledger.Reader) event.EnvelopeNo {
	k, v := r.Last(bucketCell)
	if k == nil {
		return 0
	}
	return event.EnvelopeNo(ledger.Unkey(k)*blockCells + uint64(len(v)/cellSize))
}

// updateCells changes existing cells, one write for each block.
func updateCells(w ledger.Writer, envs event.Ranges, fn func(event.EnvelopeNo, *Cell) error) error {
	e := cellEditor{w: w}
	for n := range envs.All() {
		if err := e.edit(event.EnvelopeNo(n), fn); err != nil {
			return err
		}
	}
	return e.flush()
}

// cellEditor holds the block that is being changed.
type cellEditor struct {
	w     ledger.Writer
	block uint64
	buf   []byte // nil when no block is held
}

func (e *cellEditor) edit(no event.EnvelopeNo, fn func(event.EnvelopeNo, *Cell) error) error {
	if no == 0 {
		return fmt.Errorf("envelope 0: %w", ledger.ErrIntegrity)
	}
	block, off := cellAt(no)
	if e.buf == nil || block != e.block {
		if err := e.flush(); err != nil {
			return err
		}
		e.block = block
		e.buf = append(make([]byte, 0, blockCells*cellSize), e.w.Get(bucketCell, ledger.Key(block))...)
	}
	if off+cellSize > len(e.buf) {
		return fmt.Errorf("envelope %d does not exist: %w", no, ledger.ErrIntegrity)
	}
	var c Cell
	c.get(e.buf[off:])
	if err := fn(no, &c); err != nil {
		return err
	}
	c.put(e.buf[off:])
	return nil
}

// add appends the cell of the next envelope.
func (e *cellEditor) add(no event.EnvelopeNo, c *Cell) error {
	block, off := cellAt(no)
	if e.buf == nil || block != e.block {
		if err := e.flush(); err != nil {
			return err
		}
		e.block = block
		e.buf = append(make([]byte, 0, blockCells*cellSize), e.w.Get(bucketCell, ledger.Key(block))...)
	}
	if off != len(e.buf) {
		return fmt.Errorf("envelope %d is not the next one: %w", no, ledger.ErrIntegrity)
	}
	e.buf = e.buf[:off+cellSize]
	c.put(e.buf[off:])
	return nil
}

func (e *cellEditor) flush() error {
	if e.buf == nil {
		return nil
	}
	b := e.buf
	e.buf = nil
	return e.w.Put(bucketCell, ledger.Key(e.block), b)
}
