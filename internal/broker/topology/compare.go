package topology

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Dialect is what a comparison has to know of a broker.
type Dialect struct {
	Major int    // of RabbitMQ's version, 0 of another broker
	VHost string // for commands that people type
	// Policies tells that the broker has policies of its own, which this process
	// can set.
	Policies bool
}

// Compare says what a broker needs for these queues, what differs there, and
// what follows from the policy itself. Steps, findings and notes are those of
// quarantine.Comparison.
func Compare(m Map, qs []policy.Queue, d Dialect) (steps []quarantine.Step, found, notes []quarantine.Finding) {
	c := comparison{m: m, d: d, seen: map[string]bool{}}
	c.outcomes()
	for _, q := range qs {
		q = q.WithDefaults()
		for _, w := range Want(q) {
			c.queue(w, q)
		}
		c.notes = append(c.notes, Notes(q)...)
	}
	return append(c.steps, c.policies...), quarantine.SortFindings(c.found), quarantine.SortFindings(c.notes)
}

// comparison is one under way.
type comparison struct {
	m        Map
	d        Dialect
	seen     map[string]bool
	steps    []quarantine.Step
	policies []quarantine.Step // after what they are about
	found    []quarantine.Finding
	notes    []quarantine.Finding
}

func (c *comparison) step(s quarantine.Step) { c.steps = append(c.steps, s) }

// queue holds one queue against what is wanted.
func (c *comparison) queue(w Wanted, p policy.Queue) {
	if c.seen[w.Name] {
		return
	}
	c.seen[w.Name] = true
	step := quarantine.Step{Object: quarantine.ObjectQueue, Name: w.Name, Settings: w.Arguments(c.d.Major)}
	q, err := c.m.Queue(w.Name)
	switch {
	case errors.Is(err, ErrMissing):
		step.State, step.Text = quarantine.StepMissing, w.purpose()
		c.step(step)
		f := findings{subject: w.Name}
		f.blocks(quarantine.DriftQueueMissing, "it does not exist: "+w.purpose(), "see what is missing with: redrive policy apply, and make it with --yes")
		c.found = append(c.found, f.list...)
		return
	case err != nil:
		step.State, step.Text = quarantine.StepUnknown, "it could not be looked at: "+err.Error()
		c.step(step)
		c.found = append(c.found, quarantine.Finding{Code: quarantine.FoundNotInspected, Severity: quarantine.Unknown, Subject: w.Name, Text: "it could not be looked at: " + err.Error()})
		return
	}
	c.found = append(c.found, drift(c.m, w, q, p)...)
	c.there(step, w, q)
}

// purpose says what the queue is for.
func (w Wanted) purpose() string {
	switch w.Role {
	case RoleMain:
		return "work comes here; what dies in it goes to " + w.DeadLetterTo
	case RoleRetry:
		return "messages wait here before they go back to " + w.DeadLetterTo
	case RoleOutcomes:
		return "consumers report here what became of released messages"
	}
	return "dead letters wait here until they are captured; nothing in it expires, because retention is kept by redrive, which removes nothing that is open"
}

// there plans for a queue that exists: nothing, a broker policy, or a person.
func (c *comparison) there(step quarantine.Step, w Wanted, q *Queue) {
	var wrong, fixed []string
	var set []quarantine.Setting
	for _, s := range w.properties(c.d.Major) {
		ok, bound := c.holds(w, q, s)
		if !ok {
			wrong = append(wrong, s.Name)
		}
		if bound {
			if !ok {
				fixed = append(fixed, s.Name)
			}
			continue
		}
		set = append(set, s)
	}
	ours := PolicyName(w.Name)
	switch {
	case q.Kind != w.Kind && q.Kind != quarantine.QueueLocal && q.Kind != "":
		step.State, step.Text = quarantine.StepDiffers, fmt.Sprintf("it is a %s queue, and a %s queue is wanted; no queue changes its kind", q.Kind, w.Kind)
		step.Advice = "have a queue of another name declared as " + w.Kind + " and named in the policy, then move consumers and producers; or write kind: " + q.Kind + " if that is meant"
	case len(wrong) == 0 && q.Incomplete == "":
		step.State, step.Text = quarantine.StepRight, "it is as the policy says"
	case len(wrong) == 0:
		step.State, step.Text = quarantine.StepRight, "its own arguments are as the policy says; whether a broker policy adds to them is not known yet: "+q.Incomplete
	case len(fixed) > 0:
		step.State, step.Text = quarantine.StepDiffers, "its own arguments set "+strings.Join(fixed, ", ")+" in another way, and arguments never change"
		step.Advice = "have its owner declare a queue with the settings above and move to it, or write what it has into the policy"
	case q.Incomplete != "":
		step.State, step.Text = quarantine.StepUnknown, strings.Join(wrong, ", ")+": not set by its arguments, and whether a broker policy sets it is not known: "+q.Incomplete
		step.Advice = "set broker.management, or ask again in some seconds"
	case q.Policy != "" && q.Policy != ours:
		step.State, step.Text = quarantine.StepDiffers, fmt.Sprintf("it lacks %s; the broker policy %s is in force there, and a queue has only one", strings.Join(wrong, ", "), q.Policy)
		step.Advice = "have these added to the definition of that policy: " + Definition(set)
	case !c.d.Policies:
		step.State, step.Text = quarantine.StepDiffers, "it lacks "+strings.Join(wrong, ", ")
		step.Advice = c.byHand(ours, w.Name, set)
	default:
		step.State, step.Text = quarantine.StepRight, "it is there; what it lacks ("+strings.Join(wrong, ", ")+") the broker policy "+ours+" can add"
		c.policies = append(c.policies, quarantine.Step{Object: quarantine.ObjectBrokerPolicy, Name: ours, State: quarantine.StepMissing, Settings: set,
			Text: "it is for queue " + w.Name + " alone, where no other broker policy is in force", Advice: c.byHand(ours, w.Name, set)})
	}
	if len(wrong) == 0 && q.Policy == ours {
		c.policies = append(c.policies, quarantine.Step{Object: quarantine.ObjectBrokerPolicy, Name: ours, State: quarantine.StepRight, Settings: set, Text: "it is in force for queue " + w.Name})
	}
	c.step(step)
}

// holds reports whether a property is in force as it is wanted, and whether the
// queue's own arguments keep a policy from setting it. A queue of the embedded
// broker never changes.
func (c *comparison) holds(w Wanted, q *Queue, s quarantine.Setting) (ok, fixed bool) {
	ok, fixed = c.inForce(w, q, s)
	return ok, fixed || q.Kind == quarantine.QueueLocal
}

func (c *comparison) inForce(w Wanted, q *Queue, s quarantine.Setting) (ok, fixed bool) {
	switch s.Name {
	case propLimit:
		want, _ := s.Value.(int64)
		if want < 0 {
			return q.DeliveryLimit == None, q.ArgumentLimit != None
		}
		return q.DeliveryLimit == want || q.Kind == quarantine.QueueLocal && want == 0, q.ArgumentLimit != None && q.ArgumentLimit < want
	case propExchange, propKey:
		to, err := leadsTo(c.m, q, w)
		return err == nil && to, q.Fixed[propExchange] || q.Fixed[propKey]
	case propStrategy:
		return q.DeadLetter != nil && (q.DeadLetter.Wanted || q.DeadLetter.AtLeastOnce), q.Fixed[propStrategy]
	}
	// A policy's overflow goes before that of the arguments in quorum queues.
	return q.Overflow == RejectPublish || q.DeadLetter != nil && q.DeadLetter.AtLeastOnce, q.Kind != Quorum && q.Fixed[propOverflow]
}

// leadsTo reports whether dead letters of q come to the queue that w names.
func leadsTo(m Map, q *Queue, w Wanted) (bool, error) {
	if q.DeadLetter == nil {
		return false, nil
	}
	own := *q
	if w.Role == RoleRetry && !q.DeadLetter.HasKey {
		// Copies come through the default exchange, under the name of the queue.
		own.DeadLetter = &DeadLetter{Exchange: q.DeadLetter.Exchange, RoutingKey: q.Name, HasKey: true}
	}
	return feeds(m, &own, w.DeadLetterTo)
}

// PolicyName is the name of the broker policy that is proposed for a queue.
func PolicyName(queue string) string { return "redrive-" + queue }

// PolicyPattern matches one queue and no other.
func PolicyPattern(queue string) string { return "^" + regexp.QuoteMeta(queue) + "$" }

// byHand is the command with which an administrator sets a policy.
func (c *comparison) byHand(name, queue string, set []quarantine.Setting) string {
	return fmt.Sprintf("an administrator can run: rabbitmqctl set_policy -p %s --apply-to queues %s %s %s",
		Quote(c.d.VHost), Quote(name), Quote(PolicyPattern(queue)), Quote(Definition(set)))
}

// Definition writes settings as JSON.
func Definition(set []quarantine.Setting) string {
	parts := make([]string, 0, len(set))
	for _, s := range set {
		value := fmt.Sprint(s.Value)
		if text, ok := s.Value.(string); ok {
			value = jsonText(text)
		}
		parts = append(parts, jsonText(s.Name)+":"+value)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// outcomes holds the exchange of outcomes with its queue against the contract.
func (c *comparison) outcomes() {
	w := WantOutcomes()
	c.seen[w.Name] = true
	exchange := quarantine.Step{Object: quarantine.ObjectExchange, Name: outcome.Exchange, Settings: []quarantine.Setting{{Name: "type", Value: "fanout"}}}
	queue := quarantine.Step{Object: quarantine.ObjectQueue, Name: w.Name, Settings: w.Arguments(c.d.Major)}
	binding := quarantine.Step{Object: quarantine.ObjectBinding, Name: outcome.Exchange + " → " + w.Name}
	f := findings{subject: outcome.Exchange}
	const advice = "see what is missing with: redrive policy apply, and make it with --yes"
	x, err := c.m.Exchange(outcome.Exchange)
	switch {
	case errors.Is(err, ErrMissing):
		exchange.State, exchange.Text = quarantine.StepMissing, "consumers publish here what became of released messages"
		binding.State, binding.Text = quarantine.StepMissing, "it leads what consumers report to the queue"
		f.risks(quarantine.DriftOutcomesMissing, "the exchange does not exist: consumers cannot report what became of released messages", advice)
	case err != nil:
		exchange.State, exchange.Text = quarantine.StepUnknown, "it could not be looked at: "+err.Error()
		binding.State, binding.Text = quarantine.StepUnknown, exchange.Text
		f.add(quarantine.Unknown, quarantine.DriftOutcomesMissing, "the exchange could not be looked at: "+err.Error(), "")
	default:
		exchange.State, exchange.Text = quarantine.StepRight, "it is there"
		c.bound(x, w.Name, &binding, &f, advice)
	}
	q, err := c.m.Queue(w.Name)
	switch {
	case errors.Is(err, ErrMissing):
		queue.State, queue.Text = quarantine.StepMissing, w.purpose()
		f.risks(quarantine.DriftOutcomesMissing, "the queue does not exist: nobody receives what consumers report", advice)
	case err != nil:
		queue.State, queue.Text = quarantine.StepUnknown, "it could not be looked at: "+err.Error()
		f.add(quarantine.Unknown, quarantine.DriftOutcomesMissing, "the queue could not be looked at: "+err.Error(), "")
	default:
		// Its owner may have it as a queue of any kind: it only has to keep reports.
		queue.State, queue.Text = quarantine.StepRight, "it is there"
		for _, x := range AsSource(q) {
			if x.Severity == quarantine.Blocks || x.Severity == quarantine.Loses {
				f.list = append(f.list, x)
			}
		}
	}
	c.steps = append(c.steps, exchange, queue, binding)
	c.found = append(c.found, f.list...)
}

func (c *comparison) bound(x *Exchange, queue string, binding *quarantine.Step, f *findings, advice string) {
	for _, b := range x.Bindings {
		if b.Queue == queue {
			binding.State, binding.Text = quarantine.StepRight, "it is there"
			return
		}
	}
	binding.State, binding.Text = quarantine.StepMissing, "it leads what consumers report to the queue"
	f.loses(quarantine.DriftOutcomesUnbound, "the queue "+queue+" is not bound to it: what consumers report is dropped", advice)
}
