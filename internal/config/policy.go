package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Policy says what failure reasons mean: a policy file, or a short form of it.
type Policy struct {
	// File is a policy file, beside redrive.yaml when it is relative; Load makes it
	// a path. Everything else stands in it then. Defaults to none.
	File         string            `yaml:"file"`
	Version      string            `yaml:"version"`
	DefaultOwner string            `yaml:"default_owner"`
	Reasons      map[string]Reason `yaml:"reasons"`

	loaded *policy.Policy // what File holds
}

// Reason is what a reason means.
type Reason struct {
	Class string `yaml:"class"`
	Owner string `yaml:"owner"`
}

// LoadPolicy reads a policy file and checks everything in it that needs neither
// other files nor the expression language: further checks do that.
func LoadPolicy(path string, checks ...func(*policy.Policy) error) (*policy.Policy, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("the policy file %s does not exist; what belongs into it: redrive policy schema: %w", path, ErrInvalid)
		}
		return nil, fmt.Errorf("read the policy: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, policy.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the policy: %w", err)
	}
	p, err := policy.Parse(path, text, append([]func(*policy.Policy) error{checkPolicy}, checks...)...)
	if err != nil {
		return nil, invalid{err}
	}
	return p, nil
}

// invalid is an error that says already that something is invalid.
type invalid struct{ error }

func (invalid) Is(target error) bool { return target == ErrInvalid }
func (e invalid) Unwrap() error      { return e.error }

// checkPolicy makes what capture will make of a policy.
func checkPolicy(p *policy.Policy) error {
	for i := range p.Queues {
		rules := quarantine.DefaultRules()
		if err := rules.TakeFrom(&p.Queues[i]); err != nil {
			return below(err, "queues", i)
		}
	}
	for i, m := range p.Masks {
		if _, err := quarantine.NewMask(m.Name, m.Pattern); err != nil {
			return &policy.Fault{Path: []any{"masks", i, "pattern"}, Reason: err.Error()}
		}
	}
	return nil
}

// below puts steps before the place of an error.
func below(err error, steps ...any) error {
	if f := (*policy.Fault)(nil); errors.As(err, &f) {
		return &policy.Fault{Path: append(steps, f.Path...), Reason: f.Reason}
	}
	return err
}

// loadPolicy reads the policy file that a configuration in dir names.
func (c *Config) loadPolicy(dir string, checks []func(*policy.Policy) error) error {
	if c.Policy.File == "" {
		return nil
	}
	if !filepath.IsAbs(c.Policy.File) {
		c.Policy.File = filepath.Join(dir, c.Policy.File)
	}
	var err error
	c.Policy.loaded, err = LoadPolicy(c.Policy.File, checks...)
	return err
}

func (p *Policy) validate() error {
	if p.File != "" && (p.Version != "" || p.DefaultOwner != "" || len(p.Reasons) > 0) {
		return errors.New("policy: with file, everything else belongs into that file")
	}
	_, err := p.build()
	return err
}

// BuildPolicy makes the policy.
func (c *Config) BuildPolicy() (*policy.Policy, error) { return c.Policy.build() }

func (p *Policy) build() (*policy.Policy, error) {
	if p.loaded != nil {
		return p.loaded, nil
	}
	out := &policy.Policy{Version: p.Version, DefaultOwner: p.DefaultOwner, Reasons: map[string]policy.Reason{}}
	for name, r := range p.Reasons {
		class, ok := event.ParseClass(r.Class)
		if !ok {
			return nil, fmt.Errorf("policy.reasons.%s: class %q is unknown; classes are transient, systemic, permanent, business_rejection, ambiguous_effect, consumer_defect", name, r.Class)
		}
		out.Reasons[name] = policy.Reason{Class: class, Owner: r.Owner}
	}
	return out, nil
}

// policyMasks are those of the policy file.
func (c *Config) policyMasks() (out []Mask) {
	if p := c.Policy.loaded; p != nil {
		for _, m := range p.Masks {
			out = append(out, Mask(m))
		}
	}
	return out
}

// worked is how the queue is worked whose dead messages a source holds, nil when
// the policy does not say.
func (c *Config) worked(source string) *policy.Queue {
	if p := c.Policy.loaded; p != nil {
		if q, ok := p.Quarantines(source); ok {
			return &q
		}
	}
	return nil
}
