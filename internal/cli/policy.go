package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/app"
	"github.com/redrivehq/redrive/quarantine/policy"
)

func newPolicySchema(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of policy files", Args: cobra.NoArgs,
		Long: `Print the JSON Schema (draft 2020-12) of policy files, for editors and pipelines.
What a schema cannot say, such as a name that is used twice, redrive policy show
finds.`,
		RunE: func(*cobra.Command, []string) error {
			if c.json {
				return c.print(json.RawMessage(policy.Schema()), nil)
			}
			_, err := c.out.Write([]byte(policy.Schema()))
			return err
		},
	}
}

func newPolicyShow(c *command) *cobra.Command {
	var p app.PolicyChoice
	cmd := &cobra.Command{
		Use: "show", Short: "Check a policy file and spell it out", Args: cobra.NoArgs,
		Long: `Check a policy file and print what it means, with all defaults filled in: reasons
and their owners, the retry ladder with its sums, how often a message is delivered
at most, and notes about what is easily overlooked. It needs neither a store nor a
broker. A file that cannot be used ends with 2 and the place of the mistake.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := app.PolicyShow(c.settings(cmd), p)
			if err != nil {
				return err
			}
			return c.print(r, func() { c.showPolicy(r) })
		},
	}
	choosePolicy(cmd, &p)
	return cmd
}

func (c *command) showPolicy(r api.PolicyShow) {
	c.say("policy %s of %s; default owner: %s", r.Version, r.File, r.DefaultOwner)
	var rows [][]string
	for _, x := range r.Reasons {
		rows = append(rows, []string{x.Name, x.Class, x.Action, x.Owner, strings.Join(x.Codes, ", ")})
	}
	if n := r.NeverRetry; n != nil {
		rows = append(rows, []string{n.Reason, "permanent", "quarantine", n.Owner, strings.Join(n.Codes, ", ")})
	}
	if len(rows) > 0 {
		c.say("")
		c.table([]string{"reason", "class", "action", "owner", "codes"}, rows)
	}
	for i, x := range r.Rules {
		if i == 0 {
			c.say("")
		}
		c.say("rule %d: %s: %s", i+1, ruleText(x), x.Reason)
	}
	for _, m := range r.Masks {
		c.say("mask %s: %s", m.Name, m.Pattern)
	}
	for i := range r.Queues {
		c.say("")
		c.showPolicyQueue(&r.Queues[i])
	}
	if len(r.Notes) > 0 {
		c.say("")
	}
	c.showNotes(r.Notes)
}

func ruleText(r api.PolicyRule) string {
	var parts []string
	for _, x := range []struct{ value, format string }{
		{r.Queue, "died in %s"}, {r.Header, "has the header %s"}, {r.Equals, "equal to %q"}, {r.Error, "the error matches %s"}, {r.When, "%s"},
	} {
		if x.value != "" {
			parts = append(parts, fmt.Sprintf(x.format, x.value))
		}
	}
	return strings.Join(parts, ", ")
}

func (c *command) showPolicyQueue(q *api.PolicyQueue) {
	c.say("queue %s (%s)", q.Queue, q.Kind)
	for _, l := range []struct{ name, value string }{
		{"worked by", fmt.Sprintf("%d replicas with %d messages each at once", q.Replicas, q.Prefetch)},
		{"runs", fmt.Sprintf("%d: the first and %d retries; delivery limit %d, so at most %d deliveries of one message", q.Runs, q.Retries, q.DeliveryLimit, q.MaxDeliveries)},
		{"time for a run", q.Timeout},
		{"retries", fmt.Sprintf("%s, all delays together %s; an outcome is due after %s", q.RetryMode, q.LadderTime, q.OutcomeTime)},
		{"quarantine", fmt.Sprintf("%s, for %s; alerts: anything for %s, more than %d at once", q.Quarantine, q.Retention, q.Alerts.For, q.Alerts.Depth)},
		{"operation", q.Operation},
		{"horizon", q.Horizon},
		{"schemas", pairs(q.Schemas)},
		{"headers", pairs(q.Headers)},
		{"words", pairs(q.Words)},
	} {
		if l.value != "" {
			c.say("  %-14s %s", l.name, l.value)
		}
	}
	if o := q.Ordering; o != nil {
		c.say("  %-14s by %s%s; after a failure: %s", "order", o.Key, after(", number ", o.Sequence), o.OnFailure)
	}
	var rows [][]string
	for _, x := range q.Ladder {
		rows = append(rows, []string{strconv.Itoa(x.Run), strconv.Itoa(x.Arrives), x.Delay, x.Earliest + " to " + x.Latest, x.Sum, x.Queue})
	}
	if len(rows) > 0 {
		c.table([]string{"failed run", "retry count", "delay", "with jitter", "sum", "waits in"}, rows)
	}
}

func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ", ")
}
