package api

import (
	"strconv"
	"strings"
)

// StageSizes spells the sizes of stages, as in "1, 10, 25", when for each of
// them it is given how many members there are up to its end.
func StageSizes(ends []uint64) string {
	sizes, before := make([]string, len(ends)), uint64(0)
	for i, end := range ends {
		sizes[i], before = strconv.FormatUint(end-before, 10), end
	}
	return strings.Join(sizes, ", ")
}
