package cli

import "github.com/redrivehq/redrive/internal/api"

// showOrder prints what a plan says about order, gaps and doubt.
func (c *command) showOrder(p *api.Plan) {
	if o := p.Order; o != nil && o.OnFailure != "" {
		c.say("order     %s, on failure %s: %d keys, %d members with a key, %d without", o.Order, o.OnFailure, o.Keys, o.Keyed, o.Unordered)
		if n := o.Keys - o.Numeric; n > 0 {
			c.say("          %d keys go in the order of capture: not all their messages have a number", n)
		}
		c.say("gaps      before %d members messages are missing, before %d it is unknown; overtaken keys: %s", o.Gaps, o.Unknown, o.Overtaken)
		for _, x := range o.Examples {
			c.say("          %d missing before %s", x.Missing, x.Envelope)
		}
	}
	d := p.Doubt
	if d == nil {
		return
	}
	switch {
	case d.Oldest != nil:
		c.say("doubt     %s; oldest message in cohort %s (%s old) against declared horizon %s", d.Policy, stamp(*d.Oldest), d.OldestAge, d.Horizon)
	default:
		c.say("doubt     %s", d.Policy)
	}
	if d.RetryNacked > 0 {
		c.say("          a nack is tried again up to %d times", d.RetryNacked)
	}
}
