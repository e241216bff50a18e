package redrive

import (
	"net/url"
	"slices"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// MaxStrata is how many kinds of members are told apart; the last one takes in
// all that come after it.
const MaxStrata = 64

// StratumObjects makes the lists of the members' kinds, one byte for each in
// release order, with their digests. Kinds are numbered by their first member.
// There are none when all members are of one kind.
func StratumObjects(kinds []uint8) (objects []event.Object, digests []string) {
	if len(kinds) == 0 || slices.Max(kinds) == 0 {
		return nil, nil
	}
	for part := range slices.Chunk(kinds, ChunkSize) {
		o, d := ledger.ObjectOf(part)
		objects, digests = append(objects, o), append(digests, d.String())
	}
	return objects, digests
}

// shared is the name of the destination whose exposure the generation shares
// with others.
func (m *Manifest) shared() string {
	switch {
	case m.Evidence != EvidenceOutcomes:
		return ""
	case len(m.Original) > 0:
		return "original"
	}
	return url.PathEscape(m.Exchange) + "/" + url.PathEscape(m.RoutingKey)
}

// strata reads the lists of kinds, keeping the last one.
type strata struct {
	manifest *Manifest
	held     int // index of the list in data, plus one
	data     []byte
}

// stratum counts a member that changed its disposition among its kind.
func (a *applying) stratum(pos event.Position, before, after event.Disposition) {
	if a.err != nil || !a.g.counts(before) && !a.g.counts(after) {
		return
	}
	s := &a.strata
	var err error
	if s.manifest == nil {
		if s.manifest, err = GetManifest(a.w, a.g.Manifest); err != nil {
			a.err = err
			return
		}
	}
	i := int(pos) / ChunkSize
	if i >= len(s.manifest.Strata) {
		return
	}
	if s.held != i+1 {
		d, err := ledger.GetObject(a.w, s.manifest.Strata[i])
		if err != nil {
			a.err = err
			return
		}
		s.held, s.data = i+1, d
	}
	off := int(pos) % ChunkSize
	if off >= len(s.data) {
		return
	}
	kind := int(min(s.data[off], MaxStrata-1))
	for len(a.g.Strata) <= kind {
		a.g.Strata = append(a.g.Strata, Stratum{})
	}
	a.g.Strata[kind].count(before, a.g.counts(before), ^uint64(0))
	a.g.Strata[kind].count(after, a.g.counts(after), 1)
}

func (s *Stratum) count(d event.Disposition, counts bool, one uint64) {
	if counts {
		s.Matured += one
	}
	switch d {
	case event.Requarantined:
		s.Requarantined += one
	case event.RejectedByConsumer, event.AmbiguousEffect:
		s.Rejected += one
	}
}
