package event

// EnvelopeCaptured says that a batch of messages is durable in the store. The
// envelopes are numbered Subj.Env and up. Each entry of the list, an Object
// named by its digest, commits to one original; see quarantine.CaptureList.
type EnvelopeCaptured struct {
	Bytes  uint64 // of bodies and properties together
	Count  uint64
	List   string // digest of the capture list
	Queue  string // where they were received
	Policy string // version of the policy that classified them, "" for none
	VHost  string
}

// Kind implements Body.
func (*EnvelopeCaptured) Kind() Kind { return KindEnvelopeCaptured }

func (b *EnvelopeCaptured) visit(c *Coder) {
	Num(c, "bytes", &b.Bytes)
	Num(c, "count", &b.Count)
	Text(c, "list", &b.List)
	Text(c, "policy", &b.Policy)
	Text(c, "queue", &b.Queue)
	Text(c, "vhost", &b.VHost)
}

// EnvelopeSettled says that the broker has removed the messages of these
// envelopes from the source queue.
type EnvelopeSettled struct{ Envs Ranges }

// Kind implements Body.
func (*EnvelopeSettled) Kind() Kind { return KindEnvelopeSettled }

func (b *EnvelopeSettled) visit(c *Coder) { Set(c, "envs", &b.Envs) }

// EnvelopeMerged says that redelivered messages were recognised as envelopes
// that the store already has.
type EnvelopeMerged struct {
	Envs Ranges
	Why  string // "not_settled" or "message_id"
}

// Kind implements Body.
func (*EnvelopeMerged) Kind() Kind { return KindEnvelopeMerged }

func (b *EnvelopeMerged) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "why", &b.Why)
}

// EnvelopeReturned says that a released message came back with a valid stamp:
// Subj.Env is the child, Subj.Gen the generation that released its parent.
type EnvelopeReturned struct {
	Again  uint8 // 1: this intent had returned before; no tally changes
	Parent EnvelopeNo
	Pos    Position
	Try    Try
}

// Kind implements Body.
func (*EnvelopeReturned) Kind() Kind { return KindEnvelopeReturned }

func (b *EnvelopeReturned) visit(c *Coder) {
	Num(c, "again", &b.Again)
	Num(c, "parent", &b.Parent)
	Num(c, "pos", &b.Pos)
	Num(c, "try", &b.Try)
}

// EnvelopeAnnotated adds a note that a person or a rule wrote.
type EnvelopeAnnotated struct {
	Envs   Ranges
	Note   string
	Ticket string
}

// Kind implements Body.
func (*EnvelopeAnnotated) Kind() Kind { return KindEnvelopeAnnotated }

func (b *EnvelopeAnnotated) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "note", &b.Note)
	Text(c, "ticket", &b.Ticket)
}

// EnvelopeClassified changes reason and class. Empty fields stay as they are.
type EnvelopeClassified struct {
	Class  string // name of a Class
	Envs   Ranges
	Policy string
	Reason string
	Why    string
}

// Kind implements Body.
func (*EnvelopeClassified) Kind() Kind { return KindEnvelopeClassified }

func (b *EnvelopeClassified) visit(c *Coder) {
	Text(c, "class", &b.Class)
	Set(c, "envs", &b.Envs)
	Text(c, "policy", &b.Policy)
	Text(c, "reason", &b.Reason)
	Text(c, "why", &b.Why)
}

// EnvelopeAssigned names who owns the business resolution.
type EnvelopeAssigned struct {
	Envs  Ranges
	Owner string
	Why   string
}

// Kind implements Body.
func (*EnvelopeAssigned) Kind() Kind { return KindEnvelopeAssigned }

func (b *EnvelopeAssigned) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "owner", &b.Owner)
	Text(c, "why", &b.Why)
}

// EnvelopeHeld forbids release and purge until unheld.
type EnvelopeHeld struct {
	Envs   Ranges
	Ticket string
	Why    string
}

// Kind implements Body.
func (*EnvelopeHeld) Kind() Kind { return KindEnvelopeHeld }

func (b *EnvelopeHeld) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "ticket", &b.Ticket)
	Text(c, "why", &b.Why)
}

// EnvelopeUnheld lifts a hold.
type EnvelopeUnheld struct {
	Envs Ranges
	Why  string
}

// Kind implements Body.
func (*EnvelopeUnheld) Kind() Kind { return KindEnvelopeUnheld }

func (b *EnvelopeUnheld) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "why", &b.Why)
}

// EnvelopeResolved settles envelopes by a person's word.
type EnvelopeResolved struct {
	Envs   Ranges
	Ticket string
	Why    string
}

// Kind implements Body.
func (*EnvelopeResolved) Kind() Kind { return KindEnvelopeResolved }

func (b *EnvelopeResolved) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "ticket", &b.Ticket)
	Text(c, "why", &b.Why)
}

// EnvelopePurged erases envelopes: their secrets are dropped in the same
// transaction. A tombstone stays.
type EnvelopePurged struct {
	Envs   Ranges
	Ticket string
	Why    string
}

// Kind implements Body.
func (*EnvelopePurged) Kind() Kind { return KindEnvelopePurged }

func (b *EnvelopePurged) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "ticket", &b.Ticket)
	Text(c, "why", &b.Why)
}

// EnvelopeOverdue says that envelopes passed their retention deadline while
// still open. Nothing is removed.
type EnvelopeOverdue struct{ Envs Ranges }

// Kind implements Body.
func (*EnvelopeOverdue) Kind() Kind { return KindEnvelopeOverdue }

func (b *EnvelopeOverdue) visit(c *Coder) { Set(c, "envs", &b.Envs) }

// EnvelopeExpired says that the payloads of finished envelopes were removed
// after their configured age.
type EnvelopeExpired struct{ Envs Ranges }

// Kind implements Body.
func (*EnvelopeExpired) Kind() Kind { return KindEnvelopeExpired }

func (b *EnvelopeExpired) visit(c *Coder) { Set(c, "envs", &b.Envs) }

// EnvelopeViewed is written before a payload leaves the store.
type EnvelopeViewed struct {
	Envs Ranges
	What string // "masked" or "raw"
	Why  string
}

// Kind implements Body.
func (*EnvelopeViewed) Kind() Kind { return KindEnvelopeViewed }

func (b *EnvelopeViewed) visit(c *Coder) {
	Set(c, "envs", &b.Envs)
	Text(c, "what", &b.What)
	Text(c, "why", &b.Why)
}
