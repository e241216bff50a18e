package api

import "time"

// PlanRequest selects a cohort and says how it is to be released. Zero values
// take the configured defaults.
type PlanRequest struct {
	IDs     []string `json:"ids,omitempty"`
	Queue   string   `json:"queue,omitempty"`
	Died    string   `json:"died,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Class   string   `json:"class,omitempty"`
	Owner   string   `json:"owner,omitempty"`
	Type    string   `json:"type,omitempty"`
	Lineage string   `json:"lineage,omitempty"`
	All     bool     `json:"all,omitempty"` // everything quarantined, when nothing else selects
	Narrowing

	ToQueue      string `json:"to_queue,omitempty"` // default: the queue in which the messages died
	ToFirst      bool   `json:"to_first,omitempty"` // the queue of the first death instead of the last
	ToExchange   string `json:"to_exchange,omitempty"`
	ToRoutingKey string `json:"to_routing_key,omitempty"`
	ToOriginal   bool   `json:"to_original,omitempty"` // each to the exchange and key it was first published with

	DropHeaders    []string `json:"drop_headers,omitempty"`    // beside those that are taken off by default
	KeepHeaders    []string `json:"keep_headers,omitempty"`    // of those that are taken off by default
	NoStrip        bool     `json:"no_strip,omitempty"`        // take no header off by default, but older stamps
	SetHeaders     []string `json:"set_headers,omitempty"`     // NAME=VALUE, of kind S
	KeepExpiration bool     `json:"keep_expiration,omitempty"` // its time runs again at the destination
	Persistent     bool     `json:"persistent,omitempty"`      // delivery mode 2 for all

	// Force names reasons to stay that are overruled, with a reason why.
	Force    []string `json:"force,omitempty"`
	ForceWhy string   `json:"force_why,omitempty"`

	Fix      string   `json:"fix,omitempty"`
	Code     string   `json:"code,omitempty"`
	Consumer string   `json:"consumer,omitempty"`
	Expected []string `json:"expected,omitempty"`

	Rate            float64  `json:"rate,omitempty"` // messages per second
	Burst           uint32   `json:"burst,omitempty"`
	Window          uint32   `json:"window,omitempty"`
	Exposure        uint32   `json:"exposure,omitempty"`
	Stages          []uint64 `json:"stages,omitempty"`           // sizes; the rest follows as the last one
	NoStages        bool     `json:"no_stages,omitempty"`        // all at once, which the approval has to say
	Thresholds      []string `json:"thresholds,omitempty"`       // SIGNAL=VALUE
	Bake            string   `json:"bake,omitempty"`             // duration
	OutcomeDeadline string   `json:"outcome_deadline,omitempty"` // duration
	Evidence        string   `json:"evidence,omitempty"`

	Order       string `json:"order,omitempty"`        // none or per-key
	OnFailure   string `json:"on_failure,omitempty"`   // block, park, continue or rebuild
	Ambiguity   string `json:"ambiguity,omitempty"`    // hold or retry
	RetryNacked bool   `json:"retry_nacked,omitempty"` // try again after definite nacks

	DryRun bool   `json:"dry_run,omitempty"`
	As     string `json:"as,omitempty"`
}

// Plan is what a plan found. In a dry run Generation is nil and nothing was
// written.
type Plan struct {
	Generation  *Generation     `json:"generation,omitempty"`
	Selected    uint64          `json:"selected"`
	Members     uint64          `json:"members"`
	Excluded    []Excluded      `json:"excluded"` // by reason
	Stays       []Stay          `json:"stays"`    // the same reasons, with examples
	Kinds       []EnvelopeGroup `json:"kinds"`
	Types       []TypeCount     `json:"types"`   // members by type and reason
	Samples     []string        `json:"samples"` // ULIDs in release order
	Sampled     []Sample        `json:"sampled"` // the same ones
	Forecast    Forecast        `json:"forecast"`
	Destination string          `json:"destination"`
	Routes      []Route         `json:"routes"` // up to 20 of what the destination stands for
	Stages      []uint64        `json:"stages"` // members up to and including each
	Watched     []string        `json:"watched"`
	Limits      Limits          `json:"limits"`
	HeaderRules []string        `json:"strip_headers"`
	SetHeaders  []string        `json:"set_headers"` // names
	Changes     Changes         `json:"changes"`
	Evidence    string          `json:"evidence"`
	// DuplicateRisk counts members that were released before and whose effect was
	// not found: it may still come.
	DuplicateRisk uint64   `json:"duplicate_risk"`
	Warnings      []string `json:"warnings"`
	Checks        []Check  `json:"checks"`
	Forced        []string `json:"forced"`
	ForceWhy      string   `json:"force_why,omitempty"`
	Repaired      uint64   `json:"repaired"`      // members that go out with another content than was captured
	ExpectedTime  string   `json:"expected_time"` // at the stated rate, without bake times

	Order *PlanOrder `json:"order"`
	Doubt *PlanDoubt `json:"ambiguity"`
}

// Check is one named look at whether a release can succeed.
type Check struct {
	Name     string    `json:"name"`
	Result   string    `json:"result"` // "ok", "failed" or "unknown"
	Required bool      `json:"required"`
	Evidence string    `json:"evidence"`
	At       time.Time `json:"at"`
}

// PlanOrder is what a plan says about the order within keys.
type PlanOrder struct {
	Order     string       `json:"order"`
	OnFailure string       `json:"on_failure,omitempty"`
	Keys      uint64       `json:"keys"`
	Keyed     uint64       `json:"members_with_key"`
	Unordered uint64       `json:"members_without_key"`
	Numeric   uint64       `json:"keys_by_number"` // the others go in the order of capture
	Gaps      uint64       `json:"gaps"`           // members before which messages are known to be missing
	Unknown   uint64       `json:"gaps_unknown"`   // members of which nobody knows
	Examples  []GapExample `json:"gap_examples"`   // at most 20
	Overtaken string       `json:"overtaken_keys"` // a number, or "unknown"
}

// GapExample is an envelope before which messages of its key are missing.
type GapExample struct {
	Envelope string `json:"envelope"`
	Missing  uint64 `json:"missing"`
}

// PlanDoubt is what a plan says about messages whose publish is in doubt.
type PlanDoubt struct {
	Policy      string     `json:"policy"`                  // hold or retry
	Horizon     string     `json:"inbox_horizon,omitempty"` // as declared
	Oldest      *time.Time `json:"oldest,omitempty"`        // when the oldest message was seen first, when a horizon is declared
	OldestAge   string     `json:"oldest_age,omitempty"`
	RetryNacked uint64     `json:"retry_nacked,omitempty"` // tries after definite nacks
}

// Route is one destination and the queues that a publish reaches there now.
type Route struct {
	To     string   `json:"to"`
	Queues []string `json:"queues"` // null when unknown
}

// Changes is what a release would do to the properties and headers of the first
// members, the stamp apart, and what the broker would refuse among them.
type Changes struct {
	Examined uint64     `json:"examined"` // members looked at, in release order
	List     []Change   `json:"list"`
	Refused  []Excluded `json:"refused"` // would be undelivered, by reason
}

// Change is one difference between originals and what goes out.
type Change struct {
	What  string `json:"what"` // "header" or "property"
	Name  string `json:"name"`
	How   string `json:"how"` // "removed", "added" or "changed"
	Count uint64 `json:"count"`
}

// Excluded counts what does not move for one reason.
type Excluded struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Stay says of one reason to stay which envelopes have it, and what to do.
type Stay struct {
	Reason   string   `json:"reason"`
	Examples []string `json:"examples"` // ULIDs, at most 5
	Advice   string   `json:"advice,omitempty"`
}

// TypeCount counts members of one type and reason.
type TypeCount struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Sample is one member as a plan shows it.
type Sample struct {
	ID       string    `json:"id"`
	Reason   string    `json:"reason"`
	Type     string    `json:"type"`
	Died     time.Time `json:"first_died"`
	Repaired bool      `json:"repaired,omitempty"`
}

// Forecast is how long a release takes, and how much of it is out at once.
type Forecast struct {
	AtRate string `json:"at_rate"` // all members at the stated rate
	Bakes  string `json:"bakes"`   // between the stages
	// AtExposure is what the exposure cap allows, and MeanOutcome how long an
	// outcome took in the last generation that went there. Both are "" when that
	// is not known, or the cap does not wait for outcomes.
	AtExposure  string `json:"at_exposure,omitempty"`
	MeanOutcome string `json:"mean_outcome,omitempty"`
	Total       string `json:"total"`
	Exposed     uint64 `json:"exposed"` // members at most, whose effect is not known
}

// Limits bound a release.
type Limits struct {
	Rate     float64 `json:"rate"`
	Burst    uint32  `json:"burst"`
	Window   uint32  `json:"window"`
	Exposure uint32  `json:"exposure"`
}

// Effective is what holds at this moment, never more than the limits.
type Effective struct {
	Rate      float64    `json:"rate"` // messages per second
	Window    uint32     `json:"window"`
	Throttles []Throttle `json:"throttles"`
	// Exposed is the number of messages of this generation whose effect is not
	// known.
	Exposed uint64 `json:"exposed"`
}

// Throttle is one reason to go slower.
type Throttle struct {
	Reason   string    `json:"reason"`
	Permille uint64    `json:"permille"` // of rate and window
	Since    time.Time `json:"since"`
	Why      string    `json:"why"`
}

// GenerationRef names a generation by number, ULID or unique prefix.
type GenerationRef struct {
	ID string `json:"id"`
}

// GenerationAct is an act with a reason.
type GenerationAct struct {
	ID  string `json:"id"`
	Why string `json:"why,omitempty"`
	As  string `json:"as,omitempty"`
}

// ApproveRequest approves exactly one manifest. An empty digest means the one
// that is shown; a person's tool fills in what the person saw.
type ApproveRequest struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
	Why    string `json:"why,omitempty"`
	As     string `json:"as,omitempty"`
}

// RunRequest starts or resumes a release and stays with it.
type RunRequest struct {
	ID     string `json:"id"`
	Why    string `json:"why,omitempty"`     // required to resume
	NoWait bool   `json:"no_wait,omitempty"` // come back when everything is decided, without outcomes
	As     string `json:"as,omitempty"`
	// Clear names the reasons of the pause that a resume clears. Empty: all.
	Clear []string `json:"clear,omitempty"`
	// Digest is the manifest that was looked at again, required to resume after
	// messages went wrong.
	Digest string `json:"digest,omitempty"`
}

// PauseRequest pauses one generation, or all that run.
type PauseRequest struct {
	ID  string `json:"id,omitempty"`
	All bool   `json:"all,omitempty"`
	Why string `json:"why,omitempty"`
	As  string `json:"as,omitempty"`
}

// Paused lists what was paused.
type Paused struct {
	Generations []Generation `json:"generations"`
}

// LimitRequest changes limits of a generation; zero values stay.
type LimitRequest struct {
	ID        string  `json:"id"`
	Rate      float64 `json:"rate,omitempty"`
	Burst     uint32  `json:"burst,omitempty"`
	Window    uint32  `json:"window,omitempty"`
	Exposure  uint32  `json:"exposure,omitempty"`
	OnFailure string  `json:"on_failure,omitempty"` // what a failure does to the rest of its key, alone
	Approve   bool    `json:"approve,omitempty"`    // the caller approves the loosening
	// Thresholds are changed limits of signals, SIGNAL=VALUE.
	Thresholds []string `json:"thresholds,omitempty"`
	Why        string   `json:"why,omitempty"`
	As         string   `json:"as,omitempty"`
}

// RuleRequest rules on an ambiguous intent, or on all of a generation.
type RuleRequest struct {
	Intent    string `json:"intent,omitempty"` // GENERATION/POSITION/TRY
	ID        string `json:"id,omitempty"`     // generation: all its ambiguous intents
	Delivered bool   `json:"delivered"`
	Why       string `json:"why"`
	As        string `json:"as,omitempty"`
}

// CloseRequest closes a generation, naming what stays open.
type CloseRequest struct {
	ID        string `json:"id"`
	Ambiguous uint64 `json:"ambiguous,omitempty"`
	Missing   uint64 `json:"missing,omitempty"`
	Withheld  uint64 `json:"withheld,omitempty"`
	Why       string `json:"why,omitempty"`
	As        string `json:"as,omitempty"`
}

// GenerationPage lists generations, latest first.
type GenerationPage struct {
	Generations []Generation `json:"generations"`
}

// Generation is the state of one generation at one ledger position.
type Generation struct {
	ID        string `json:"id"`
	Number    uint32 `json:"number"`
	State     string `json:"state"`
	Status    string `json:"status"`
	Seq       uint64 `json:"seq"` // ledger position of this view
	Manifest  string `json:"manifest"`
	Fix       string `json:"fix"`
	Selection string `json:"selection"`
	Order     string `json:"order"`                // none or per-key
	OnFailure string `json:"on_failure,omitempty"` // what a failure does to the rest of its key, now
	Ambiguity string `json:"ambiguity"`            // hold or retry

	Forced   []string `json:"forced"`
	ForceWhy string   `json:"force_why,omitempty"`
	Repaired uint64   `json:"repaired"`

	Destination string    `json:"destination"`
	Evidence    string    `json:"evidence"`
	Stage       int       `json:"stage"`  // from 1
	Stages      []uint64  `json:"stages"` // members up to and including each
	Limits      Limits    `json:"limits"`
	Effective   Effective `json:"effective"`
	Thresholds  []string  `json:"thresholds"` // SIGNAL=VALUE, as they hold now
	Watched     []string  `json:"watched"`    // signals from outside that it was approved with
	Bake        string    `json:"bake"`       // as it holds now: at least twice as long as 95 of 100 outcomes took
	Deadline    string    `json:"outcome_deadline"`

	Planned  *Step        `json:"planned"`
	Approved *Step        `json:"approved,omitempty"`
	Expires  *time.Time   `json:"approval_expires,omitempty"`
	Started  *Step        `json:"started,omitempty"`
	Ended    *Step        `json:"ended,omitempty"`
	Pauses   []PauseState `json:"pauses"`

	Funnel         Funnel            `json:"funnel"`
	Tally          map[string]uint64 `json:"tally"` // all fourteen dispositions
	LawsHold       bool              `json:"laws_hold"`
	Contradictions uint64            `json:"contradictions"`
	Regressions    uint64            `json:"regressions"`
	Disputes       uint64            `json:"disputes"`                    // business data says otherwise than was reported
	Doubles        uint64            `json:"doubles"`                     // members with more than one effect
	Ambiguous      []string          `json:"ambiguous_intents,omitempty"` // at most 20
	Checked        string            `json:"checked,omitempty"`           // phase of the last checks
	Checks         []Check           `json:"checks"`                      // the last ones
	Driven         bool              `json:"driven"`                      // the answering process releases it
	OutcomesDue    *time.Time        `json:"outcomes_due,omitempty"`      // when the next outcome deadline falls
}

// Step is an act with who and when.
type Step struct {
	By  string    `json:"by"`
	As  string    `json:"as,omitempty"`
	At  time.Time `json:"at"`
	Why string    `json:"why,omitempty"`
}

// PauseState is one reason why a generation stands still.
type PauseState struct {
	Reason string `json:"reason"`
	// LookAgain: messages went wrong; a resume has to name the manifest.
	LookAgain bool `json:"look_again"`
	Step
}

// Funnel is the tally in the words of operators.
type Funnel struct {
	Selected      uint64 `json:"selected"`
	Moved         uint64 `json:"moved"`
	Admitted      uint64 `json:"admitted"`
	Deduplicated  uint64 `json:"deduplicated"`
	Succeeded     uint64 `json:"succeeded"`
	Rejected      uint64 `json:"rejected"`
	Requarantined uint64 `json:"requarantined"`
	Ambiguous     uint64 `json:"ambiguous"`
	Missing       uint64 `json:"missing"`
}

// Report is the closing statement of a generation.
type Report struct {
	Generation Generation `json:"generation"`
	Expected   []string   `json:"expected_outcomes"`
	// Expectation compares what was expected with what became of the members; it
	// is missing when nothing was expected.
	Expectation *Expectation    `json:"expectation,omitempty"`
	Reconciled  *Reconciled     `json:"reconciled,omitempty"`   // the last reconciliation
	Remaining   []EnvelopeGroup `json:"remaining"`              // still open, of this cohort and what came back, with owners
	Newer       uint64          `json:"newer"`                  // open, captured later, that the selection would take in now
	Unsure      string          `json:"newer_unsure,omitempty"` // why Newer is not known
	Text        string          `json:"text"`                   // the statement in sentences

	Timeline   []Moment         `json:"timeline"`                   // the steps, at most the first and the last 250
	Omitted    uint64           `json:"timeline_omitted,omitempty"` // steps between those
	Thresholds []ThresholdState `json:"thresholds"`                 // signals whose result was recorded
	// ThresholdLimits are the limits of all signals that are in force, each as
	// SIGNAL=VALUE.
	ThresholdLimits []string `json:"threshold_limits"`
	Series          *Series  `json:"series,omitempty"` // missing when nothing was released
}
