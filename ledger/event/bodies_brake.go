package event

// GenerationThrottled slows a generation down for a reason, or lifts that. Of
// several throttles the strongest counts. It only ever tightens what the limits
// allow.
type GenerationThrottled struct {
	Permille uint64 // of rate and window, 1 to 999; 1000 lifts the throttle
	Reason   string // stable code: the signal that asked for it
	Why      string
}

// Kind implements Body.
func (*GenerationThrottled) Kind() Kind { return KindGenerationThrottled }

func (b *GenerationThrottled) visit(c *Coder) {
	Num(c, "permille", &b.Permille)
	Text(c, "reason", &b.Reason)
	Text(c, "why", &b.Why)
}

// GenerationRevised changes something of a plan while it runs. Loosening needs
// somebody other than the planner; the record's actor is who answers for it.
type GenerationRevised struct {
	Field string // "threshold NAME", or "on_failure"
	New   string
	Old   string
	Why   string
}

// Kind implements Body.
func (*GenerationRevised) Kind() Kind { return KindGenerationRevised }

func (b *GenerationRevised) visit(c *Coder) {
	Text(c, "field", &b.Field)
	Text(c, "new", &b.New)
	Text(c, "old", &b.Old)
	Text(c, "why", &b.Why)
}
