package brokertest

import (
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

func inspectChecks() []check {
	return []check{
		{"a look changes nothing", nil, looksOnly},
		{"a missing queue is not inspected", nil, inspectMissing},
		{"a plain queue is not accused", nil, plainQueue},
		{"the receivers of a publish are told, or that they are unknown", nil, receivers},
	}
}

func looksOnly(e *env) {
	s := e.source()
	q := e.fill(3)
	for range 3 {
		in, err := s.Inspect(e.ctx, q)
		if err != nil {
			e.Fatal(err)
		}
		if in.Queue != q || in.At.IsZero() {
			e.Errorf("the inspection of %q is %+v", q, in)
		}
	}
	e.depth(s, q, 3)
	got := e.receive(e.open(s, q, 3), 3)
	for _, d := range got {
		if d.Redelivered || d.DeliveryCount > 0 {
			e.Errorf("after a look, %q was delivered before", d.Body)
		}
	}
}

func inspectMissing(e *env) {
	s := e.source()
	for range 2 {
		in, err := s.Inspect(e.ctx, absent)
		e.wantErr("inspect", err, quarantine.ErrQueueMissing)
		if in.Queue != "" || in.Findings != nil {
			e.Errorf("an error came with %+v", in)
		}
	}
}

// plainQueue has no limits and no time-to-live: whatever a driver knows or does
// not know, it must not warn of either.
func plainQueue(e *env) {
	s := e.source()
	q := e.h.NewQueue(e.TB)
	in, err := s.Inspect(e.ctx, q)
	if err != nil {
		e.Fatal(err)
	}
	for _, f := range in.Findings {
		if f.Subject == q && f.Severity != quarantine.Unknown {
			e.Errorf("found %+v", f)
		}
		if f.Code == "" || f.Text == "" {
			e.Errorf("a finding says nothing: %+v", f)
		}
	}
	again := quarantine.SortFindings(slices.Clone(in.Findings))
	if diff := cmp.Diff(again, in.Findings); diff != "" {
		e.Errorf("findings are not in order:\n%s", diff)
	}
}

func receivers(e *env) {
	r := e.releaser()
	q := e.h.NewQueue(e.TB)
	x := e.h.NewExchange(e.TB, q, "some.key")
	for _, c := range []struct {
		dest redrive.Destination
		want []string
	}{
		{redrive.Destination{RoutingKey: q}, []string{q}},
		{redrive.Destination{Exchange: x, RoutingKey: "some.key"}, []string{q}},
		{redrive.Destination{Exchange: x, RoutingKey: "other.key"}, []string{}},
		{redrive.Destination{RoutingKey: absent}, nil},
		{redrive.Destination{Exchange: absent, RoutingKey: q}, nil},
	} {
		route, err := r.Route(e.ctx, c.dest)
		if err != nil {
			e.Fatal(err)
		}
		unknown := slices.ContainsFunc(route.Findings, func(f quarantine.Finding) bool { return f.Severity == quarantine.Unknown })
		switch {
		case !route.Exists:
			if c.want != nil || route.Receivers != nil || route.Findings != nil {
				e.Errorf("%+v does not exist, and is %+v", c.dest, route)
			}
		case route.Receivers == nil && unknown:
		default:
			if diff := cmp.Diff(c.want, route.Receivers); diff != "" {
				e.Errorf("receivers of %+v (-want +got):\n%s", c.dest, diff)
			}
		}
	}
}
