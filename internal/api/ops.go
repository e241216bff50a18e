package api

// Operations. Names are stable.
var (
	Ping   = Op[None, None]{Name: "ping"}
	Status = Op[None, StatusInfo]{Name: "status"}

	CaptureRun  = Op[CaptureRequest, CaptureSummary]{Name: "capture.run", Changes: true, Long: true}
	SourceDepth = Op[DepthRequest, DepthInfo]{Name: "source.depth"}
	SourcePin   = Op[PinRequest, PinResult]{Name: "source.pin", Changes: true}
	Doctor      = Op[None, DoctorReport]{Name: "doctor"}

	EnvelopeList     = Op[EnvelopeQuery, EnvelopePage]{Name: "envelope.list"}
	EnvelopeGroups   = Op[EnvelopeQuery, EnvelopeGrouping]{Name: "envelope.groups"}
	EnvelopeShow     = Op[EnvelopeShowRequest, Envelope]{Name: "envelope.show", Changes: true}
	EnvelopeAnnotate = Op[EnvelopeChange, Changed]{Name: "envelope.annotate", Changes: true}
	EnvelopeClassify = Op[ClassifyRequest, Classified]{Name: "envelope.classify", Changes: true}
	EnvelopeAssign   = Op[EnvelopeChange, Changed]{Name: "envelope.assign", Changes: true}
	EnvelopeHold     = Op[EnvelopeChange, Changed]{Name: "envelope.hold", Changes: true}
	EnvelopeUnhold   = Op[EnvelopeChange, Changed]{Name: "envelope.unhold", Changes: true}
	EnvelopeResolve  = Op[EnvelopeChange, Changed]{Name: "envelope.resolve", Changes: true}
	EnvelopePurge    = Op[EnvelopeChange, Changed]{Name: "envelope.purge", Changes: true}

	EnvelopeRepair  = Op[RepairRequest, Repair]{Name: "envelope.repair", Changes: true}
	EnvelopeRepairs = Op[RepairChoice, Envelope]{Name: "envelope.repairs", Changes: true}
	EnvelopeCompare = Op[CompareRequest, Comparison]{Name: "envelope.compare", Changes: true}

	GenerationPlan    = Op[PlanRequest, Plan]{Name: "generation.plan", Changes: true}
	GenerationList    = Op[None, GenerationPage]{Name: "generation.list"}
	GenerationShow    = Op[GenerationRef, Generation]{Name: "generation.show"}
	GenerationApprove = Op[ApproveRequest, Generation]{Name: "generation.approve", Changes: true}
	GenerationReject  = Op[GenerationAct, Generation]{Name: "generation.reject", Changes: true}
	GenerationStart   = Op[RunRequest, Generation]{Name: "generation.start", Changes: true, Long: true}
	GenerationResume  = Op[RunRequest, Generation]{Name: "generation.resume", Changes: true, Long: true}
	GenerationPause   = Op[PauseRequest, Paused]{Name: "generation.pause", Changes: true}
	GenerationAbort   = Op[GenerationAct, Generation]{Name: "generation.abort", Changes: true}
	GenerationLimit   = Op[LimitRequest, Generation]{Name: "generation.limit", Changes: true}
	GenerationRule    = Op[RuleRequest, Generation]{Name: "generation.rule", Changes: true}
	GenerationClose   = Op[CloseRequest, Generation]{Name: "generation.close", Changes: true}
	GenerationReport  = Op[GenerationRef, Report]{Name: "generation.report"}

	GenerationMembers   = Op[MembersRequest, MembersPage]{Name: "generation.members", Changes: true}
	GenerationReconcile = Op[ReconcileRequest, Reconciliation]{Name: "generation.reconcile", Changes: true, Long: true}

	OutcomeReport = Op[OutcomeRequest, OutcomeResult]{Name: "outcome.report", Changes: true}

	LedgerTail       = Op[TailRequest, TailPage]{Name: "ledger.tail"}
	LedgerVerify     = Op[VerifyRequest, VerifyResult]{Name: "ledger.verify"}
	LedgerExport     = Op[ExportRequest, ExportResult]{Name: "ledger.export", Changes: true}
	LedgerCheckpoint = Op[None, CheckpointInfo]{Name: "ledger.checkpoint", Changes: true}

	StoreCheck   = Op[None, StoreReport]{Name: "store.check"}
	StoreRebuild = Op[RebuildRequest, RebuildReport]{Name: "store.rebuild"}
)
