package redrive

import (
	"fmt"
	"strings"
	"time"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// ApprovalRules are what an approval has to fulfil.
type ApprovalRules struct {
	// TTL is how long an approval may wait for its start. Defaults to 24 h.
	TTL time.Duration
}

// ApprovalAge is how long after the start, or after a renewed approval, a
// generation may resume.
const ApprovalAge = 24 * time.Hour

// maxPause is how long a generation may stand still before it expires.
const maxPause = 72 * time.Hour

// act begins every decision about one generation.
func act(v ledger.View, no event.GenerationNo, kind event.Kind) (*Generation, error) {
	g, err := Get(v, no)
	if err != nil {
		return nil, err
	}
	if _, err := next(g.State, kind); err != nil {
		return nil, fmt.Errorf("generation %d is %s%s%s: %w", no, g.State, g.since(), g.instead(kind), ErrState)
	}
	return g, nil
}

// instead names the act that fits the state better than the one that kind
// stands for, "" when there is none.
func (g *Generation) instead(kind event.Kind) string {
	switch {
	case kind == event.KindGenerationStarted && (g.State == event.Running || g.State == event.Paused):
		return fmt.Sprintf("; to release on: redrive generation resume %d --why REASON", g.No)
	case kind == event.KindGenerationStarted && g.State == event.Planned:
		return fmt.Sprintf("; it has to be approved first: redrive generation approve %d", g.No)
	case kind == event.KindGenerationClosed && (g.State == event.Running || g.State == event.Paused):
		return fmt.Sprintf("; it can be closed when it has ended, or after: redrive generation abort %d --why REASON", g.No)
	case kind == event.KindGenerationAborted && (g.State == event.Planned || g.State == event.Approved):
		return fmt.Sprintf("; a plan that has not started is refused with: redrive generation reject %d --why REASON", g.No)
	}
	return ""
}

// since tells who brought a generation into its state, and when.
func (g *Generation) since() string {
	at := func(who event.Actor, ms uint64) string {
		return fmt.Sprintf(", by %s at %s", who.Subject, time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339))
	}
	switch g.State {
	case event.Approved:
		if g.Approval != nil {
			return at(g.Approval.By, g.Approval.At)
		}
	case event.Running, event.Settling:
		if g.Started != nil {
			return ", started" + at(g.Started.By, g.Started.At)
		}
	case event.Paused:
		if len(g.Pauses) > 0 {
			return " (" + g.Pauses[0].Reason + ")" + at(g.Pauses[0].By, g.Pauses[0].At)
		}
	case event.Closed, event.Rejected, event.Expired, event.Aborted:
		if g.Ended != nil {
			return at(g.Ended.By, g.Ended.At)
		}
	}
	return ""
}

func one(no event.GenerationNo, b event.Body) []event.Event {
	return []event.Event{{Subj: event.Subject{Gen: no}, Body: b}}
}

func needWhy(why string) error {
	if why == "" || len(why) > maxWhy {
		return fmt.Errorf("a reason of 1 to %d bytes is required, it goes into the ledger: say it with --why: %w", maxWhy, ErrArgument)
	}
	return nil
}

// Approve lets a generation start. The digest must be the one that the
// approver was shown; the planner may approve only small cohorts.
func Approve(v ledger.View, no event.GenerationNo, digest string, by event.Actor, why string, rules ApprovalRules) ([]event.Event, error) {
	g, err := act(v, no, event.KindGenerationApproved)
	if err != nil {
		return nil, err
	}
	if digest != g.Manifest {
		return nil, fmt.Errorf("generation %d has manifest %s, not %s: look at it again with: redrive generation show %d: %w", no, g.Manifest, clip(digest), no, ErrState)
	}
	m, err := GetManifest(v, g.Manifest)
	if err != nil {
		return nil, err
	}
	if err := selfApproval(g, m, by); err != nil {
		return nil, err
	}
	if m.Unstaged != 0 && !strings.Contains(why, wordUnstaged) {
		return nil, fmt.Errorf("generation %d goes out in one stage: a fix that does not work is then found by up to %d messages instead of one; who approves that says so with the word %s in --why: %w",
			no, g.Limits.Exposure, wordUnstaged, ErrState)
	}
	ttl := rules.TTL
	if ttl == 0 {
		ttl = 24 * time.Hour
	}
	return one(no, &event.GenerationApproved{Manifest: digest, Why: why, Expires: uint64(v.Now.Add(ttl).UnixMilli())}), nil
}

// wordUnstaged has to be in the reason of an approval for a release without
// stages.
const wordUnstaged = "no-stages"

// Reject ends a plan.
func Reject(v ledger.View, no event.GenerationNo, why string) ([]event.Event, error) {
	if err := needWhy(why); err != nil {
		return nil, err
	}
	_, err := act(v, no, event.KindGenerationRejected)
	return one(no, &event.GenerationRejected{Why: why}), err
}

// Start consumes the approval, unless the last checks said no.
func Start(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
	events, err := MayStart(v, no)
	if err != nil {
		return nil, err
	}
	g, err := Get(v, no)
	if err != nil {
		return nil, err
	}
	return events, g.barred()
}

// MayStart is Start before its checks are made: what the last ones said does not
// count.
func MayStart(v ledger.View, no event.GenerationNo) ([]event.Event, error) {
	g, err := act(v, no, event.KindGenerationStarted)
	if err != nil {
		return nil, err
	}
	if uint64(v.Now.UnixMilli()) >= g.Approval.Expires {
		return nil, fmt.Errorf("the approval of generation %d expired at %s; plan it again: %w", no,
			time.UnixMilli(int64(g.Approval.Expires)).UTC().Format(time.RFC3339), ErrState)
	}
	return one(no, &event.GenerationStarted{Manifest: g.Manifest}), nil
}

// PauseBy adds a reason to stand still. Pausing for a reason that is already
// there is accepted and changes nothing: a stop is never refused for being
// late.
func PauseBy(v ledger.View, no event.GenerationNo, reason, why string) ([]event.Event, error) {
	g, err := act(v, no, event.KindGenerationPaused)
	if err != nil {
		return nil, err
	}
	for _, p := range g.Pauses {
		if p.Reason == reason {
			return nil, nil
		}
	}
	return one(no, &event.GenerationPaused{Reason: reason, Why: cut(why, maxWhy)}), nil
}

// maxWhy is how much of a person's reason is kept in the ledger, in bytes.
const maxWhy = 1024

// cut makes text fit for a record, which escapes control characters by six
// bytes each: a stop is not refused for its wording.
func cut(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}

// Abort stops a generation for good: what waits is free at once.
func Abort(v ledger.View, no event.GenerationNo, why string) ([]event.Event, error) {
	if err := needWhy(why); err != nil {
		return nil, err
	}
	g, err := act(v, no, event.KindGenerationAborted)
	if err != nil {
		return nil, err
	}
	return one(no, &event.GenerationAborted{Freed: g.Counts[event.Waiting], Why: why}), nil
}

// Limit changes limits. Tightening needs nobody; loosening needs the word of
// an approver, which approved says.
func Limit(v ledger.View, no event.GenerationNo, l event.Limits, why string, approved bool) ([]event.Event, error) {
	if err := CheckLimits(l); err != nil {
		return nil, err
	}
	g, err := act(v, no, event.KindGenerationLimited)
	if err != nil {
		return nil, err
	}
	looser := l.Burst > g.Limits.Burst || l.Exposure > g.Limits.Exposure || l.RateMilli > g.Limits.RateMilli || l.Window > g.Limits.Window
	if looser && !approved {
		return nil, fmt.Errorf("loosening a limit of generation %d needs an approver: somebody who did not plan it has to add --approve: %w", no, ErrState)
	}
	return one(no, &event.GenerationLimited{Limits: l, Why: why}), nil
}

// Statement names the numbers that a close with open questions must state.
type Statement struct{ Ambiguous, Missing, Withheld uint64 }

// Close ends a generation that is settling. With ambiguous, missing or
// withheld members the statement must name exactly their numbers.
func Close(v ledger.View, no event.GenerationNo, s Statement, why string) ([]event.Event, error) {
	g, err := act(v, no, event.KindGenerationClosed)
	if err == nil {
		err = g.awaits(g.Counts[event.Pending])
	}
	if err != nil {
		return nil, err
	}
	is := g.statement()
	if s != is {
		return nil, fmt.Errorf("generation %d has %d ambiguous, %d missing and %d withheld members; a close has to state them: --accept ambiguous=%d,missing=%d,withheld=%d: %w",
			no, is.Ambiguous, is.Missing, is.Withheld, is.Ambiguous, is.Missing, is.Withheld, ErrState)
	}
	if is != (Statement{}) || g.Counts[event.Admitted] > 0 {
		if err := needWhy(why); err != nil {
			return nil, err
		}
	}
	return one(no, &event.GenerationClosed{Ambiguous: is.Ambiguous, Missing: is.Missing, Withheld: is.Withheld, Why: why}), nil
}

// awaits refuses to end a generation of which so many outcomes are pending.
func (g *Generation) awaits(pending uint64) error {
	if pending == 0 {
		return nil
	}
	return fmt.Errorf("generation %d still waits for %d outcomes; they are due within %s: %w", g.No, pending, time.Duration(g.Deadline)*time.Millisecond, ErrState)
}

func (g *Generation) statement() Statement {
	return Statement{
		Ambiguous: g.Counts[event.AmbiguousPublish] + g.Counts[event.AmbiguousEffect],
		Missing:   g.Counts[event.Missing],
		Withheld:  g.Counts[event.Withheld] + g.Withheld,
	}
}

// Rule decides an ambiguous try by a person's word.
func Rule(v ledger.View, id event.IntentID, ruling event.Ruling, why string) ([]event.Event, error) {
	if err := needWhy(why); err != nil {
		return nil, err
	}
	g, err := act(v, id.Gen, event.KindMemberRuled)
	if err != nil {
		return nil, err
	}
	if uint64(id.Pos) >= g.Members {
		return nil, fmt.Errorf("generation %d has no position %d: %w", id.Gen, id.Pos, ErrNoGeneration)
	}
	m := GetMember(v, id.Gen, id.Pos)
	if id.Try == 0 || id.Try > event.MaxTries || m.Ambiguous&(1<<(id.Try-1)) == 0 {
		return nil, fmt.Errorf("intent %s is not ambiguous, the member is %s: %w", id, m.Disposition(), ErrState)
	}
	return one(id.Gen, &event.MemberRuled{Pos: event.RangesOf(id.Pos), Try: id.Try, Ruling: ruling, Why: why}), nil
}

// AmbiguousIntents lists the tries of a generation that wait for a ruling, at
// most limit of them.
func AmbiguousIntents(r ledger.Reader, g *Generation, limit int) []event.IntentID {
	var out []event.IntentID
	if g.Counts[event.AmbiguousPublish] == 0 {
		return nil
	}
	for pos := event.Position(0); pos < g.Touched() && len(out) < limit; pos++ {
		m := GetMember(r, g.No, pos)
		if m.Disposition() != event.AmbiguousPublish {
			continue
		}
		for t := event.Try(1); t <= m.Tries; t++ {
			if m.Ambiguous&(1<<(t-1)) != 0 {
				out = append(out, event.IntentID{Gen: g.No, Pos: pos, Try: t})
			}
		}
	}
	return out
}

// maxRulings bounds what one bulk ruling decides; the rest takes another one.
const maxRulings = 10_000

// RuleAll rules on all ambiguous tries of a generation alike.
func RuleAll(v ledger.View, no event.GenerationNo, ruling event.Ruling, why string) ([]event.Event, error) {
	if err := needWhy(why); err != nil {
		return nil, err
	}
	g, err := act(v, no, event.KindMemberRuled)
	if err != nil {
		return nil, err
	}
	byTry := map[event.Try][]event.Position{}
	for _, id := range AmbiguousIntents(v, g, maxRulings) {
		byTry[id.Try] = append(byTry[id.Try], id.Pos)
	}
	if len(byTry) == 0 {
		return nil, fmt.Errorf("generation %d has no ambiguous member: %w", no, ErrState)
	}
	var out []event.Event
	for _, try := range sortedKeys(byTry) {
		out = append(out, positions(no, byTry[try], func(part event.Ranges) event.Body {
			return &event.MemberRuled{Pos: part, Try: try, Ruling: ruling, Why: why}
		})...)
	}
	return out, nil
}
