package brokertest

import (
	"slices"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

func layoutChecks() []check {
	has := func(h Harness) bool { return h.NewLayout != nil }
	return []check{
		{"a comparison makes nothing", has, comparesOnly},
		{"what is missing is made, and once", has, makesOnce},
		{"a message goes round: retry, main, quarantine", has, goesRound},
		{"what exists in another form is left alone", has, leavesAlone},
		{"only what is missing is made", has, makesMissing},
	}
}

func (e *env) layout() quarantine.Layout {
	l := e.h.NewLayout(e.TB)
	e.closers = append(e.closers, l.Close)
	return l
}

// work is a policy for one queue under a new name, with a short ladder.
func (e *env) work() []policy.Queue {
	return []policy.Queue{policy.Queue{Name: e.h.NewQueue(e.TB) + ".work", Retries: 2, Delays: []time.Duration{50 * time.Millisecond, time.Hour}}.WithDefaults()}
}

func (e *env) compare(l quarantine.Layout, qs []policy.Queue) quarantine.Comparison {
	e.Helper()
	c, err := l.Compare(e.ctx, qs)
	if err != nil {
		e.Fatalf("compare: %v", err)
	}
	return c
}

// own are the names of all queues of a policy.
func own(q policy.Queue) []string { return append([]string{q.Quarantine, q.Name}, q.RetryQueues()...) }

func comparesOnly(e *env) {
	l, s, qs := e.layout(), e.source(), e.work()
	for range 2 {
		c := e.compare(l, qs)
		if c.Broker != s.Caps() {
			e.Errorf("the broker is %+v, want %+v", c.Broker, s.Caps())
		}
		var missing []string
		for _, x := range c.Steps {
			if x.Object == quarantine.ObjectQueue && x.State == quarantine.StepMissing && slices.Contains(own(qs[0]), x.Name) {
				missing = append(missing, x.Name)
			}
			if x.Text == "" {
				e.Errorf("a step says nothing: %+v", x)
			}
		}
		if diff := cmp.Diff(own(qs[0]), missing); diff != "" {
			e.Errorf("missing queues, targets of dead letters first (-want +got):\n%s", diff)
		}
	}
	for _, name := range own(qs[0]) {
		_, err := s.Depth(e.ctx, name)
		e.wantErr("depth of "+name, err, quarantine.ErrQueueMissing)
	}
}

// makeAll does every step that is missing and returns all of them.
func (e *env) makeAll(l quarantine.Layout, qs []policy.Queue) []quarantine.Step {
	e.Helper()
	var made []quarantine.Step
	for _, x := range e.compare(l, qs).Steps {
		if x.State != quarantine.StepMissing {
			continue
		}
		if err := l.Make(e.ctx, qs, x); err != nil {
			e.Fatalf("make %s %s: %v", x.Object, x.Name, err)
		}
		made = append(made, x)
	}
	return made
}

func makesOnce(e *env) {
	l, qs := e.layout(), e.work()
	made := e.makeAll(l, qs)
	for _, x := range e.compare(l, qs).Steps {
		if x.State == quarantine.StepMissing || x.State == quarantine.StepDiffers {
			e.Errorf("%s %s is %s after it was made: %s", x.Object, x.Name, x.State, x.Text)
		}
	}
	for _, f := range e.compare(l, qs).Findings {
		if f.Severity != quarantine.Unknown && f.Code != quarantine.DriftNoConsumer {
			e.Errorf("found %+v", f)
		}
	}
	for _, x := range made { // somebody else was faster: no error
		if err := l.Make(e.ctx, qs, x); err != nil {
			e.Errorf("make %s %s once more: %v", x.Object, x.Name, err)
		}
	}
}

// expires is delivery mode 2 and an expiration.
func expires(after time.Duration) []byte {
	ms := strconv.FormatInt(after.Milliseconds(), 10)
	return append([]byte{0x11, 0x00, 2, byte(len(ms))}, ms...)
}

func goesRound(e *env) {
	l, s, qs := e.layout(), e.source(), e.work()
	e.makeAll(l, qs)
	q := qs[0]
	short, long := q.RetryQueueFor(1), q.RetryQueueFor(2)
	e.h.Publish(e.TB, Raw{RoutingKey: long, Properties: expires(time.Hour), Body: number(2)},
		Raw{RoutingKey: short, Properties: expires(50 * time.Millisecond), Body: number(1)})
	e.depth(s, q.Name, 1)
	e.depth(s, long, 1)
	e.holds(q.Name, number(1))
	e.h.Publish(e.TB, Raw{RoutingKey: q.Name, Properties: expires(time.Millisecond), Body: number(3)})
	e.depth(s, q.Quarantine, 1)
	e.holds(q.Quarantine, number(3))
}

func leavesAlone(e *env) {
	l, s := e.layout(), e.source()
	name := e.fill(3)
	qs := []policy.Queue{policy.Queue{Name: name, Retries: 2}.WithDefaults()}
	missing := quarantine.Step{}
	for _, x := range e.compare(l, e.work()).Steps {
		if x.Object == quarantine.ObjectQueue && x.State == quarantine.StepMissing && len(x.Settings) > 3 {
			missing = x
		}
	}
	for _, x := range e.compare(l, qs).Steps {
		if x.Object == quarantine.ObjectQueue && x.Name == name && (x.State == quarantine.StepMissing || x.State == quarantine.StepRight) {
			e.Errorf("a queue without any limit is %s: %s", x.State, x.Text)
		}
	}
	missing.Name = name // as planned before somebody else declared it
	e.wantErr("make what exists", l.Make(e.ctx, qs, missing), quarantine.ErrRefused)
	e.depth(s, name, 3)
	e.holds(name, numbers(0, 3)...)
}

func makesMissing(e *env) {
	l, qs := e.layout(), e.work()
	for _, x := range e.compare(l, qs).Steps {
		for _, state := range []quarantine.StepState{quarantine.StepRight, quarantine.StepDiffers, quarantine.StepUnknown, ""} {
			x.State = state
			e.wantErr("make what is "+string(state), l.Make(e.ctx, qs, x), quarantine.ErrRefused)
		}
	}
	e.wantErr("make nothing", l.Make(e.ctx, qs, quarantine.Step{Object: "cheese", Name: "x", State: quarantine.StepMissing}), quarantine.ErrRefused)
}
