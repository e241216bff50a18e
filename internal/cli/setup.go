package cli

import (
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/app"
)

func newInit(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Make a store with its keys and a commented configuration", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := c.settings(cmd)
			if err := app.Init(s); err != nil {
				return err
			}
			path := s.Config
			if path == "" {
				path = s.Data + "/" + app.ConfigFile
			}
			return c.print(map[string]string{"data": s.Data, "config": path}, func() {
				c.say("Made a store in %s.", s.Data)
				c.say("Edit %s, then look at it with: redrive doctor", path)
				c.say("Keep a copy of %s/keys somewhere else: without it the store cannot be read.", s.Data)
			})
		},
	}
}

func newDoctor(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the set-up and say what to do about it", Args: cobra.NoArgs,
		Long: `Check the set-up, and look for what loses messages before they are captured and
after they are released: limits and time-to-live of the sources, the way of dead
letters to them, and the configured destinations. Most of that only RabbitMQ's
management API tells; see broker.management in the configuration. Nothing is
changed, and no message is touched.

Exit 3 when a check failed: the broker cannot be reached, a queue is missing, or
something cannot work at all. Warnings and what is unknown leave it at 0.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			failed := false
			err := ask(c, cmd, api.Doctor, api.None{}, func(r api.DoctorReport) {
				var rows [][]string
				for _, x := range r.Checks {
					rows = append(rows, []string{x.Name, x.Result, x.Detail})
					// Beside the detail it would make lines that no terminal holds.
					if x.Advice != "" {
						rows = append(rows, []string{"", "", "to do: " + x.Advice})
					}
				}
				c.table([]string{"check", "result", "detail"}, rows)
			}, func(r api.DoctorReport) {
				for _, x := range r.Checks {
					failed = failed || x.Result == "failed"
				}
			})
			if err == nil && failed {
				return &exitError{code: exitRefused, text: "a check failed"}
			}
			return err
		},
	}
}

func newVersion(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.print(map[string]string{"version": Version(), "go": runtime.Version()}, func() {
				c.say("redrive %s (%s)", Version(), runtime.Version())
			})
		},
	}
}

// after puts a text behind a mark, and nothing when there is none.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

func newStatus(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say who holds the store, what is in it, and which queues are parked", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(c, cmd, api.Status, api.None{}, func(s api.StatusInfo) {
				if s.PID == os.Getpid() {
					c.say("nobody holds the store")
				} else {
					c.say("held by process %d (%s) since %s", s.PID, s.Command, stamp(s.Since))
				}
				c.say("%d records, %d envelopes, %d of them open", s.Records, s.Envelopes, s.Open)
				for _, l := range s.Late {
					c.say("overdue: %d of %s, and %d more within a day; nothing open is removed", l.Overdue, l.Owner, l.Soon)
				}
				for _, g := range s.Running {
					c.say("releases generation %d", g)
				}
				for _, q := range s.Captures {
					c.say("queue %s: %s since %s%s", q.Queue, q.State, stamp(q.Since), after(": ", q.Detail))
				}
				for _, p := range s.Parked {
					c.say("queue %s is parked since %s (%s): %s", p.Queue, stamp(p.Since), p.Reason, p.Why)
					c.say("  to do: %s", p.Advice)
				}
			})
		},
	}
}
