package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
)

// openCustody is the custody of what nobody has settled.
var openCustody = []string{"quarantined", "released"}

func newPeek(c *command) *cobra.Command {
	q := api.EnvelopeQuery{Custody: openCustody}
	cmd := &cobra.Command{
		Use: "peek", Short: "Show by reason what the store holds of a queue", Args: cobra.NoArgs,
		Long: `Show by reason what the store holds of a queue and nobody has settled. Nothing is
taken from the broker, so that no message loses a delivery by being looked at: what
is there and not captured yet is counted, and the command that captures it is named.

Exit 3 when the store holds nothing that matches; otherwise 0.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit == 0 { // which stands for the default in a request
				return usageError{errors.New("--limit 0: want 1 to 500")}
			}
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				p, err := peek(ctx, s, q)
				if err != nil {
					return err
				}
				if err := c.print(p, func() { c.showPeek(&p) }); err != nil {
					return err
				}
				if p.Total == 0 {
					return &exitError{code: exitRefused, text: "the store holds nothing open of " + q.Queue + matching(&q)}
				}
				return nil
			})
		},
	}
	deadQueueFlag(cmd, &q.Queue)
	whichFlags(cmd.Flags(), &q.IDs, &q.Reason)
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "messages to list, 1 to 500; all are counted")
	return cmd
}

// matching says what else was asked for.
func matching(q *api.EnvelopeQuery) string {
	switch {
	case q.Reason != "":
		return " with reason " + q.Reason
	case len(q.IDs) > 0:
		return " by that name"
	}
	return ""
}

func peek(ctx context.Context, s api.Caller, q api.EnvelopeQuery) (api.Peek, error) {
	p := api.Peek{Queue: q.Queue, Groups: []api.EnvelopeGroup{}, Envelopes: []api.Envelope{}}
	depth, err := api.Call(ctx, s, api.SourceDepth, api.DepthRequest{Queue: q.Queue}, nil)
	var gone *api.Error
	switch {
	case errors.As(err, &gone) && gone.Code == api.CodeNotFound:
		p.Unknown = gone.Message // the store may have what the queue had
	case err != nil:
		return p, err
	default:
		p.BrokerReady, p.Unknown = depth.BrokerReady, depth.Unknown
	}
	if n := p.BrokerReady; n != nil && *n > 0 {
		p.Capture = captureCommand(q.Queue)
	}
	page, err := api.Call(ctx, s, api.EnvelopeList, q, nil)
	if err != nil {
		return p, notCaptured(ctx, s, q.Queue, err)
	}
	q.Limit = 0
	groups, err := api.Call(ctx, s, api.EnvelopeGroups, q, nil)
	if err != nil {
		return p, err
	}
	p.Groups, p.Total = append(p.Groups, groups.Groups...), groups.Total
	if p.Total == 0 && gone != nil {
		return p, gone
	}
	p.Envelopes = append(p.Envelopes, page.Envelopes...)
	p.Unlisted = p.Total - min(uint64(len(p.Envelopes)), p.Total)
	slices.SortStableFunc(p.Envelopes, func(a, b api.Envelope) int { return cmp.Compare(groupOf(&p, &a), groupOf(&p, &b)) })
	err = explain(ctx, s, &p)
	return p, err
}

func groupOf(p *api.Peek, e *api.Envelope) int {
	return slices.IndexFunc(p.Groups, func(g api.EnvelopeGroup) bool {
		return g.Reason == e.Reason && g.Class == e.Class && g.Owner == e.Owner
	})
}

// explain fetches an error text for each group: it is sealed with the message,
// so that reading it for all costs as much as reading all messages.
func explain(ctx context.Context, s api.Caller, p *api.Peek) error {
	last := -2
	for i := range p.Envelopes {
		e := &p.Envelopes[i]
		g := groupOf(p, e)
		if g == last {
			continue
		}
		last = g
		full, err := api.Call(ctx, s, api.EnvelopeShow, api.EnvelopeShowRequest{ID: e.ID}, nil)
		if err != nil {
			return err
		}
		e.Diagnostic = full.Diagnostic
	}
	return nil
}

func (c *command) showPeek(p *api.Peek) {
	if p.Total > 0 {
		c.groups(p.Groups)
		c.say("")
		c.peeked(p.Envelopes)
		for _, e := range p.Envelopes {
			if e.Diagnostic != "" {
				c.say("%s, for example %s: %s", cmp.Or(e.Reason, "no reason"), cmp.Or(e.Identity.MessageID, e.ID), e.Diagnostic)
			}
		}
	}
	if p.Unlisted > 0 {
		c.say("%d more are not listed: see --limit and --reason", p.Unlisted)
	}
	switch {
	case p.BrokerReady == nil:
		c.say("What the broker still has is unknown: %s", p.Unknown)
	case *p.BrokerReady > 0:
		c.say("The broker has %d that are not captured: %s", *p.BrokerReady, p.Capture)
	}
}

func (c *command) peeked(list []api.Envelope) {
	var rows [][]string
	for _, e := range list {
		failed := ""
		if t := e.Times.FirstDied; t != nil {
			failed = stamp(*t)
		}
		custody := e.Custody
		for _, f := range e.Flags {
			if f != "settled" { // at the broker, which is no news here
				custody += ", " + f
			}
		}
		rows = append(rows, []string{e.Reason, e.Last, e.Identity.MessageID, e.ID, runs(e.Attempts), e.Code, failed, custody})
	}
	c.table([]string{"reason", "last reason", "message", "envelope", "runs", "code", "first failed", "state"}, rows)
}

// runs is how often the handler of the consumer ran.
func runs(n int64) string {
	if n < 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
