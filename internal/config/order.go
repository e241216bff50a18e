package config

import (
	"fmt"

	"github.com/redrivehq/redrive/redrive"
)

// Inbox is what the consumer of a destination remembers, so that it can tell a
// message that it gets a second time.
type Inbox struct {
	// Horizon is for how long it remembers. Defaults to 0: it declares nothing.
	Horizon Duration `yaml:"horizon"`
	// Key is what it knows messages by. Defaults to message-id, the only one.
	Key string `yaml:"key"`
}

// CheckOrder refuses an order, or a choice for what a failure does to the rest
// of its key, that does not exist. Both may be "".
func CheckOrder(order, onFailure string) error {
	switch order {
	case "", redrive.OrderNone, redrive.OrderPerKey:
	default:
		return fmt.Errorf("order %.40q: want none or per-key", order)
	}
	switch onFailure {
	case "", redrive.OnFailureBlock, redrive.OnFailurePark, redrive.OnFailureContinue, redrive.OnFailureRebuild:
		return nil
	}
	return fmt.Errorf("on_failure %.40q: want block, park, continue or rebuild", onFailure)
}

// checkRelease checks what a destination says about order and doubt.
func (d *Destination) checkRelease() error {
	if err := CheckOrder(d.Order, d.OnFailure); err != nil {
		return err
	}
	switch {
	case d.Ambiguity != "" && d.Ambiguity != redrive.AmbiguityHold && d.Ambiguity != redrive.AmbiguityRetry:
		return fmt.Errorf("ambiguity %.40q: want hold or retry", d.Ambiguity)
	case d.Ambiguity == redrive.AmbiguityRetry && d.Inbox.Horizon == 0:
		return fmt.Errorf("ambiguity retry may publish a message twice: it needs inbox.horizon, for how long the consumer remembers message ids")
	case d.Inbox.Key != "" && d.Inbox.Key != "message-id":
		return fmt.Errorf("inbox.key %.40q: want message-id", d.Inbox.Key)
	}
	return nil
}
