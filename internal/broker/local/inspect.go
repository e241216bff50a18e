package local

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/broker/topology"
	"github.com/redrivehq/redrive/quarantine"
)

// Inspect is part of quarantine.Source. This broker knows its queues exactly,
// so nothing is unknown.
func (s *Source) Inspect(ctx context.Context, queue string) (quarantine.Inspection, error) {
	if err := s.check(); err != nil {
		return quarantine.Inspection{}, err
	}
	out := quarantine.Inspection{Queue: queue, Kind: quarantine.QueueLocal}
	err := s.b.do(ctx, func(t *turn) error {
		q := s.b.queues[queue]
		if q == nil {
			return missing(queue)
		}
		out.At, out.Consumers = time.UnixMilli(t.now), len(q.consumers)
		facts := q.facts()
		out.Findings = topology.AsSource(&facts)
		var all []topology.Queue
		for _, name := range slices.Sorted(maps.Keys(s.b.queues)) {
			all = append(all, s.b.queues[name].facts())
		}
		m := chart{s.b}
		out.Findings = append(out.Findings, topology.DeadLetters(m, &facts)...)
		out.Findings = quarantine.SortFindings(append(out.Findings, topology.Feeders(m, queue, all)...))
		return nil
	})
	if err != nil {
		return quarantine.Inspection{}, err
	}
	return out, nil
}

// facts are those that decide what the queue loses.
func (q *queue) facts() topology.Queue {
	f := topology.NewQueue(q.spec.Name)
	f.Kind, f.Consumers, f.Prefetches = quarantine.QueueLocal, len(q.consumers), []int{}
	for _, c := range q.consumers {
		f.Prefetches = append(f.Prefetches, c.prefetch)
	}
	if q.spec.MaxLength > 0 {
		f.MaxLength, f.Overflow = int64(q.spec.MaxLength), topology.Overflow(q.spec.Overflow)
	}
	if q.spec.MessageTTL > 0 {
		f.MessageTTL = q.spec.MessageTTL
	}
	if q.spec.DeliveryLimit > 0 {
		f.DeliveryLimit, f.ArgumentLimit = int64(q.spec.DeliveryLimit), int64(q.spec.DeliveryLimit)
	}
	if d := q.spec.DeadLetter; d != nil {
		f.DeadLetter = &topology.DeadLetter{Exchange: d.Exchange, RoutingKey: d.RoutingKey, HasKey: d.RoutingKey != "", AtLeastOnce: true}
	}
	return f
}

// chart is the broker as a topology.Map, for use in the loop.
type chart struct{ b *Broker }

// Queue is part of topology.Map.
func (p chart) Queue(name string) (*topology.Queue, error) {
	q := p.b.queues[name]
	if q == nil {
		return nil, topology.ErrMissing
	}
	f := q.facts()
	return &f, nil
}

// Exchange is part of topology.Map.
func (p chart) Exchange(name string) (*topology.Exchange, error) {
	x := p.b.exchanges[name]
	if x == nil {
		return nil, topology.ErrMissing
	}
	out := &topology.Exchange{Name: name, Type: string(x.spec.Kind)}
	for _, b := range x.bindings {
		out.Bindings = append(out.Bindings, topology.Binding{Queue: b.Queue, Key: b.Key})
	}
	return out, nil
}

// Keys is part of topology.Map.
func (p chart) Keys(queue string) ([]string, error) {
	seen := map[string]bool{}
	for _, x := range p.b.exchanges {
		for _, b := range x.bindings {
			if b.Queue == queue && (x.spec.Kind == Direct || x.spec.Kind == Topic && !strings.ContainsAny(b.Key, "*#")) {
				seen[b.Key] = true
			}
		}
	}
	if len(seen) == 0 {
		seen[queue] = true // through the default exchange
	}
	return slices.Sorted(maps.Keys(seen)), nil
}
