package policy_test

import (
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/policy"
)

func TestClassify(t *testing.T) {
	p := &policy.Policy{DefaultOwner: "on-call", Reasons: map[string]policy.Reason{
		"unknown_sku": {Class: event.Permanent, Owner: "catalog"}, "timeout": {Class: event.Transient}}}
	for _, c := range []struct {
		policy  *policy.Policy
		reasons []string
		class   event.Class
		owner   string
	}{
		{p, []string{"unknown_sku"}, event.Permanent, "catalog"},
		{p, []string{"timeout"}, event.Transient, "on-call"},
		{p, []string{"retries_exhausted", "unknown_sku"}, event.Permanent, "catalog"}, // the last reason counts when the first is unknown
		{p, []string{"timeout", "unknown_sku"}, event.Transient, "on-call"},           // the first known one wins
		{p, []string{"nobody knows"}, event.Unclassified, "on-call"},
		{p, []string{""}, event.Unclassified, "on-call"},
		{p, nil, event.Unclassified, "on-call"},
		{&policy.Policy{}, []string{"unknown_sku"}, event.Unclassified, policy.Unassigned},
	} {
		if class, owner := c.policy.Classify(c.reasons...); class != c.class || owner != c.owner {
			t.Errorf("%q: %s, %s; want %s, %s", c.reasons, class, owner, c.class, c.owner)
		}
	}
}
