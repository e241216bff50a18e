package quarantine

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Errors of looking envelopes up.
var (
	// ErrNoEnvelope is returned when no envelope has the given id.
	ErrNoEnvelope = errors.New("no such envelope")
	// ErrSeveral is returned when more than one envelope matches. Use a longer
	// id, or one of the candidates.
	ErrSeveral = errors.New("several envelopes match")
)

// GetFacts reads the facts of an envelope.
func GetFacts(r ledger.Reader, no event.EnvelopeNo) (*Facts, error) {
	b := r.Get(bucketFacts, ledger.Key(uint64(no)))
	if b == nil {
		return nil, fmt.Errorf("envelope %d: %w", no, ErrNoEnvelope)
	}
	f, err := decodeFacts(b)
	if err != nil {
		return nil, fmt.Errorf("envelope %d: %w", no, err)
	}
	return f, nil
}

// Filter selects envelopes. Empty fields select everything; several fields
// must all hold.
type Filter struct {
	Custody  []event.Custody
	Queue    string // where it was received
	Died     string // where it died
	Reason   string // matches the reason and the last reason
	Class    string
	Owner    string
	Type     string
	Schema   string // version
	Held     bool
	Overdue  bool
	Nos      []event.EnvelopeNo
	Lineage  event.EnvelopeNo // root
	OnlyGen  event.GenerationNo
	AfterNo  event.EnvelopeNo // page cursor
	OnlyOpen bool             // quarantined or released

	// The first death lies at or after DiedFrom and before DiedBefore, in seconds
	// since 1970; 0 is no bound. Where the message does not tell, the capture
	// counts.
	DiedFrom   uint32
	DiedBefore uint32
	// The attempt of the lineage, from 1, has these bounds; 0 is none.
	MinAttempt uint16
	MaxAttempt uint16
	// Among are sets in which all selected envelopes are.
	Among []*Numbers
}

// Matching is a filter resolved against a store's words.
type Matching struct {
	f       Filter
	queue   Word
	died    Word
	reason  Word
	owner   Word
	typ     Word
	schema  Word
	class   event.Class
	nothing bool // a word that no envelope has
	nos     map[event.EnvelopeNo]bool
}

// Resolve prepares a filter for matching cells.
func (f Filter) Resolve(r ledger.Reader) (*Matching, error) {
	m := &Matching{f: f}
	for _, t := range []struct {
		to   *Word
		text string
	}{{&m.queue, f.Queue}, {&m.died, f.Died}, {&m.reason, f.Reason}, {&m.owner, f.Owner}, {&m.typ, f.Type}, {&m.schema, f.Schema}} {
		w, ok := FindWord(r, t.text)
		if !ok {
			m.nothing = true
		}
		*t.to = w
	}
	if f.Class != "" {
		class, ok := event.ParseClass(f.Class)
		if !ok {
			return nil, fmt.Errorf("class %q is unknown; classes are transient, systemic, permanent, business_rejection, ambiguous_effect, consumer_defect, unclassified", f.Class)
		}
		m.class = class
	}
	if len(f.Nos) > 0 {
		m.nos = make(map[event.EnvelopeNo]bool, len(f.Nos))
		for _, n := range f.Nos {
			m.nos[n] = true
		}
	}
	return m, nil
}

// Match reports whether the filter selects an envelope.
func (m *Matching) Match(no event.EnvelopeNo, c *Cell) bool {
	if m.nothing || (m.nos != nil && !m.nos[no]) {
		return false
	}
	for _, set := range m.f.Among {
		if !set.Has(no) {
			return false
		}
	}
	return m.matchWords(c) && m.matchState(c) && m.matchBounds(c)
}

func (m *Matching) matchBounds(c *Cell) bool {
	f := &m.f
	return c.FirstDied >= f.DiedFrom && (f.DiedBefore == 0 || c.FirstDied < f.DiedBefore) &&
		c.Attempt >= f.MinAttempt && (f.MaxAttempt == 0 || c.Attempt <= f.MaxAttempt)
}

func (m *Matching) matchWords(c *Cell) bool {
	switch {
	case m.queue != 0 && c.Queue != m.queue, m.died != 0 && c.Died != m.died,
		m.reason != 0 && c.Reason != m.reason && c.LastReason != m.reason,
		m.owner != 0 && c.Owner != m.owner, m.typ != 0 && c.Type != m.typ, m.schema != 0 && c.Schema != m.schema,
		m.f.Class != "" && c.Class != m.class:
		return false
	}
	return true
}

func (m *Matching) matchState(c *Cell) bool {
	f := &m.f
	switch {
	case len(f.Custody) > 0 && !slices.Contains(f.Custody, c.Custody),
		f.OnlyOpen && c.Custody != event.Quarantined && c.Custody != event.Released,
		f.Held && !c.Flags.Has(Held), f.Overdue && !c.Flags.Has(Overdue),
		f.Lineage != 0 && c.Root != f.Lineage, f.OnlyGen != 0 && c.Gen != f.OnlyGen:
		return false
	}
	return true
}

// List returns up to limit envelopes that the filter selects, after AfterNo.
func List(r ledger.Reader, f Filter, limit int) ([]event.EnvelopeNo, error) {
	m, err := f.Resolve(r)
	if err != nil {
		return nil, err
	}
	var out []event.EnvelopeNo
	if m.nothing {
		return nil, nil
	}
	ScanCells(r, f.AfterNo+1, func(no event.EnvelopeNo, c *Cell) bool {
		if m.Match(no, c) {
			out = append(out, no)
		}
		return len(out) < limit
	})
	return out, nil
}

// Group counts envelopes that share reason, class and owner.
type Group struct {
	Reason string
	Class  string
	Owner  string
	Count  uint64
	Oldest uint32 // first death, seconds since 1970
}

// Groups counts the envelopes that the filter selects, largest group first.
func Groups(r ledger.Reader, f Filter) ([]Group, error) {
	m, err := f.Resolve(r)
	if err != nil || m.nothing {
		return nil, err
	}
	type key struct {
		reason, owner Word
		class         event.Class
	}
	counts := map[key]*Group{}
	words := Words(r)
	ScanCells(r, f.AfterNo+1, func(no event.EnvelopeNo, c *Cell) bool {
		if !m.Match(no, c) {
			return true
		}
		k := key{c.Reason, c.Owner, c.Class}
		g := counts[k]
		if g == nil {
			g = &Group{Reason: words[c.Reason], Class: c.Class.String(), Owner: words[c.Owner], Oldest: c.FirstDied}
			counts[k] = g
		}
		g.Count++
		g.Oldest = min(g.Oldest, c.FirstDied)
		return true
	})
	out := make([]Group, 0, len(counts))
	for _, g := range counts {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int {
		if a.Count != b.Count {
			return int(min(b.Count, 1<<30)) - int(min(a.Count, 1<<30))
		}
		return strings.Compare(a.Reason+"\x00"+a.Class+"\x00"+a.Owner, b.Reason+"\x00"+b.Class+"\x00"+b.Owner)
	})
	return out, nil
}

// Lookup finds the one envelope that an id names: a ULID or a unique prefix of
// at least 4 characters, a dense number written "#7", a message id, or an
// operation identity. Among several attempts of one lineage the latest is
// meant. It returns ErrNoEnvelope, or ErrSeveral naming candidates.
func Lookup(r ledger.Reader, id string) (event.EnvelopeNo, error) { return LookupIn(r, id, "") }

// LookupIn is Lookup among the envelopes that were captured from one queue, with
// queue "" among all: a message id that several queues have seen is no doubt
// about a message of this one.
func LookupIn(r ledger.Reader, id, queue string) (event.EnvelopeNo, error) {
	var n event.EnvelopeNo
	if _, err := fmt.Sscanf(id, "#%d", &n); err == nil && fmt.Sprintf("#%d", n) == id {
		if _, ok := GetCell(r, n); ok && len(from(r, []event.EnvelopeNo{n}, queue)) == 1 {
			return n, nil
		}
		return 0, fmt.Errorf("envelope %s%s: %w", id, within(queue), ErrNoEnvelope)
	}
	found := from(r, byULID(r, id), queue)
	if len(found) == 0 {
		whole, prefix := byText(r, id)
		if found = from(r, whole, queue); len(found) == 0 {
			found = from(r, prefix, queue)
		}
	}
	switch {
	case len(found) == 0:
		return 0, fmt.Errorf("envelope %q%s: %w; list them with: redrive envelope list", clean(id, 60), within(queue), ErrNoEnvelope)
	case len(found) == 1 || oneLineage(r, found):
		return found[len(found)-1], nil
	}
	var names []string
	for _, no := range found[:min(len(found), 5)] {
		if f, err := GetFacts(r, no); err == nil {
			names = append(names, f.ID.String())
		}
	}
	return 0, fmt.Errorf("%q%s: %d %w: %s", clean(id, 60), within(queue), len(found), ErrSeveral, strings.Join(names, ", "))
}

// from keeps of some envelopes those that were captured from the queue.
func from(r ledger.Reader, nos []event.EnvelopeNo, queue string) []event.EnvelopeNo {
	if queue == "" {
		return nos
	}
	w, known := FindWord(r, queue)
	return slices.DeleteFunc(nos, func(no event.EnvelopeNo) bool {
		c, ok := GetCell(r, no)
		return !known || !ok || c.Queue != w
	})
}

func within(queue string) string {
	if queue == "" {
		return ""
	}
	return fmt.Sprintf(" of queue %q", clean(queue, 60))
}

func oneLineage(r ledger.Reader, nos []event.EnvelopeNo) bool {
	first, _ := GetCell(r, nos[0])
	for _, no := range nos[1:] {
		if c, _ := GetCell(r, no); c.Root != first.Root {
			return false
		}
	}
	return true
}

// byULID searches by bisection: ULIDs ascend with the numbers.
func byULID(r ledger.Reader, prefix string) []event.EnvelopeNo {
	prefix = strings.ToUpper(prefix)
	if len(prefix) < 4 || len(prefix) > ulid.EncodedSize {
		return nil
	}
	at := func(i int) string {
		f, err := GetFacts(r, event.EnvelopeNo(i+1))
		if err != nil {
			return ""
		}
		return f.ID.String()
	}
	n := int(Count(r))
	i := sort.Search(n, func(i int) bool { return at(i) >= prefix })
	var out []event.EnvelopeNo
	for ; i < n && strings.HasPrefix(at(i), prefix); i++ {
		out = append(out, event.EnvelopeNo(i+1))
	}
	return out
}

// byText compares message ids and operation identities: with the whole text, and
// with what it begins.
func byText(r ledger.Reader, id string) (whole, prefix []event.EnvelopeNo) {
	r.Scan(bucketFacts, nil, func(k, v []byte) bool {
		f, err := decodeFacts(v)
		if err != nil {
			return true
		}
		no := event.EnvelopeNo(ledger.Unkey(k))
		for _, s := range []string{f.MessageID, f.Operation} {
			if s == id {
				whole = append(whole, no)
				break
			}
			if id != "" && strings.HasPrefix(s, id) {
				prefix = append(prefix, no)
				break
			}
		}
		return true
	})
	return whole, prefix
}

// Kids returns the envelopes that came back after this one was released.
func Kids(r ledger.Reader, parent event.EnvelopeNo) []event.EnvelopeNo {
	var out []event.EnvelopeNo
	r.Scan(bucketKids, ledger.Key2(uint64(parent), 0), func(k, _ []byte) bool {
		if ledger.Unkey(k) != uint64(parent) {
			return false
		}
		out = append(out, event.EnvelopeNo(ledger.Unkey(k[8:])))
		return true
	})
	return out
}

// Note is an annotation with its record.
type Note struct {
	Seq    uint64
	TS     uint64
	Actor  event.Actor
	Text   string
	Ticket string
}

// Notes returns the annotations of an envelope, oldest first.
func Notes(r ledger.Reader, no event.EnvelopeNo) ([]Note, error) {
	var out []Note
	var err error
	r.Scan(bucketNotes, ledger.Key2(uint64(no), 0), func(k, _ []byte) bool {
		if ledger.Unkey(k) != uint64(no) {
			return false
		}
		err = ledger.Records(r, ledger.Unkey(k[8:]), func(rec *event.Record) bool {
			if b, ok := rec.Body.(*event.EnvelopeAnnotated); ok {
				out = append(out, Note{Seq: rec.Seq, TS: rec.TS, Actor: rec.Actor, Text: b.Note, Ticket: b.Ticket})
			}
			return false
		})
		return err == nil
	})
	return out, err
}

// Open counts envelopes of a queue that are not finished; with queue "" all.
func Open(r ledger.Reader, queue string) (n uint64, err error) {
	groups, err := Groups(r, Filter{Queue: queue, OnlyOpen: true})
	for _, g := range groups {
		n += g.Count
	}
	return n, err
}

// TwinGone reports whether an envelope that may be a duplicate has lost the one
// that it may be a duplicate of: then it is the one to send.
func TwinGone(r ledger.Reader, no event.EnvelopeNo, c *Cell) bool {
	if !c.Flags.Has(FlagPossibleDuplicate) {
		return false
	}
	f, err := GetFacts(r, no)
	if err != nil {
		return false
	}
	twin, ok := GetCell(r, f.DuplicateOf)
	return !ok || twin.Custody == event.Purged
}
