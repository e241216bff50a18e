package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
)

func newCapture(c *command) *cobra.Command {
	var req api.CaptureRequest
	cmd := &cobra.Command{
		Use: "capture", Short: "Move dead messages into the store", Args: cobra.NoArgs,
		Long: `Move dead messages into the store, exactly as they are, until the queues are
empty or --max is reached. A message leaves its queue only after it is durable
in the store. What is known to lose messages of a queue is said first.

A queue whose sessions end again and again before anything is safe is parked:
"redrive status" says why and what to do. Other queues go on. Exit 3 when a
queue is parked, 75 when a broker is out of reach.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"max", "prefetch"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
					return usageError{fmt.Errorf("--%s 0: want more than 0", name)}
				}
			}
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				p := c.progress()
				sum, err := api.Call(ctx, s, api.CaptureRun, req, p.show)
				p.end()
				if err != nil {
					return err
				}
				err = c.print(sum, func() {
					if sum.Captured+sum.Merged == 0 && sum.Err() != nil {
						return
					}
					var rows [][]string
					for _, q := range sum.Queues {
						rows = append(rows, []string{q.Queue, strconv.FormatUint(q.Captured, 10), strconv.FormatUint(q.Merged, 10), known(q.Ready)})
					}
					c.table([]string{"queue", "captured", "already known", "left at the broker"}, rows)
					if sum.Returned > 0 {
						c.say("%d of them came back from a release.", sum.Returned)
					}
				})
				return errors.Join(err, sum.Err())
			})
		},
	}
	cmd.Flags().StringArrayVar(&req.Queues, "queue", nil, "queue to capture, may be given again; default: all configured sources")
	cmd.Flags().Uint64Var(&req.Max, "max", 0, "stop after that many messages")
	cmd.Flags().IntVar(&req.Prefetch, "prefetch", 0, "messages in flight, 1 to 1000")
	cmd.Flags().BoolVar(&req.Unpark, "unpark", false, "also queues that were parked, after their cause was mended")
	cmd.Flags().BoolVar(&req.Follow, "follow", false, "go on until interrupted")
	return cmd
}

func known(n int) string {
	if n < 0 {
		return "unknown"
	}
	return strconv.Itoa(n)
}

func newDLQ(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "dlq", Short: "Short forms for a dead-letter queue"}
	var queue string
	var above int64
	depth := &cobra.Command{
		Use: "depth", Short: "Show what waits at the broker and what is open in the store", Args: cobra.NoArgs,
		Long: "Show broker and store apart. Unknown is never 0. Exit 3 when the broker's depth is unknown, 1 when the sum is above --fail-above.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var d api.DepthInfo
			err := ask(c, cmd, api.SourceDepth, api.DepthRequest{Queue: queue}, func(i api.DepthInfo) {
				ready := -1
				if i.BrokerReady != nil {
					ready = *i.BrokerReady
				}
				c.say("broker ready  %s", known(ready))
				c.say("store open    %d", i.StoreOpen)
			}, func(i api.DepthInfo) { d = i })
			switch {
			case err != nil:
				return err
			case d.BrokerReady == nil:
				return &exitError{code: exitRefused, text: "the broker's depth is unknown: " + d.Unknown}
			case above >= 0 && uint64(*d.BrokerReady)+d.StoreOpen > uint64(above):
				return &exitError{code: exitFailed, text: "the depth is above " + strconv.FormatInt(above, 10)}
			}
			return nil
		},
	}
	depth.Flags().StringVar(&queue, "queue", "", "dead-letter queue")
	depth.Flags().Int64Var(&above, "fail-above", -1, "exit 1 when broker and store together hold more")
	_ = depth.MarkFlagRequired("queue") // the flag exists
	cmd.AddCommand(depth)
	return cmd
}
