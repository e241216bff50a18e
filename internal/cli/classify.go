package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
)

func newClassify(c *command) *cobra.Command {
	var req api.ClassifyRequest
	var q api.EnvelopeQuery
	cmd := &cobra.Command{
		Use: "classify [ID …]", Short: "Change reason, class and owner, or let the policy say them again",
		Long: `Change the reason or the class of envelopes; what is not given stays. With --by-policy
the policy says class and owner: of --reason, or else of what each message says of
itself, read again with the header names, rules and codes that are in force now. A
reason that was changed since the capture stays then, and its class and owner
follow from it. The version of the policy is recorded.

Envelopes are named by id, or selected by --where-… filters; not both. A filter with
--by-policy takes quarantined envelopes, unless it names another custody. With
--dry-run it is only said what would change.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.IDs, req.As = args, c.as
			if filtered(cmd) {
				req.Query = &q
			}
			return ask(c, cmd, api.EnvelopeClassify, req, c.showClassified)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Class, "class", "", "new failure class")
	f.StringVar(&req.Reason, "reason", "", "new failure reason")
	f.BoolVar(&req.ByPolicy, "by-policy", false, "class and owner as the policy says now")
	f.BoolVar(&req.DryRun, "dry-run", false, "say what would change, and change nothing")
	f.StringVar(&req.Why, "why", "", "why")
	queryFlags(f, &q, "where-")
	return cmd
}

func (c *command) showClassified(r api.Classified) {
	var rows [][]string
	for _, x := range r.Changes {
		rows = append(rows, []string{fmt.Sprint(x.Count), became(x.From.Reason, x.To.Reason), became(x.From.Class, x.To.Class), became(x.From.Owner, x.To.Owner)})
	}
	if len(rows) > 0 {
		c.table([]string{"count", "reason", "class", "owner"}, rows)
	}
	switch {
	case r.DryRun:
		c.say("%d envelopes would change, %d would stay as they are; nothing was changed", r.Envelopes, r.Same)
	case r.Seq == 0:
		c.say("nothing to change: %d envelopes are as policy %s says", r.Same, r.Policy)
	default:
		c.say("classify: %d envelopes changed, %d as they were, under policy %s, recorded at %d", r.Envelopes, r.Same, r.Policy, r.Seq)
	}
}

func became(from, to string) string {
	if from == to {
		return from
	}
	if from == "" {
		from = "none"
	}
	return from + " → " + to
}
