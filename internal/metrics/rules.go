package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"

	"github.com/redrivehq/redrive/quarantine/policy"
)

// Rules is a file of Prometheus rules.
type Rules struct {
	Groups []Group `yaml:"groups" json:"groups"`
}

// Group is evaluated in its order: alerts see what was recorded before them.
type Group struct {
	Name  string `yaml:"name" json:"name"`
	Rules []Rule `yaml:"rules" json:"rules"`
}

// Rule records a metric, or is an alert.
type Rule struct {
	Record      string            `yaml:"record,omitempty" json:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty" json:"alert,omitempty"`
	Expr        string            `yaml:"expr" json:"expr"`
	For         string            `yaml:"for,omitempty" json:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty" json:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty" json:"annotations,omitempty"`
}

// Names of the alerts.
const (
	AlertNotEmpty = "RedriveQuarantineNotEmpty" // something has lain there for a while
	AlertDeep     = "RedriveQuarantineDeep"     // much lies there
	AlertFirst    = "RedriveQuarantineFirst"    // something came to an empty quarantine
	AlertRising   = "RedriveQuarantineRising"   // more comes than before, by queue or by version
	AlertReason   = "RedriveQuarantineReason"   // open messages of one reason, for its owner
	AlertAging    = "RedriveQuarantineAging"    // the retention is nearly over
	AlertOverdue  = "RedriveQuarantineOverdue"  // the retention is over; nothing is removed
	AlertUnknown  = "RedriveQuarantineUnknown"  // nobody knows how much lies there
)

const (
	// window is the time within which arrivals are counted and compared.
	window = 10 * time.Minute
	// rising is how many times more than in a window of the hour before is a rise,
	// and risingLeast how many messages it takes.
	rising, risingLeast = 3, 5
	// aging is the share of the retention after which it is nearly over.
	aging = 0.8
	// unknownFor is for how long a number may be missing.
	unknownFor = 5 * time.Minute
)

// Alerts are the rules for the queues of a policy. Those about a whole
// quarantine carry the default owner, those about a reason its owner and class,
// those about age the owner that the open messages have.
func Alerts(p *policy.Policy) Rules {
	out := Rules{Groups: []Group{}}
	seen := map[string]bool{}
	for _, q := range p.Queues {
		q = q.WithDefaults()
		if seen[q.Quarantine] {
			continue // one quarantine of several queues has the alerts of the first
		}
		seen[q.Quarantine] = true
		a := alerts{q: q, owner: p.DefaultOwner, on: LabelQueue + "=" + strconv.Quote(q.Quarantine)}
		if a.owner == "" {
			a.owner = policy.Unassigned
		}
		a.record()
		a.depth()
		a.arrivals()
		a.reasons(p)
		a.age()
		out.Groups = append(out.Groups, Group{Name: "redrive " + q.Quarantine, Rules: a.rules})
	}
	return out
}

// alerts collects the rules of one queue.
type alerts struct {
	q     policy.Queue
	owner string
	on    string // the matcher of the quarantine
	rules []Rule
}

func (a *alerts) alert(name, severity string, wait time.Duration, expr, summary, to string, labels map[string]string) {
	r := Rule{Alert: name, Expr: expr, Labels: map[string]string{LabelSeverity: severity},
		Annotations: map[string]string{"summary": summary, "description": to}}
	if wait > 0 {
		r.For = span(wait)
	}
	for k, v := range labels {
		r.Labels[k] = literal(v)
	}
	a.rules = append(a.rules, r)
}

func (a *alerts) own() map[string]string { return map[string]string{LabelOwner: a.owner} }

func (a *alerts) record() {
	const by = LabelQueue + ", " + LabelConsumer + ", " + LabelSchema
	now := fmt.Sprintf("sum by (%s) (%s{%s})", by, Arrivals, a.on)
	before := fmt.Sprintf("sum by (%s) (%s{%s} offset %s)", by, Arrivals, a.on, span(window))
	// Where nothing is known of the time before, nothing is known of what is new.
	known := fmt.Sprintf("sum by (%s) (%s{%s} offset %s)", LabelQueue, Open, a.on, span(window))
	a.rules = append(a.rules,
		Rule{Record: Depth, Expr: fmt.Sprintf("sum by (%s) ({__name__=~%q, %s})", LabelQueue, BrokerReady+"|"+Open, a.on)},
		Rule{Record: New, Expr: fmt.Sprintf("(%s - %s) or (%s and on (%s) %s)", now, before, now, LabelQueue, known)})
}

// depth is about what lies there at the broker and in the store together. What
// is not known is left out of the sum, and has an alert of its own.
func (a *alerts) depth() {
	name := literal(a.q.Quarantine)
	look := "Look with: redrive dlq peek --queue " + name
	a.alert(AlertNotEmpty, "page", a.q.Alerts.For, fmt.Sprintf("%s{%s} > 0", Depth, a.on),
		"{{ $value }} messages lie in quarantine "+name+" for "+span(a.q.Alerts.For), look, a.own())
	a.alert(AlertDeep, "page", 0, fmt.Sprintf("%s{%s} > %d", Depth, a.on, a.q.Alerts.Depth),
		fmt.Sprintf("{{ $value }} messages lie in quarantine %s, more than %d", name, a.q.Alerts.Depth), look, a.own())
	a.alert(AlertFirst, "info", 0, fmt.Sprintf("%[1]s{%[2]s} > 0 and on (%[3]s) (%[1]s{%[2]s} offset %[4]s) == 0", Depth, a.on, LabelQueue, span(unknownFor)),
		"the first message came to quarantine "+name, look, a.own())
	a.alert(AlertUnknown, "page", unknownFor, fmt.Sprintf("absent(%s{%s}) or absent(%s{%s})", BrokerReady, a.on, Open, a.on),
		"how much lies in quarantine "+name+" is not known", "Look with: redrive dlq depth --queue "+name+", and redrive doctor", a.own())
}

// arrivals compares a window with the hour before it, for the queue and for each
// version of consumer and schema.
func (a *alerts) arrivals() {
	name := literal(a.q.Quarantine)
	for _, by := range []struct{ labels, what string }{
		{LabelQueue, "quarantine " + name},
		{LabelQueue + ", " + LabelConsumer, "quarantine " + name + " from consumer version {{ $labels.consumer_version }}"},
		{LabelQueue + ", " + LabelSchema, "quarantine " + name + " with schema version {{ $labels.schema_version }}"},
	} {
		now := fmt.Sprintf("sum by (%s) (%s{%s})", by.labels, New, a.on)
		usual := fmt.Sprintf("(sum by (%s) (avg_over_time(%s{%s}[1h] offset %s)) or %s * 0)", by.labels, New, a.on, span(window), now)
		a.alert(AlertRising, "warning", 0, fmt.Sprintf("%s >= %d and %s > %d * %s", now, risingLeast, now, rising, usual),
			"{{ $value }} messages came to "+by.what+" within "+span(window)+", several times as many as usual",
			"See what they have in common: redrive envelope list --queue "+name, a.own())
	}
}

// reasons tells the owner of each reason that can lie in quarantine.
func (a *alerts) reasons(p *policy.Policy) {
	for _, reason := range slices.Sorted(maps.Keys(p.Reasons)) {
		if p.Reasons[reason].Does() == policy.ActionDrop {
			continue
		}
		class, owner := p.Classify(reason)
		a.alert(AlertReason, "warning", a.q.Alerts.For, fmt.Sprintf("sum by (%s, %s) (%s{%s, %s=%q}) > 0", LabelQueue, LabelReason, Open, a.on, LabelReason, reason),
			"{{ $value }} open messages of reason "+literal(reason)+" in quarantine "+literal(a.q.Quarantine),
			"Resolve the cause, then release them: redrive dlq replay --queue "+literal(a.q.Quarantine)+" --reason "+literal(reason),
			map[string]string{LabelOwner: owner, LabelClass: class.String()})
	}
}

// age compares the oldest open message of each owner with the retention.
func (a *alerts) age() {
	oldest := fmt.Sprintf("max by (%s, %s) (%s{%s})", LabelQueue, LabelOwner, Oldest, a.on)
	name, limit := literal(a.q.Quarantine), a.q.Retention.Seconds()
	a.alert(AlertAging, "warning", 0, fmt.Sprintf("%s > %.0f", oldest, aging*limit),
		"messages of {{ $labels.owner }} in quarantine "+name+" are {{ $value | humanizeDuration }} old",
		"The retention of "+span(a.q.Retention)+" is nearly over. Nothing open is removed then, but it counts as overdue.", nil)
	a.alert(AlertOverdue, "page", 0, fmt.Sprintf("%s > %.0f", oldest, limit),
		"messages of {{ $labels.owner }} in quarantine "+name+" are overdue",
		"The retention of "+span(a.q.Retention)+" is over. Nothing was removed: release, resolve or purge them.", nil)
}

// span writes a duration as Prometheus does.
func span(d time.Duration) string { return model.Duration(d.Truncate(time.Millisecond)).String() }

// literal keeps a text out of the hands of Prometheus' templates.
func literal(s string) string { return strings.ReplaceAll(s, "{{", `{{"{{"}}`) }

// YAML writes the rules as Prometheus reads them.
func (r Rules) YAML() ([]byte, error) {
	b, err := yaml.MarshalWithOptions(r, yaml.UseLiteralStyleIfMultiline(false))
	if err != nil {
		return nil, fmt.Errorf("write the rules: %w", err)
	}
	return append([]byte("# Alerts of a policy of redrive. Written by: redrive policy alerts\n"), b...), nil
}
