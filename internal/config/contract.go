package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Schema is the contract of the bodies of one event type.
type Schema struct {
	Type string `yaml:"type"`
	// Version is a schema version. Defaults to every version that has no schema
	// of its own.
	Version string `yaml:"version"`
	// File is a JSON Schema, draft 2020-12, beside the data when it is relative.
	File string `yaml:"file"`
}

// Target is an HTTP address that is asked.
type Target struct {
	URL string `yaml:"url"`
	// Allow lists networks that may be reached although they are private or
	// loopback, such as 10.0.0.0/8. Defaults to public addresses only.
	Allow []string `yaml:"allow"`
	// AllowPlaintext permits http:// to other machines. Defaults to false.
	AllowPlaintext bool `yaml:"allow_plaintext"`
	// TokenFile holds a bearer token: one line, mode 0600. Defaults to none.
	TokenFile string `yaml:"token_file"`
}

// Networks are the allowed ones.
func (t *Target) Networks() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range t.Allow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("allow %q: want a network such as 10.0.0.0/8", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (t *Target) validate() error {
	if t.URL == "" {
		return fmt.Errorf("url is required")
	}
	_, err := t.Networks()
	return err
}

// Probe is a question whose answer can stop a release: a URL that answers 2xx
// when all is well, or with query a PromQL expression whose value is compared.
type Probe struct {
	Name   string `yaml:"name"`
	Target `yaml:",inline"`
	// Query is a PromQL expression that yields one value; url is then the
	// server's, without /api/v1/query.
	Query string `yaml:"query"`
	// Above is a breach when the value is at least this, Below when it is at most
	// this. With query exactly one of them is required.
	Above *float64 `yaml:"above"`
	Below *float64 `yaml:"below"`
}

// VersionProbe asks for the version that runs at a destination.
type VersionProbe struct {
	Target `yaml:",inline"`
	// Pointer is where the version stands in the JSON answer. Defaults to
	// /version.
	Pointer string `yaml:"pointer"`
}

// DefaultMaxDepth is the max_depth of a destination that states none.
const DefaultMaxDepth = 10_000

// maxProbes bounds the probes of a configuration.
const maxProbes = 32

func (c *Config) validateContract() error {
	for i, s := range c.Schemas {
		if s.Type == "" || s.File == "" {
			return fmt.Errorf("schemas[%d]: type and file are required", i)
		}
	}
	if len(c.Probes) > maxProbes {
		return fmt.Errorf("%d probes: at most %d", len(c.Probes), maxProbes)
	}
	var names []string
	for i, p := range c.Probes {
		if err := p.validate(); err != nil {
			return fmt.Errorf("probes[%d]: %w", i, err)
		}
		if slices.Contains(names, p.Name) {
			return fmt.Errorf("probes[%d]: name %q is there twice", i, p.Name)
		}
		names = append(names, p.Name)
	}
	for i, d := range c.Destinations {
		if err := d.validateContract(names); err != nil {
			return fmt.Errorf("destinations[%d]: %w", i, err)
		}
	}
	return nil
}

func (p *Probe) validate() error {
	limits := 0
	if p.Above != nil {
		limits++
	}
	if p.Below != nil {
		limits++
	}
	switch {
	case p.Name == "" || len(p.Name) > 40 || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "":
		return fmt.Errorf("name %q: want 1 to 40 of a-z, 0-9, _ and -", p.Name)
	case p.Query != "" && limits != 1:
		return fmt.Errorf("%s: query needs either above or below", p.Name)
	case p.Query == "" && limits != 0:
		return fmt.Errorf("%s: above and below need query", p.Name)
	}
	if err := p.Target.validate(); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

func (d *Destination) validateContract(probes []string) error {
	for _, name := range d.Probes {
		if !slices.Contains(probes, name) {
			return fmt.Errorf("probe %q is not listed under probes", name)
		}
	}
	if d.MaxDepth < 0 {
		return fmt.Errorf("max_depth %d: want 0 or more", d.MaxDepth)
	}
	for name, t := range map[string]*Target{"authorize": d.Authorize, "inbox_probe": d.InboxProbe} {
		if t == nil {
			continue
		}
		if err := t.validate(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if v := d.VersionProbe; v != nil {
		if err := v.validate(); err != nil {
			return fmt.Errorf("version_probe: %w", err)
		}
		if v.Pointer != "" && v.Pointer[0] != '/' {
			return fmt.Errorf("version_probe: pointer %q: want a JSON pointer such as /version", v.Pointer)
		}
	}
	return nil
}
