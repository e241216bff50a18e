package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/internal/broker/topology"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Layout implements quarantine.Layout. Its queues are of one kind, durable, and
// never change; they dead-letter at least once.
type Layout struct{ b *Broker }

var _ quarantine.Layout = Layout{}

// NewLayout is a Layout of a broker, which stays open when it is closed.
func NewLayout(b *Broker) Layout { return Layout{b} }

// Close implements quarantine.Layout.
func (Layout) Close() error { return nil }

// Compare implements quarantine.Layout.
func (l Layout) Compare(ctx context.Context, qs []policy.Queue) (quarantine.Comparison, error) {
	out := quarantine.Comparison{Broker: NewSource(l.b).Caps()}
	err := l.b.do(ctx, func(*turn) error {
		out.Steps, out.Findings, out.Notes = topology.Compare(chart(l), qs, topology.Dialect{})
		return nil
	})
	if err != nil {
		return quarantine.Comparison{}, err
	}
	return out, nil
}

// Make implements quarantine.Layout.
func (l Layout) Make(ctx context.Context, qs []policy.Queue, s quarantine.Step) error {
	err := fmt.Errorf("%w: %s %s is nothing that can be made", quarantine.ErrRefused, s.Object, s.Name)
	switch {
	case s.State != quarantine.StepMissing:
		return fmt.Errorf("%w: %s %s is %s", quarantine.ErrRefused, s.Object, s.Name, s.State)
	case s.Object == quarantine.ObjectExchange:
		err = l.b.DeclareExchange(ctx, ExchangeSpec{Name: s.Name, Kind: Fanout})
	case s.Object == quarantine.ObjectBinding:
		err = l.b.Bind(ctx, Binding{Exchange: outcome.Exchange, Queue: outcome.Queue})
	case s.Object == quarantine.ObjectQueue:
		for _, w := range wanted(qs) {
			if w.Name == s.Name {
				err = l.b.Declare(ctx, w.spec())
				break
			}
		}
	}
	if errors.Is(err, ErrSpec) {
		return fmt.Errorf("%w: %w", quarantine.ErrRefused, err)
	}
	return err
}

type spec struct{ topology.Wanted }

func wanted(qs []policy.Queue) []spec {
	out := []spec{{topology.WantOutcomes()}}
	for _, q := range qs {
		for _, w := range topology.Want(q) {
			out = append(out, spec{w})
		}
	}
	return out
}

func (w spec) spec() QueueSpec {
	s := QueueSpec{Name: w.Name, DeliveryLimit: int(max(w.DeliveryLimit, 0))}
	if w.DeadLetterTo != "" {
		s.DeadLetter = ToQueue(w.DeadLetterTo)
	}
	return s
}
