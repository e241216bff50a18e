package policing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// faulty is a Layout that fails as a test says. Working ones are tested with
// real brokers.
type faulty struct {
	found  quarantine.Comparison
	looks  error
	makes  map[string]error // by name
	makers []string         // what was tried
}

func (f *faulty) Compare(context.Context, []policy.Queue) (quarantine.Comparison, error) {
	return f.found, f.looks
}

func (f *faulty) Make(_ context.Context, _ []policy.Queue, s quarantine.Step) error {
	f.makers = append(f.makers, s.Name)
	return f.makes[s.Name]
}

func (f *faulty) Close() error { return nil }

func steps() quarantine.Comparison {
	c := quarantine.Comparison{Broker: quarantine.SourceCaps{Broker: "RabbitMQ", Version: "3.10.8", Cluster: "shop", VHost: "it's"}}
	for _, s := range []struct {
		name  string
		of    quarantine.Object
		state quarantine.StepState
	}{
		{"there", quarantine.ObjectQueue, quarantine.StepRight}, {"other", quarantine.ObjectQueue, quarantine.StepDiffers},
		{"dark", quarantine.ObjectQueue, quarantine.StepUnknown}, {"made", quarantine.ObjectQueue, quarantine.StepMissing},
		{"denied", quarantine.ObjectQueue, quarantine.StepMissing}, {"lost", quarantine.ObjectQueue, quarantine.StepMissing},
		{"taken", quarantine.ObjectQueue, quarantine.StepMissing}, {"redrive-there", quarantine.ObjectBrokerPolicy, quarantine.StepMissing},
		{"last", quarantine.ObjectQueue, quarantine.StepMissing},
	} {
		c.Steps = append(c.Steps, quarantine.Step{Object: s.of, Name: s.name, State: s.state, Text: "text", Advice: "advice", Settings: []quarantine.Setting{{Name: "n", Value: int64(5)}}})
	}
	return c
}

func TestApply(t *testing.T) {
	l := &faulty{found: steps(), makes: map[string]error{
		"denied": fmt.Errorf("%w: 403", quarantine.ErrDenied), "lost": fmt.Errorf("%w: gone", quarantine.ErrUnreachable),
		"taken": fmt.Errorf("%w: 406", quarantine.ErrRefused), "redrive-there": fmt.Errorf("%w: tag", quarantine.ErrDenied)}}
	plan, err := Apply(t.Context(), l, nil, false)
	if err != nil || len(l.makers) > 0 || plan.Acted || plan.Steps[3].State != api.StepMissing || plan.Steps[3].Settings[0] != (api.PolicySetting{Name: "n", Value: "5"}) {
		t.Errorf("a plan made %v: %+v, %v", l.makers, plan, err)
	}
	if plan.Broker != (api.Broker{Product: "RabbitMQ 3.10.8", Cluster: "shop", VHost: "it's"}) {
		t.Errorf("the broker is %+v", plan.Broker)
	}
	plan, err = Apply(t.Context(), l, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range plan.Steps {
		got[s.Name] = s.State
		switch {
		case s.Name == "denied" && !strings.Contains(s.Advice, `rabbitmqctl set_permissions -p 'it'\''s' USER`),
			s.Name == "redrive-there" && !strings.Contains(s.Advice, "policymaker"),
			s.Name == "lost" && !strings.Contains(s.Advice, "again"):
			t.Errorf("the advice for %s is %q", s.Name, s.Advice)
		}
	}
	want := map[string]string{"there": "right", "other": "differs", "dark": "unknown", "made": "made", "denied": "denied", "lost": "unknown", "taken": "failed", "redrive-there": "denied", "last": "made"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	f := func(severity quarantine.Severity, code string) quarantine.Finding {
		return quarantine.Finding{Severity: severity, Code: code, Subject: "q", Text: "t"}
	}
	drift, dark := f(quarantine.Loses, quarantine.FoundNoDLX), f(quarantine.Unknown, quarantine.FoundNotInspected)
	worker, darkWorker := f(quarantine.Risks, quarantine.DriftNoConsumer), f(quarantine.Unknown, quarantine.DriftPrefetch)
	for _, c := range []struct {
		found   []quarantine.Finding
		without bool
		want    string
		n       int
	}{
		{nil, false, api.NoDrift, 0},
		{[]quarantine.Finding{drift}, false, api.Drift, 1},
		{[]quarantine.Finding{drift, dark}, false, api.Drift, 2},
		{[]quarantine.Finding{dark, drift}, false, api.Drift, 2},
		{[]quarantine.Finding{dark}, false, api.DriftUnknown, 1},
		{[]quarantine.Finding{worker}, false, api.Drift, 1},
		{[]quarantine.Finding{worker, darkWorker}, true, api.NoDrift, 0},
		{[]quarantine.Finding{worker, dark}, true, api.DriftUnknown, 1},
	} {
		r, err := Check(t.Context(), &faulty{found: quarantine.Comparison{Findings: c.found, Notes: []quarantine.Finding{drift}}}, nil, Options{WithoutWorkers: c.without})
		if err != nil || r.Result != c.want || len(r.Findings) != c.n || len(r.Notes) != 1 {
			t.Errorf("%v: %+v, %v; want %s", c.found, r, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for is, want := range map[error]api.Code{
		quarantine.ErrUnreachable: api.CodeTemporary, quarantine.ErrRefused: api.CodeBroker, context.Canceled: api.CodeCancelled,
		context.DeadlineExceeded: api.CodeTemporary, errors.New("other"): api.CodeFailed,
	} {
		l := &faulty{looks: fmt.Errorf("wrapped: %w", is)}
		_, err1 := Apply(t.Context(), l, nil, true)
		_, err2 := Check(t.Context(), l, nil, Options{})
		for _, err := range []error{err1, err2} {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != want {
				t.Errorf("%v has the code %v, want %s", is, err, want)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	p := &policy.Policy{Queues: []policy.Queue{{Name: "a"}, {Name: "b"}}}
	for _, c := range []struct {
		p     *policy.Policy
		names []string
		want  int
		says  string
	}{
		{p, nil, 2, ""}, {p, []string{"b"}, 1, ""}, {p, []string{"b", "c"}, 0, "no queue c; it has: a, b"}, {&policy.Policy{}, nil, 0, "names no queue"},
	} {
		qs, err := Choose(c.p, c.names)
		if len(qs) != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, %v", c.names, qs, err)
		}
	}
}
