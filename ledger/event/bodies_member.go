package event

// MemberIntended is the durable decision to publish members: written before
// the first byte goes out.
type MemberIntended struct {
	Pos Ranges
	Try Try
}

// Kind implements Body.
func (*MemberIntended) Kind() Kind { return KindMemberIntended }

func (b *MemberIntended) visit(c *Coder) {
	Set(c, "pos", &b.Pos)
	Num(c, "try", &b.Try)
}

// MemberResolved says how tries ended.
type MemberResolved struct {
	Again      uint8 // 1: not sent and free to be sent later, so back to waiting
	Pos        Ranges
	Reason     string // stable code
	Resolution Resolution
	Try        Try
}

// Kind implements Body.
func (*MemberResolved) Kind() Kind { return KindMemberResolved }

func (b *MemberResolved) visit(c *Coder) {
	Num(c, "again", &b.Again)
	Set(c, "pos", &b.Pos)
	Text(c, "reason", &b.Reason)
	Text(c, "resolution", &b.Resolution)
	Num(c, "try", &b.Try)
}

// MemberConfirmedLate says that the confirm of an ambiguous try came after all.
type MemberConfirmedLate struct {
	Pos Ranges
	Try Try
}

// Kind implements Body.
func (*MemberConfirmedLate) Kind() Kind { return KindMemberConfirmedLate }

func (b *MemberConfirmedLate) visit(c *Coder) {
	Set(c, "pos", &b.Pos)
	Num(c, "try", &b.Try)
}

// MemberRuled is a person's decision about ambiguous tries.
type MemberRuled struct {
	Pos    Ranges
	Ruling Ruling
	Try    Try
	Why    string
}

// Kind implements Body.
func (*MemberRuled) Kind() Kind { return KindMemberRuled }

func (b *MemberRuled) visit(c *Coder) {
	Set(c, "pos", &b.Pos)
	Text(c, "ruling", &b.Ruling)
	Num(c, "try", &b.Try)
	Text(c, "why", &b.Why)
}

// MemberWithheld says that members may not move after all, found at the moment
// of release.
type MemberWithheld struct {
	Pos    Ranges
	Reason string // stable code: "held", "purged", "not_quarantined"
}

// Kind implements Body.
func (*MemberWithheld) Kind() Kind { return KindMemberWithheld }

func (b *MemberWithheld) visit(c *Coder) {
	Set(c, "pos", &b.Pos)
	Text(c, "reason", &b.Reason)
}

// MemberMissed says that the outcome deadline of members has passed.
type MemberMissed struct{ Pos Ranges }

// Kind implements Body.
func (*MemberMissed) Kind() Kind { return KindMemberMissed }

func (b *MemberMissed) visit(c *Coder) { Set(c, "pos", &b.Pos) }

// OutcomeReported keeps what consumers reported about one try of members.
type OutcomeReported struct {
	Details string // digest of the list of commitments to what the consumers said beside it
	Foreign uint64 // of them, from another consumer version than the manifest expects
	Outcome Outcome
	Pos     Ranges
	Try     Try
	Via     string // "broker", "command" or "import"
}

// Kind implements Body.
func (*OutcomeReported) Kind() Kind { return KindOutcomeReported }

func (b *OutcomeReported) visit(c *Coder) {
	Text(c, "details", &b.Details)
	Num(c, "foreign", &b.Foreign)
	Text(c, "outcome", &b.Outcome)
	Set(c, "pos", &b.Pos)
	Num(c, "try", &b.Try)
	Text(c, "via", &b.Via)
}

// OutcomeUnmatched counts reports that named no intent of ours or whose stamp
// did not hold. They change no tally.
type OutcomeUnmatched struct {
	Count  uint64
	Reason string // "malformed", "unknown", "forged"
}

// Kind implements Body.
func (*OutcomeUnmatched) Kind() Kind { return KindOutcomeUnmatched }

func (b *OutcomeUnmatched) visit(c *Coder) {
	Num(c, "count", &b.Count)
	Text(c, "reason", &b.Reason)
}
