package event

// LedgerCreated is the first record of every ledger.
type LedgerCreated struct {
	Key    string // verifier key of the checkpoints, in note form
	Origin string // first line of every checkpoint
}

// Kind implements Body.
func (*LedgerCreated) Kind() Kind { return KindLedgerCreated }

func (b *LedgerCreated) visit(c *Coder) {
	Text(c, "key", &b.Key)
	Text(c, "origin", &b.Origin)
}

// LedgerOpened begins an epoch: a process is about to write.
type LedgerOpened struct {
	Program string // version of redrive
	Unclean uint8  // 1: the process before ended without LedgerClosed
}

// Kind implements Body.
func (*LedgerOpened) Kind() Kind { return KindLedgerOpened }

func (b *LedgerOpened) visit(c *Coder) {
	Text(c, "program", &b.Program)
	Num(c, "unclean", &b.Unclean)
}

// LedgerClosed ends an epoch in order: nothing was in flight or unsettled that
// is not recorded as such.
type LedgerClosed struct{}

// Kind implements Body.
func (*LedgerClosed) Kind() Kind { return KindLedgerClosed }

func (*LedgerClosed) visit(*Coder) {}

// LedgerRecovered follows LedgerOpened when the process before left something
// unfinished: what it had in flight is resolved as ambiguous.
type LedgerRecovered struct{}

// Kind implements Body.
func (*LedgerRecovered) Kind() Kind { return KindLedgerRecovered }

func (*LedgerRecovered) visit(*Coder) {}

// LedgerRekeyed replaces the key that signs checkpoints.
type LedgerRekeyed struct {
	Key string // the new verifier key
	Why string
}

// Kind implements Body.
func (*LedgerRekeyed) Kind() Kind { return KindLedgerRekeyed }

func (b *LedgerRekeyed) visit(c *Coder) {
	Text(c, "key", &b.Key)
	Text(c, "why", &b.Why)
}

// LedgerExported says that records left the store as a bundle.
type LedgerExported struct {
	Scope string // "all", "generation", "time"
	Size  uint64 // records covered
}

// Kind implements Body.
func (*LedgerExported) Kind() Kind { return KindLedgerExported }

func (b *LedgerExported) visit(c *Coder) {
	Text(c, "scope", &b.Scope)
	Num(c, "size", &b.Size)
}

// SourceParked stops the capture of one queue until a person or a later
// attempt unparks it. Other queues go on.
type SourceParked struct {
	Queue  string
	Reason string // stable code
	Why    string // for people: what happened, and what it has cost
}

// Kind implements Body.
func (*SourceParked) Kind() Kind { return KindSourceParked }

func (b *SourceParked) visit(c *Coder) {
	Text(c, "queue", &b.Queue)
	Text(c, "reason", &b.Reason)
	Text(c, "why", &b.Why)
}

// SourceUnparked lets the capture of a queue go on.
type SourceUnparked struct {
	Queue string
	Why   string
}

// Kind implements Body.
func (*SourceUnparked) Kind() Kind { return KindSourceUnparked }

func (b *SourceUnparked) visit(c *Coder) {
	Text(c, "queue", &b.Queue)
	Text(c, "why", &b.Why)
}

// SourceSpent says how often the messages at the head of a queue may have been
// delivered without being settled, as far as is known. It is written before a
// session opens, its own delivery included, so that a process that dies in it
// has left its mark. A recorded settlement of the queue makes it 0 again.
type SourceSpent struct {
	Deliveries uint64
	Queue      string
}

// Kind implements Body.
func (*SourceSpent) Kind() Kind { return KindSourceSpent }

func (b *SourceSpent) visit(c *Coder) {
	Num(c, "deliveries", &b.Deliveries)
	Text(c, "queue", &b.Queue)
}

// SourcePinned ties the ledger to one broker: from here on messages come from it
// and go to it, and no other. The first one is written at the first contact,
// without a reason; each further one is a person's decision and has one.
type SourcePinned struct {
	Broker  string // product
	Cluster string
	VHost   string
	Why     string
}

// Kind implements Body.
func (*SourcePinned) Kind() Kind { return KindSourcePinned }

func (b *SourcePinned) visit(c *Coder) {
	Text(c, "broker", &b.Broker)
	Text(c, "cluster", &b.Cluster)
	Text(c, "vhost", &b.VHost)
	Text(c, "why", &b.Why)
}
