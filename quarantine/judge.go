package quarantine

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Judge says by a policy what captured messages failed of: reason, class, owner.
// It is safe for concurrent use.
type Judge struct {
	policy *policy.Policy
	rules  []rule
	homes  map[string]home // by the queue of the dead messages
}

// home is what the policy says about where the messages of a source come from.
type home struct {
	name    string   // the queue that is worked, "" when there is none or more than one
	retries []string // where its messages wait for a retry
	crash   string   // the reason of messages that the broker gave up on
}

// rule is a policy.Rule made ready.
type rule struct {
	policy.Rule
	error *regexp.Regexp
	when  Predicate
}

// NewJudge makes a Judge. What an expression calls "now" is the moment that is
// given. Predicates may be nil when no rule
// has an expression. The error is a *policy.Fault.
func NewJudge(p *policy.Policy, predicates Predicates, now time.Time) (*Judge, error) {
	j := &Judge{policy: p, homes: map[string]home{}}
	for _, q := range p.Queues {
		h := home{crash: q.Words.Crash} // the same in all that share a quarantine
		if name, one := p.Home(q.Quarantine); one {
			h.name, h.retries = name, q.RetryQueues()
		}
		j.homes[q.Quarantine] = h
	}
	for i, r := range p.Rules {
		x := rule{Rule: r}
		var err error
		if r.Error != "" {
			if x.error, err = regexp.Compile(r.Error); err != nil {
				return nil, &policy.Fault{Path: []any{"rules", i, "error"}, Reason: err.Error()}
			}
		}
		if r.When != "" {
			if predicates == nil {
				return nil, &policy.Fault{Path: []any{"rules", i, "when"}, Reason: "expressions cannot be used here"}
			}
			if x.when, err = predicates.Compile(r.When, now); err != nil {
				return nil, &policy.Fault{Path: []any{"rules", i, "when"}, Reason: err.Error()}
			}
		}
		j.rules = append(j.rules, x)
	}
	return j, nil
}

// Version is the version of the policy.
func (j *Judge) Version() string { return j.policy.Version }

// judge fills in what the policy says about a message. The facts hold what the
// message says; broker is the reason for which the broker moved it, as the
// broker spells it, and text its error text.
func (j *Judge) judge(f *Facts, v *amqpwire.View, o *Original, broker, text string) {
	h, ok := j.homes[f.Queue]
	if !ok {
		h.crash = policy.DefaultWords().Crash
	}
	if slices.Contains(h.retries, f.DiedQueue) {
		f.DiedQueue = h.name // it only waited there
	}
	byCode, _ := j.policy.ReasonOf(f.ErrorCode)
	if f.Reason == "" {
		f.Reason, f.LastReason = j.assign(f, v, o, h, broker, text, byCode)
		if f.LastReason == f.Reason {
			f.LastReason = ""
		}
	}
	if f.DiedQueue == "" && f.Reason != "" {
		// A worker's copy has no history of the broker: the policy says whose it is.
		f.DiedQueue = h.name
	}
	f.Class, f.Owner = j.policy.Classify(f.Reason, f.LastReason, byCode)
	f.Policy = j.policy.Version
}

// assign gives a reason to a message that says none: by the first rule that
// holds, by its error code, by what the broker did. Where the broker says more
// than that a consumer rejected it, that stays visible as the last reason.
func (j *Judge) assign(f *Facts, v *amqpwire.View, o *Original, h home, broker, text, byCode string) (reason, last string) {
	brokers := h.word(broker)
	reason = byCode
	for _, r := range j.rules {
		if r.holds(f, v, o, h, brokers, text) {
			reason = r.Reason
			break
		}
	}
	switch {
	case reason == "":
		return brokers, f.LastReason
	case f.LastReason == "" && broker != deathRejected && brokers != reason:
		return reason, brokers
	}
	return reason, f.LastReason
}

// deathRejected is the broker's word for a message that a consumer gave up.
const deathRejected = "rejected"

// word is the reason for what the broker did, "" for what it never does.
func (h *home) word(broker string) string {
	switch broker {
	case deathRejected, "expired":
		return broker
	case "maxlen":
		return "overflow"
	case "delivery_limit":
		return h.crash
	}
	return ""
}

// holds reports whether all conditions of a rule hold. An expression that cannot
// be evaluated does not.
func (r *rule) holds(f *Facts, v *amqpwire.View, o *Original, h home, reason, text string) bool {
	if r.Queue != "" && r.Queue != cmp.Or(f.DiedQueue, h.name) {
		return false
	}
	if r.Header != "" {
		if _, there := v.Header(r.Header); !there {
			return false
		}
		if has, _ := v.Text(r.Header); r.Equals != "" && r.Equals != has {
			return false
		}
	}
	if r.error != nil && !r.error.MatchString(text) {
		return false
	}
	if r.when != nil {
		yes, err := r.when.Match(Subject{Facts: f, Class: f.Class.String(), Reason: reason, LastReason: f.LastReason, Owner: f.Owner, Original: o})
		return err == nil && yes
	}
	return true
}

// TakeFrom puts the names and expressions of a queue into the rules: where its
// worker writes a value, and nowhere else, for what only the worker knows; there
// first for what others name too.
func (ru *Rules) TakeFrom(q *policy.Queue) error {
	for _, x := range []struct {
		name string
		to   *[]Expression
	}{
		{q.Headers.Reason, &ru.Reason}, {q.Headers.LastReason, &ru.LastReason}, {q.Headers.Attempts, &ru.Attempts},
		{q.Headers.FirstFailed, &ru.FirstFailed}, {q.Headers.LastError, &ru.LastError}, {q.Headers.ErrorCode, &ru.ErrorCode},
		{q.Headers.Consumer, &ru.Consumer},
	} {
		*x.to = []Expression{{"header", x.name}}
	}
	ru.TraceID = first(Expression{"header", q.Headers.TraceID}, ru.TraceID)
	for _, x := range []struct {
		text string
		to   *[]Expression
		at   []any
	}{
		{q.Operation, &ru.Operation, []any{"operation"}}, {q.Ordering.Key, &ru.OrderingKey, []any{"ordering", "key"}},
		{q.Ordering.Sequence, &ru.Sequence, []any{"ordering", "sequence"}},
	} {
		if x.text == "" {
			continue
		}
		e, err := ParseExpression(x.text)
		if err != nil {
			return &policy.Fault{Path: x.at, Reason: fmt.Sprint(err)}
		}
		*x.to = first(e, *x.to)
	}
	return nil
}

// first puts an expression before the others.
func first(e Expression, others []Expression) []Expression {
	return append([]Expression{e}, slices.DeleteFunc(slices.Clone(others), func(o Expression) bool { return o == e })...)
}
