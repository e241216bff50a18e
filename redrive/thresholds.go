package redrive

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// thresholdUnit is how the value of a threshold is spelled.
type thresholdUnit uint8

const (
	unitCount   thresholdUnit = iota // a whole number
	unitPercent                      // per mille inside, spelled in percent with at most one decimal
	unitTime                         // milliseconds
)

// threshold is one limit that a plan can set.
type threshold struct {
	name     string
	unit     thresholdUnit
	value    uint64 // default
	min, max uint64
}

// Names of thresholds, as configuration and plans spell them.
const (
	LimitUnroutable     = "unroutable"
	LimitNacked         = "nacked"
	LimitNackShare      = "nack_share"
	LimitAmbiguous      = "ambiguous"
	LimitAmbiguousRetry = "ambiguous_retry"
	LimitStageBad       = "stage_bad"
	LimitRequarantined  = "requarantined"
	LimitAbort          = "abort"
	LimitRejected       = "rejected"
	LimitMissing        = "missing"
	LimitVersion        = "consumer_version"
	LimitConfirmSlow    = "confirm_slow"
	LimitConfirmPause   = "confirm_latency"
	LimitDepth          = "depth"
	LimitInflow         = "dlq_inflow"
	LimitCommit         = "store_commit"
)

// thresholds is the table of what can be set. A limit is inclusive: what
// reaches it is a breach. Wilson's rules are the exception that their name says:
// the lower bound has to be above the limit.
var thresholds = []threshold{
	{LimitAbort, unitPercent, 500, 1, 1000},
	{LimitAmbiguous, unitCount, 1, 1, MaxCohort},
	{LimitAmbiguousRetry, unitCount, 5, 1, MaxCohort},
	{LimitConfirmPause, unitTime, 10_000, 1, 600_000},
	{LimitConfirmSlow, unitTime, 1000, 1, 600_000},
	{LimitVersion, unitCount, 1, 1, MaxCohort},
	{LimitDepth, unitCount, 1000, 1, 1_000_000_000},
	{LimitInflow, unitCount, 20, 1, 1_000_000_000},
	{LimitMissing, unitPercent, 50, 1, 1000},
	{LimitNackShare, unitPercent, 20, 1, 1000},
	{LimitNacked, unitCount, 3, 1, MaxCohort},
	{LimitRejected, unitPercent, 50, 1, 1000},
	{LimitRequarantined, unitPercent, 100, 1, 1000},
	{LimitStageBad, unitCount, 1, 1, smallStage},
	{LimitCommit, unitTime, 1000, 1, 600_000},
	{LimitUnroutable, unitCount, 1, 1, MaxCohort},
}

// Thresholds are the limits of signals by name, in the unit of each: a count,
// per mille, or milliseconds. A name that is missing has its default.
type Thresholds map[string]uint64

// Of returns the limit of a signal.
func (t Thresholds) Of(name string) uint64 {
	if v, ok := t[name]; ok {
		return v
	}
	for _, x := range thresholds {
		if x.name == name {
			return x.value
		}
	}
	return 0
}

// List spells all limits canonically, sorted by name, as the manifest holds
// them.
func (t Thresholds) List() []string {
	out := make([]string, 0, len(thresholds))
	for _, x := range thresholds {
		out = append(out, x.name+"="+x.spell(t.Of(x.name)))
	}
	slices.Sort(out)
	return out
}

func (x *threshold) spell(v uint64) string {
	switch {
	case x.unit == unitTime:
		return strconv.FormatUint(v, 10) + "ms"
	case x.unit == unitPercent && v%10 == 0:
		return strconv.FormatUint(v/10, 10) + "%"
	case x.unit == unitPercent:
		return fmt.Sprintf("%d.%d%%", v/10, v%10)
	}
	return strconv.FormatUint(v, 10)
}

// Set reads one setting NAME=VALUE: a whole number, a share such as 5% or 2.5%,
// or a duration such as 10s, by the unit of the signal. What is not a finite
// positive value in the range of the signal is an error that wraps ErrArgument.
func (t Thresholds) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	for i := range thresholds {
		x := &thresholds[i]
		if x.name != name || !ok {
			continue
		}
		v, err := x.parse(value)
		if err != nil {
			return err
		}
		t[name] = v
		return nil
	}
	names := make([]string, 0, len(thresholds))
	for _, x := range thresholds {
		names = append(names, x.name)
	}
	slices.Sort(names)
	return fmt.Errorf("threshold %q: want SIGNAL=VALUE, where SIGNAL is one of %s: %w", clip(text), strings.Join(names, ", "), ErrArgument)
}

func (x *threshold) parse(text string) (uint64, error) {
	var v uint64
	var err error
	want := "a whole number"
	switch x.unit {
	case unitPercent:
		want = "a share such as 5% or 2.5%"
		digits, ok := strings.CutSuffix(text, "%")
		var f float64
		f, err = strconv.ParseFloat(digits, 64)
		milli := f * 10
		if !ok || math.IsNaN(milli) || milli < 0 || milli > 1000 || math.Abs(milli-math.Round(milli)) > 1e-9 {
			err = ErrArgument
		} else {
			v = uint64(math.Round(milli))
		}
	case unitTime:
		want = "a time such as 500ms or 10s"
		var d time.Duration
		d, err = time.ParseDuration(text)
		v = uint64(max(d.Milliseconds(), 0))
		if d%time.Millisecond != 0 {
			err = ErrArgument
		}
	default:
		v, err = strconv.ParseUint(text, 10, 64)
	}
	if err != nil || v < x.min || v > x.max {
		return 0, fmt.Errorf("threshold %s=%s: want %s, from %s to %s: %w", x.name, clip(text), want, x.spell(x.min), x.spell(x.max), ErrArgument)
	}
	return v, nil
}

// ParseThresholds reads settings; a later one for the same signal wins. An
// error wraps ErrArgument.
func ParseThresholds(list []string) (Thresholds, error) {
	t := Thresholds{}
	for _, text := range list {
		if err := t.Set(text); err != nil {
			return nil, err
		}
	}
	return t, nil
}
