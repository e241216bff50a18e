package event

// Limits bounds a running generation. Zero values are never stored: a plan
// fills in the defaults first.
type Limits struct {
	Burst     uint32 // intents that may go out at once
	Exposure  uint32 // unresolved, pending, admitted and unruled ambiguous together
	RateMilli uint64 // intents per 1000 seconds
	Window    uint32 // unresolved intents
}

// Visit walks the fields, also for the manifests that hold limits.
func (l *Limits) Visit(c *Coder) {
	Num(c, "burst", &l.Burst)
	Num(c, "exposure", &l.Exposure)
	Num(c, "rate", &l.RateMilli)
	Num(c, "window", &l.Window)
}

// GenerationPlanned freezes a cohort. Members are addressed by position;
// selected = Members + Deduplicated + Withheld.
type GenerationPlanned struct {
	Deduplicated uint64
	// Destination names the place whose exposure the generation shares with all
	// others that name it. It is "" where nobody reports outcomes, so that
	// exposure says nothing.
	Destination string
	Keys        string // digest of the index of the key list, "" without an order, an Object
	Limits      Limits
	Manifest    string // digest of the manifest, an Object
	Members     uint64
	OnFailure   string   // what a failure does to the rest of its key, "" without an order
	Stages      []uint64 // number of members up to and including each stage
	Withheld    uint64
}

// Kind implements Body.
func (*GenerationPlanned) Kind() Kind { return KindGenerationPlanned }

func (b *GenerationPlanned) visit(c *Coder) {
	Num(c, "deduplicated", &b.Deduplicated)
	Text(c, "destination", &b.Destination)
	Text(c, "keys", &b.Keys)
	Nested(c, "limits", b.Limits == Limits{}, b.Limits.Visit)
	Text(c, "manifest", &b.Manifest)
	Num(c, "members", &b.Members)
	Text(c, "on_failure", &b.OnFailure)
	Nums(c, "stages", &b.Stages)
	Num(c, "withheld", &b.Withheld)
}

// GenerationApproved lets a generation with exactly this manifest start once
// before Expires.
type GenerationApproved struct {
	Expires  uint64 // ms since 1970 UTC
	Manifest string
	Why      string
}

// Kind implements Body.
func (*GenerationApproved) Kind() Kind { return KindGenerationApproved }

func (b *GenerationApproved) visit(c *Coder) {
	Num(c, "expires", &b.Expires)
	Text(c, "manifest", &b.Manifest)
	Text(c, "why", &b.Why)
}

// GenerationRejected ends a plan by an approver's word.
type GenerationRejected struct{ Why string }

// Kind implements Body.
func (*GenerationRejected) Kind() Kind { return KindGenerationRejected }

func (b *GenerationRejected) visit(c *Coder) { Text(c, "why", &b.Why) }

// GenerationExpired ends a plan or an approval that nobody used in time.
type GenerationExpired struct{ Why string }

// Kind implements Body.
func (*GenerationExpired) Kind() Kind { return KindGenerationExpired }

func (b *GenerationExpired) visit(c *Coder) { Text(c, "why", &b.Why) }

// GenerationStarted consumes the approval.
type GenerationStarted struct{ Manifest string }

// Kind implements Body.
func (*GenerationStarted) Kind() Kind { return KindGenerationStarted }

func (b *GenerationStarted) visit(c *Coder) { Text(c, "manifest", &b.Manifest) }

// GenerationAdvanced opens the next stage, counted from 0.
type GenerationAdvanced struct {
	Stage uint32
	Why   string // "outcomes_known" or "baked"
}

// Kind implements Body.
func (*GenerationAdvanced) Kind() Kind { return KindGenerationAdvanced }

func (b *GenerationAdvanced) visit(c *Coder) {
	Num(c, "stage", &b.Stage)
	Text(c, "why", &b.Why)
}

// GenerationLimited changes the limits of a generation.
type GenerationLimited struct {
	Limits Limits
	Why    string
}

// Kind implements Body.
func (*GenerationLimited) Kind() Kind { return KindGenerationLimited }

func (b *GenerationLimited) visit(c *Coder) {
	Nested(c, "limits", b.Limits == Limits{}, b.Limits.Visit)
	Text(c, "why", &b.Why)
}

// GenerationEvaluated keeps a threshold's result with its inputs, so that the
// action can be judged again later. What the numbers mean is for the formula
// that Rule names:
//
//	count     breach when Bad is at least Limit
//	ratio     breach when Of is at least Floor and Bad of Of is at least Limit per mille
//	wilson    breach when Bad is at least Floor and the lower bound of Wilson's interval
//	          for Bad of Of, with z in hundredths, is above Limit per mille
//	external  breach when at least Limit of the last Of looks were bad, which are Bad
//	silence   Bad looks in a row had no usable answer; Limit of them stop
type GenerationEvaluated struct {
	Action string // "none", "throttle", "pause", "abort" or "hold" (the stage)
	Bad    uint64 // what counts against the signal
	Floor  uint64 // least number below which a ratio says nothing
	Limit  uint64
	Of     uint64 // what was looked at
	Result string // "ok", "breach", "inconclusive", "error" or "stale"
	Rule   string // formula and version; before 2026-12.1 signal and version
	Scope  string // which of several rules of the signal, "" for the only one
	Signal string
	Value  uint64 // last measured value of an external signal, for people
	Z      uint64 // of wilson, in hundredths
}

// Kind implements Body.
func (*GenerationEvaluated) Kind() Kind { return KindGenerationEvaluated }

func (b *GenerationEvaluated) visit(c *Coder) {
	Text(c, "action", &b.Action)
	Num(c, "bad", &b.Bad)
	Num(c, "floor", &b.Floor)
	Num(c, "limit", &b.Limit)
	Num(c, "of", &b.Of)
	Text(c, "result", &b.Result)
	Text(c, "rule", &b.Rule)
	Text(c, "scope", &b.Scope)
	Text(c, "signal", &b.Signal)
	Num(c, "value", &b.Value)
	Num(c, "z", &b.Z)
}

// GenerationPaused adds a reason to the set of reasons for which a generation
// stands still. The first one closes the gate.
type GenerationPaused struct {
	Reason string // stable code: "operator", or the signal that said stop
	Why    string
}

// Kind implements Body.
func (*GenerationPaused) Kind() Kind { return KindGenerationPaused }

func (b *GenerationPaused) visit(c *Coder) {
	Text(c, "reason", &b.Reason)
	Text(c, "why", &b.Why)
}

// GenerationResumed clears reasons. When none is left the generation runs.
type GenerationResumed struct {
	Cleared []string
	Why     string
}

// Kind implements Body.
func (*GenerationResumed) Kind() Kind { return KindGenerationResumed }

func (b *GenerationResumed) visit(c *Coder) {
	Texts(c, "cleared", &b.Cleared)
	Text(c, "why", &b.Why)
}

// GenerationAborted stops a generation for good and frees its waiting members.
type GenerationAborted struct {
	Freed uint64
	Why   string
}

// Kind implements Body.
func (*GenerationAborted) Kind() Kind { return KindGenerationAborted }

func (b *GenerationAborted) visit(c *Coder) {
	Num(c, "freed", &b.Freed)
	Text(c, "why", &b.Why)
}

// GenerationSettling says that every member has been decided and nothing is in
// flight; outcomes are still awaited.
type GenerationSettling struct{}

// Kind implements Body.
func (*GenerationSettling) Kind() Kind { return KindGenerationSettling }

func (*GenerationSettling) visit(*Coder) {}

// GenerationClosed ends a generation with the numbers that its statement names.
type GenerationClosed struct {
	Ambiguous uint64
	Missing   uint64
	Why       string
	Withheld  uint64
}

// Kind implements Body.
func (*GenerationClosed) Kind() Kind { return KindGenerationClosed }

func (b *GenerationClosed) visit(c *Coder) {
	Num(c, "ambiguous", &b.Ambiguous)
	Num(c, "missing", &b.Missing)
	Text(c, "why", &b.Why)
	Num(c, "withheld", &b.Withheld)
}
