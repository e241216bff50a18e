package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/redrive"
)

func newPlan(c *command) *cobra.Command {
	var req api.PlanRequest
	var stages []string
	cmd := &cobra.Command{
		Use: "plan", Short: "Freeze a cohort and say how it is to be released", Args: cobra.NoArgs,
		Long: `Freeze a cohort and say how it is to be released. Nothing moves. With --dry-run
nothing is written either: it shows what would move, what would not, and why.

All conditions that are given have to hold. Stages, order, thresholds and checks
become part of the manifest, which somebody else approves.

Exit codes: 0 planned · 2 usage, or an expression that cannot be told for some
envelope · 3 refused, as when nothing is free to be released · 75 temporary, try
again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.As = c.as
			for _, s := range stages {
				n, err := strconv.ParseUint(s, 10, 64)
				if err != nil {
					return usageError{fmt.Errorf("--stages %q: want sizes, as in 1,10,100", s)}
				}
				req.Stages = append(req.Stages, n)
			}
			if err := checkRate(cmd, req.Rate); err != nil {
				return err
			}
			for _, name := range []string{"burst", "window", "exposure"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
					return usageError{fmt.Errorf("--%s 0: want more than 0", name)}
				}
			}
			return ask(c, cmd, api.GenerationPlan, req, c.showPlan)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&req.IDs, "id", nil, "envelope, may be given again: ULID, unique prefix, number (#7), message id or operation")
	f.StringVar(&req.Reason, "reason", "", "failure reason, also the last one before it was given up")
	f.StringVar(&req.Class, "class", "", "failure class")
	f.StringVar(&req.Owner, "owner", "", "owner")
	f.StringVar(&req.Queue, "queue", "", "queue from which it was captured")
	f.StringVar(&req.Died, "died", "", "queue in which it died")
	f.StringVar(&req.Type, "type", "", "event type")
	f.StringVar(&req.Lineage, "lineage", "", "any envelope of the lineage")
	neverEmpty(f, "id", "reason", "class", "owner", "queue", "died", "type", "lineage")
	narrowingFlags(f, &req.Narrowing, "")
	f.StringSliceVar(&req.Force, "force", nil, "reasons to stay that are overruled: "+strings.Join(redrive.Forcible(), ", "))
	f.StringVar(&req.ForceWhy, "force-why", "", "why they may be")
	f.BoolVar(&req.All, "all", false, "everything that is quarantined")
	f.StringVar(&req.ToQueue, "to-queue", "", "destination; default: the queue in which the messages died last")
	neverEmpty(f, "to-queue")
	f.BoolVar(&req.ToFirst, "to-first", false, "destination: the queue in which they died first, when several")
	f.StringVar(&req.ToExchange, "to-exchange", "", "destination exchange")
	f.StringVar(&req.ToRoutingKey, "to-routing-key", "", "routing key at the destination exchange")
	f.BoolVar(&req.ToOriginal, "to-original", false, "destination: the exchange and routing key with which each was first published")
	f.StringArrayVar(&req.DropHeaders, "drop-header", nil, "header to take off, may be given again")
	f.StringArrayVar(&req.KeepHeaders, "keep-header", nil, "header not to take off, of those that are by default")
	f.BoolVar(&req.NoStrip, "no-strip", false, "take no header off but older stamps")
	f.StringArrayVar(&req.SetHeaders, "set-header", nil, "NAME=VALUE to put on as a string, may be given again; recorded in the open")
	f.BoolVar(&req.KeepExpiration, "keep-expiration", false, "keep the expiration, whose time then runs again")
	f.BoolVar(&req.Persistent, "persistent", false, "delivery mode 2 for all, also for messages that were transient")
	f.StringVar(&req.Fix, "fix", "", "what was changed, so that it will work this time")
	f.StringVar(&req.Code, "code", "", "code or configuration generation expected at the destination")
	f.StringVar(&req.Consumer, "consumer", "", "consumer version expected at the destination")
	f.StringSliceVar(&req.Expected, "expect", nil, "terminal outcomes expected")
	f.Float64Var(&req.Rate, "rate", 0, "messages per second (default 50)")
	f.Uint32Var(&req.Burst, "burst", 0, "intents at once (default max(1, rate/50))")
	f.Uint32Var(&req.Window, "window", 0, "publishes without a confirm (default 64)")
	f.Uint32Var(&req.Exposure, "exposure", 0, "released messages whose effect is not known (default 200)")
	f.StringSliceVar(&stages, "stages", nil, "sizes of the stages; the rest follows (default 1,10,a tenth)")
	f.BoolVar(&req.NoStages, "no-stages", false, "all at once; its approval has to say no-stages in --why")
	f.StringArrayVar(&req.Thresholds, "threshold", nil, "SIGNAL=VALUE, may be given again: a count, a share such as 5%, or a time such as 10s")
	f.StringVar(&req.Bake, "bake", "", "how long a stage waits after its last change (default 60s)")
	f.StringVar(&req.OutcomeDeadline, "outcome-deadline", "", "how long an outcome may take (default: by the ladder of the policy, else 20m)")
	f.StringVar(&req.Evidence, "evidence", "", "outcomes, returns_only or reconcile (default returns_only)")
	f.StringVar(&req.Order, "order", "", "none, or per-key: each message of an ordering key after the outcome of the one before (default none)")
	f.StringVar(&req.OnFailure, "on-failure", "", "what a failure does to the rest of its key: block, park, continue or rebuild (default block)")
	f.StringVar(&req.Ambiguity, "ambiguity", "", "a publish in doubt: hold, or retry for a consumer that remembers message ids (default hold)")
	f.BoolVar(&req.RetryNacked, "retry-nacked", false, "try again up to 3 times what the single destination queue refused with a nack")
	f.BoolVar(&req.DryRun, "dry-run", false, "show everything, write nothing")
	return cmd
}

// checkRate refuses what has no form in JSON, and a rate of 0, which stands for
// the default in a request.
func checkRate(cmd *cobra.Command, rate float64) error {
	if cmd.Flags().Changed("rate") && (math.IsNaN(rate) || math.IsInf(rate, 0) || rate == 0) {
		return usageError{fmt.Errorf("--rate %g: want more than 0 and at most 1000000 messages per second; to stand still, pause or do not start", rate)}
	}
	return nil
}

func (c *command) showPlan(p api.Plan) {
	if g := p.Generation; g != nil {
		c.say("Planned generation %d (%s).", g.Number, g.ID)
	} else {
		c.say("Dry run: nothing was written.")
	}
	c.say("%d selected, %d would move to %s.", p.Selected, p.Members, p.Destination)
	for _, x := range p.Excluded {
		c.say("  %d stay: %s", x.Count, x.Reason)
		for _, s := range p.Stays {
			if s.Reason == x.Reason {
				c.say("      such as %s%s", strings.Join(s.Examples[:min(len(s.Examples), 2)], ", "), after("; ", s.Advice))
			}
		}
	}
	c.forced(p.Forced, p.ForceWhy, p.Repaired)
	c.groups(p.Kinds)
	for _, x := range p.Sampled {
		c.say("sample    %s  %s  %s  %s", x.ID, x.Reason, x.Type, age(x.Died))
	}
	c.say("stages    sizes %s", api.StageSizes(p.Stages))
	c.say("limits    %g/s, burst %d, window %d, exposure %d", p.Limits.Rate, p.Limits.Burst, p.Limits.Window, p.Limits.Exposure)
	if f := p.Forecast; f.Total != "" {
		c.say("takes     about %s: %s at the rate%s, %s of bake times; at most %d out at once without a known effect", f.Total, f.AtRate,
			after(", "+f.AtExposure+" by the exposure cap with outcomes after ", f.MeanOutcome), f.Bakes, f.Exposed)
	}
	c.say("watched   %s", cmp.Or(strings.Join(p.Watched, " "), "nothing outside of the ledger"))
	c.say("evidence  %s", p.Evidence)
	c.showOrder(&p)
	c.say("headers   the rules take off: %s", strings.Join(p.HeaderRules, ", "))
	c.showChanges(&p)
	c.checks(p.Checks)
	for _, w := range p.Warnings {
		c.say("warning   %s", w)
	}
	if g := p.Generation; g != nil {
		c.say("manifest  %s", g.Manifest)
		c.say("Approve it with: redrive generation approve %d --digest %s", g.Number, g.Manifest)
	}
}

// checks prints what a preflight found: the good ones in a line, then what nobody
// looked at, then what is wrong, each with its evidence.
func (c *command) checks(list []api.Check) {
	byResult := map[string][]string{}
	for _, x := range list {
		if x.Result != "failed" && !stands(&x) {
			byResult[x.Result] = append(byResult[x.Result], x.Name)
		}
	}
	if good := byResult["ok"]; len(good) > 0 {
		c.say("checks    ok: %s", strings.Join(good, ", "))
	}
	if open := byResult["unknown"]; len(open) > 0 {
		c.say("checks    not known: %s", strings.Join(open, ", "))
	}
	c.wrong("checks    ", list)
}

// wrong prints the checks that failed or stand in the way of a start.
func (c *command) wrong(indent string, list []api.Check) {
	for _, x := range list {
		switch {
		case stands(&x):
			c.say("%s%s %s, and nothing starts without it: %s", indent, x.Name, x.Result, x.Evidence)
		case x.Result == "failed":
			c.say("%s%s failed: %s", indent, x.Name, x.Evidence)
		}
	}
}

func stands(x *api.Check) bool { return x.Required && x.Result != "ok" }

// showChanges prints the difference between the originals and what goes out.
func (c *command) showChanges(p *api.Plan) {
	compared := "all of them"
	if p.Changes.Examined < p.Members {
		compared = fmt.Sprintf("the first %d of %d", p.Changes.Examined, p.Members)
	}
	texts := map[string][]string{}
	for _, x := range p.Changes.List {
		texts[x.How] = append(texts[x.How], fmt.Sprintf("%s %s (%d)", x.What, x.Name, x.Count))
	}
	for _, how := range []string{"removed", "changed", "added"} {
		const most = 20
		if list := texts[how]; len(list) > most {
			c.say("%-9s %s, and %d more: --json lists all", how, strings.Join(list[:most], ", "), len(list)-most)
		} else if len(list) > 0 {
			c.say("%-9s %s", how, strings.Join(list, ", "))
		}
	}
	c.say("stamped   all; what is removed, changed and added was counted in %s", compared)
	for _, x := range p.Changes.Refused {
		c.say("warning   %d of these would be undelivered: %s", x.Count, x.Reason)
	}
}

func newLimit(c *command) *cobra.Command {
	req := api.LimitRequest{}
	cmd := &cobra.Command{
		Use: "limit GENERATION", Short: "Change the limits of a generation", Args: cobra.ExactArgs(1),
		Long: `Change the limits of a generation, also while it runs. Tightening needs nobody;
loosening needs --approve by somebody who did not plan it. Old and new value go
into the ledger.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID, req.As = args[0], c.as
			if err := checkRate(cmd, req.Rate); err != nil {
				return err
			}
			for _, name := range []string{"burst", "window", "exposure"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
					return usageError{fmt.Errorf("--%s 0: want more than 0; to stand still, pause", name)}
				}
			}
			return ask(c, cmd, api.GenerationLimit, req, func(g api.Generation) { c.showGeneration(&g) })
		},
	}
	cmd.Flags().Float64Var(&req.Rate, "rate", 0, "messages per second")
	cmd.Flags().Uint32Var(&req.Burst, "burst", 0, "intents at once")
	cmd.Flags().Uint32Var(&req.Window, "window", 0, "publishes without a confirm")
	cmd.Flags().Uint32Var(&req.Exposure, "exposure", 0, "released messages whose effect is not known")
	cmd.Flags().StringVar(&req.OnFailure, "on-failure", "", "what a failure does to the rest of its key from now on: block, park or rebuild")
	cmd.Flags().StringArrayVar(&req.Thresholds, "threshold", nil, "SIGNAL=VALUE, may be given again; a higher limit is looser")
	cmd.Flags().BoolVar(&req.Approve, "approve", false, "approve the loosening")
	cmd.Flags().StringVar(&req.Why, "why", "", "why")
	return cmd
}

func newRule(c *command) *cobra.Command {
	req := api.RuleRequest{}
	var delivered, not bool
	cmd := &cobra.Command{
		Use: "rule [GENERATION]", Short: "Decide about ambiguous publishes", Args: cobra.MaximumNArgs(1),
		Long: `Decide about one ambiguous publish (--intent), or about all of a generation: say
whether the broker has the message, after having looked. An outcome or a return
that comes all the same is counted as a contradiction.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if delivered == not {
				return usageError{errors.New("say --delivered or --not-delivered")}
			}
			if f := cmd.Flags(); f.Changed("why") && f.Changed("reason") {
				return usageError{errors.New("--reason is another name of --why: give one of them")}
			}
			req.Delivered, req.As = delivered, c.as
			if len(args) == 1 {
				req.ID = args[0]
			}
			return ask(c, cmd, api.GenerationRule, req, func(g api.Generation) { c.showGeneration(&g) })
		},
	}
	cmd.Flags().StringVar(&req.Intent, "intent", "", "GENERATION/POSITION/TRY")
	cmd.Flags().BoolVar(&delivered, "delivered", false, "the broker has it")
	cmd.Flags().BoolVar(&not, "not-delivered", false, "the broker does not have it")
	cmd.Flags().StringVar(&req.Why, "why", "", "the evidence (required)")
	cmd.Flags().StringVar(&req.Why, "reason", "", "the same as --why")
	return cmd
}

func newClose(c *command) *cobra.Command {
	req := api.CloseRequest{}
	var accept []string
	cmd := &cobra.Command{
		Use: "close GENERATION", Short: "End a generation, naming what stays open", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID, req.As = args[0], c.as
			fields := map[string]*uint64{"ambiguous": &req.Ambiguous, "missing": &req.Missing, "withheld": &req.Withheld}
			for _, a := range accept {
				name, value, _ := strings.Cut(a, "=")
				n, err := strconv.ParseUint(value, 10, 64)
				if fields[name] == nil || err != nil {
					return usageError{fmt.Errorf("--accept %q: want ambiguous=N, missing=N, withheld=N", a)}
				}
				*fields[name] = n
			}
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				g, err := api.Call(ctx, s, api.GenerationClose, req, nil)
				if err != nil {
					return err
				}
				return c.print(g, func() { c.end(ctx, s, &g) })
			})
		},
	}
	cmd.Flags().StringSliceVar(&accept, "accept", nil, "ambiguous=N,missing=N,withheld=N")
	cmd.Flags().StringVar(&req.Why, "why", "", "why that is acceptable")
	return cmd
}

// watchEvery is how often a watched generation is looked at.
const watchEvery = 500 * time.Millisecond

func newWatch(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "watch GENERATION", Short: "Print the tally whenever it changes, until the generation ends", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var g api.Generation
			last := ""
			// Each look is one of its own: a watch must not hold the store, or
			// nobody could start in another shell, and it goes on when whoever
			// answered it ends.
			look := func(ctx context.Context, s api.Caller) error {
				now, err := api.Call(ctx, s, api.GenerationShow, api.GenerationRef{ID: args[0]}, nil)
				if err != nil {
					return err
				}
				g = now
				text := g.State + effectiveText(&g) + funnelText(&g)
				if text == last {
					return nil
				}
				last = text
				return c.print(g, func() { c.say("%s", progressText(api.Progress{Generation: &g})) })
			}
			for ended := false; !ended; {
				if err := c.with(cmd, look); err != nil && (g.ID == "" || !temporary(err)) {
					return err
				}
				switch g.State {
				case "closed", "rejected", "expired":
					ended = true
					continue
				}
				select {
				case <-time.After(watchEvery):
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				}
			}
			if code := generationExit(&g); code != exitOK {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

// temporary reports whether trying again may help.
func temporary(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && (e.Code == api.CodeTemporary || e.Code == api.CodeHeld)
}
