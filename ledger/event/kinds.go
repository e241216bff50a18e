package event

// Kind names what happened. Kinds are only ever added.
type Kind string

// Kinds of records. The comment of each body type says what it means.
const (
	KindLedgerCreated   Kind = "ledger.created"
	KindLedgerOpened    Kind = "ledger.opened"
	KindLedgerClosed    Kind = "ledger.closed"
	KindLedgerRekeyed   Kind = "ledger.rekeyed"
	KindLedgerExported  Kind = "ledger.exported"
	KindLedgerRecovered Kind = "ledger.recovered"

	KindSourceParked   Kind = "source.parked"
	KindSourceUnparked Kind = "source.unparked"
	KindSourceSpent    Kind = "source.spent"
	KindSourcePinned   Kind = "source.pinned"

	KindEnvelopeCaptured   Kind = "envelope.captured"
	KindEnvelopeSettled    Kind = "envelope.settled"
	KindEnvelopeMerged     Kind = "envelope.merged"
	KindEnvelopeReturned   Kind = "envelope.returned"
	KindEnvelopeAnnotated  Kind = "envelope.annotated"
	KindEnvelopeClassified Kind = "envelope.classified"
	KindEnvelopeAssigned   Kind = "envelope.assigned"
	KindEnvelopeHeld       Kind = "envelope.held"
	KindEnvelopeUnheld     Kind = "envelope.unheld"
	KindEnvelopeResolved   Kind = "envelope.resolved"
	KindEnvelopePurged     Kind = "envelope.purged"
	KindEnvelopeOverdue    Kind = "envelope.overdue"
	KindEnvelopeExpired    Kind = "envelope.expired"
	KindEnvelopeViewed     Kind = "envelope.viewed"

	KindGenerationPlanned   Kind = "generation.planned"
	KindGenerationApproved  Kind = "generation.approved"
	KindGenerationRejected  Kind = "generation.rejected"
	KindGenerationExpired   Kind = "generation.expired"
	KindGenerationStarted   Kind = "generation.started"
	KindGenerationAdvanced  Kind = "generation.advanced"
	KindGenerationLimited   Kind = "generation.limited"
	KindGenerationEvaluated Kind = "generation.evaluated"
	KindGenerationPaused    Kind = "generation.paused"
	KindGenerationResumed   Kind = "generation.resumed"
	KindGenerationAborted   Kind = "generation.aborted"
	KindGenerationSettling  Kind = "generation.settling"
	KindGenerationClosed    Kind = "generation.closed"
	KindGenerationChecked   Kind = "generation.checked"

	KindGenerationThrottled Kind = "generation.throttled"
	KindGenerationRevised   Kind = "generation.revised"

	KindMemberIntended      Kind = "member.intended"
	KindMemberResolved      Kind = "member.resolved"
	KindMemberConfirmedLate Kind = "member.confirmed_late"
	KindMemberRuled         Kind = "member.ruled"
	KindMemberWithheld      Kind = "member.withheld"
	KindMemberMissed        Kind = "member.missed"

	KindOutcomeReported  Kind = "outcome.reported"
	KindOutcomeUnmatched Kind = "outcome.unmatched"

	KindEnvelopeRepaired        Kind = "envelope.repaired"
	KindEnvelopeRepairChosen    Kind = "envelope.repair_chosen"
	KindEnvelopeRepairWithdrawn Kind = "envelope.repair_withdrawn"
	KindEnvelopeRepairApproved  Kind = "envelope.repair_approved"

	KindMemberReconciled     Kind = "member.reconciled"
	KindGenerationReconciled Kind = "generation.reconciled"
)

// KindInfo describes a kind.
type KindInfo struct {
	Kind  Kind
	Since string // first version of redrive that writes it
	New   func() Body
}

// Kinds lists every kind in the order in which they were added.
func Kinds() []KindInfo { return kinds }

func newBody(k Kind) Body {
	if i, ok := kindIndex[k]; ok {
		return kinds[i].New()
	}
	return nil
}

var kindIndex = func() map[Kind]int {
	m := make(map[Kind]int, len(kinds))
	for i, k := range kinds {
		m[k.Kind] = i
	}
	return m
}()

func of[T any, P interface {
	*T
	Body
}](since string) KindInfo {
	return KindInfo{Kind: P(new(T)).Kind(), Since: since, New: func() Body { return P(new(T)) }}
}

var kinds = []KindInfo{
	of[LedgerCreated]("0.1"), of[LedgerOpened]("0.1"), of[LedgerClosed]("0.1"),
	of[LedgerRekeyed]("0.1"), of[LedgerExported]("0.1"),
	of[SourceParked]("0.1"), of[SourceUnparked]("0.1"),
	of[EnvelopeCaptured]("0.1"), of[EnvelopeSettled]("0.1"), of[EnvelopeMerged]("0.1"),
	of[EnvelopeReturned]("0.1"), of[EnvelopeAnnotated]("0.1"), of[EnvelopeClassified]("0.1"),
	of[EnvelopeAssigned]("0.1"), of[EnvelopeHeld]("0.1"), of[EnvelopeUnheld]("0.1"),
	of[EnvelopeResolved]("0.1"), of[EnvelopePurged]("0.1"), of[EnvelopeOverdue]("0.1"),
	of[EnvelopeExpired]("0.1"), of[EnvelopeViewed]("0.1"),
	of[GenerationPlanned]("0.1"), of[GenerationApproved]("0.1"), of[GenerationRejected]("0.1"),
	of[GenerationExpired]("0.1"), of[GenerationStarted]("0.1"), of[GenerationAdvanced]("0.1"),
	of[GenerationLimited]("0.1"), of[GenerationEvaluated]("0.1"), of[GenerationPaused]("0.1"),
	of[GenerationResumed]("0.1"), of[GenerationAborted]("0.1"), of[GenerationSettling]("0.1"),
	of[GenerationClosed]("0.1"),
	of[MemberIntended]("0.1"), of[MemberResolved]("0.1"), of[MemberConfirmedLate]("0.1"),
	of[MemberRuled]("0.1"), of[MemberWithheld]("0.1"), of[MemberMissed]("0.1"),
	of[OutcomeReported]("0.1"), of[OutcomeUnmatched]("0.1"),
	of[LedgerRecovered]("0.1"), of[SourceSpent]("0.1"), of[SourcePinned]("0.1"),
	of[MemberReconciled]("0.1"), of[GenerationReconciled]("0.1"),
	of[GenerationChecked]("0.1"),
	of[GenerationThrottled]("0.1"), of[GenerationRevised]("0.1"),
	of[EnvelopeRepaired]("0.1"), of[EnvelopeRepairChosen]("0.1"), of[EnvelopeRepairWithdrawn]("0.1"),
	of[EnvelopeRepairApproved]("0.1"),
}
