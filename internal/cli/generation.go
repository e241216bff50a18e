package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/safetext"
)

func newGeneration(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "generation", Short: "Plan, approve, release and account for replays"}
	cmd.AddCommand(newPlan(c), newGenerationList(c), newGenerationShow(c), newApprove(c),
		newGenerationAct(c, api.GenerationReject, "reject", "Refuse a plan"),
		newRun(c, api.GenerationStart, "start", "Start the release and stay with it"),
		newRun(c, api.GenerationResume, "resume", "Clear the reasons of a pause and release on"),
		newPause(c), newGenerationAct(c, api.GenerationAbort, "abort", "Stop for good; what waits is free at once"),
		newLimit(c), newRule(c), newClose(c), newReconcile(c), newReport(c), newWatch(c))
	return cmd
}

func newGenerationList(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List generations, latest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(c, cmd, api.GenerationList, api.None{}, func(p api.GenerationPage) {
				var rows [][]string
				for _, g := range p.Generations {
					rows = append(rows, []string{strconv.Itoa(int(g.Number)), g.ID, g.Status, funnelText(&g), g.Fix})
				}
				c.table([]string{"no", "id", "status", "tally", "fix"}, rows)
			})
		},
	}
}

func newGenerationShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "show GENERATION", Short: "Show one generation", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(c, cmd, api.GenerationShow, api.GenerationRef{ID: args[0]}, func(g api.Generation) { c.showGeneration(&g) })
		},
	}
}

func (c *command) showGeneration(g *api.Generation) {
	c.say("generation %d  %s  %s", g.Number, g.ID, g.Status)
	c.say("  selection    %s", g.Selection)
	c.say("  fix          %s", g.Fix)
	c.forced(g.Forced, g.ForceWhy, g.Repaired)
	c.say("  to           %s, evidence %s", g.Destination, g.Evidence)
	if g.OnFailure != "" {
		c.say("  order        %s, on failure %s", g.Order, g.OnFailure)
	}
	c.say("  limits       %g/s, burst %d, window %d, exposure %d", g.Limits.Rate, g.Limits.Burst, g.Limits.Window, g.Limits.Exposure)
	if e := effectiveText(g); e != "" {
		c.say("  now          %s", e)
	}
	for _, t := range g.Effective.Throttles {
		c.say("  throttled    %s to %g %%%s (since %s)", t.Reason, float64(t.Permille)/10, after(": ", t.Why), stamp(t.Since))
	}
	c.say("  thresholds   %s", strings.Join(g.Thresholds, " "))
	c.say("  watched      %s", cmp.Or(strings.Join(g.Watched, " "), "nothing outside of the ledger"))
	c.say("  stage        %d of %d (sizes %s), bake %s, outcomes due within %s", g.Stage, len(g.Stages), api.StageSizes(g.Stages), g.Bake, g.Deadline)
	c.say("  manifest     %s", g.Manifest)
	for _, s := range []struct {
		name string
		step *api.Step
	}{{"planned", g.Planned}, {"approved", g.Approved}, {"started", g.Started}, {"ended", g.Ended}} {
		if s.step != nil {
			c.say("  %-12s %s by %s%s", s.name, stamp(s.step.At), who(s.step), after(" ", s.step.Why))
		}
	}
	for _, p := range g.Pauses {
		c.say("  paused       %s%s (%s by %s)", p.Reason, after(": ", p.Why), stamp(p.At), who(&p.Step))
	}
	c.wrong("  at "+g.Checked+strings.Repeat(" ", max(10-len(g.Checked), 1)), g.Checks)
	c.tally(g)
	if g.OutcomesDue != nil {
		c.say("  waits for    outcomes, the next deadline is %s", stamp(*g.OutcomesDue))
	}
	if g.State == "running" && !g.Driven {
		c.say("  nobody releases it now; go on with: redrive generation resume %d --why REASON", g.Number)
	}
	for _, i := range g.Ambiguous {
		c.say("  ambiguous    %s", i)
	}
}

// forced prints what makes a plan one for two people.
func (c *command) forced(reasons []string, why string, repaired uint64) {
	if len(reasons) > 0 {
		c.say("  FORCED       %s: %s", strings.Join(reasons, ", "), why)
	}
	if repaired > 0 {
		c.say("  REPAIRED     %d go out with another content than was captured; redrive envelope show lists the repairs", repaired)
	}
}

// effectiveText says what holds of the limits now, "" when all of it does.
func effectiveText(g *api.Generation) string {
	if g.Effective.Rate == g.Limits.Rate && g.Effective.Window == g.Limits.Window {
		return ""
	}
	return fmt.Sprintf("%g/s, window %d", g.Effective.Rate, g.Effective.Window)
}

func who(s *api.Step) string {
	if s.As != "" {
		return s.By + " as " + s.As
	}
	return s.By
}

// tally prints funnel and partition together, with the laws checked.
func (c *command) tally(g *api.Generation) {
	f := g.Funnel
	c.say("  funnel       selected %d, moved %d, admitted %d, deduplicated %d, succeeded %d, rejected %d, came back %d, ambiguous %d, missing %d",
		f.Selected, f.Moved, f.Admitted, f.Deduplicated, f.Succeeded, f.Rejected, f.Requarantined, f.Ambiguous, f.Missing)
	var parts []string
	for _, d := range []string{"waiting", "in_flight", "withheld", "deduplicated_plan", "undelivered", "ambiguous_publish", "pending", "admitted",
		"succeeded", "rejected", "requarantined", "missing", "deduplicated_consumer", "ambiguous_effect"} {
		if n := g.Tally[d]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, d))
		}
	}
	laws := "both sums hold"
	if !g.LawsHold {
		laws = "A SUM IS BROKEN"
	}
	c.say("  partition    %s (%s)", strings.Join(parts, " + "), laws)
	if g.Contradictions > 0 {
		c.say("  contradiction: %d members have evidence of delivery against a definite non-delivery", g.Contradictions)
	}
	if g.Disputes+g.Doubles > 0 {
		c.say("  business data: %d members with more than one effect, %d about which it says otherwise than was reported", g.Doubles, g.Disputes)
	}
}

func newApprove(c *command) *cobra.Command {
	req := api.ApproveRequest{}
	cmd := &cobra.Command{
		Use: "approve GENERATION", Short: "Approve exactly this manifest", Args: cobra.ExactArgs(1),
		Long: `Approve exactly this manifest. Without --digest the one that is there now is shown
and approved. Somebody else than the planner has to, unless the cohort has at most
approvals.planner_up_to members.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID, req.As = args[0], c.as
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				if req.Digest == "" {
					g, err := api.Call(ctx, s, api.GenerationShow, api.GenerationRef{ID: req.ID}, nil)
					if err != nil {
						return err
					}
					req.Digest = g.Manifest
				}
				g, err := api.Call(ctx, s, api.GenerationApprove, req, nil)
				if err != nil {
					return err
				}
				return c.print(g, func() {
					c.showGeneration(&g)
					c.say("Approved until %s. Start it with: redrive generation start %d", stamp(*g.Expires), g.Number)
				})
			})
		},
	}
	cmd.Flags().StringVar(&req.Digest, "digest", "", "manifest that was looked at")
	cmd.Flags().StringVar(&req.Why, "why", "", "why")
	return cmd
}

func newGenerationAct(c *command, op api.Op[api.GenerationAct, api.Generation], verb, short string) *cobra.Command {
	req := api.GenerationAct{}
	cmd := &cobra.Command{
		Use: verb + " GENERATION", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID, req.As = args[0], c.as
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				g, err := api.Call(ctx, s, op, req, nil)
				if err != nil {
					return err
				}
				return c.print(g, func() { c.end(ctx, s, &g) })
			})
		},
	}
	cmd.Flags().StringVar(&req.Why, "why", "", "why (required)")
	return cmd
}

// end prints the closing statement of a generation.
func (c *command) end(ctx context.Context, s api.Caller, g *api.Generation) {
	r, err := api.Call(ctx, s, api.GenerationReport, api.GenerationRef{ID: g.ID}, nil)
	if err != nil {
		c.showGeneration(g)
		return
	}
	_, _ = c.out.Write([]byte(safetext.Block(r.Text))) // made safe line by line
}

func newRun(c *command, op api.Op[api.RunRequest, api.Generation], verb, short string) *cobra.Command {
	req := api.RunRequest{}
	cmd := &cobra.Command{
		Use: verb + " GENERATION", Short: short, Args: cobra.ExactArgs(1),
		Long: short + `, until every outcome is known or its deadline has passed. While it runs, what
comes back is captured, outcome reports are read, and other shells can pause,
resume, abort and watch.

Exit codes: 0 nothing of what moved is open; what was rejected or withheld is in
the report · 3 refused, aborted, or paused by a person · 4 a threshold paused it ·
5 finished, but some are missing, ambiguous, undelivered or came back.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID, req.As = args[0], c.as
			var g api.Generation
			err := c.with(cmd, func(ctx context.Context, s api.Caller) error {
				p := c.progress()
				var err error
				g, err = api.Call(ctx, s, op, req, p.show)
				p.end()
				if err != nil {
					return err
				}
				return c.print(g, func() { c.afterRun(ctx, s, &g) })
			})
			if err != nil {
				return err
			}
			if code := generationExit(&g); code != exitOK {
				return &exitError{code: code}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&req.NoWait, "no-wait", false, "come back when everything is decided, without its outcomes")
	cmd.Flags().StringVar(&req.Why, "why", "", "why (required to resume)")
	if verb == "resume" {
		cmd.Flags().StringArrayVar(&req.Clear, "clear", nil, "reason of the pause to clear, may be given again (default all)")
		cmd.Flags().StringVar(&req.Digest, "digest", "", "manifest that was looked at again, required after messages went wrong")
	}
	return cmd
}

func (c *command) afterRun(ctx context.Context, s api.Caller, g *api.Generation) {
	if g.State == "paused" {
		c.showGeneration(g)
		first := "Look at the reason and at what came back"
		again := ""
		for _, p := range g.Pauses {
			if p.Reason == "kill_switch" {
				first = "Remove the file STOP from the data directory"
			}
			if p.LookAgain {
				again = " --digest " + g.Manifest
			}
		}
		c.say("It stands still. %s, then: redrive generation resume %d%s --why …, or abort %d --why …", first, g.Number, again, g.Number)
		return
	}
	c.end(ctx, s, g)
	if g.State == "settling" && g.Tally["pending"] == 0 {
		amb := g.Tally["ambiguous_publish"] + g.Tally["ambiguous_effect"]
		c.say("Close it with: redrive generation close %d --accept ambiguous=%d,missing=%d,withheld=%d --why …",
			g.Number, amb, g.Tally["missing"], g.Tally["withheld"])
	}
}

func newPause(c *command) *cobra.Command {
	req := api.PauseRequest{}
	cmd := &cobra.Command{
		Use: "pause [GENERATION]", Short: "Stop a release; what is in flight ends, nothing more goes out", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.As = c.as
			if len(args) == 1 {
				req.ID = args[0]
			}
			return ask(c, cmd, api.GenerationPause, req, func(p api.Paused) {
				for _, g := range p.Generations {
					c.say("generation %d is %s: %s", g.Number, g.State, funnelText(&g))
				}
				if len(p.Generations) == 0 {
					c.say("No generation runs.")
				}
			})
		},
	}
	cmd.Flags().BoolVar(&req.All, "all", false, "every generation that runs")
	cmd.Flags().StringVar(&req.Why, "why", "", "why")
	return cmd
}
