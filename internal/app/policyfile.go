package app

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/topology"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/policing"
	"github.com/redrivehq/redrive/internal/predicate"
	"github.com/redrivehq/redrive/internal/schema"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// file is where the policy stands that is meant.
func (c PolicyChoice) file(s Settings) (string, error) {
	if c.File != "" {
		return c.File, nil
	}
	cfg, err := config.Load(s.Config, checkRules)
	if err != nil {
		return "", wire(err)
	}
	if cfg.Policy.File == "" {
		return "", &api.Error{Code: api.CodeConfig, Message: fmt.Sprintf("there is no policy file: name one with --policy, or under policy.file in %s", s.Config)}
	}
	return cfg.Policy.File, nil
}

func (c PolicyChoice) read(s Settings) (*policy.Policy, error) {
	file, err := c.file(s)
	if err != nil {
		return nil, err
	}
	p, err := config.LoadPolicy(file, checkRules)
	return p, wire(err)
}

// checkRules finds rules that capture could not use.
func checkRules(p *policy.Policy) error {
	predicates, err := predicate.New()
	if err != nil {
		return err
	}
	_, err = quarantine.NewJudge(p, predicates, time.Time{})
	return err
}

// checkSchemas finds schemas that a worker could not use.
func checkSchemas(dir string) func(*policy.Policy) error {
	return func(p *policy.Policy) error {
		for i, q := range p.Queues {
			for typ, name := range q.Schemas {
				if _, err := schema.Load([]schema.File{{Type: typ, Path: filepath.Join(dir, filepath.FromSlash(name))}}); err != nil {
					return &policy.Fault{Path: []any{"queues", i, "schemas", typ}, Reason: err.Error()}
				}
			}
		}
		return nil
	}
}

// PolicyShow spells a policy out. It needs neither broker nor store.
func PolicyShow(s Settings, choice PolicyChoice) (api.PolicyShow, error) {
	file, err := choice.file(s.withDefaults())
	if err != nil {
		return api.PolicyShow{}, err
	}
	p, err := config.LoadPolicy(file, checkRules, checkSchemas(filepath.Dir(file)))
	if err != nil {
		return api.PolicyShow{}, wire(err)
	}
	if p.Queues, err = policing.Choose(p, choice.Queues); err != nil && len(choice.Queues) > 0 {
		return api.PolicyShow{}, err
	}
	return policing.Show(file, p, topology.Notes), nil
}
