package api

// PolicyPlan is what a policy needs at a broker, and what was done about it.
type PolicyPlan struct {
	Broker Broker       `json:"broker"`
	Acted  bool         `json:"acted"` // false: it is a plan only
	Steps  []PolicyStep `json:"steps"`
	// Notes are about the policy itself.
	Notes []PolicyFinding `json:"notes"`
}

// States of a PolicyStep.
const (
	StepMissing = "missing" // it would be made
	StepRight   = "right"   // it is there, or nothing is to be done
	StepDiffers = "differs" // it is there in another form; a person has to change it
	StepUnknown = "unknown" // it could not be looked at
	StepMade    = "made"    // it was made now
	StepDenied  = "denied"  // the user may not make it
	StepFailed  = "failed"  // it was tried and could not be made
)

// PolicyStep is one thing that a policy needs.
type PolicyStep struct {
	Object   string          `json:"object"` // queue, exchange, binding, broker_policy
	Name     string          `json:"name"`
	State    string          `json:"state"`
	Text     string          `json:"text"`
	Advice   string          `json:"advice,omitempty"`
	Settings []PolicySetting `json:"settings"`
}

// PolicySetting is a property that something is made with.
type PolicySetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PolicyFinding is one thing in which a broker or its consumers part from a
// policy, or a note about the policy.
type PolicyFinding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"` // blocks, loses, risks, unknown; of a note: risks
	Subject  string `json:"subject,omitempty"`
	Text     string `json:"text"`
	Advice   string `json:"advice,omitempty"`
}

// Results of a PolicyCheck.
const (
	NoDrift      = "no_drift"
	Drift        = "drift"
	DriftUnknown = "unknown" // no drift was found, but not all could be looked at
)

// PolicyCheck is a broker held against a policy.
type PolicyCheck struct {
	Broker   Broker          `json:"broker"`
	Result   string          `json:"result"`
	Findings []PolicyFinding `json:"findings"`
	Notes    []PolicyFinding `json:"notes"`
}
