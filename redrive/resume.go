package redrive

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Reasons of pauses that no signal gives.
const (
	// PauseOperator is the reason of a pause that a person ordered.
	PauseOperator   = "operator"
	pauseKillSwitch = "kill_switch"
	pauseCrashLoop  = "crash_loop"
	pauseBlocked    = "blocked"
)

// HoldDown is how long a pause by a signal lasts at least.
const HoldDown = 60 * time.Second

// Resumption is what somebody says who resumes.
type Resumption struct {
	By    event.Actor
	Why   string
	Clear []string // reasons; empty: all
	// Digest is the manifest that was looked at again. After a pause that says
	// that messages went wrong it is required.
	Digest string
	// HoldDown is how long a pause by a signal lasts at least. 0 takes the
	// default; a negative one is none.
	HoldDown time.Duration
}

// LookAgain reports whether messages went wrong, so that a resume has to name the
// manifest.
func (p *Pause) LookAgain() bool { return slices.Contains(grave, p.Reason) }

// grave are the reasons that say that messages went wrong: whoever resumes after
// one has to look at the manifest again, and is not the planner.
var grave = []string{SignalUnroutable, SignalAmbiguous, SignalRequarantined, SignalRejected, SignalMissing, SignalStageBad}

// Resume clears reasons of a pause: the person who resumes has looked at each of
// them. The generation runs again when none is left, unless the last checks said
// no.
func Resume(v ledger.View, no event.GenerationNo, r Resumption) ([]event.Event, error) {
	events, err := MayResume(v, no, r)
	if err != nil {
		return nil, err
	}
	g, err := Get(v, no)
	if err != nil {
		return nil, err
	}
	if b, ok := events[0].Body.(*event.GenerationResumed); ok && len(b.Cleared) < len(g.Pauses) {
		return events, nil
	}
	return events, g.barred()
}

// MayResume is Resume before its checks are made: what the last ones said does
// not count.
func MayResume(v ledger.View, no event.GenerationNo, r Resumption) ([]event.Event, error) {
	if err := needWhy(r.Why); err != nil {
		return nil, err
	}
	g, err := act(v, no, event.KindGenerationResumed)
	if err != nil {
		return nil, err
	}
	if since := max(g.Approval.At, g.Started.At); v.Now.Sub(time.UnixMilli(int64(since))) > ApprovalAge {
		return nil, fmt.Errorf("generation %d was started more than 24 h ago; have the same manifest approved again before it resumes: redrive generation approve %d: %w", no, no, ErrState)
	}
	if err := g.unblocked(v); err != nil {
		return nil, err
	}
	b := &event.GenerationResumed{Why: r.Why}
	for _, p := range g.Pauses {
		if len(r.Clear) == 0 || slices.Contains(r.Clear, p.Reason) {
			if err := g.mayClear(v, &p, &r); err != nil {
				return nil, err
			}
			b.Cleared = append(b.Cleared, p.Reason)
		}
	}
	for _, c := range r.Clear {
		if !g.pausedFor(c) {
			return nil, fmt.Errorf("generation %d does not stand still for %q; its reasons are %s: %w", no, clip(c), g.reasonText(), ErrArgument)
		}
	}
	slices.Sort(b.Cleared)
	return one(no, b), nil
}

func (g *Generation) reasonText() string {
	var list []string
	for _, p := range g.Pauses {
		list = append(list, p.Reason)
	}
	return strings.Join(list, ", ")
}

// mayClear refuses to clear a reason too early, or without a second look by
// somebody else.
func (g *Generation) mayClear(v ledger.View, p *Pause, r *Resumption) error {
	hold := r.HoldDown
	if hold == 0 {
		hold = HoldDown
	}
	if end := time.UnixMilli(int64(p.At)).Add(hold); bySignal(p.Reason) && v.Now.Before(end) {
		return fmt.Errorf("generation %d stands still for %s, by itself, since %s; it can resume from %s on: %w", g.No, p.Reason,
			time.UnixMilli(int64(p.At)).UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339), ErrState)
	}
	if !p.LookAgain() {
		return nil
	}
	if r.Digest != g.Manifest {
		return fmt.Errorf("generation %d stands still for %s: look at what went wrong and at the manifest again, and name it: redrive generation resume %d --digest %s --why …: %w",
			g.No, p.Reason, g.No, g.Manifest, ErrState)
	}
	m, err := GetManifest(v, g.Manifest)
	if err != nil {
		return err
	}
	if r.By.Subject == g.Planner.Subject && g.Members > m.SelfApprove {
		return fmt.Errorf("%s planned generation %d, which stands still for %s and has %d members, more than the %d that a planner may resume after that; another operating-system user has to: %w",
			r.By.Subject, g.No, p.Reason, g.Members, m.SelfApprove, ErrState)
	}
	return nil
}

// bySignal reports whether a pause was the brake's, and not a person's or a
// state of the process.
func bySignal(reason string) bool {
	switch reason {
	case PauseOperator, pauseKillSwitch, pauseCrashLoop, pauseBlocked, "no_exchange", "no_permission", "unreadable":
		return false
	}
	return true
}

const (
	// autoResumes is how often the system resumes a generation in an hour.
	autoResumes = 3
	// defaultClearFor is how long a signal must have been clear before that.
	defaultClearFor = 5 * time.Minute
)

// Patience is how long the system waits before it resumes. Zero fields take
// their defaults. It is how patient the process is, and no part of a plan: each
// resume stands in the ledger with its moment.
type Patience struct {
	// ClearFor is how long a signal must have been clear. Defaults to 5 minutes.
	ClearFor time.Duration
	// BackOff is how long a pause lasts at least, by how often the system resumed
	// within the last hour; the last one counts for all further ones. Defaults to
	// 1, 5 and 15 minutes.
	BackOff []time.Duration
	// HoldDown is as in Resumption, for pauses by signals.
	HoldDown time.Duration
}

func (p Patience) withDefaults() Patience {
	if p.ClearFor == 0 {
		p.ClearFor = defaultClearFor
	}
	if len(p.BackOff) == 0 {
		p.BackOff = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}
	}
	if p.HoldDown == 0 {
		p.HoldDown = HoldDown
	}
	return p
}

// Clear is ClearFor, or its default.
func (p Patience) Clear() time.Duration { return p.withDefaults().ClearFor }

// lasts is how long a pause for a reason lasts at least before its n-th end by
// the system within an hour.
func (p Patience) lasts(reason string, n int) time.Duration {
	d := p.BackOff[min(n, len(p.BackOff)-1)]
	if bySignal(reason) {
		d = max(d, p.HoldDown)
	}
	return d
}

// MayAutoResume reports whether the system may ever clear a reason: those of the
// surroundings, never those of messages that went wrong. Probes lists the
// signals of probes.
func MayAutoResume(reason string, probes []string) bool {
	return reason == pauseBlocked || slices.Contains(probes, reason) && !reserved(reason)
}

// reserved reports whether a reason has a meaning of its own, so that no probe
// may have it as its name: what the probe sees would end what something else
// stopped.
func reserved(reason string) bool {
	return !bySignal(reason) || slices.Contains(grave, reason) || reason == SignalNacked || reason == SignalVersion || reason == PauseKeyBlocked
}

// AwaitsAutoResume reports whether the system can still resume a generation:
// each of its reasons may clear by itself, and it did not do so too often.
func (g *Generation) AwaitsAutoResume(now time.Time, probes []string) bool {
	for _, p := range g.Pauses {
		if !MayAutoResume(p.Reason, probes) {
			return false
		}
	}
	return len(g.Pauses) > 0 && len(recent(g.Auto, uint64(now.UnixMilli()))) < autoResumes
}

// AutoResume clears the reasons of a pause that are gone. ClearSince says since when
// each probe sees nothing bad; a broker that was blocked is tried after the
// back-off. A resume by the system looks at nothing for a person, and begins
// with one message at a time. Against the word of the last checks it does
// nothing: see MayAutoResumeNow.
func AutoResume(v ledger.View, no event.GenerationNo, probes []string, clearSince map[string]time.Time, patience Patience) ([]event.Event, error) {
	events, err := MayAutoResumeNow(v, no, probes, clearSince, patience)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	g, err := Get(v, no)
	if err != nil || g.barred() != nil {
		return nil, err
	}
	return events, nil
}

// MayAutoResumeNow is AutoResume before its checks are made: what the last ones
// said does not count.
func MayAutoResumeNow(v ledger.View, no event.GenerationNo, probes []string, clearSince map[string]time.Time, patience Patience) ([]event.Event, error) {
	patience = patience.withDefaults()
	g, err := Get(v, no)
	if err != nil || g.State != event.Paused || !g.AwaitsAutoResume(v.Now, probes) {
		return nil, err
	}
	if since := max(g.Approval.At, g.Started.At); v.Now.Sub(time.UnixMilli(int64(since))) > ApprovalAge {
		return nil, nil // it needs a new approval, and so a person
	}
	n := len(recent(g.Auto, uint64(v.Now.UnixMilli())))
	b := &event.GenerationResumed{Why: fmt.Sprintf("clear again; resumed by the system, %d of %d within an hour", n+1, autoResumes)}
	for _, p := range g.Pauses {
		at := time.UnixMilli(int64(p.At))
		if v.Now.Before(at.Add(patience.lasts(p.Reason, n))) {
			return nil, nil
		}
		since, ok := clearSince[p.Reason]
		if p.Reason == pauseBlocked {
			since, ok = at, true
		}
		if !ok || since.IsZero() || v.Now.Sub(since) < patience.ClearFor {
			return nil, nil
		}
		b.Cleared = append(b.Cleared, p.Reason)
	}
	slices.Sort(b.Cleared)
	return one(no, b), nil
}
