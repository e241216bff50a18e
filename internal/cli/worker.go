package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/app"
)

func newWorker(c *command) *cobra.Command {
	var w app.WorkerSettings
	cmd := &cobra.Command{
		Use: "worker (--http ADDRESS | -- COMMAND [ARGUMENT…])", Short: "Work a queue with a handler in any language",
		Long: `Work a queue: take each message, check its body against the policy's schema, ask
the handler, and do what the policy says of its answer: acknowledge, try again
after a delay, or move the message aside with its context. A message leaves the
queue only after its copy is confirmed or its effect is there.

The handler is an HTTP service that gets one POST for each message, or a command
that is started once for each. The answers that they give are one table:

  2xx                      exit 0    done
  409                      exit 80   its effect is there already
  408, 425, 5xx            exit 75   transient: again after a delay
  429, 503 + Retry-After   exit 69   a dependency is down: wait, and spend no retry
  other 4xx                exit 65   permanent: aside at once
                           exit 81   the business said no: a final answer
                           exit 82   an effect may have happened: aside, and never again by itself
                           exit 70   a defect of this version of the handler: aside
  no answer in time        others    unknown: again after a delay, then aside

A JSON object as the answer, or as the last line of standard output, may name
class, reason, code, detail, reference and retry_after. What the handler is told
about a message stands in request headers (X-Redrive-…) or variables (REDRIVE_…).

One JSON record for each message that is moved aside goes to stderr. The worker
needs no store. It ends when it is interrupted, after what it has in hand.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Settings, w.Command = c.settings(cmd), args
			level := slog.LevelWarn
			if c.verbose {
				level = slog.LevelInfo
			}
			w.Logger = slog.New(slog.NewJSONHandler(c.err, &slog.HandlerOptions{Level: level}))
			return app.Work(cmd.Context(), w)
		},
	}
	choosePolicy(cmd, &w.Policy)
	cmd.Flags().StringVar(&w.HTTP, "http", "", "address of the handler")
	cmd.Flags().IntVar(&w.Concurrency, "concurrency", 1, "messages that are handled at once, 1 to 1000")
	cmd.Flags().StringVar(&w.ConsumerVersion, "consumer-version", "", "version of the handler, which copies and reports carry")
	return cmd
}
