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
