package redrive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// ErrReserved is returned when an open generation has a member of a new plan.
// Plan again, or finish the other generation first.
var ErrReserved = errors.New("members are in another open generation")

// A reservation is not kept per envelope: each plan has a bitmap of its
// members, in blocks, stored before the plan is frozen. A generation that is
// not open any more reserves nothing, so that an abort frees a million members
// by one record.

// bitsPerBlock envelopes share one value of 4000 bytes.
const bitsPerBlock = 32_000

var bucketReserved = ledger.Bucket{Name: "generation.reserved"}

func reservedKey(id string, block uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(id), block)
}

// ReservationObjects makes the bitmap of a plan, to be stored before Freeze.
func ReservationObjects(id string, members []event.EnvelopeNo) []event.Object {
	blocks := map[uint64][]byte{}
	for _, no := range members {
		b := uint64(no) / bitsPerBlock
		if blocks[b] == nil {
			blocks[b] = make([]byte, bitsPerBlock/8)
		}
		bit := uint64(no) % bitsPerBlock
		blocks[b][bit/8] |= 1 << (bit % 8)
	}
	out := make([]event.Object, 0, len(blocks))
	for b, bits := range blocks {
		out = append(out, event.Object{Bucket: bucketReserved, Key: reservedKey(id, b), Value: bits})
	}
	return out
}

// bucketFollow lists, under plan and position, the envelopes that stay because
// that member goes in their place.
var bucketFollow = ledger.Bucket{Name: "generation.follow"}

func followKey(id string, pos event.Position) []byte {
	return binary.BigEndian.AppendUint32([]byte(id), uint32(pos))
}

// FollowObjects makes the list of duplicates of a plan, to be stored before
// Freeze.
func FollowObjects(id string, list []Exclusion) []event.Object {
	var out []event.Object
	for _, x := range list {
		if x.Reason == ReasonDuplicate {
			out = append(out, event.Object{Bucket: bucketFollow, Value: []byte{},
				Key: binary.BigEndian.AppendUint64(followKey(id, x.Sibling), uint64(x.Env))})
		}
	}
	return out
}

// overlap refuses a plan whose members an open generation has.
func overlap(r ledger.Reader, m *Manifest) error {
	gens, err := Unfinished(r)
	if err != nil {
		return err
	}
	prefix := []byte(m.ID)
	var clash error
	r.Scan(bucketReserved, prefix, func(k, bits []byte) bool {
		if len(k) != len(prefix)+8 || string(k[:len(prefix)]) != m.ID {
			return false
		}
		block := ledger.Unkey(k[len(prefix):])
		for _, g := range gens {
			if !g.State.Open() {
				continue
			}
			theirs := r.Get(bucketReserved, reservedKey(g.ID, block))
			for i := range min(len(bits), len(theirs)) {
				if both := bits[i] & theirs[i]; both != 0 {
					no := block*bitsPerBlock + uint64(i)*8 + uint64(trailing(both))
					clash = fmt.Errorf("envelope #%d is in generation %d, which is %s: %w", no, g.No, g.State, ErrReserved)
					return false
				}
			}
		}
		return true
	})
	return clash
}

func trailing(b byte) int {
	for i := range 8 {
		if b&(1<<i) != 0 {
			return i
		}
	}
	return 8
}

// Reservations answers which envelopes are members of open generations.
type Reservations struct {
	r     ledger.Reader
	gens  []*Generation
	block uint64   // the block that bits holds, for questions in ascending order
	bits  [][]byte // of each generation; nil when no block is held
}

// LoadReservations reads the open generations once, for many questions.
func LoadReservations(r ledger.Reader) (*Reservations, error) {
	gens, err := Unfinished(r)
	if err != nil {
		return nil, err
	}
	rs := &Reservations{r: r}
	for _, g := range gens {
		if g.State.Open() {
			rs.gens = append(rs.gens, g)
		}
	}
	return rs, nil
}

// Of returns the open generation that has an envelope, 0 when none has.
func (rs *Reservations) Of(no event.EnvelopeNo) event.GenerationNo {
	block, bit := uint64(no)/bitsPerBlock, uint64(no)%bitsPerBlock
	if rs.bits == nil || rs.block != block {
		rs.block, rs.bits = block, make([][]byte, len(rs.gens))
		for i, g := range rs.gens {
			rs.bits[i] = rs.r.Get(bucketReserved, reservedKey(g.ID, block))
		}
	}
	for i, b := range rs.bits {
		if len(b) > int(bit/8) && b[bit/8]&(1<<(bit%8)) != 0 {
			return rs.gens[i].No
		}
	}
	return 0
}
