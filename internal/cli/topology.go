package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/app"
	"github.com/redrivehq/redrive/internal/policing"
)

func newPolicy(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "How queues are worked: the policy file, and the broker held against it"}
	cmd.AddCommand(newPolicyShow(c), newPolicySchema(c), newPolicyApply(c), newPolicyCheck(c), newPolicyAlerts(c))
	return cmd
}

func newPolicyApply(c *command) *cobra.Command {
	var p app.PolicyChoice
	var yes bool
	cmd := &cobra.Command{
		Use: "apply", Short: "Make the queues that a policy needs at the broker", Args: cobra.NoArgs,
		Long: `Print what the policy needs at the broker: its queues with their retry queues and
quarantine, and the exchange of outcomes. Nothing is changed without --yes, and
with it only what is missing is made: no queue that exists is changed or deleted.
An existing queue that lacks settings gets them by a broker policy of its own,
where no other one is in force. A second run changes nothing.

Exit 0 for a printed plan, and with --yes when all is right afterwards; 3 when
something differs, was denied or failed; 75 when something is unknown or the
broker is out of reach.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := app.PolicyApply(cmd.Context(), c.settings(cmd), p, yes)
			if err != nil {
				return err
			}
			if err := c.print(r, func() { c.showPolicyPlan(r) }); err != nil {
				return err
			}
			return planExit(r)
		},
	}
	choosePolicy(cmd, &p)
	cmd.Flags().BoolVar(&yes, "yes", false, "make what is missing")
	return cmd
}

func choosePolicy(cmd *cobra.Command, p *app.PolicyChoice) {
	cmd.Flags().StringVar(&p.File, "policy", "", "policy file; default: policy.file of the configuration")
	cmd.Flags().StringArrayVar(&p.Queues, "queue", nil, "queue of the policy, may be given again; default: all of them")
	neverEmpty(cmd.Flags(), "policy")
}

func (c *command) showPolicyPlan(r api.PolicyPlan) {
	c.say("broker: %s", brokerText(r.Broker))
	var rows [][]string
	missing := 0
	for _, s := range r.Steps {
		rows = append(rows, []string{s.Object, s.Name, s.State, s.Text})
		if s.State == api.StepMissing || s.State == api.StepDiffers {
			var set []string
			for _, x := range s.Settings {
				set = append(set, x.Name+"="+x.Value)
			}
			if len(set) > 0 {
				rows = append(rows, []string{"", "", "", "with: " + strings.Join(set, ", ")})
			}
		}
		if s.State == api.StepMissing {
			missing++
		} else if s.Advice != "" {
			rows = append(rows, []string{"", "", "", "to do: " + s.Advice})
		}
	}
	c.table([]string{"object", "name", "state", "what"}, rows)
	c.showNotes(r.Notes)
	switch {
	case missing > 0:
		c.say("%d of %d steps would change something. Nothing was changed; to act, add --yes", missing, len(r.Steps))
	case !r.Acted:
		c.say("There is nothing to make.")
	}
}

func (c *command) showNotes(notes []api.PolicyFinding) {
	for _, n := range notes {
		c.say("note: %s: %s: %s%s", n.Subject, n.Code, n.Text, after("; to do: ", n.Advice))
	}
}

// planExit is the exit code of a plan that was carried out. One that was only
// printed is done.
func planExit(r api.PolicyPlan) error {
	if !r.Acted {
		return nil
	}
	unknown := false
	for _, s := range r.Steps {
		switch s.State {
		case api.StepDiffers, api.StepDenied, api.StepFailed:
			return &exitError{code: exitRefused, text: "not everything is as the policy says: see above what has to be done"}
		case api.StepUnknown:
			unknown = true
		}
	}
	if unknown {
		return &exitError{code: exitTemporary, text: "not everything could be looked at: see above why"}
	}
	return nil
}

func newPolicyCheck(c *command) *cobra.Command {
	var p app.PolicyChoice
	var o policing.Options
	cmd := &cobra.Command{
		Use: "check", Short: "Find where broker, workers and policy part", Args: cobra.NoArgs,
		Long: `Hold the broker, its queues and their consumers against the policy. Nothing is
changed, and no message is touched. Most of it only RabbitMQ's management API
tells; see broker.management in the configuration.

Exit 0 when there is no drift, 3 when there is, 75 when none was found but not
everything could be looked at, or the broker is out of reach. Notes are about the
policy itself and leave the exit code alone.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := app.PolicyCheck(cmd.Context(), c.settings(cmd), p, o)
			if err != nil {
				return err
			}
			if err := c.print(r, func() { c.showCheck(r) }); err != nil {
				return err
			}
			switch r.Result {
			case api.Drift:
				return &exitError{code: exitRefused, text: "there is drift"}
			case api.DriftUnknown:
				return &exitError{code: exitTemporary, text: "no drift was found, but not everything could be looked at"}
			}
			return nil
		},
	}
	choosePolicy(cmd, &p)
	cmd.Flags().BoolVar(&o.WithoutWorkers, "without-workers", false, "leave consumers out, before they are started")
	return cmd
}

func (c *command) showCheck(r api.PolicyCheck) {
	c.say("broker: %s", brokerText(r.Broker))
	var rows [][]string
	for _, f := range r.Findings {
		rows = append(rows, []string{f.Severity, f.Subject, f.Code + ": " + f.Text})
		if f.Advice != "" {
			rows = append(rows, []string{"", "", "to do: " + f.Advice})
		}
	}
	if len(rows) > 0 {
		c.table([]string{"severity", "subject", "what"}, rows)
	} else {
		c.say("Broker and workers are as the policy says.")
	}
	c.showNotes(r.Notes)
}

func newPolicyAlerts(c *command) *cobra.Command {
	var p app.PolicyChoice
	cmd := &cobra.Command{
		Use: "alerts", Short: "Print the alerts of a policy as Prometheus rules", Args: cobra.NoArgs,
		Long: `Print a file of Prometheus rules: how much lies in quarantine, at the broker and in
the store together, what comes, how old it is, and what is not known. Each alert
carries the label owner. Check the file with promtool check rules.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules, err := app.PolicyAlerts(c.settings(cmd), p)
			if err != nil {
				return err
			}
			text, err := rules.YAML()
			if err != nil {
				return err
			}
			if c.json {
				return c.print(rules, nil)
			}
			_, err = c.out.Write(text)
			return err
		},
	}
	choosePolicy(cmd, &p)
	return cmd
}
