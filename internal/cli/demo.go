package cli

import (
	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/app"
)

func newDemo(c *command) *cobra.Command {
	o := app.DemoOptions{}
	cmd := &cobra.Command{
		Use: "demo", Short: "Live through a whole redrive on an embedded broker and store, no set-up needed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Version = c.out, Version()
			if cmd.Flags().Changed("data") {
				o.Data = c.data
			}
			return app.Demo(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Broker, "broker", "", "amqp:// URL of a RabbitMQ to use instead of the embedded broker")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "another story with other numbers")
	return cmd
}
