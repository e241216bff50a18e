package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/management"
	"github.com/redrivehq/redrive/internal/broker/topology"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Layout implements quarantine.Layout. Queues, the exchange and its binding are
// declared by AMQP, each on a channel of its own; broker policies are set by the
// management API.
type Layout struct {
	control *control
	survey  *surveyor
}

var _ quarantine.Layout = (*Layout)(nil)

// NewLayout connects to the broker. Its errors are those of NewSource.
func NewLayout(ctx context.Context, c Config) (*Layout, error) {
	k, err := newControl(ctx, c, "redrive policy")
	if err != nil {
		return nil, err
	}
	s := newSurveyor(k)
	s.age = 0 // who makes something wants to see it
	return &Layout{control: k, survey: s}, nil
}

// Close implements quarantine.Layout.
func (l *Layout) Close() error {
	l.survey.close()
	l.control.close()
	return nil
}

func (l *Layout) caps() quarantine.SourceCaps {
	id := l.control.id
	return quarantine.SourceCaps{Broker: id.product, Version: id.version, Cluster: id.cluster, VHost: l.control.cfg.VHost, DeliveryCounts: true}
}

// Compare implements quarantine.Layout. Without a management API it knows which
// queues exist, and says that it does not know the rest.
func (l *Layout) Compare(ctx context.Context, qs []policy.Queue) (quarantine.Comparison, error) {
	if err := l.control.ask(ctx, func(*amqp.Channel) error { return nil }); err != nil {
		return quarantine.Comparison{}, fmt.Errorf("compare with the policy: %w", classify(err, opening))
	}
	out := quarantine.Comparison{Broker: l.caps()}
	err := l.survey.look(ctx, func(c *chart) error {
		sets, err := c.s.api.SetsPolicies(ctx)
		if err != nil {
			return err
		}
		m := manned{chart: c, known: map[string]*topology.Queue{}}
		for _, q := range qs {
			m.worked = append(m.worked, q.Name)
		}
		out.Steps, out.Findings, out.Notes = topology.Compare(&m, qs, l.dialect(sets))
		return nil
	})
	if err != nil {
		m := outline{ctx: ctx, k: l.control, why: err}
		out.Steps, out.Findings, out.Notes = topology.Compare(m, qs, l.dialect(false))
		out.Findings = quarantine.SortFindings(append(out.Findings, notInspected(err)))
	}
	return out, ctx.Err()
}

func (l *Layout) dialect(policies bool) topology.Dialect {
	return topology.Dialect{Major: l.control.id.major(), VHost: l.control.cfg.VHost, Policies: policies}
}

// manned is a chart that also knows the consumers of the queues that are worked.
type manned struct {
	*chart
	worked []string
	known  map[string]*topology.Queue
}

// Queue implements topology.Map.
func (m *manned) Queue(name string) (*topology.Queue, error) {
	if q := m.known[name]; q != nil {
		return q, nil
	}
	q, err := m.chart.Queue(name)
	if err != nil || !slices.Contains(m.worked, name) {
		return q, err
	}
	own := *q
	if own.Prefetches, err = m.s.api.Prefetches(m.ctx, m.s.vhost, name); err != nil {
		own.Prefetches = nil // it is not known, and that is said
	}
	m.known[name] = &own
	return &own, nil
}

// outline is what AMQP alone tells.
type outline struct {
	ctx context.Context //nolint:containedctx // the life of one look
	k   *control
	why error // why no more is known
}

// Queue implements topology.Map.
func (o outline) Queue(name string) (*topology.Queue, error) {
	_, consumers, err := o.k.queue(o.ctx, name)
	switch {
	case replyCode(err) == amqp.NotFound && errors.Is(classify(err, opening), quarantine.ErrQueueMissing):
		return nil, topology.ErrMissing
	case err != nil:
		return nil, classify(err, opening)
	}
	q := topology.NewQueue(name)
	q.Kind, q.Incomplete = o.k.kind(o.ctx, name), o.why.Error()
	if consumers > 0 { // 0 can be wrong for a quorum queue
		q.Consumers = consumers
	}
	return &q, nil
}

// Exchange implements topology.Map.
func (o outline) Exchange(name string) (*topology.Exchange, error) {
	err := o.k.exchange(o.ctx, name)
	switch {
	case replyCode(err) == amqp.NotFound:
		return nil, topology.ErrMissing
	case err != nil:
		return nil, classify(err, opening)
	}
	return nil, fmt.Errorf("it exists, but its bindings are not known: %w", o.why)
}

// Keys implements topology.Map.
func (o outline) Keys(string) ([]string, error) {
	return nil, fmt.Errorf("bindings are not known: %w", o.why)
}

// Make implements quarantine.Layout.
func (l *Layout) Make(ctx context.Context, qs []policy.Queue, s quarantine.Step) error {
	if s.State != quarantine.StepMissing {
		return fmt.Errorf("%w: %s %s is %s", quarantine.ErrRefused, s.Object, s.Name, s.State)
	}
	var err error
	switch s.Object {
	case quarantine.ObjectExchange:
		err = l.control.ask(ctx, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(s.Name, amqp.ExchangeFanout, true, false, false, false, nil)
		})
	case quarantine.ObjectBinding:
		err = l.control.ask(ctx, func(ch *amqp.Channel) error {
			return ch.QueueBind(outcome.Queue, "", outcome.Exchange, false, nil)
		})
	case quarantine.ObjectQueue:
		err = l.control.ask(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(s.Name, true, false, false, false, arguments(s.Settings))
			return err
		})
	case quarantine.ObjectBrokerPolicy:
		return l.setPolicy(ctx, qs, s)
	default:
		return fmt.Errorf("%w: %q is nothing that can be made", quarantine.ErrRefused, s.Object)
	}
	if replyCode(err) == amqp.AccessRefused {
		return fmt.Errorf("%w: %s", quarantine.ErrDenied, words(err))
	}
	if err != nil {
		return fmt.Errorf("make %s %s: %w", s.Object, s.Name, classify(err, opening))
	}
	return nil
}

func arguments(set []quarantine.Setting) amqp.Table {
	t := amqp.Table{}
	for _, s := range set {
		t[s.Name] = s.Value
	}
	return t
}

// setPolicy sets a broker policy, after another look: since it was planned
// somebody may have put the queue under another one.
func (l *Layout) setPolicy(ctx context.Context, qs []policy.Queue, s quarantine.Step) error {
	now, err := l.Compare(ctx, qs)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(now.Steps, func(x quarantine.Step) bool {
		return x.Object == s.Object && x.Name == s.Name && x.State == quarantine.StepMissing
	})
	queue := ownedBy(qs, s.Name)
	if at < 0 || queue == "" || topology.Definition(now.Steps[at].Settings) != topology.Definition(s.Settings) {
		return fmt.Errorf("%w: what is in force for the queue has changed since it was planned; plan again", quarantine.ErrRefused)
	}
	definition := map[string]any{}
	for _, x := range s.Settings {
		definition[x.Name] = x.Value
	}
	err = l.survey.look(ctx, func(c *chart) error {
		return c.s.api.SetPolicy(ctx, c.s.vhost, s.Name, management.Policy{Pattern: topology.PolicyPattern(queue), ApplyTo: "queues", Definition: definition})
	})
	switch {
	case errors.Is(err, management.ErrDenied):
		return fmt.Errorf("%w: %w", quarantine.ErrDenied, err)
	case errors.Is(err, management.ErrUnreachable):
		return fmt.Errorf("%w: %w", quarantine.ErrUnreachable, err)
	case err != nil:
		return fmt.Errorf("%w: %w", quarantine.ErrRefused, err)
	}
	return nil
}

// ownedBy is the queue that a broker policy of ours is about.
func ownedBy(qs []policy.Queue, name string) string {
	for _, q := range qs {
		for _, w := range topology.Want(q) {
			if topology.PolicyName(w.Name) == name {
				return w.Name
			}
		}
	}
	return ""
}
