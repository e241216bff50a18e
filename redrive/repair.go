package redrive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// RepairedMember is a member that goes out as a repair of its envelope.
type RepairedMember struct {
	Pos        event.Position
	Candidate  uint64 // number of the repair, 1 to quarantine.MaxCandidates
	Commitment event.Digest
}

// A list of repairs begins with a line and then has an entry of fixed size for
// each member, in order of positions, so that one is found by bisection.
const (
	repairListHead = "redrive repairs v1\n"
	repairEntry    = 4 + 4 + 32
)

// RepairObjects makes the lists of members that go out repaired, in order of
// their positions, with the digests of the lists.
func RepairObjects(list []RepairedMember) (objects []event.Object, digests []string) {
	for len(list) > 0 {
		n := min(len(list), ChunkSize)
		b := []byte(repairListHead)
		for _, m := range list[:n] {
			b = binary.BigEndian.AppendUint32(b, uint32(m.Pos))
			b = binary.BigEndian.AppendUint32(b, uint32(m.Candidate))
			b = append(b, m.Commitment[:]...)
		}
		o, d := ledger.ObjectOf(b)
		objects, digests = append(objects, o), append(digests, d.String())
		list = list[n:]
	}
	return objects, digests
}

// RepairLists finds the repairs of members of one generation within one read
// transaction. Each list is opened, and held against its digest, once. The zero
// value is ready.
type RepairLists struct{ open map[int][]byte }

// Of is the repair as which a member goes out; Candidate is 0 when it is the
// original.
func (l *RepairLists) Of(r ledger.Reader, g *Generation, pos event.Position) (RepairedMember, error) {
	var failed error
	// The last list that begins at or before the position.
	i := sort.Search(len(g.Repairs), func(i int) bool {
		b, err := l.list(r, g, i)
		if err != nil {
			failed = err
		}
		return err != nil || repairAt(b, 0).Pos > pos
	}) - 1
	if failed != nil || i < 0 {
		return RepairedMember{}, failed
	}
	b, err := l.list(r, g, i)
	if err != nil {
		return RepairedMember{}, err
	}
	n := len(b) / repairEntry
	at := sort.Search(n, func(i int) bool { return repairAt(b, i).Pos >= pos })
	if at == n || repairAt(b, at).Pos != pos {
		return RepairedMember{}, nil
	}
	return repairAt(b, at), nil
}

// list opens one list: its entries, at least one.
func (l *RepairLists) list(r ledger.Reader, g *Generation, i int) ([]byte, error) {
	if b, ok := l.open[i]; ok {
		return b, nil
	}
	b, err := ledger.GetObject(r, g.Repairs[i])
	if err != nil {
		return nil, fmt.Errorf("list of repairs: %w", err)
	}
	entries, ok := bytes.CutPrefix(b, []byte(repairListHead))
	if !ok || len(entries) == 0 || len(entries)%repairEntry != 0 {
		return nil, fmt.Errorf("list of repairs %s: %w", g.Repairs[i], ledger.ErrIntegrity)
	}
	if l.open == nil {
		l.open = map[int][]byte{}
	}
	l.open[i] = entries
	return entries, nil
}

func repairAt(entries []byte, i int) RepairedMember {
	e := entries[i*repairEntry:]
	return RepairedMember{Pos: event.Position(binary.BigEndian.Uint32(e)), Candidate: uint64(binary.BigEndian.Uint32(e[4:])),
		Commitment: event.Digest(e[8:repairEntry])}
}

// stands reports whether a member still goes out as the plan froze it: as the
// same repair, or as the original.
func (l *RepairLists) stands(r ledger.Reader, g *Generation, pos event.Position, env event.EnvelopeNo, c *quarantine.Cell) (bool, error) {
	if len(g.Repairs) == 0 && !c.Flags.Has(quarantine.FlagRepaired) {
		return true, nil
	}
	frozen, err := l.Of(r, g, pos)
	if err != nil {
		return false, err
	}
	rs, err := quarantine.GetRepairs(r, env)
	return rs.Live == frozen.Candidate, err
}

// released is the digest of the body that a member goes out with.
func (l *RepairLists) released(r ledger.Reader, g *Generation, pos event.Position, env event.EnvelopeNo, f *quarantine.Facts) (body [32]byte, err error) {
	frozen, err := l.Of(r, g, pos)
	if err != nil || frozen.Candidate == 0 {
		return f.BodyDigest, err
	}
	rf, err := quarantine.GetRepairFacts(r, env, frozen.Candidate)
	return rf.BodyDigest, err
}

// Outgoing are the Facts of a member as it goes out: of the repair that the plan
// froze, or of the original.
func (l *RepairLists) Outgoing(r ledger.Reader, g *Generation, pos event.Position, env event.EnvelopeNo) (*quarantine.Facts, error) {
	frozen, err := l.Of(r, g, pos)
	if err != nil {
		return nil, err
	}
	return quarantine.Outgoing(r, env, frozen.Candidate)
}
