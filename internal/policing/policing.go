// Package policing holds brokers against policies: what is missing is made, what
// differs is told. It needs no store.
package policing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Choose returns the queues of a policy with these names, or all of them. A
// name that the policy does not know is an error with the code not_found.
func Choose(p *policy.Policy, names []string) ([]policy.Queue, error) {
	if len(p.Queues) == 0 {
		return nil, &api.Error{Code: api.CodeRefused, Message: "the policy names no queue: write one under queues in a policy file, and name the file with --policy"}
	}
	if len(names) == 0 {
		return p.Queues, nil
	}
	var out []policy.Queue
	for _, name := range names {
		q, ok := p.Queue(name)
		if !ok {
			var known []string
			for _, q := range p.Queues {
				known = append(known, q.Name)
			}
			return nil, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("the policy has no queue %s; it has: %s", name, strings.Join(known, ", "))}
		}
		out = append(out, q)
	}
	return out, nil
}

// Apply plans what the queues need at a broker. With act it also makes what is
// missing, one step after the other; one that fails does not keep the others
// from being done.
func Apply(ctx context.Context, l quarantine.Layout, qs []policy.Queue, act bool) (api.PolicyPlan, error) {
	c, err := l.Compare(ctx, qs)
	if err != nil {
		return api.PolicyPlan{}, wire(err)
	}
	out := api.PolicyPlan{Broker: broker(c.Broker), Acted: act, Steps: []api.PolicyStep{}, Notes: findings(c.Notes)}
	for _, s := range c.Steps {
		step := api.PolicyStep{Object: string(s.Object), Name: s.Name, State: string(s.State), Text: s.Text, Advice: s.Advice, Settings: []api.PolicySetting{}}
		for _, x := range s.Settings {
			step.Settings = append(step.Settings, api.PolicySetting{Name: x.Name, Value: fmt.Sprint(x.Value)})
		}
		if act && s.State == quarantine.StepMissing {
			err := l.Make(ctx, qs, s)
			if ctx.Err() != nil {
				return api.PolicyPlan{}, wire(ctx.Err())
			}
			made(&step, err, c.Broker)
		}
		out.Steps = append(out.Steps, step)
	}
	return out, nil
}

// made tells what became of a step.
func made(s *api.PolicyStep, err error, b quarantine.SourceCaps) {
	s.Advice = ""
	switch {
	case err == nil:
		s.State = api.StepMade
	case errors.Is(err, quarantine.ErrDenied):
		s.State, s.Text, s.Advice = api.StepDenied, err.Error(), permission(s, b)
	case errors.Is(err, quarantine.ErrUnreachable):
		s.State, s.Text, s.Advice = api.StepUnknown, err.Error(), "it may have been made all the same: run redrive policy apply again"
	default:
		s.State, s.Text, s.Advice = api.StepFailed, err.Error(), "run redrive policy apply again to see what is there now"
	}
}

// permission says what an administrator can do for a user who may not make
// something. Permissions of a user are replaced as a whole, so that those which
// are there have to be seen first.
func permission(s *api.PolicyStep, b quarantine.SourceCaps) string {
	vhost := quote(b.VHost)
	if s.Object == string(quarantine.ObjectBrokerPolicy) {
		return "an administrator can give the user the tag policymaker: rabbitmqctl set_user_tags USER management policymaker; or set the policy: see redrive policy apply without --yes"
	}
	return "an administrator can look what the user has: rabbitmqctl list_permissions -p " + vhost +
		"; then add the names of this plan to configure, and keep read for the queues and write for amq.default: rabbitmqctl set_permissions -p " + vhost + " USER CONFIGURE WRITE READ"
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Options say what a check looks at.
type Options struct {
	// WithoutWorkers leaves consumers out, for checks before they are started.
	WithoutWorkers bool
}

// workers are the findings about consumers.
var workers = []string{quarantine.DriftNoConsumer, quarantine.DriftReplicas, quarantine.DriftPrefetch}

// Check says where broker, consumers and policy part.
func Check(ctx context.Context, l quarantine.Layout, qs []policy.Queue, o Options) (api.PolicyCheck, error) {
	c, err := l.Compare(ctx, qs)
	if err != nil {
		return api.PolicyCheck{}, wire(err)
	}
	found := c.Findings
	if o.WithoutWorkers {
		found = slices.DeleteFunc(slices.Clone(found), func(f quarantine.Finding) bool { return slices.Contains(workers, f.Code) })
	}
	out := api.PolicyCheck{Broker: broker(c.Broker), Result: api.NoDrift, Findings: findings(found), Notes: findings(c.Notes)}
	for _, f := range found {
		switch {
		case f.Severity != quarantine.Unknown:
			out.Result = api.Drift
		case out.Result == api.NoDrift:
			out.Result = api.DriftUnknown
		}
	}
	return out, nil
}

func broker(c quarantine.SourceCaps) api.Broker {
	product := c.Broker
	if c.Version != "" {
		product += " " + c.Version
	}
	return api.Broker{Product: product, Cluster: c.Cluster, VHost: c.VHost}
}

func findings(fs []quarantine.Finding) []api.PolicyFinding {
	out := []api.PolicyFinding{}
	for _, f := range fs {
		out = append(out, api.PolicyFinding{Code: f.Code, Severity: string(f.Severity), Subject: f.Subject, Text: f.Text, Advice: f.Advice})
	}
	return out
}

// wire gives the errors of a broker their code.
func wire(err error) error {
	code := api.CodeFailed
	switch {
	case errors.Is(err, context.Canceled):
		code = api.CodeCancelled
	case errors.Is(err, quarantine.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		code = api.CodeTemporary
	case errors.Is(err, quarantine.ErrRefused):
		code = api.CodeBroker
	}
	return &api.Error{Code: code, Message: err.Error()}
}
