package redrive

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// Why a report was not taken.
const (
	UnmatchedMalformed = "malformed"
	UnmatchedUnknown   = "unknown"
	UnmatchedForged    = "forged"
)

// Stamps implements quarantine.Releases: it answers for messages that carry a
// stamp of this store.
type Stamps struct{ Key stamp.Key }

// Find implements quarantine.Releases.
func (s Stamps) Find(r ledger.Reader, st stamp.Stamp) (quarantine.Release, bool, error) {
	return (&finder{}).find(r, st)
}

// finder finds what stamps name within one read transaction, and opens the
// lists of each generation once.
type finder struct{ known map[string]*stamped }

// stamped is a generation that stamps name.
type stamped struct {
	g       *Generation
	chunks  chunks
	repairs RepairLists
}

func (f *finder) generation(r ledger.Reader, id string) (*stamped, bool, error) {
	if k, ok := f.known[id]; ok {
		return k, true, nil
	}
	g, ok, err := byID(r, id)
	if err != nil || !ok {
		return nil, false, err
	}
	if f.known == nil {
		f.known = map[string]*stamped{}
	}
	f.known[id] = &stamped{g: g}
	return f.known[id], true, nil
}

func (f *finder) find(r ledger.Reader, st stamp.Stamp) (quarantine.Release, bool, error) {
	k, ok, err := f.generation(r, st.Generation)
	if err != nil || !ok || uint64(st.Position) >= k.g.Members {
		return quarantine.Release{}, false, err
	}
	pos := event.Position(st.Position)
	env, err := k.g.envelope(r, &k.chunks, pos)
	if err != nil {
		return quarantine.Release{}, false, err
	}
	facts, err := quarantine.GetFacts(r, env)
	if err != nil {
		return quarantine.Release{}, false, err
	}
	body, err := k.repairs.released(r, k.g, pos, env, facts)
	if err != nil && !errors.Is(err, quarantine.ErrErased) {
		return quarantine.Release{}, false, err // of an erased one nothing is known any more
	}
	m := GetMember(r, k.g.No, pos)
	d := k.g.Destination.For(facts)
	return quarantine.Release{Gen: k.g.No, Env: env, Exchange: d.Exchange, RoutingKey: d.RoutingKey,
		BodyDigest: body, Intended: st.Try > 0 && event.Try(st.Try) <= m.Tries && facts.ID.String() == st.Envelope,
		Returned: m.Facts.Has(FactReturned)}, true, nil
}

// Verify implements quarantine.Releases.
func (s Stamps) Verify(st stamp.Stamp, rel quarantine.Release, mac stamp.MAC) bool {
	return s.Key.Verify(st, rel.Exchange, rel.RoutingKey, mac)
}

var bucketReport = ledger.Bucket{Name: "outcome.report"}

// Report takes what consumers say. Reports that name no intent of this store,
// or whose MAC does not hold, are counted and change nothing; a fact that is
// already known is not recorded again.
func (s Stamps) Report(v ledger.View, keys quarantine.Keys, reports []outcome.Report, malformed uint64, via string) ([]event.Event, error) {
	type key struct {
		gen     event.GenerationNo
		outcome event.Outcome
		try     event.Try
	}
	unmatched := map[string]uint64{}
	if malformed > 0 {
		unmatched[UnmatchedMalformed] = malformed
	}
	taken := map[key]*reported{}
	known := map[fact]bool{}
	expected := map[event.GenerationNo]string{} // consumer version
	var order []key
	var find finder
	for _, rep := range reports {
		rel, bad, err := s.check(v, &find, rep)
		if err != nil {
			return nil, err
		}
		if bad != "" {
			unmatched[bad]++
			continue
		}
		m := GetMember(v, rel.Gen, event.Position(rep.Stamp.Position))
		f := fact{rel.Gen, event.Position(rep.Stamp.Position), rep.Outcome}
		if known[f] || m.Facts.Has(outcomeFacts[rep.Outcome]) {
			continue
		}
		known[f] = true
		k := key{rel.Gen, rep.Outcome, event.Try(rep.Stamp.Try)}
		if taken[k] == nil {
			taken[k] = &reported{}
			order = append(order, k)
		}
		if err := taken[k].add(v, keys, rel, rep); err != nil {
			return nil, err
		}
		if _, ok := expected[rel.Gen]; !ok {
			g, err := Get(v, rel.Gen)
			if err != nil {
				return nil, err
			}
			expected[rel.Gen] = g.Consumer
		}
		if want := expected[rel.Gen]; want != "" && rep.ConsumerVersion != "" && rep.ConsumerVersion != want {
			taken[k].foreign++
		}
	}
	var out []event.Event
	for _, k := range order {
		out = append(out, taken[k].events(k.gen, event.OutcomeReported{Outcome: k.outcome, Try: k.try, Via: via})...)
	}
	for _, reason := range sortedKeys(unmatched) {
		out = append(out, event.Event{Body: &event.OutcomeUnmatched{Count: unmatched[reason], Reason: reason}})
	}
	return out, nil
}

// fact is one thing that a report can make known.
type fact struct {
	gen     event.GenerationNo
	pos     event.Position
	outcome event.Outcome
}

func (s Stamps) check(r ledger.Reader, find *finder, rep outcome.Report) (quarantine.Release, string, error) {
	rel, ok, err := find.find(r, rep.Stamp)
	switch {
	case err != nil:
		return rel, "", err
	case !ok:
		return rel, UnmatchedUnknown, nil
	case !s.Verify(rep.Stamp, rel, rep.MAC), !rel.Intended:
		return rel, UnmatchedForged, nil
	}
	return rel, "", nil
}

// reported collects reports that go into one record.
type reported struct {
	pos     []event.Position
	foreign uint64 // of another consumer version than the manifest expects
	list    []byte
	objects []event.Object
}

// add seals what the report says beyond its outcome: the record commits to it
// and does not show it.
func (t *reported) add(r ledger.Reader, keys quarantine.Keys, rel quarantine.Release, rep outcome.Report) error {
	pos := event.Position(rep.Stamp.Position)
	t.pos = append(t.pos, pos)
	plain := rep.Private()
	if plain == nil {
		return nil
	}
	sealed, commitment, err := quarantine.SealReport(r, keys, rel.Env, plain)
	if err != nil {
		return err
	}
	t.list = fmt.Appendf(t.list, "%d %s\n", pos, commitment)
	id := sha256.Sum256(plain)
	t.objects = append(t.objects, event.Object{Bucket: bucketReport, Value: sealed,
		Key: append(ledger.Key2(uint64(rel.Gen), uint64(pos)), id[:8]...)})
	return nil
}

func (t *reported) events(no event.GenerationNo, b event.OutcomeReported) []event.Event {
	var objects []event.Object
	if len(t.list) > 0 {
		o, digest := ledger.ObjectOf(t.list)
		b.Details = digest.String()
		objects = append(slices.Clone(t.objects), o)
	}
	out := positions(no, t.pos, func(part event.Ranges) event.Body {
		c := b
		c.Pos = part
		return &c
	})
	out[0].Objects = objects
	if first, ok := out[0].Body.(*event.OutcomeReported); ok {
		first.Foreign = t.foreign
	}
	return out
}

// Stamp makes the stamp of a pick, whose envelope has the facts f.
func (s Stamps) Stamp(g *Generation, f *quarantine.Facts, p Pick) Stamped {
	st := stamp.Stamp{Generation: g.ID, Envelope: f.ID.String(), Position: uint32(p.Pos), Try: uint8(p.Try)}
	d := g.Destination.For(f)
	return Stamped{Stamp: st, MAC: s.Key.Sign(st, d.Exchange, d.RoutingKey)}
}
