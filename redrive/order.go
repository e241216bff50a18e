package redrive

import (
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Reasons of the members that a failure before them in their key keeps from
// going, and of the pause that does so for all.
const (
	ReasonKeyParked  = "key_parked"
	ReasonKeyRebuild = "key_rebuild"
	PauseKeyBlocked  = "key_blocked"
)

// ordered reports whether the messages of a key go one after the other.
func (g *Generation) ordered() bool { return g.Keys != "" }

// Order is OrderPerKey or OrderNone.
func (g *Generation) Order() string {
	if g.ordered() {
		return OrderPerKey
	}
	return OrderNone
}

// Touched is the first position above all that were ever decided.
func (g *Generation) Touched() event.Position { return max(g.Next, g.Reach) }

// fate is what the later messages of a key wait for.
type fate uint8

const (
	fateOpen   fate = iota // nothing terminal is known yet
	fatePassed             // the consumer is done with it
	fateFailed             // it is not, and will not be by itself
)

// fate of a member. A failure is what came back, what did not go, what is in
// doubt and what is missing; a rejection is an answer of the business.
func (g *Generation) fate(m *Member) fate {
	switch m.Disposition() {
	case event.Succeeded, event.RejectedByConsumer, event.DeduplicatedConsumer:
		return fatePassed
	case event.Requarantined, event.Missing, event.AmbiguousEffect, event.Withheld:
		return fateFailed
	case event.AmbiguousPublish, event.Undelivered:
		if g.retryable(m) {
			return fateOpen
		}
		return fateFailed
	}
	return fateOpen
}

// lets reports whether the next message of the key may go after a member.
func (g *Generation) lets(f fate) bool {
	return f == fatePassed || f == fateFailed && g.OnFailure == OnFailureContinue
}

// bucketReady lists, under generation and position, waiting members whose
// predecessor lets them go, so that looking for them never means looking at
// those that are stuck. The first messages of the keys are not in it: those go
// by position.
var bucketReady = ledger.Bucket{Name: "generation.ready"}

// link keeps bucketReady in step with one member that changed.
func (a *applying) link(pos event.Position, was, is *Member) {
	g := a.g
	l, err := a.keys.at(a.w, g, pos)
	if err != nil {
		a.fail(err)
		return
	}
	waited, waits := was.Disposition() == event.Waiting, is.Disposition() == event.Waiting
	if l.Prev != NoPosition && waited != waits {
		before := a.members.peek(l.Prev)
		a.ready(pos, waits && g.lets(g.fate(&before)))
	}
	if let, lets := g.lets(g.fate(was)), g.lets(g.fate(is)); l.Next != NoPosition && let != lets {
		next := a.members.peek(l.Next)
		a.ready(l.Next, lets && next.Disposition() == event.Waiting)
	}
}

func (a *applying) ready(pos event.Position, is bool) {
	k := ledger.Key2(uint64(a.g.No), uint64(pos))
	if is {
		a.fail(a.w.Put(bucketReady, k, []byte{}))
		return
	}
	a.fail(a.w.Delete(bucketReady, k))
}

func (a *applying) fail(err error) {
	if err != nil && a.err == nil {
		a.err = err
	}
}

// takeOrdered picks heads by position and later messages from those that are
// ready.
func (t *taking) takeOrdered(n int) error {
	g := t.g
	end := min(g.stageEnd(), g.Heads)
	for p := g.Next; uint64(p) < end && len(t.picks) < n && t.looked < maxLook; p++ {
		if err := t.consider(p); err != nil {
			return err
		}
	}
	var err error
	t.v.Scan(bucketReady, ledger.Key2(uint64(g.No), 0), func(k, _ []byte) bool {
		pos := ledger.Unkey(k[8:])
		if ledger.Unkey(k) != uint64(g.No) || pos >= g.stageEnd() || len(t.picks) >= n || t.looked >= maxLook {
			return false
		}
		err = t.consider(event.Position(pos))
		return err == nil
	})
	return err
}

// undecided reports whether a member of the current stage waits: for its turn,
// or for the one before it in its key.
func (g *Generation) undecided(r ledger.Reader) bool {
	end := g.stageEnd()
	if uint64(g.Next) < min(end, g.Heads) || len(g.Again) > 0 {
		return true
	}
	for pos := g.Heads; pos < end; pos++ {
		if m := GetMember(r, g.No, event.Position(pos)); m.Disposition() == event.Waiting {
			return true
		}
	}
	return false
}

// afterFailure is what follows for the rest of a key when members of it have
// failed by a record.
func (g *Generation) afterFailure(v ledger.View, body event.Body) ([]event.Event, error) {
	if !g.ordered() || g.OnFailure == OnFailureContinue || g.State != event.Running && g.State != event.Paused {
		return nil, nil
	}
	if b, ok := body.(*event.MemberWithheld); ok && (b.Reason == ReasonKeyParked || b.Reason == ReasonKeyRebuild) {
		return nil, nil // what stands behind them was withheld with them
	}
	var stuck []event.Position
	keys := keyList{}
	for p := range about(body).All() {
		more, err := g.stuckBehind(v, &keys, event.Position(p))
		if err != nil {
			return nil, err
		}
		stuck = append(stuck, more...)
	}
	return g.stop(v, stuck)
}

// about is the set of members that a record is about.
func about(b event.Body) event.Ranges {
	switch b := b.(type) {
	case *event.MemberResolved:
		return b.Pos
	case *event.MemberConfirmedLate:
		return b.Pos
	case *event.MemberRuled:
		return b.Pos
	case *event.MemberWithheld:
		return b.Pos
	case *event.MemberMissed:
		return b.Pos
	case *event.MemberReconciled:
		return b.Pos
	case *event.OutcomeReported:
		return b.Pos
	case *event.EnvelopeReturned:
		return event.RangesOf(b.Pos)
	}
	return nil
}

// stuckBehind lists the waiting members behind one that has failed.
func (g *Generation) stuckBehind(r ledger.Reader, keys *keyList, pos event.Position) (stuck []event.Position, err error) {
	if m := GetMember(r, g.No, pos); g.fate(&m) != fateFailed {
		return nil, nil
	}
	for {
		l, err := keys.at(r, g, pos)
		if err != nil || l.Next == NoPosition {
			return stuck, err
		}
		if pos = l.Next; uint64(pos) >= g.Members {
			return nil, fmt.Errorf("generation %d: its key list names position %d: %w", g.No, pos, ledger.ErrIntegrity)
		}
		if m := GetMember(r, g.No, pos); m.Disposition() == event.Waiting {
			stuck = append(stuck, pos)
		}
	}
}

// stop does with stuck members what the manifest, or its last revision, says.
func (g *Generation) stop(v ledger.View, stuck []event.Position) ([]event.Event, error) {
	if len(stuck) == 0 {
		return nil, nil
	}
	switch g.OnFailure {
	case OnFailurePark:
		return positions(g.No, stuck, func(part event.Ranges) event.Body {
			return &event.MemberWithheld{Pos: part, Reason: ReasonKeyParked}
		}), nil
	case OnFailureRebuild:
		return g.rebuild(v, stuck)
	}
	if g.pausedFor(PauseKeyBlocked) {
		return nil, nil
	}
	return one(g.No, &event.GenerationPaused{Reason: PauseKeyBlocked,
		Why: fmt.Sprintf("a message failed, %d later ones of its key wait", len(stuck))}), nil
}

// rebuild hands stuck members to their owners. Those without one stay without.
func (g *Generation) rebuild(v ledger.View, stuck []event.Position) ([]event.Event, error) {
	words := quarantine.Words(v)
	owned := map[string][]event.EnvelopeNo{}
	var c chunks
	for _, pos := range stuck {
		env, err := g.envelope(v, &c, pos)
		if err != nil {
			return nil, err
		}
		cell, _ := quarantine.GetCell(v, env)
		if owner := words[cell.Owner]; owner != "" && cell.Custody != event.Purged {
			owned[owner] = append(owned[owner], env)
		}
	}
	var out []event.Event
	for _, owner := range sortedKeys(owned) {
		for _, part := range event.RangesOf(owned[owner]...).Split(setLimit) {
			out = append(out, event.Event{Subj: event.Subject{Env: event.EnvelopeNo(part[0].First)}, Body: &event.EnvelopeAssigned{
				Envs: part, Owner: owner, Why: fmt.Sprintf("to rebuild: an earlier message of the key failed in generation %d", g.No)}})
		}
	}
	return append(out, positions(g.No, stuck, func(part event.Ranges) event.Body {
		return &event.MemberWithheld{Pos: part, Reason: ReasonKeyRebuild}
	})...), nil
}

// unblocked refuses to go on while a key is blocked: the generation would stand
// still again at once, without a reason that tells.
func (g *Generation) unblocked(r ledger.Reader) error {
	if !g.ordered() || g.OnFailure != OnFailureBlock {
		return nil
	}
	stuck, err := g.blocked(r)
	if err != nil || len(stuck) == 0 {
		return err
	}
	return fmt.Errorf("generation %d is blocked: %d members wait behind a failed message of their key; rule on it when it is in doubt, or give these keys up with: redrive generation limit %d --on-failure park --approve --why REASON, or abort it: %w",
		g.No, len(stuck), g.No, ErrState)
}

// blocked lists the waiting members behind failed ones.
func (g *Generation) blocked(r ledger.Reader) ([]event.Position, error) {
	if !g.ordered() {
		return nil, nil
	}
	keys := keyList{}
	seen := map[event.Position]bool{}
	var out []event.Position
	for pos := range g.Touched() {
		stuck, err := g.stuckBehind(r, &keys, pos)
		if err != nil {
			return nil, err
		}
		for _, p := range stuck {
			if !seen[p] {
				seen[p] = true
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// Gaps tells what is missing before members of one generation, within one read
// transaction. The zero value is ready.
type Gaps struct{ keys keyList }

// Before is what stands in the header of a message before which others of its
// key are missing: "" when none is.
func (t *Gaps) Before(r ledger.Reader, g *Generation, pos event.Position) (string, error) {
	if !g.ordered() {
		return "", nil
	}
	keys := &t.keys
	missing, unknown, ordered := uint64(0), false, false
	for {
		l, err := keys.at(r, g, pos)
		if err != nil {
			return "", err
		}
		ordered = ordered || l.Missing > 0 || l.Prev != NoPosition
		if l.Missing == UnknownGap {
			unknown = true
		} else {
			missing += uint64(l.Missing)
		}
		if pos = l.Prev; pos == NoPosition {
			break
		}
		if m := GetMember(r, g.No, pos); g.fate(&m) == fatePassed {
			break
		}
		missing++
	}
	switch {
	case unknown && missing > 0:
		return fmt.Sprintf("%d+", missing), nil
	case unknown:
		return "unknown", nil
	case missing > 0 && ordered:
		return fmt.Sprint(missing), nil
	}
	return "", nil
}
