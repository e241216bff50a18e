package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/strictyaml"
	"github.com/redrivehq/redrive/ledger/event"
)

// ErrInvalid is returned for a policy that cannot be used. The message says
// where and what is expected there.
var ErrInvalid = errors.New("invalid policy")

// MaxFile is the size in bytes of the largest policy file that is read.
const MaxFile = 1 << 20

// file is a policy as it stands in a file.
type file struct {
	Format       strictyaml.Int        `yaml:"format"`
	Version      strictyaml.Text       `yaml:"version"`
	DefaultOwner string                `yaml:"default_owner"`
	Reasons      map[string]fileReason `yaml:"reasons"`
	NeverRetry   fileNeverRetry        `yaml:"never_retry"`
	Rules        []fileRule            `yaml:"rules"`
	Masks        []fileMask            `yaml:"masks"`
	Queues       []fileQueue           `yaml:"queues"`
}

type fileReason struct {
	Class  string            `yaml:"class"`
	Action string            `yaml:"action"`
	Owner  string            `yaml:"owner"`
	Codes  []strictyaml.Text `yaml:"codes"`
}

type fileNeverRetry struct {
	Codes  []strictyaml.Text `yaml:"codes"`
	Reason string            `yaml:"reason"`
	Owner  string            `yaml:"owner"`
}

type fileRule struct {
	Queue  string          `yaml:"queue"`
	Header string          `yaml:"header"`
	Equals strictyaml.Text `yaml:"equals"`
	Error  string          `yaml:"error"`
	When   string          `yaml:"when"`
	Reason string          `yaml:"reason"`
}

type fileMask struct {
	Name    string `yaml:"name"`
	Pattern string `yaml:"pattern"`
}

type fileRetry struct {
	Mode  string `yaml:"mode"`
	Queue string `yaml:"queue"`
}

type fileHeaders struct {
	Reason      string `yaml:"reason"`
	LastReason  string `yaml:"last_reason"`
	Attempts    string `yaml:"attempts"`
	FirstFailed string `yaml:"first_failed"`
	LastError   string `yaml:"last_error"`
	ErrorCode   string `yaml:"error_code"`
	TraceID     string `yaml:"trace_id"`
	Consumer    string `yaml:"consumer_version"`
}

type fileWords struct {
	Malformed string `yaml:"malformed"`
	Exhausted string `yaml:"exhausted"`
	Unknown   string `yaml:"unknown"`
	Duplicate string `yaml:"duplicate"`
	Parked    string `yaml:"parked"`
	Crash     string `yaml:"crash"`
}

type fileOrdering struct {
	Key       string `yaml:"key"`
	Sequence  string `yaml:"sequence"`
	OnFailure string `yaml:"on_failure"`
}

type fileAlerts struct {
	For   *strictyaml.Duration `yaml:"for"`
	Depth *strictyaml.Int      `yaml:"depth"`
}

type fileQueue struct {
	Queue         string                `yaml:"queue"`
	Kind          string                `yaml:"kind"`
	Prefetch      *strictyaml.Int       `yaml:"prefetch"`
	Replicas      *strictyaml.Int       `yaml:"replicas"`
	Retries       *strictyaml.Int       `yaml:"retries"`
	DeliveryLimit *strictyaml.Int       `yaml:"delivery_limit"`
	Delays        []strictyaml.Duration `yaml:"delays"`
	Jitter        *strictyaml.Text      `yaml:"jitter"`
	Retry         fileRetry             `yaml:"retry"`
	Quarantine    string                `yaml:"quarantine"`
	Retention     *strictyaml.Duration  `yaml:"retention"`
	Timeout       strictyaml.Duration   `yaml:"timeout"`
	Schemas       map[string]string     `yaml:"schemas"`
	Headers       fileHeaders           `yaml:"headers"`
	Words         fileWords             `yaml:"words"`
	Ordering      fileOrdering          `yaml:"ordering"`
	Operation     string                `yaml:"operation"`
	Horizon       strictyaml.Duration   `yaml:"horizon"`
	Alerts        fileAlerts            `yaml:"alerts"`
}

// Parse reads a policy from the text of its file; name stands in errors, which
// wrap ErrInvalid and name line and column. What the file does not say has its
// default. Further checks of the caller come last; they report a place with
// Fault.
func Parse(name string, text []byte, checks ...func(*Policy) error) (*Policy, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read: %w", name, len(text), MaxFile, ErrInvalid)
	}
	p, err := decode(text)
	if err == nil {
		err = p.Validate()
	}
	for i := 0; err == nil && i < len(checks); i++ {
		err = checks[i](p)
	}
	if err == nil {
		return p, nil
	}
	where := ""
	if f := (*Fault)(nil); errors.As(err, &f) {
		if line, column, ok := strictyaml.Place(text, f.Path...); ok {
			where = fmt.Sprintf("[%d:%d] ", line, column)
		}
	}
	return nil, fmt.Errorf("%s: %s%w: %w", name, where, err, ErrInvalid)
}

func decode(text []byte) (*Policy, error) {
	var f file
	err := strictyaml.Decode(text, &f)
	switch {
	case errors.Is(err, strictyaml.ErrEmpty):
		return nil, fmt.Errorf("the file is empty; it needs at least: format: %d and a version", FormatVersion)
	case err != nil:
		return nil, err
	case f.Format != FormatVersion:
		return nil, fault("%d: this version of redrive reads format %d", f.Format, FormatVersion).at("format")
	}
	p := &Policy{Version: string(f.Version), DefaultOwner: f.DefaultOwner, Reasons: map[string]Reason{},
		NeverRetry: NeverRetry{Codes: texts(f.NeverRetry.Codes), Reason: f.NeverRetry.Reason, Owner: f.NeverRetry.Owner}}
	for _, name := range sortedKeys(f.Reasons) {
		r := f.Reasons[name]
		class, ok := event.ParseClass(r.Class)
		if r.Class != "" && !ok {
			return nil, fault("%.40q is unknown; classes are transient, systemic, permanent, business_rejection, ambiguous_effect, consumer_defect, unclassified",
				r.Class).at("reasons", name, "class")
		}
		p.Reasons[name] = Reason{Class: class, Action: Action(r.Action), Owner: r.Owner, Codes: texts(r.Codes)}
	}
	for _, r := range f.Rules {
		p.Rules = append(p.Rules, Rule{Queue: r.Queue, Header: r.Header, Equals: string(r.Equals), Error: r.Error, When: r.When, Reason: r.Reason})
	}
	for _, m := range f.Masks {
		p.Masks = append(p.Masks, Mask(m))
	}
	for i := range f.Queues {
		q, err := f.Queues[i].queue()
		if err != nil {
			return nil, err.at("queues", i)
		}
		p.Queues = append(p.Queues, q)
	}
	return p, nil
}

// queue is the queue that the file means. A number that would stand for its
// default in a Queue is refused here when the file gives it.
func (f *fileQueue) queue() (Queue, *Fault) {
	q := Queue{
		Name: f.Queue, Kind: f.Kind, Retries: DefaultRetries, Jitter: DefaultJitter,
		Mode: RetryMode(f.Retry.Mode), RetryQueue: f.Retry.Queue, Quarantine: f.Quarantine,
		Timeout: time.Duration(f.Timeout), Schemas: f.Schemas, Headers: Headers(f.Headers), Words: Words(f.Words),
		Ordering: Ordering(f.Ordering), Operation: f.Operation, Horizon: time.Duration(f.Horizon),
	}
	if f.Retries != nil {
		q.Retries = int(*f.Retries)
	}
	for _, x := range []struct {
		from *strictyaml.Int
		to   *int
		at   []any
	}{
		{f.Prefetch, &q.Prefetch, []any{"prefetch"}}, {f.Replicas, &q.Replicas, []any{"replicas"}}, {f.Alerts.Depth, &q.Alerts.Depth, []any{"alerts", "depth"}},
	} {
		if x.from == nil {
			continue
		}
		if *x.to = int(*x.from); *x.to < 1 {
			return q, fault("%d: want 1 or more", *x.to).at(x.at...)
		}
	}
	if f.DeliveryLimit != nil {
		q.DeliveryLimit = int(*f.DeliveryLimit)
		if q.DeliveryLimit == 0 && q.Retries != 0 {
			return q, fault("0 with %d retries: want the number of retries", q.Retries).at("delivery_limit")
		}
	}
	for _, x := range []struct {
		from *strictyaml.Duration
		to   *time.Duration
		at   []any
	}{
		{f.Retention, &q.Retention, []any{"retention"}}, {f.Alerts.For, &q.Alerts.For, []any{"alerts", "for"}},
	} {
		if x.from == nil {
			continue
		}
		if *x.to = time.Duration(*x.from); *x.to <= 0 {
			return q, fault("%s: want more than 0", *x.to).at(x.at...)
		}
	}
	for _, d := range f.Delays {
		q.Delays = append(q.Delays, time.Duration(d))
	}
	if f.Jitter != nil {
		share, err := parseShare(string(*f.Jitter))
		if err != nil {
			return q, fault("%s", err).at("jitter")
		}
		q.Jitter = share
	}
	return q.WithDefaults(), nil
}

// parseShare reads 20% or 0.2.
func parseShare(s string) (float64, error) {
	digits, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%.40q: want a share from 0%% to 100%%, such as 20%%", s)
	}
	return v, nil
}

func texts(list []strictyaml.Text) []string {
	var out []string
	for _, t := range list {
		out = append(out, string(t))
	}
	return out
}
