package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/probe"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// looker is a probe of the configuration.
type looker interface {
	Look(ctx context.Context) probe.Look
}

// probePrefix begins the names of configured probes, in checks and as signals.
const probePrefix = "probe."

// configured is a probe of the configuration as a signal of running generations.
type configured struct {
	name string
	l    looker
	c    *Controller
	t    redrive.Terms
	also bool // the plan was approved with it
}

// Name implements redrive.Probe.
func (p configured) Name() string { return probePrefix + p.name }

// Terms implements redrive.Termed.
func (p configured) Terms() redrive.Terms { return p.t }

// Applies limits the probe to the destinations that name it.
func (p configured) Applies(g *redrive.Generation) bool {
	set, _ := p.c.o.Config.Destination(g.Destination)
	return p.also || slices.Contains(set.Probes, p.name)
}

// Observe implements redrive.Probe.
func (p configured) Observe(ctx context.Context, _ *redrive.Generation) redrive.Observation {
	l := p.l.Look(ctx)
	// The words of both packages are the same ones; what is not known to the
	// signal counts as an error.
	return redrive.Observation{Result: string(l.Verdict), Value: l.Milli, Detail: l.Detail}
}

// configuredProbes makes a signal of each probe of the configuration. A URL
// breaches with three bad answers in a row, and may be silent once more than a
// metric, of which three of the last five looks count.
func (c *Controller) configuredProbes(approved []string) (out []redrive.Probe) {
	for i := range c.o.Config.Probes {
		p := &c.o.Config.Probes[i]
		l, err := c.probe(p.Name)
		if err != nil {
			continue // Open has refused it
		}
		terms := redrive.Terms{Breaches: 3, Of: 5, Silence: 3}
		if p.Query == "" {
			terms = redrive.Terms{Breaches: 3, Of: 3, Silence: 4}
		}
		out = append(out, configured{name: p.Name, l: l, c: c, t: terms, also: slices.Contains(approved, probePrefix+p.Name)})
	}
	for _, name := range approved {
		if strings.HasPrefix(name, probePrefix) && !slices.ContainsFunc(out, func(p redrive.Probe) bool { return p.Name() == name }) {
			out = append(out, gone(name))
		}
	}
	return out
}

// gone is a probe with which a plan was approved and that the configuration does
// not have any more. Nobody can ask it, so it holds the stage.
type gone string

// Name implements redrive.Probe.
func (p gone) Name() string { return string(p) }

// Observe implements redrive.Probe.
func (gone) Observe(context.Context, *redrive.Generation) redrive.Observation {
	return redrive.Observation{Result: redrive.ResultError, Detail: "the configuration does not have it any more"}
}

// signals lists the signals from outside that a plan for a destination has.
func (c *Controller) signals(d redrive.Destination) []string {
	var out []string
	for _, name := range config.OwnSignals {
		if c.o.Config.Brake.Watches(name) {
			out = append(out, name)
		}
	}
	set, _ := c.o.Config.Destination(d)
	for _, name := range set.Probes {
		out = append(out, probePrefix+name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// approved lists the signals with which a generation was planned. When it cannot
// be told, it is all own ones.
func (c *Controller) approved(no event.GenerationNo) []string {
	var m *redrive.Manifest
	if g, err := c.generation(no); err == nil {
		m, _ = c.manifest(g)
	}
	return watchedBy(m)
}

// watchedBy lists the signals of a manifest. One of before version 3 did not say,
// and is watched by all own ones.
func watchedBy(m *redrive.Manifest) []string {
	if m == nil || m.Version < 3 {
		return config.OwnSignals
	}
	return m.Watched
}

// target turns a configured address into that of package probe.
func (c *Controller) target(t *config.Target) (probe.Target, error) {
	allow, err := t.Networks()
	if err != nil {
		return probe.Target{}, err
	}
	out := probe.Target{URL: t.URL, Allow: allow, Plaintext: t.AllowPlaintext}
	if t.TokenFile != "" {
		out.Token = func() (string, error) { return c.o.Secret(t.TokenFile) }
	}
	return out, nil
}

// probe makes the probe that the configuration has under a name.
func (c *Controller) probe(name string) (looker, error) {
	for i := range c.o.Config.Probes {
		p := &c.o.Config.Probes[i]
		if p.Name != name {
			continue
		}
		t, err := c.target(&p.Target)
		if err != nil {
			return nil, probeError(name, err)
		}
		switch {
		case p.Query == "":
			h, err := probe.NewHealth(t)
			return h, probeError(name, err)
		case p.Below != nil:
			m, err := probe.NewMetric(t, p.Query, *p.Below, true)
			return m, probeError(name, err)
		default:
			m, err := probe.NewMetric(t, p.Query, *p.Above, false)
			return m, probeError(name, err)
		}
	}
	return nil, fmt.Errorf("probe %q is not configured: %w", name, config.ErrInvalid)
}

func (c *Controller) askVersion(v *config.VersionProbe) (*probe.Version, error) {
	t, err := c.target(&v.Target)
	if err != nil {
		return nil, probeError("version_probe", err)
	}
	pointer := v.Pointer
	if pointer == "" {
		pointer = "/version"
	}
	p, err := probe.NewVersion(t, pointer)
	return p, probeError("version_probe", err)
}

func (c *Controller) askOperations(of *config.Target) (*probe.Operations, error) {
	t, err := c.target(of)
	if err != nil {
		return nil, probeError("operations", err)
	}
	p, err := probe.NewOperations(t)
	return p, probeError("operations", err)
}

func probeError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("probe %s: %w: %w", name, err, config.ErrInvalid)
}

// checkProbes refuses probes that can never be asked before anything else is
// done with them.
func (c *Controller) checkProbes() error {
	for _, p := range c.o.Config.Probes {
		if _, err := c.probe(p.Name); err != nil {
			return err
		}
	}
	for _, d := range c.o.Config.Destinations {
		if d.VersionProbe != nil {
			if _, err := c.askVersion(d.VersionProbe); err != nil {
				return err
			}
		}
		for _, t := range []*config.Target{d.Authorize, d.InboxProbe} {
			if t != nil {
				if _, err := c.askOperations(t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// noSchema is the set of a configuration without schemas.
type noSchema struct{}

func (noSchema) Check(string, string, []byte) (string, bool) { return "", false }

func (noSchema) Digest() string { return "" }

var _ quarantine.Schema = noSchema{}
