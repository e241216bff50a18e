package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
)

func newSource(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "source", Short: "The broker that the messages come from"}
	var why string
	pin := &cobra.Command{
		Use: "pin", Short: "Tie the data directory to the broker that is configured now", Args: cobra.NoArgs,
		Long: `Tie the data directory to the broker that is configured now: its cluster and its
vhost. The first capture does that by itself; afterwards captures, plans and
releases at any other broker are refused, so that a restored backup or a changed
address moves no message between clusters. Use this when the broker was renamed,
or when the messages are meant to move.

Nobody may be capturing or releasing, and no generation may be open that was
planned for the other broker. Who did it and why is in the ledger.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(c, cmd, api.SourcePin, api.PinRequest{Why: why, As: c.as}, func(r api.PinResult) {
				if !r.Changed {
					c.say("The data directory belongs to %s already.", brokerText(r.Now))
					return
				}
				c.say("The data directory belongs to %s now.", brokerText(r.Now))
				if r.Before != nil {
					c.say("Before, it belonged to %s.", brokerText(*r.Before))
				}
			})
		},
	}
	pin.Flags().StringVar(&why, "why", "", "reason, for the ledger")
	_ = pin.MarkFlagRequired("why") // the flag exists
	cmd.AddCommand(pin)
	return cmd
}

func brokerText(b api.Broker) string {
	text := fmt.Sprintf("cluster %q, vhost %q", b.Cluster, b.VHost)
	if b.Product != "" {
		text = b.Product + " " + text
	}
	return text
}
