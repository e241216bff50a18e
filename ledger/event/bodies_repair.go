package event

// EnvelopeRepaired says that somebody made a candidate that can go out in the
// place of the original of envelope Subj.Env, which stays as it is. Without
// NewCommand it is live from then on.
type EnvelopeRepaired struct {
	Candidate  uint64 // number of the candidate of this envelope, from 1
	Commitment string // HMAC over properties and body under the envelope's secret
	Diff       string // HMAC over the difference from the original, likewise
	NewCommand uint8  // 1: it has an operation identity of its own, and waits for an approver
	Why        string
}

// Kind implements Body.
func (*EnvelopeRepaired) Kind() Kind { return KindEnvelopeRepaired }

func (b *EnvelopeRepaired) visit(c *Coder) {
	Num(c, "candidate", &b.Candidate)
	Text(c, "commitment", &b.Commitment)
	Text(c, "diff", &b.Diff)
	Num(c, "new_command", &b.NewCommand)
	Text(c, "why", &b.Why)
}

// EnvelopeRepairChosen makes a candidate of envelope Subj.Env the live one; 0
// means that the original goes out again.
type EnvelopeRepairChosen struct {
	Candidate uint64
	Why       string
}

// Kind implements Body.
func (*EnvelopeRepairChosen) Kind() Kind { return KindEnvelopeRepairChosen }

func (b *EnvelopeRepairChosen) visit(c *Coder) {
	Num(c, "candidate", &b.Candidate)
	Text(c, "why", &b.Why)
}

// EnvelopeRepairWithdrawn takes a candidate of envelope Subj.Env back for good.
// When it was the live one, the original goes out again.
type EnvelopeRepairWithdrawn struct {
	Candidate uint64
	Why       string
}

// Kind implements Body.
func (*EnvelopeRepairWithdrawn) Kind() Kind { return KindEnvelopeRepairWithdrawn }

func (b *EnvelopeRepairWithdrawn) visit(c *Coder) {
	Num(c, "candidate", &b.Candidate)
	Text(c, "why", &b.Why)
}

// EnvelopeRepairApproved lets a candidate of envelope Subj.Env with a new
// identity become live, by the word of somebody who did not make it.
type EnvelopeRepairApproved struct {
	Candidate  uint64
	Commitment string // of what was looked at
	Why        string
}

// Kind implements Body.
func (*EnvelopeRepairApproved) Kind() Kind { return KindEnvelopeRepairApproved }

func (b *EnvelopeRepairApproved) visit(c *Coder) {
	Num(c, "candidate", &b.Candidate)
	Text(c, "commitment", &b.Commitment)
	Text(c, "why", &b.Why)
}
