package event

// Effect is what business data says about a member that was released.
type Effect string

// Effects. What was found once is effected; more than once is double, which is
// an effect too.
const (
	Effected     Effect = "effected"
	NotEffected  Effect = "not_effected"
	DoubleEffect Effect = "double"
)

// Effects lists them all, for tables and tests.
var Effects = []Effect{Effected, NotEffected, DoubleEffect}

// MemberReconciled keeps what business data says about members. It names no
// operation: the evidence is committed to as a whole.
type MemberReconciled struct {
	Effect   Effect
	Evidence string // commitment to the evidence, 64 hexadecimal digits
	Pos      Ranges
}

// Kind implements Body.
func (*MemberReconciled) Kind() Kind { return KindMemberReconciled }

func (b *MemberReconciled) visit(c *Coder) {
	Text(c, "effect", &b.Effect)
	Text(c, "evidence", &b.Evidence)
	Set(c, "pos", &b.Pos)
}

// GenerationReconciled says that a generation was held against business data,
// after the records about its members. Checked is the sum of Double, Early,
// Effected, None and NotEffected.
type GenerationReconciled struct {
	Checked      uint64 // members whose operation was looked for
	Double       uint64 // with more than one effect
	Early        uint64 // without an effect, which may still come
	Effected     uint64 // with one effect
	Evidence     string // as in MemberReconciled
	None         uint64 // without an effect, and none was to be expected
	NotCheckable uint64 // released members without an operation, or carried on by another generation
	NotEffected  uint64 // without an effect that should be there
	Source       string // "csv", "ndjson" or "sql"
	Unexpected   uint64 // operations with an effect that no released member has
}

// Kind implements Body.
func (*GenerationReconciled) Kind() Kind { return KindGenerationReconciled }

func (b *GenerationReconciled) visit(c *Coder) {
	Num(c, "checked", &b.Checked)
	Num(c, "double", &b.Double)
	Num(c, "early", &b.Early)
	Num(c, "effected", &b.Effected)
	Text(c, "evidence", &b.Evidence)
	Num(c, "none", &b.None)
	Num(c, "not_checkable", &b.NotCheckable)
	Num(c, "not_effected", &b.NotEffected)
	Text(c, "source", &b.Source)
	Num(c, "unexpected", &b.Unexpected)
}
