package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redrivehq/redrive/ledger/event"
)

// Limits of a policy.
const (
	MaxReasons = 1000
	MaxRules   = 200
	MaxCodes   = 1000
	MaxMasks   = 100
	MaxQueues  = 100
	MaxRetries = 100
	// MaxName is the size in bytes of a name in AMQP: of a queue, a header.
	MaxName    = 255
	maxPattern = 256
	maxWhen    = 2 << 10
	maxWord    = 128 // bytes of a reason, a code, an owner
	maxVersion = 64
	// maxDelay keeps a message's expiration, jitter included, within 32 bits of
	// milliseconds.
	maxDelay   = 20 * 24 * time.Hour
	maxPeriod  = 3650 * 24 * time.Hour
	maxTimeout = 24 * time.Hour
)

// codePlace stands for the code in the reason of never-retry.
const codePlace = "{code}"

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Validate checks a policy as a whole. The error is a *Fault. What belongs to
// other packages is left to them: whether files are there, and whether
// expressions and masks can be used.
func (p *Policy) Validate() error {
	for _, check := range []func() *Fault{p.checkSizes, p.checkReasons, p.checkNeverRetry, p.checkCodes, p.checkRules, p.checkMasks, p.checkQueues} {
		if f := check(); f != nil {
			return f
		}
	}
	return nil
}

func (p *Policy) checkSizes() *Fault {
	for _, x := range []struct {
		name      string
		has, most int
	}{
		{"reasons", len(p.Reasons), MaxReasons}, {"rules", len(p.Rules), MaxRules}, {"masks", len(p.Masks), MaxMasks}, {"queues", len(p.Queues), MaxQueues},
	} {
		if x.has > x.most {
			return fault("%d of them, at most %d", x.has, x.most).at(x.name)
		}
	}
	if f := checkText(p.Version, maxVersion); f != nil {
		return f.at("version")
	}
	if p.DefaultOwner != "" {
		return checkText(p.DefaultOwner, maxWord).at("default_owner")
	}
	return nil
}

// checkText checks a text that people and metrics read.
func checkText(s string, most int) *Fault {
	switch {
	case s == "":
		return fault("is required")
	case len(s) > most:
		return fault("has %d bytes, at most %d", len(s), most)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || strings.TrimSpace(s) != s:
		return fault("%.40q: want one line of text without spaces around it", s)
	}
	return nil
}

var word = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`)

// checkWord checks a reason: it becomes a header and a label.
func checkWord(s string) *Fault {
	if s == "" {
		return fault("is required")
	}
	if len(s) > maxWord || !word.MatchString(s) {
		return fault("reason %.40q: want 1 to %d of letters, digits, _ . : and -", s, maxWord)
	}
	return nil
}

func (p *Policy) checkReasons() *Fault {
	for _, name := range sortedKeys(p.Reasons) {
		r := p.Reasons[name]
		if f := checkWord(name); f != nil {
			return f.at("reasons", name)
		}
		if r.Owner != "" {
			if f := checkText(r.Owner, maxWord); f != nil {
				return f.at("reasons", name, "owner")
			}
		}
		if f := r.check(); f != nil {
			return f.at("reasons", name)
		}
	}
	return nil
}

// check holds action and class together.
func (r *Reason) check() *Fault {
	bad := fault("%.40q does not go with class %s", r.Action, r.Class).at("action")
	switch r.Action {
	case "":
		return nil
	case ActionRetry:
		if r.Class == event.Transient || r.Class == event.Unclassified {
			return nil
		}
		return fault("%s: what never gets better by itself is not retried, and a systemic failure spends no attempt", bad.Reason).at("action")
	case ActionQuarantine:
		if r.Class == event.Systemic || r.Class == event.BusinessRejection {
			return fault("%s: that class decides by itself; leave the action out", bad.Reason).at("action")
		}
		return nil
	case ActionDrop:
		if r.Class != event.Unclassified {
			return fault("%s: what is dropped had its effect already and did not fail; leave the class out", bad.Reason).at("action")
		}
		return nil
	}
	return fault("%.40q: want retry, quarantine or drop", r.Action).at("action")
}

func (p *Policy) checkNeverRetry() *Fault {
	n := &p.NeverRetry
	if len(n.Codes) == 0 {
		if n.Reason != "" || n.Owner != "" {
			return fault("reason and owner need codes").at("never_retry")
		}
		return nil
	}
	if f := checkWord(strings.ReplaceAll(n.Reason, codePlace, "0")); f != nil {
		return f.at("never_retry", "reason")
	}
	if n.Owner != "" {
		return checkText(n.Owner, maxWord).at("never_retry", "owner")
	}
	return nil
}

// checkCodes makes sure that a code means one thing.
func (p *Policy) checkCodes() *Fault {
	seen := map[string]string{}
	check := func(codes []string, of string) *Fault {
		if len(codes) > MaxCodes {
			return fault("%d of them, at most %d", len(codes), MaxCodes).at("codes")
		}
		for i, c := range codes {
			f := checkText(c, maxWord)
			if other, ok := seen[c]; ok && f == nil {
				f = fault("code %.40q means %s already", c, other)
			}
			if f != nil {
				return f.at("codes", i)
			}
			seen[c] = of
		}
		return nil
	}
	for _, name := range sortedKeys(p.Reasons) {
		if f := check(p.Reasons[name].Codes, "reason "+name); f != nil {
			return f.at("reasons", name)
		}
	}
	if f := check(p.NeverRetry.Codes, "never_retry"); f != nil {
		return f.at("never_retry")
	}
	for i, c := range p.NeverRetry.Codes {
		if f := checkWord(p.neverRetryReason(c)); f != nil {
			return f.at("never_retry", "codes", i)
		}
	}
	return nil
}

func (p *Policy) checkRules() *Fault {
	for i, r := range p.Rules {
		if f := p.checkRule(&r); f != nil {
			return f.at("rules", i)
		}
	}
	return nil
}

func (p *Policy) checkRule(r *Rule) *Fault {
	switch {
	case r.Header == "" && r.Error == "" && r.When == "":
		return fault("a rule needs header, error or when")
	case r.Equals != "" && r.Header == "":
		return fault("needs header").at("equals")
	case len(r.Queue) > MaxName || len(r.Header) > MaxName:
		return fault("queue and header have at most %d bytes", MaxName)
	case len(r.When) > maxWhen:
		return fault("has %d bytes, at most %d", len(r.When), maxWhen).at("when")
	case r.Reason == "":
		return fault("is required").at("reason")
	case !p.Knows(r.Reason):
		return fault("reason %.40q is not listed under reasons", r.Reason).at("reason")
	}
	if r.Error != "" {
		return checkPattern(r.Error).at("error")
	}
	return nil
}

func checkPattern(s string) *Fault {
	if len(s) > maxPattern {
		return fault("the pattern has %d bytes, at most %d", len(s), maxPattern)
	}
	if _, err := regexp.Compile(s); err != nil {
		return fault("%s", err)
	}
	return nil
}

func (p *Policy) checkMasks() *Fault {
	seen := map[string]bool{}
	for i, m := range p.Masks {
		f := checkText(m.Name, maxWord).at("name")
		switch {
		case f != nil:
		case seen[m.Name]:
			f = fault("%.40q is there twice", m.Name).at("name")
		case m.Pattern == "":
			f = fault("is required").at("pattern")
		default:
			f = checkPattern(m.Pattern).at("pattern")
		}
		if f != nil {
			return f.at("masks", i)
		}
		seen[m.Name] = true
	}
	return nil
}

func (p *Policy) checkQueues() *Fault {
	names := map[string]int{}       // of queues that are worked or wait for a retry: one purpose each
	quarantines := map[string]int{} // queues may share one when they write the same
	for i := range p.Queues {
		q := &p.Queues[i]
		f := q.check(p)
		for _, name := range append([]string{q.Name}, q.RetryQueues()...) {
			if other, ok := names[name]; ok && f == nil {
				f = fault("%q is used by queues[%d] already", name, other)
			}
			names[name] = i
		}
		if other, ok := quarantines[q.Quarantine]; ok && f == nil && (p.Queues[other].Headers != q.Headers || p.Queues[other].Words != q.Words) {
			f = fault("%q is that of queues[%d] too: then headers and words have to be the same", q.Quarantine, other).at("quarantine")
		}
		quarantines[q.Quarantine] = i
		if f != nil {
			return f.at("queues", i)
		}
	}
	for i := range p.Queues {
		if other, ok := names[p.Queues[i].Quarantine]; ok {
			return fault("%q is also worked, or waits for a retry, by queues[%d]", p.Queues[i].Quarantine, other).at("queues", i, "quarantine")
		}
	}
	return nil
}
