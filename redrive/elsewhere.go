package redrive

import (
	"slices"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// A plan takes a message whose operation an earlier generation gave up: it was
// ruled not delivered, or business data said that it had no effect. When it turns
// out that it was delivered after all, the message of the same operation in the
// new plan must not go out any more. That is rare, so only such operations are
// noted, and a T1 looks into what is nearly always empty.

// bucketOutAfterAll lists, under operation, the envelopes that were given up and
// were out after all.
var bucketOutAfterAll = ledger.Bucket{Name: "operation.outafterall"}

// outAfterAll reports whether a member that was free for a new plan is not any
// more, other than because it is tried again.
func outAfterAll(before, after *Member) bool {
	switch before.Disposition() {
	case event.Missing, event.AmbiguousEffect, event.Undelivered:
		return custodyOf(before) == event.Quarantined && custodyOf(after) != event.Quarantined && after.Disposition() != event.InFlight
	}
	return false
}

func noteOutAfterAll(w ledger.Writer, env event.EnvelopeNo) error {
	c, ok := quarantine.GetCell(w, env)
	if !ok || c.Operation == 0 {
		return nil
	}
	return w.Put(bucketOutAfterAll, ledger.Key2(c.Operation, uint64(env)), []byte{})
}

// forgetOutAfterAll takes purged envelopes off the list. What they did cannot be
// told any more: the purge has erased of which operation they were, and a rebuild
// never learns it.
func forgetOutAfterAll(w ledger.Writer, envs event.Ranges) error {
	var gone [][]byte
	w.Scan(bucketOutAfterAll, nil, func(k, _ []byte) bool {
		if envs.Contains(ledger.Unkey(k[8:])) {
			gone = append(gone, slices.Clone(k))
		}
		return true
	})
	for _, k := range gone {
		if err := w.Delete(bucketOutAfterAll, k); err != nil {
			return err
		}
	}
	return nil
}

// outElsewhere is why a message must not go out because of what became known
// about another one of its operation since the plan, "" when it may.
func (g *Generation) outElsewhere(r ledger.Reader, op uint64, env event.EnvelopeNo) (reason string, err error) {
	if op == 0 {
		return "", nil
	}
	r.Scan(bucketOutAfterAll, ledger.Key2(op, 0), func(k, _ []byte) bool {
		other := event.EnvelopeNo(ledger.Unkey(k[8:]))
		if ledger.Unkey(k) != op {
			return false
		}
		if c, ok := quarantine.GetCell(r, other); ok && other != env {
			switch c.Custody {
			case event.ResolvedForNow:
				reason = ReasonOperationResolved
			case event.Released:
				reason = ReasonOperationInDoubt
			}
		}
		return reason == ""
	})
	if reason == "" {
		return "", nil
	}
	m, err := GetManifest(r, g.Manifest)
	if err == nil && slices.Contains(m.Forced, reason) {
		return "", nil // somebody said that it goes all the same
	}
	return reason, err
}
