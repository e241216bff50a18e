package verify

import "github.com/redrivehq/redrive/ledger/event"

// repair is what the records say about one candidate of an envelope.
type repair struct {
	commitment string
	author     string
	command    bool // it has an identity of its own
	approved   bool
	withdrawn  bool
}

// repair follows the candidates of envelopes: they are numbered, one that was
// withdrawn never goes out, and a new command only by the word of somebody who
// did not make it.
func (e *envelopes) repair(r *event.Record) error {
	env := r.Subj.Env
	var no uint64
	switch b := r.Body.(type) {
	case *event.EnvelopeRepaired:
		return e.repaired(r, b)
	case *event.EnvelopeRepairChosen:
		if no = b.Candidate; no == 0 {
			return e.mark(event.RangesOf(env), 0, envPurged, "purged before")
		}
	case *event.EnvelopeRepairWithdrawn:
		no = b.Candidate
	case *event.EnvelopeRepairApproved:
		no = b.Candidate
	default:
		return nil
	}
	if err := e.mark(event.RangesOf(env), 0, envPurged, "purged before"); err != nil {
		return err
	}
	if no == 0 || no > uint64(len(e.repairs[env])) {
		return broken(LawEnvelope, "envelope %d has %d repairs, not a repair %d", env, len(e.repairs[env]), no)
	}
	c := &e.repairs[env][no-1]
	if c.withdrawn {
		return broken(LawEnvelope, "repair %d of envelope %d was withdrawn before", no, env)
	}
	switch b := r.Body.(type) {
	case *event.EnvelopeRepairWithdrawn:
		c.withdrawn = true
	case *event.EnvelopeRepairChosen:
		if c.command && !c.approved {
			return broken(LawEnvelope, "repair %d of envelope %d is a new command that nobody approved", no, env)
		}
	case *event.EnvelopeRepairApproved:
		if !c.command || c.approved || c.author == r.Actor.Subject || c.commitment != b.Commitment {
			return broken(LawEnvelope, "repair %d of envelope %d needs no approval, has one, or this is none", no, env)
		}
		c.approved = true
	}
	return nil
}

func (e *envelopes) repaired(r *event.Record, b *event.EnvelopeRepaired) error {
	env := r.Subj.Env
	if err := e.mark(event.RangesOf(env), 0, envPurged, "purged before"); err != nil {
		return err
	}
	if n := uint64(len(e.repairs[env])); b.Candidate != n+1 {
		return broken(LawEnvelope, "repair %d of envelope %d, which has %d", b.Candidate, env, n)
	}
	if _, err := event.ParseDigest(b.Commitment); err != nil {
		return broken(LawEnvelope, "repair %d of envelope %d: its commitment is none", b.Candidate, env)
	}
	if e.repairs == nil {
		e.repairs = map[event.EnvelopeNo][]repair{}
	}
	e.repairs[env] = append(e.repairs[env], repair{commitment: b.Commitment, author: r.Actor.Subject, command: b.NewCommand != 0})
	return nil
}
