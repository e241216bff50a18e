package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/safetext"
)

func newEnvelope(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "envelope", Short: "Look at quarantined messages and say things about them"}
	cmd.AddCommand(newEnvelopeList(c), newEnvelopeShow(c), newRepair(c), newCompare(c),
		newChange(c, api.EnvelopeAnnotate, "annotate", "Add a note", func(f *pflag.FlagSet, r *api.EnvelopeChange) {
			f.StringVar(&r.Note, "note", "", "the note")
			f.StringVar(&r.Ticket, "ticket", "", "ticket")
		}),
		newClassify(c),
		newChange(c, api.EnvelopeAssign, "assign", "Say who owns the resolution", func(f *pflag.FlagSet, r *api.EnvelopeChange) {
			f.StringVar(&r.Owner, "owner", "", "new owner")
			f.StringVar(&r.Why, "why", "", "why")
		}),
		newChange(c, api.EnvelopeHold, "hold", "Forbid release and purge", whyTicket),
		newChange(c, api.EnvelopeUnhold, "unhold", "Lift a hold", whyTicket),
		newChange(c, api.EnvelopeResolve, "resolve", "Settle by a person's word", whyTicket),
		newChange(c, api.EnvelopePurge, "purge", "Erase for good; a tombstone stays", whyTicket))
	return cmd
}

func whyTicket(f *pflag.FlagSet, r *api.EnvelopeChange) {
	f.StringVar(&r.Why, "why", "", "why")
	f.StringVar(&r.Ticket, "ticket", "", "ticket")
}

// queryFlags add the filters of lists. Where they stand beside other flags of
// the same names, prefix keeps them apart.
func queryFlags(f *pflag.FlagSet, q *api.EnvelopeQuery, prefix string) {
	f.StringSliceVar(&q.Custody, prefix+"custody", nil, "quarantined, released, returned, resolved, purged")
	f.StringVar(&q.Queue, prefix+"queue", "", "queue from which it was captured")
	f.StringVar(&q.Died, prefix+"died", "", "queue in which it died")
	f.StringVar(&q.Reason, prefix+"reason", "", "failure reason, also the last one before it was given up")
	f.StringVar(&q.Class, prefix+"class", "", "failure class")
	f.StringVar(&q.Owner, prefix+"owner", "", "owner")
	f.StringVar(&q.Type, prefix+"type", "", "event type")
	f.StringVar(&q.Lineage, prefix+"lineage", "", "any envelope of the lineage")
	f.BoolVar(&q.Held, prefix+"held", false, "only held ones")
	f.BoolVar(&q.Overdue, prefix+"overdue", false, "only those past their retention deadline")
	neverEmpty(f, prefix+"custody", prefix+"queue", prefix+"died", prefix+"reason", prefix+"class", prefix+"owner", prefix+"type", prefix+"lineage")
	narrowingFlags(f, &q.Narrowing, prefix)
}

func newEnvelopeList(c *command) *cobra.Command {
	var q api.EnvelopeQuery
	var groups bool
	cmd := &cobra.Command{
		Use: "list", Short: "List envelopes, or count them by reason and owner", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if groups {
				return ask(c, cmd, api.EnvelopeGroups, q, func(g api.EnvelopeGrouping) { c.groups(g.Groups) })
			}
			return ask(c, cmd, api.EnvelopeList, q, func(p api.EnvelopePage) {
				var rows [][]string
				for _, e := range p.Envelopes {
					rows = append(rows, []string{"#" + strconv.FormatUint(e.Number, 10), e.ID, e.Custody, e.Reason, e.Class, e.Owner,
						e.Identity.Operation, strconv.FormatUint(e.Lineage.Attempt, 10), age(e.Times.Captured), strings.Join(e.Flags, ",")})
				}
				c.table([]string{"no", "id", "custody", "reason", "class", "owner", "operation", "attempt", "age", "flags"}, rows)
				if p.Next > 0 {
					c.hint("There are more: --cursor %d", p.Next)
				}
			})
		},
	}
	queryFlags(cmd.Flags(), &q, "")
	cmd.Flags().BoolVar(&groups, "groups", false, "count by reason, class and owner")
	cmd.Flags().IntVar(&q.Limit, "limit", 100, "1 to 500")
	cmd.Flags().Uint64Var(&q.Cursor, "cursor", 0, "continue after a page")
	return cmd
}

func (c *command) groups(gs []api.EnvelopeGroup) {
	var rows [][]string
	for _, g := range gs {
		rows = append(rows, []string{strconv.FormatUint(g.Count, 10), g.Reason, g.Class, g.Owner, age(g.Oldest)})
	}
	c.table([]string{"count", "reason", "class", "owner", "oldest"}, rows)
}

func newEnvelopeShow(c *command) *cobra.Command {
	var req api.EnvelopeShowRequest
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one envelope", Args: cobra.ExactArgs(1),
		Long: `Show one envelope by ULID, unique prefix, number (#7), message id or operation.
With --payload the content is shown, masked unless --raw; that needs --why, and
it is in the ledger before a byte is shown.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID, req.As = args[0], c.as
			if req.Payload && req.Why == "" {
				return usageError{errors.New("--payload needs --why: the ledger keeps who looked at the content, and why")}
			}
			return ask(c, cmd, api.EnvelopeShow, req, c.showEnvelope)
		},
	}
	cmd.Flags().BoolVar(&req.Payload, "payload", false, "show the content")
	cmd.Flags().BoolVar(&req.Raw, "raw", false, "without masks")
	cmd.Flags().StringVar(&req.Why, "why", "", "why the content has to be seen")
	return cmd
}

func (c *command) showEnvelope(e api.Envelope) {
	c.say("%s  #%d  %s", e.ID, e.Number, e.Custody)
	for _, l := range []struct{ name, value string }{
		{"reason", e.Reason}, {"last reason", e.Last}, {"class", e.Class}, {"owner", e.Owner}, {"error", e.Diagnostic},
		{"flags", strings.Join(e.Flags, ", ")},
		{"captured from", e.Broker.Queue}, {"died in", e.Broker.DiedIn}, {"arrived by", arrival(e.Broker.Exchange, e.Broker.RoutingKey)},
		{"type", e.Identity.Type}, {"schema", e.Identity.Schema}, {"operation", e.Identity.Operation}, {"message id", e.Identity.MessageID},
		{"ordering key", e.Identity.OrderingKey}, {"sequence", e.Identity.Sequence}, {"trace", e.Identity.TraceID},
		{"producer", e.Identity.Producer}, {"consumer", e.Identity.Consumer},
		{"expiration", e.Expiration}, {"captured", stamp(e.Times.Captured)}, {"retention", stamp(e.Times.Deadline)},
		{"body", strconv.FormatUint(e.Size, 10) + " bytes, sha256 " + e.Identity.BodySHA256},
		{"lineage", "attempt " + strconv.FormatUint(e.Lineage.Attempt, 10) + ", root " + e.Lineage.Root},
		{"parent", e.Lineage.Parent}, {"children", strings.Join(e.Lineage.Children, ", ")}, {"duplicate of", e.Lineage.DuplicateOf},
	} {
		if l.value != "" {
			c.say("  %-14s %s", l.name, l.value)
		}
	}
	for _, n := range e.Notes {
		c.say("  note           %s %s: %s %s", stamp(n.At), n.By, n.Text, n.Ticket)
	}
	c.repairs(e.Repairs)
	if p := e.Payload; p != nil {
		for _, h := range p.Headers {
			c.say("  header         %s (%s) %s", h.Name, h.Type, h.Value)
		}
		if p.Text == "" && p.Base64 != "" {
			c.say("  body, base64:\n%s", p.Base64)
			return
		}
		_, _ = c.out.Write([]byte("  body:\n" + safetext.Block(p.Text) + "\n")) // made safe line by line
	}
}

// filtered reports whether envelopes are selected by a filter.
func filtered(cmd *cobra.Command) (yes bool) {
	cmd.Flags().Visit(func(f *pflag.Flag) { yes = yes || f.Name == "where" || strings.HasPrefix(f.Name, "where-") })
	return yes
}

// newChange makes a command that changes envelopes by id, or all that a filter
// selects.
func newChange(c *command, op api.Op[api.EnvelopeChange, api.Changed], verb, short string, flags func(*pflag.FlagSet, *api.EnvelopeChange)) *cobra.Command {
	var req api.EnvelopeChange
	var q api.EnvelopeQuery
	cmd := &cobra.Command{
		Use: verb + " [ID …]", Short: short,
		Long: short + ".\n\nEnvelopes are named by id, or selected by --where-… filters; not both.",
		RunE: func(cmd *cobra.Command, args []string) error {
			req.IDs, req.As = args, c.as
			if filtered(cmd) {
				req.Query = &q
			}
			return ask(c, cmd, op, req, func(r api.Changed) { c.say("%s: %d envelopes, recorded at %d", verb, r.Envelopes, r.Seq) })
		},
	}
	flags(cmd.Flags(), &req)
	queryFlags(cmd.Flags(), &q, "where-")
	return cmd
}

func newOutcome(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "outcome", Short: "Report what became of released messages"}
	cmd.AddCommand(newOutcomeReport(c), newOutcomeImport(c))
	return cmd
}

func (c *command) outcomes(cmd *cobra.Command, reports []string, via string) error {
	return c.with(cmd, func(ctx context.Context, s api.Caller) error {
		total := api.OutcomeResult{Unmatched: map[string]uint64{}}
		for len(reports) > 0 {
			n := min(len(reports), 1000)
			r, err := api.Call(ctx, s, api.OutcomeReport, api.OutcomeRequest{Reports: reports[:n], Via: via, As: c.as}, nil)
			if err != nil {
				return err
			}
			total.Taken, total.Known = total.Taken+r.Taken, total.Known+r.Known
			for k, v := range r.Unmatched {
				total.Unmatched[k] += v
			}
			reports = reports[n:]
		}
		err := c.print(total, func() {
			c.say("%d taken, %d said nothing new", total.Taken, total.Known)
			for _, k := range []string{"malformed", "unknown", "forged"} {
				if n := total.Unmatched[k]; n > 0 {
					c.say("%d not taken: %s", n, k)
				}
			}
		})
		if err == nil && len(total.Unmatched) > 0 {
			return &exitError{code: exitRefused, text: "some reports were not taken; they changed nothing"}
		}
		return err
	})
}
