package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redrivehq/redrive/internal/api"
)

func newDLQ(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "dlq", Short: "Short forms for a dead-letter queue"}
	cmd.AddCommand(newPeek(c), newDepth(c), newReplay(c), newDiscard(c))
	return cmd
}

// deadQueueFlag adds the queue that every short form is about.
func deadQueueFlag(cmd *cobra.Command, queue *string) {
	f := cmd.Flags()
	f.StringVar(queue, "queue", "", "dead-letter queue")
	neverEmpty(f, "queue")
	_ = cmd.MarkFlagRequired("queue") // the flag exists
}

const idUsage = "message, may be given again: message id, operation, envelope id, or a unique prefix of one"

// whichFlags add the two ways to name messages of a queue.
func whichFlags(f *pflag.FlagSet, ids *[]string, reason *string) {
	f.StringArrayVar(ids, "id", nil, idUsage)
	f.StringVar(reason, "reason", "", "failure reason, also the last one before it was given up")
	neverEmpty(f, "id", "reason")
}

func newDepth(c *command) *cobra.Command {
	var queue string
	var above int64
	cmd := &cobra.Command{
		Use: "depth", Short: "Show what waits at the broker and what is open in the store", Args: cobra.NoArgs,
		Long: "Show broker and store apart, and their sum. Unknown is never 0. Exit 3 when the broker's depth is unknown, 1 when the sum is above --fail-above.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var d api.DepthInfo
			err := ask(c, cmd, api.SourceDepth, api.DepthRequest{Queue: queue}, func(i api.DepthInfo) {
				c.say("broker ready  %s", counted(i.BrokerReady))
				c.say("store open    %d", i.StoreOpen)
				c.say("sum           %s", counted(i.Sum))
			}, func(i api.DepthInfo) { d = i })
			switch {
			case err != nil:
				return err
			case d.Sum == nil:
				return &exitError{code: exitRefused, text: "the broker's depth is unknown: " + d.Unknown}
			case above >= 0 && int64(*d.Sum) > above:
				return &exitError{code: exitFailed, text: "the depth is above " + strconv.FormatInt(above, 10)}
			}
			return nil
		},
	}
	deadQueueFlag(cmd, &queue)
	cmd.Flags().Int64Var(&above, "fail-above", -1, "exit 1 when broker and store together hold more")
	return cmd
}

func counted(n *int) string {
	if n == nil {
		return known(-1)
	}
	return known(*n)
}

func newDiscard(c *command) *cobra.Command {
	req := api.EnvelopeChange{Query: &api.EnvelopeQuery{}}
	cmd := &cobra.Command{
		Use: "purge", Short: "Erase messages of a queue for good, by name; tombstones stay", Args: cobra.NoArgs,
		Long: `Erase messages of a queue for good. Each one is named, and the ticket says why.
What is held, released and in doubt, or part of an open generation stays: the
command is refused and nothing is erased. Nothing is ever purged at the broker:
capture it first. There is no way back. What "envelope purge" leaves is left here
too: a tombstone and the records. "store compact" frees the space.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.As = c.as
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				r, err := api.Call(ctx, s, api.EnvelopePurge, req, nil)
				if err != nil {
					return notCaptured(ctx, s, req.Query.Queue, err)
				}
				return c.print(r, func() { c.say("purge: %d envelopes, recorded at %d", r.Envelopes, r.Seq) })
			})
		},
	}
	deadQueueFlag(cmd, &req.Query.Queue)
	f := cmd.Flags()
	f.StringArrayVar(&req.Query.IDs, "id", nil, idUsage)
	f.StringVar(&req.Ticket, "ticket", "", "ticket that says why, for the ledger")
	neverEmpty(f, "id", "ticket")
	for _, name := range []string{"id", "ticket"} {
		_ = cmd.MarkFlagRequired(name) // the flags exist
	}
	return cmd
}

// captureCommand is what takes the rest of a queue into the store.
func captureCommand(queue string) string { return "redrive capture --queue " + shellWord(queue) }

// shellWord quotes a name for a shell unless it needs no quotes.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:", r)
	}
	if s != "" && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// notCaptured adds to an envelope that was not found that the broker has
// messages which the store does not know yet.
func notCaptured(ctx context.Context, s api.Caller, queue string, err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeNotFound {
		return err
	}
	d, depthErr := api.Call(ctx, s, api.SourceDepth, api.DepthRequest{Queue: queue}, nil)
	if depthErr != nil || d.BrokerReady == nil || *d.BrokerReady == 0 {
		return err
	}
	return &api.Error{Code: e.Code, Message: e.Message + "\nthe broker has " + known(*d.BrokerReady) + " that are not captured: " + captureCommand(queue)}
}
