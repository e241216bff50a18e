package local

import "github.com/redrivehq/redrive/internal/broker/topology"

// exchange is the state of a declared exchange, owned by the loop.
type exchange struct {
	spec     ExchangeSpec
	bindings []Binding
}

// route returns the queues that a publish reaches, each once.
func (b *Broker) route(name, key string) []*queue {
	if name == "" {
		if q := b.queues[key]; q != nil {
			return []*queue{q}
		}
		return nil
	}
	x := b.exchanges[name]
	if x == nil {
		return nil
	}
	var targets []*queue
	seen := map[string]bool{}
	for _, bd := range x.bindings {
		if !seen[bd.Queue] && x.spec.Kind.matches(bd.Key, key) {
			seen[bd.Queue] = true
			targets = append(targets, b.queues[bd.Queue])
		}
	}
	return targets
}

// matches tells whether a binding key takes a routing key.
func (k Kind) matches(binding, key string) bool {
	switch k {
	case Fanout:
		return true
	case Topic:
		return topology.TopicMatches(binding, key)
	default:
		return binding == key
	}
}
