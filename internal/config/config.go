// Package config reads redrive.yaml: strict, with line and column in every
// error, environment overrides, and secrets from files.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/redrivehq/redrive/internal/strictyaml"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/redrive"
)

// ErrInvalid is returned for a configuration that cannot be used. The message
// names the place and what is expected there.
var ErrInvalid = errors.New("invalid configuration")

// Version is the version of the format.
const Version = 1

// Config is redrive.yaml.
type Config struct {
	Version int `yaml:"version"`
	// Broker says where messages are.
	Broker Broker `yaml:"broker"`
	// Sources are the queues that are captured.
	Sources []Source `yaml:"sources"`
	// Destinations are the only places to which messages are released, besides
	// the queues in which they died. Empty: only those queues.
	Destinations []Destination `yaml:"destinations"`
	// Policy gives failure reasons their class and owner, and more in a file.
	Policy Policy `yaml:"policy"`
	// Limits are the defaults of plans.
	Limits Limits `yaml:"limits"`
	// Thresholds are the limits of signals that pause, throttle or abort, by the
	// name of the signal: a count, a share such as 5%, or a time such as 10s.
	// Plans take them over.
	Thresholds Thresholds `yaml:"thresholds"`
	// Brake says what is watched while a generation runs.
	Brake Brake `yaml:"brake"`
	// Approvals says who may approve what.
	Approvals Approvals `yaml:"approvals"`
	// Retention says when envelopes are overdue and payloads go.
	Retention Retention `yaml:"retention"`
	// Masks hide what matches in texts shown to people, besides the built-in
	// ones.
	Masks []Mask `yaml:"masks"`
	// Outcomes says where consumers report. Defaults to the queue
	// redrive.outcomes when it exists.
	Outcomes Outcomes `yaml:"outcomes"`
	// Store bounds the data directory.
	Store Store `yaml:"store"`
	// Schemas are the contracts that bodies have to fulfil now. Defaults to none:
	// then nothing is checked.
	Schemas []Schema `yaml:"schemas"`
	// Probes can be named by destinations.
	Probes []Probe `yaml:"probes"`
}

// Broker is one connection.
type Broker struct {
	// URL is amqp://host:port/vhost, amqps://…, or local:FILE for the embedded
	// broker. Passwords do not belong here: see PasswordFile.
	URL          string `yaml:"url" env:"REDRIVE_BROKER_URL"`
	User         string `yaml:"user" env:"REDRIVE_BROKER_USER"`
	PasswordFile string `yaml:"password_file" env:"REDRIVE_BROKER_PASSWORD_FILE"`
	CAFile       string `yaml:"ca_file"`
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	// AllowPlaintext permits amqp:// and http:// to other machines. Defaults to
	// false.
	AllowPlaintext bool `yaml:"allow_plaintext"`
	// Management is http://HOST:15672 or https://…, the management API of the
	// same broker: it tells what loses messages. Defaults to none, and then that
	// is unknown.
	Management string `yaml:"management" env:"REDRIVE_BROKER_MANAGEMENT"`
	// ManagementUser and ManagementPasswordFile log in there. Default to those
	// of the broker.
	ManagementUser         string `yaml:"management_user" env:"REDRIVE_BROKER_MANAGEMENT_USER"`
	ManagementPasswordFile string `yaml:"management_password_file" env:"REDRIVE_BROKER_MANAGEMENT_PASSWORD_FILE"`
}

// Source is a queue with dead messages.
type Source struct {
	Queue string `yaml:"queue"`
	// Retention overrides the deadline for open envelopes of this queue. Defaults
	// to the retention in the policy file, else to retention.deadline.
	Retention Duration `yaml:"retention"`
	// Identity overrides where values are found in a message: lists of
	// header:NAME, property:NAME, body:/JSON/POINTER.
	Identity map[string][]string `yaml:"identity"`
	// Prefetch is how many messages may be in flight. Defaults to 200.
	Prefetch int `yaml:"prefetch"`

	worked *policy.Queue // what the policy says about where its messages died
}

// Destination is a place that plans may name.
type Destination struct {
	Queue      string `yaml:"queue"`
	Exchange   string `yaml:"exchange"`
	RoutingKey string `yaml:"routing_key"`
	// Evidence is outcomes, returns_only or reconcile. Defaults to
	// returns_only.
	Evidence string `yaml:"evidence"`
	// OutcomeDeadline is how long an outcome may take. Defaults to 1.2 times the
	// queue's whole retry ladder in the policy file, plus five minutes; without a
	// policy for it to 20m, which is that of the reference system.
	OutcomeDeadline Duration `yaml:"outcome_deadline"`
	// Bake is how long a stage waits after its last change. Defaults to 60s.
	Bake Duration `yaml:"bake"`
	// Order is none or per-key. Defaults to none.
	Order string `yaml:"order"`
	// OnFailure is what a failure does to the rest of its key, with order
	// per-key: block, park, continue or rebuild. Defaults to block.
	OnFailure string `yaml:"on_failure"`
	// Ambiguity is what becomes of a message whose publish is in doubt: hold or
	// retry. Defaults to hold; retry needs an inbox.
	Ambiguity string `yaml:"ambiguity"`
	// Inbox is what the consumer remembers.
	Inbox Inbox `yaml:"inbox"`
	// Probes are asked before a start and while a release runs. Defaults to none.
	Probes []string `yaml:"probes"`
	// VersionProbe tells which version of the consumer runs. Defaults to none:
	// then the first outcome tells.
	VersionProbe *VersionProbe `yaml:"version_probe"`
	// Authorize is asked which operations are not authorized any more. Defaults to
	// none: then nobody is asked.
	Authorize *Target `yaml:"authorize"`
	// InboxProbe is asked which operations the consumer's inbox has seen. Defaults
	// to none: then nobody is asked.
	InboxProbe *Target `yaml:"inbox_probe"`
	// MaxDepth is how many messages may wait at the destination before a start.
	// Defaults to 10,000.
	MaxDepth int64 `yaml:"max_depth"`
}

// Limits are defaults of plans.
type Limits struct {
	Rate     float64 `yaml:"rate"`     // messages per second. Defaults to 50
	Burst    uint32  `yaml:"burst"`    // Defaults to max(1, rate/50)
	Window   uint32  `yaml:"window"`   // Defaults to 64
	Exposure uint32  `yaml:"exposure"` // Defaults to 200
	Cohort   uint64  `yaml:"cohort"`   // Defaults to 1,000,000
	// Attempts is how often a message may fail: one whose lineage has more
	// attempts is withheld. Defaults to 5.
	Attempts uint16 `yaml:"attempts"`
	// ConfirmDeadline is how long a publish may wait for its confirm. Defaults
	// to 30s.
	ConfirmDeadline Duration `yaml:"confirm_deadline"`
}

// Approvals are the rules of approval.
type Approvals struct {
	// PlannerUpTo is the largest cohort that its planner may approve. Defaults
	// to 10; 0 leaves the default, so use -1 for never.
	PlannerUpTo int64 `yaml:"planner_up_to"`
	// TTL is how long an approval may wait for its start. Defaults to 24h.
	TTL Duration `yaml:"ttl"`
}

// Retention is the retention clock.
type Retention struct {
	Deadline   Duration `yaml:"deadline"`    // Defaults to 14d
	PayloadAge Duration `yaml:"payload_age"` // of finished envelopes. Defaults to never
}

// Mask is one more mask.
type Mask struct {
	Name    string `yaml:"name"`
	Pattern string `yaml:"pattern"`
}

// Outcomes is the queue of reports.
type Outcomes struct {
	Queue string `yaml:"queue"`
}

// Store bounds the data directory.
type Store struct {
	// MinFreeMiB is the free space below which work is refused. Defaults to
	// max(5 %, min(10 %, 2 GiB)) of the file system.
	MinFreeMiB uint64 `yaml:"min_free_mib" env:"REDRIVE_MIN_FREE_MIB"`
	// MaxBodyMiB is the size of the largest body that is captured; a queue with
	// a larger one is parked. Defaults to 128, at most 512.
	MaxBodyMiB int `yaml:"max_body_mib"`
}

// Duration is a time span such as 90s, 5m, 14d.
type Duration = strictyaml.Duration

// ParseDuration reads 90s, 5m, 14d, and the forms of Go such as 1.5s.
func ParseDuration(s string) (time.Duration, error) { return strictyaml.ParseDuration(s) }

// Load reads a configuration file with its policy file, applies the environment
// and checks it. Further checks are about the policy file.
func Load(path string, checks ...func(*policy.Policy) error) (*Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s does not exist; write one with: redrive init: %w", path, ErrInvalid)
		}
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := Parse(path, b)
	if err != nil {
		return nil, err
	}
	if err := c.loadPolicy(filepath.Dir(path), checks); err != nil {
		return nil, err
	}
	return c, nil
}

// Parse reads a configuration from its text; name stands in errors. It reads no
// policy file: see Load.
func Parse(name string, text []byte) (*Config, error) {
	c := &Config{}
	if err := strictyaml.Decode(text, c); errors.Is(err, strictyaml.ErrEmpty) {
		return nil, fmt.Errorf("%s is empty; it needs at least: version: %d: %w", name, Version, ErrInvalid)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, err, ErrInvalid)
	}
	if err := env.Parse(c); err != nil {
		return nil, fmt.Errorf("environment: %w: %w", err, ErrInvalid)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, err, ErrInvalid)
	}
	return c.withDefaults(), nil
}

// Default is the configuration without a file.
func Default() *Config { return (&Config{Version: Version}).withDefaults() }

func (c *Config) withDefaults() *Config {
	d := redrive.DefaultLimits()
	if c.Limits.Rate == 0 {
		c.Limits.Rate = float64(d.RateMilli) / 1000
	}
	if c.Limits.Window == 0 {
		c.Limits.Window = d.Window
	}
	if c.Limits.Exposure == 0 {
		c.Limits.Exposure = d.Exposure
	}
	if c.Limits.Cohort == 0 {
		c.Limits.Cohort = 1_000_000
	}
	if c.Limits.Attempts == 0 {
		c.Limits.Attempts = 5
	}
	for i := range c.Destinations {
		if c.Destinations[i].MaxDepth == 0 {
			c.Destinations[i].MaxDepth = DefaultMaxDepth
		}
	}
	if c.Limits.ConfirmDeadline == 0 {
		c.Limits.ConfirmDeadline = Duration(30 * time.Second)
	}
	if c.Approvals.PlannerUpTo == 0 {
		c.Approvals.PlannerUpTo = 10
	}
	if c.Approvals.TTL == 0 {
		c.Approvals.TTL = Duration(24 * time.Hour)
	}
	if c.Retention.Deadline == 0 {
		c.Retention.Deadline = Duration(quarantine.DefaultRetention)
	}
	if c.Store.MaxBodyMiB == 0 {
		c.Store.MaxBodyMiB = quarantine.MaxBody >> 20
	}
	for i := range c.Sources {
		if c.Sources[i].Prefetch == 0 {
			c.Sources[i].Prefetch = 200
		}
	}
	return c
}

func (c *Config) validate() error {
	if c.Version != Version {
		return fmt.Errorf("version %d: this version of redrive reads version %d", c.Version, Version)
	}
	if err := c.Broker.validate(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, s := range c.Sources {
		switch {
		case s.Queue == "":
			return fmt.Errorf("sources[%d]: queue is required", i)
		case seen[s.Queue]:
			return fmt.Errorf("sources[%d]: queue %q is listed twice", i, s.Queue)
		case s.Prefetch < 0 || s.Prefetch > 1000:
			return fmt.Errorf("sources[%d]: prefetch %d: want 1 to 1000", i, s.Prefetch)
		}
		seen[s.Queue] = true
		if _, err := s.Rules(); err != nil {
			return fmt.Errorf("sources[%d]: %w", i, err)
		}
	}
	for i, d := range c.Destinations {
		if (d.Queue == "") == (d.Exchange == "") {
			return fmt.Errorf("destinations[%d]: either queue or exchange is required", i)
		}
		if err := d.checkRelease(); err != nil {
			return fmt.Errorf("destinations[%d]: %w", i, err)
		}
		if _, err := ParseEvidence(d.Evidence); err != nil {
			return fmt.Errorf("destinations[%d]: %w", i, err)
		}
	}
	if n := c.Store.MaxBodyMiB; n < 0 || n > 512 {
		return fmt.Errorf("store: max_body_mib %d: want 1 to 512", n)
	}
	if c.Limits.Rate != 0 {
		if _, err := redrive.RateMilli(c.Limits.Rate); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	if err := c.validateContract(); err != nil {
		return err
	}
	if err := c.validateBrake(); err != nil {
		return err
	}
	if err := c.Policy.validate(); err != nil {
		return err
	}
	_, err := c.BuildMasks()
	return err
}

// validate checks what belongs together. The addresses themselves are checked
// by whoever connects.
func (b *Broker) validate() error {
	switch {
	case b.Management == "" && b.ManagementUser+b.ManagementPasswordFile != "":
		return errors.New("broker: management_user and management_password_file need management, the address")
	case (b.ManagementUser == "") != (b.ManagementPasswordFile == ""):
		return errors.New("broker: management_user and management_password_file need each other")
	case b.Management != "" && strings.HasPrefix(b.URL, "local:"):
		return errors.New("broker: the embedded broker has no management API; take management out")
	}
	return nil
}

// ParseEvidence reads an evidence mode; "" is the default.
func ParseEvidence(s string) (redrive.Evidence, error) {
	switch e := redrive.Evidence(s); e {
	case "":
		return redrive.EvidenceReturns, nil
	case redrive.EvidenceOutcomes, redrive.EvidenceReturns, redrive.EvidenceReconcile:
		return e, nil
	}
	return "", fmt.Errorf("evidence %q: want outcomes, returns_only or reconcile", s)
}

// BuildMasks makes the masks: the built-in ones, those of the policy file, and
// its own.
func (c *Config) BuildMasks() ([]quarantine.Mask, error) {
	out := quarantine.DefaultMasks()
	for _, m := range append(c.policyMasks(), c.Masks...) {
		mask, err := quarantine.NewMask(m.Name, m.Pattern)
		if err != nil {
			return nil, err
		}
		out = append(out, mask)
	}
	return out, nil
}

// Rules are the default ones, with the names of the policy, and over them the
// overrides of the source.
func (s *Source) Rules() (quarantine.Rules, error) {
	ru := quarantine.DefaultRules()
	if s.worked != nil {
		if err := ru.TakeFrom(s.worked); err != nil {
			return ru, fmt.Errorf("policy: %w", err)
		}
	}
	fields := map[string]*[]quarantine.Expression{
		"operation": &ru.Operation, "type": &ru.Type, "schema_version": &ru.Schema, "ordering_key": &ru.OrderingKey,
		"sequence": &ru.Sequence, "producer": &ru.Producer, "consumer_version": &ru.Consumer, "trace_id": &ru.TraceID,
		"reason": &ru.Reason, "last_reason": &ru.LastReason, "error_code": &ru.ErrorCode, "attempts": &ru.Attempts,
		"first_failed": &ru.FirstFailed, "last_error": &ru.LastError,
	}
	for name, list := range s.Identity {
		to, ok := fields[name]
		if !ok {
			return ru, fmt.Errorf("identity.%s is unknown", name)
		}
		*to = nil
		for _, text := range list {
			e, err := quarantine.ParseExpression(text)
			if err != nil {
				return ru, fmt.Errorf("identity.%s: %w", name, err)
			}
			*to = append(*to, e)
		}
	}
	return ru, nil
}

// Source returns the settings of a queue; one that is not configured has the
// defaults.
func (c *Config) Source(queue string) Source {
	out := Source{Queue: queue, Prefetch: 200}
	for _, s := range c.Sources {
		if s.Queue == queue {
			out = s
		}
	}
	if out.worked = c.worked(queue); out.worked != nil && out.Retention == 0 {
		out.Retention = Duration(out.worked.Retention)
	}
	return out
}

// Exchange returns the settings of an exchange that is listed for all routing
// keys. The default exchange is always allowed: it reaches the queue that the
// key names.
func (c *Config) Exchange(name string) (Destination, bool) {
	for _, x := range c.Destinations {
		if name != "" && x.Exchange == name && x.RoutingKey == "" {
			return x, true
		}
	}
	return Destination{}, name == ""
}

// Destination returns the settings of a destination, and whether it is listed.
func (c *Config) Destination(d redrive.Destination) (Destination, bool) {
	for _, x := range c.Destinations {
		if x.Queue != "" && d.Exchange == "" && x.Queue == d.RoutingKey {
			return x, true
		}
		if x.Exchange != "" && x.Exchange == d.Exchange && (x.RoutingKey == "" || x.RoutingKey == d.RoutingKey) {
			return x, true
		}
	}
	return Destination{}, false
}
