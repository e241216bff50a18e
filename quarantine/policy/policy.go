// Package policy is the one place for the numbers and words of a service's
// failure handling: which reason means what, and who owns it.
package policy

import "github.com/redrivehq/redrive/ledger/event"

// Reason is what a failure reason means.
type Reason struct {
	Class event.Class
	Owner string // who owns the business resolution, as people write it
}

// Policy maps reasons to their meaning. The zero Policy knows none.
type Policy struct {
	// Version is recorded on every envelope that was classified with it.
	Version string
	Reasons map[string]Reason
	// DefaultOwner owns what no reason assigns. Defaults to "unassigned".
	DefaultOwner string
}

// Unassigned is the owner of envelopes for which the policy names nobody.
const Unassigned = "unassigned"

// Classify says what the first known of the reasons means. Unknown ones are
// unclassified and belong to the default owner: they are never dropped.
func (p *Policy) Classify(reasons ...string) (event.Class, string) {
	owner := p.DefaultOwner
	if owner == "" {
		owner = Unassigned
	}
	for _, name := range reasons {
		if r, ok := p.Reasons[name]; ok {
			if r.Owner != "" {
				owner = r.Owner
			}
			return r.Class, owner
		}
	}
	return event.Unclassified, owner
}
