package event

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Range is an inclusive span of numbers, First ≤ Last.
type Range struct{ First, Last uint64 }

// Ranges is a set of numbers as ascending spans that neither touch nor
// overlap. The zero value is the empty set.
type Ranges []Range

// RangesOf builds the set of the given numbers, which may come in any order
// and repeat.
func RangesOf[T ~uint8 | ~uint32 | ~uint64](ns ...T) Ranges {
	sorted := slices.Clone(ns)
	slices.Sort(sorted)
	var r Ranges
	for _, n := range sorted {
		r = r.extend(uint64(n))
	}
	return r
}

// extend adds n, which must not be below the last number of r.
func (r Ranges) extend(n uint64) Ranges {
	if k := len(r); k > 0 {
		last := &r[k-1]
		if n <= last.Last {
			return r
		}
		if n == last.Last+1 {
			last.Last = n
			return r
		}
	}
	return append(r, Range{n, n})
}

// All yields every number in ascending order.
func (r Ranges) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, s := range r {
			for n := s.First; ; n++ {
				if !yield(n) {
					return
				}
				if n == s.Last {
					break
				}
			}
		}
	}
}

// Count is the number of members of the set.
func (r Ranges) Count() uint64 {
	var n uint64
	for _, s := range r {
		n += s.Last - s.First + 1
	}
	return n
}

// Contains reports whether n is in the set.
func (r Ranges) Contains(n uint64) bool {
	i, ok := slices.BinarySearchFunc(r, n, func(s Range, n uint64) int {
		switch {
		case s.Last < n:
			return -1
		case s.First > n:
			return 1
		}
		return 0
	})
	return ok && i < len(r)
}

// String writes the set as "3-7,9"; ParseRanges reads it back.
func (r Ranges) String() string { return string(r.append(nil)) }

func (r Ranges) append(dst []byte) []byte {
	for i, s := range r {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, s.First, 10)
		if s.Last > s.First {
			dst = append(dst, '-')
			dst = strconv.AppendUint(dst, s.Last, 10)
		}
	}
	return dst
}

// ParseRanges accepts exactly what Ranges.String writes.
func ParseRanges(s string) (Ranges, error) {
	if s == "" {
		return nil, nil
	}
	var r Ranges
	for part := range strings.SplitSeq(s, ",") {
		a, b, two := strings.Cut(part, "-")
		first, err := parseUint(a)
		last := first
		if err == nil && two {
			last, err = parseUint(b)
		}
		if err != nil || (two && last <= first) || (len(r) > 0 && first <= r[len(r)-1].Last+1) {
			return nil, fmt.Errorf("ranges %q: want ascending numbers or spans, as in 3-7,9", clip(s))
		}
		r = append(r, Range{first, last})
	}
	return r, nil
}

// parseUint refuses signs, leading zeros and everything else that has a
// shorter spelling.
func parseUint(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || (len(s) > 1 && s[0] == '0') || s[0] == '+' {
		return 0, fmt.Errorf("number %q is not canonical", clip(s))
	}
	return n, nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// Split cuts the set into sets whose text is at most limit bytes each, so that
// each fits into a record. The limit must be at least 41, the longest span.
func (r Ranges) Split(limit int) []Ranges {
	var out []Ranges
	start, size := 0, 0
	for i := range r {
		n := len(r[i:i+1].append(nil)) + 1
		if size+n > limit+1 {
			out = append(out, r[start:i:i])
			start, size = i, 0
		}
		size += n
	}
	if start < len(r) {
		out = append(out, r[start:])
	}
	return out
}
