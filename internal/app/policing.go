package app

import (
	"context"
	"errors"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/metrics"
	"github.com/redrivehq/redrive/internal/policing"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// PolicyChoice says which policy a command is about, and which of its queues.
type PolicyChoice struct {
	File   string   // the policy file. Defaults to that of the configuration
	Queues []string // empty: all of them
}

// PolicyApply plans what a policy needs at the configured broker, and with act
// makes what is missing. It needs no store.
func PolicyApply(ctx context.Context, s Settings, p PolicyChoice, act bool) (out api.PolicyPlan, err error) {
	err = withLayout(ctx, s, p, func(l quarantine.Layout, qs []policy.Queue) (err error) {
		out, err = policing.Apply(ctx, l, qs, act)
		return err
	})
	return out, err
}

// PolicyCheck holds the configured broker against a policy. It needs no store.
func PolicyCheck(ctx context.Context, s Settings, p PolicyChoice, o policing.Options) (out api.PolicyCheck, err error) {
	err = withLayout(ctx, s, p, func(l quarantine.Layout, qs []policy.Queue) (err error) {
		out, err = policing.Check(ctx, l, qs, o)
		return err
	})
	return out, err
}

// PolicyAlerts are the Prometheus rules of a policy. It needs neither broker nor
// store.
func PolicyAlerts(s Settings, choice PolicyChoice) (metrics.Rules, error) {
	p, err := choice.read(s.withDefaults())
	if err != nil {
		return metrics.Rules{}, err
	}
	if p.Queues, err = policing.Choose(p, choice.Queues); err != nil {
		return metrics.Rules{}, err
	}
	return metrics.Alerts(p), nil
}

// withLayout runs f with the configured broker, which is closed afterwards.
func withLayout(ctx context.Context, s Settings, choice PolicyChoice, f func(quarantine.Layout, []policy.Queue) error) (err error) {
	s = s.withDefaults()
	p, err := choice.read(s)
	if err != nil {
		return err
	}
	qs, err := policing.Choose(p, choice.Queues)
	if err != nil {
		return err
	}
	cfg, err := config.Load(s.Config, checkRules)
	if err != nil {
		return wire(err)
	}
	b := &brokers{cfg: cfg, dir: s.Data, embedded: s.Embedded}
	l, err := b.layout(ctx)
	if err != nil {
		return wire(errors.Join(err, b.close()))
	}
	defer func() {
		if e := errors.Join(l.Close(), b.close()); e != nil && err == nil {
			err = wire(e)
		}
	}()
	return f(l, qs)
}

// layout opens the side of the broker that makes queues.
func (b *brokers) layout(ctx context.Context) (quarantine.Layout, error) {
	if b.isLocal() {
		b.mu.Lock()
		defer b.mu.Unlock()
		br, err := b.local()
		if errors.Is(err, local.ErrLocked) {
			return nil, &api.Error{Code: api.CodeTemporary, Message: err.Error() + "; the embedded broker serves one process at a time: try again when that one has ended"}
		}
		if err != nil {
			return nil, err
		}
		return local.NewLayout(br), nil
	}
	c, err := b.rabbit()
	if err != nil {
		return nil, err
	}
	l, err := rabbitmq.NewLayout(ctx, c)
	if err != nil {
		return nil, err
	}
	return l, nil
}
