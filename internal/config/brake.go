package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/redrive"
)

// Thresholds are limits by the name of their signal.
type Thresholds map[string]string

// List spells them SIGNAL=VALUE, sorted.
func (t Thresholds) List() []string {
	out := make([]string, 0, len(t))
	for _, name := range slices.Sorted(maps.Keys(t)) {
		out = append(out, name+"="+t[name])
	}
	return out
}

// Brake says what is watched while a generation runs, beside what the ledger
// knows.
type Brake struct {
	// HoldDown is how long a pause by a signal lasts at least. Defaults to 60s.
	HoldDown Duration `yaml:"hold_down"`
	// ProbeEvery is how often signals from outside are looked at. Defaults to
	// 10s.
	ProbeEvery Duration `yaml:"probe_every"`
	// Watch lists the own signals that are watched: broker, consumers, depth,
	// confirm_latency, store, dlq_inflow; or none alone. Defaults to all.
	Watch []string `yaml:"watch"`
	// ClearFor is how long a signal must have been clear before redrive resumes by
	// itself. Defaults to 5m.
	ClearFor Duration `yaml:"clear_for"`
	// BackOff is how long a pause lasts at least before that: for the first, second
	// and further such resume within an hour. Defaults to 1m, 5m, 15m.
	BackOff []Duration `yaml:"back_off"`
}

// maxBackOff is more than there are resumes by the system within an hour.
const maxBackOff = 8

// Patience is how long the system waits before it resumes.
func (b *Brake) Patience() redrive.Patience {
	p := redrive.Patience{ClearFor: time.Duration(b.ClearFor), HoldDown: time.Duration(b.HoldDown)}
	for _, d := range b.BackOff {
		p.BackOff = append(p.BackOff, time.Duration(d))
	}
	return p
}

// OwnSignals are the signals that Watch can name.
var OwnSignals = []string{"broker", "confirm_latency", "consumers", "depth", "dlq_inflow", "store"}

// Watches reports whether an own signal is watched.
func (b *Brake) Watches(signal string) bool {
	return len(b.Watch) == 0 || slices.Contains(b.Watch, signal)
}

func (c *Config) validateBrake() error {
	if _, err := redrive.ParseThresholds(c.Thresholds.List()); err != nil {
		return fmt.Errorf("thresholds: %w", err)
	}
	if err := c.Brake.validate(); err != nil {
		return fmt.Errorf("brake: %w", err)
	}
	return nil
}

func (b *Brake) validate() error {
	for _, w := range b.Watch {
		if none := w == "none" && len(b.Watch) == 1; !none && !slices.Contains(OwnSignals, w) {
			return fmt.Errorf("watch %q: want some of %s; or none alone", w, strings.Join(OwnSignals, ", "))
		}
	}
	if len(b.BackOff) > maxBackOff {
		return fmt.Errorf("back_off lists %d times: want at most %d", len(b.BackOff), maxBackOff)
	}
	for i, d := range b.BackOff {
		if d <= 0 || i > 0 && d < b.BackOff[i-1] {
			return fmt.Errorf("back_off[%d] is %s: want times above 0, none shorter than the one before", i, time.Duration(d))
		}
	}
	return nil
}
