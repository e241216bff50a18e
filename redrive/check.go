package redrive

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// CheckResult is what one check of a preflight found.
type CheckResult string

// Results of a check.
const (
	CheckOK      CheckResult = "ok"
	CheckFailed  CheckResult = "failed"
	CheckUnknown CheckResult = "unknown" // whoever could tell did not answer, or nobody can
)

// Names of checks; those of configured probes are "probe.NAME". The list is
// append-only.
const (
	CheckRoute           = "route"            // the destination exists, and what goes there arrives
	CheckPermission      = "permission"       // the broker lets us publish there
	CheckConsumers       = "consumers"        // somebody consumes there
	CheckConsumerVersion = "consumer_version" // the version that the plan expects
	CheckSchema          = "schema"           // bodies fulfil the schema of their type and version
	CheckAuthorization   = "authorization"    // the operations are still authorized
	CheckInbox           = "inbox"            // the consumer's inbox has not seen the operations
	CheckHorizon         = "horizon"          // the inbox remembers as far back as the cohort goes
	CheckDepth           = "depth"            // the destination is not backed up
	CheckLineage         = "lineage"          // earlier generations of the same lineages
)

// Phases in which checks are made.
const (
	PhasePlan   = "plan"
	PhaseStart  = "start"
	PhaseResume = "resume"
)

// Check is one named look at whether a release can succeed, with its evidence.
type Check struct {
	Name   string
	Result CheckResult
	// Evidence says what was seen, without content of messages.
	Evidence string
	At       uint64 // ms since 1970 UTC
	// Required says that nothing starts without this: then not knowing stands in
	// the way like a failure. What is not required only warns.
	Required bool
}

// Stands reports whether the check is in the way of a start.
func (c *Check) Stands() bool { return c.Required && c.Result != CheckOK }

func (c *Check) visit(co *event.Coder) {
	required := uint8(0)
	if c.Required {
		required = 1
	}
	event.Num(co, "at", &c.At)
	event.Text(co, "evidence", &c.Evidence)
	event.Text(co, "name", &c.Name)
	event.Num(co, "required", &required)
	event.Text(co, "result", &c.Result)
	c.Required = required == 1
}

// maxEvidence is how much of a check's evidence is kept, in bytes.
const maxEvidence = 512

// Preflight is the record of checks that were made in a phase, with the list of
// them as its object: one line of canonical JSON for each.
func Preflight(no event.GenerationNo, phase string, checks []Check) (event.Event, error) {
	b := &event.GenerationChecked{Phase: phase, Total: uint64(len(checks))}
	var list []byte
	for _, c := range checks {
		c.Evidence = cut(c.Evidence, maxEvidence)
		line, err := event.AppendObject(nil, c.visit)
		if err != nil {
			return event.Event{}, fmt.Errorf("check %s: %w", c.Name, err)
		}
		list = append(append(list, line...), '\n')
		if c.Stands() {
			b.Names = append(b.Names, c.Name)
		}
		switch c.Result {
		case CheckFailed:
			b.Failed++
		case CheckUnknown:
			b.Unknown++
		case CheckOK:
		}
	}
	o, digest := ledger.ObjectOf(list)
	b.Checks = digest.String()
	return event.Event{Subj: event.Subject{Gen: no}, Body: b, Objects: []event.Object{o}}, nil
}

// Checks reads the list that a record of checks names.
func Checks(r ledger.Reader, digest string) ([]Check, error) {
	list, err := ledger.GetObject(r, digest)
	if err != nil {
		return nil, fmt.Errorf("list of checks: %w", err)
	}
	var out []Check
	for line := range bytes.Lines(list) {
		var c Check
		if err := event.ReadObject(bytes.TrimSuffix(line, []byte("\n")), c.visit); err != nil {
			return nil, fmt.Errorf("list of checks %s: %w", digest, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// barred refuses to go on against the word of the last checks. What a plan found
// stands in nobody's way: a start looks again.
func (g *Generation) barred() error {
	c := g.Checked
	if c == nil || c.Phase == PhasePlan || len(c.Stand) == 0 {
		return nil
	}
	return fmt.Errorf("the last checks of generation %d stand in its way: %s; have them made again: redrive generation resume %d, or start before it has begun: %w",
		g.No, strings.Join(c.Stand, ", "), g.No, ErrState)
}

// Preflown is what is known about the last checks of a generation.
type Preflown struct {
	Phase  string
	At     uint64 // ms
	Checks string // digest of the list
	Stand  []string
}
