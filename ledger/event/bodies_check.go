package event

// GenerationChecked keeps what a preflight found, before anything went out.
type GenerationChecked struct {
	Checks  string   // digest of the list of checks, an Object
	Failed  uint64   // checks that say that it must not start
	Names   []string // of the checks that stand in the way
	Phase   string   // "plan", "start" or "resume"
	Total   uint64
	Unknown uint64 // checks that could not tell
}

// Kind implements Body.
func (*GenerationChecked) Kind() Kind { return KindGenerationChecked }

func (b *GenerationChecked) visit(c *Coder) {
	Text(c, "checks", &b.Checks)
	Num(c, "failed", &b.Failed)
	Texts(c, "names", &b.Names)
	Text(c, "phase", &b.Phase)
	Num(c, "total", &b.Total)
	Num(c, "unknown", &b.Unknown)
}
