package redrive

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/redrivehq/redrive/ledger/event"
)

// Keyed is a member with what its message says about order.
type Keyed struct {
	No       event.EnvelopeNo
	Key      string // "" when the message names none: it is not ordered
	Sequence string
	Kind     uint64 // members of the same reason and type have the same one
}

// KeyOrder is the release order of a cohort by key.
type KeyOrder struct {
	Members []event.EnvelopeNo // in release order
	Links   []Link             // by position
	Heads   uint64             // positions below have no predecessor

	Keys      uint64 // different keys
	Keyed     uint64 // members with a key
	Numeric   uint64 // of the keys: those in which every message has a number
	Unproven  uint64 // members with a key and without a number
	Gaps      uint64 // members with predecessors that are known to be missing
	Unknown   uint64 // members of which nobody knows whether one is missing
	Overtaken uint64 // keys of which a later message has been delivered already
	Delivered uint64 // keys of which it is known that something was delivered
}

// HeadStages cuts stages but the last so that they hold nothing but heads: a
// stage that had to wait for outcomes within itself would try fewer keys.
func HeadStages(stages []uint64, heads uint64) []uint64 {
	if heads == 0 || len(stages) == 0 {
		return stages
	}
	var out []uint64
	for _, end := range stages[:len(stages)-1] {
		if end = min(end, heads); len(out) == 0 || end > out[len(out)-1] {
			out = append(out, end)
		}
	}
	return append(out, stages[len(stages)-1])
}

// Passed is what the store knows about messages that were delivered earlier:
// for each key the numbers of those that had an outcome.
type Passed map[string][]uint64

// Note adds a message that was delivered.
func (p Passed) Note(key, sequence string) {
	if n, ok := number(sequence); ok && key != "" {
		p[key] = append(p[key], n)
	}
}

// number reads a sequence number.
func number(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// keyed is one key on its way into the order.
type keyed struct {
	list    []Keyed
	numeric bool
}

// OrderKeys puts members, which come in capture order, into release order: the
// first message of every key and all without a key, then the second ones, and
// so on. In the first layer one of each kind goes before, as in Cohort. Within
// a key the order is that of the numbers when all its messages have one, else
// that of capture; wall time plays no part.
func OrderKeys(members []Keyed, passed Passed) *KeyOrder {
	o := &KeyOrder{}
	keys := map[string]*keyed{}
	var names []string // in order of their first message
	var layers [][]place
	put := func(layer int, p place) {
		for len(layers) <= layer {
			layers = append(layers, nil)
		}
		layers[layer] = append(layers[layer], p)
	}
	for _, m := range members {
		if m.Key == "" {
			continue
		}
		k := keys[m.Key]
		if k == nil {
			k = &keyed{numeric: true}
			keys[m.Key] = k
			names = append(names, m.Key)
		}
		k.list = append(k.list, m)
		if _, ok := number(m.Sequence); !ok {
			k.numeric = false
			o.Unproven++
		}
		o.Keyed++
	}
	for _, name := range names {
		k := keys[name]
		k.sort()
		o.note(k, passed[name])
	}
	for _, m := range members {
		if m.Key == "" {
			put(0, place{m: m})
			continue
		}
		if k := keys[m.Key]; k.list[0].No == m.No {
			for depth := range k.list {
				put(depth, place{m: k.list[depth], key: k, depth: depth, passed: passed[m.Key]})
			}
		}
	}
	if len(layers) > 0 {
		layers[0] = kindsFirst(layers[0])
		o.Heads = uint64(len(layers[0]))
	}
	o.link(slices.Concat(layers...))
	return o
}

func (k *keyed) sort() {
	if !k.numeric {
		return
	}
	slices.SortStableFunc(k.list, func(a, b Keyed) int {
		x, _ := number(a.Sequence)
		y, _ := number(b.Sequence)
		return cmp.Compare(x, y)
	})
}

// note counts what is said about a key as a whole.
func (o *KeyOrder) note(k *keyed, passed []uint64) {
	o.Keys++
	if !k.numeric {
		return
	}
	o.Numeric++
	first, _ := number(k.list[0].Sequence)
	if len(passed) > 0 {
		o.Delivered++
		if slices.Max(passed) > first {
			o.Overtaken++
		}
	}
}

// place is a member with its place in its key.
type place struct {
	m      Keyed
	key    *keyed // nil without a key
	depth  int
	passed []uint64
}

// kindsFirst moves the first one of each kind to the front.
func kindsFirst(list []place) []place {
	seen := map[uint64]bool{}
	var first, rest []place
	for _, p := range list {
		if !seen[p.m.Kind] {
			seen[p.m.Kind] = true
			first = append(first, p)
		} else {
			rest = append(rest, p)
		}
	}
	return append(first, rest...)
}

// link numbers the members and ties each to its neighbours.
func (o *KeyOrder) link(places []place) {
	o.Members = make([]event.EnvelopeNo, len(places))
	o.Links = make([]Link, len(places))
	last := map[*keyed]event.Position{}
	for i, p := range places {
		pos := event.Position(i)
		o.Members[i] = p.m.No
		l := Link{Prev: NoPosition, Next: NoPosition}
		if p.key != nil {
			l.Missing = p.missing()
			if before, ok := last[p.key]; ok {
				l.Prev = before
				o.Links[before].Next = pos
			}
			last[p.key] = pos
		}
		switch {
		case l.Missing == UnknownGap:
			o.Unknown++
		case l.Missing > 0:
			o.Gaps++
		}
		o.Links[i] = l
	}
}

// missing is how many predecessors lie between a member and what is known to
// come before it.
func (p *place) missing() uint32 {
	if !p.key.numeric {
		return UnknownGap
	}
	n, _ := number(p.m.Sequence)
	var before uint64
	known := false
	if p.depth > 0 {
		before, _ = number(p.key.list[p.depth-1].Sequence)
		known = true
	}
	// What was delivered earlier is not missing, wherever it lies.
	between := uint64(0)
	if !known {
		for _, d := range p.passed {
			if d < n {
				before, known = max(before, d), true
			}
		}
	} else {
		seen := map[uint64]bool{}
		for _, d := range p.passed {
			if d > before && d < n && !seen[d] {
				seen[d] = true
				between++
			}
		}
	}
	if !known {
		return UnknownGap
	}
	if n <= before+1 {
		return 0
	}
	return uint32(min(n-before-1-between, uint64(UnknownGap)-1))
}
