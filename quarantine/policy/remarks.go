package policy

import (
	"fmt"
	"time"
)

// Codes of remarks. They are only ever added.
const (
	RemarkOwner   = "owner_missing"
	RemarkWord    = "reason_unlisted"
	RemarkHorizon = "horizon_short"
	RemarkJitter  = "no_jitter"
	RemarkTimeout = "timeout_long"
)

// Remark is something about a policy that somebody should know. It forbids
// nothing.
type Remark struct{ Code, Subject, Text, Advice string }

// consumerTimeout is after which time a broker takes a message back by default.
const consumerTimeout = 30 * time.Minute

// Remarks says what follows from a policy as a whole and is easily overlooked.
func (p *Policy) Remarks() []Remark {
	var out []Remark
	if p.DefaultOwner == "" {
		out = append(out, Remark{RemarkOwner, "default_owner", "what no reason assigns belongs to nobody", "name who looks at it first under default_owner"})
	}
	for _, q := range p.Queues {
		for _, key := range []string{"malformed", "unknown", "crash"} {
			if w := q.Words.Keyed()[key]; !p.Knows(w) {
				out = append(out, Remark{RemarkWord, q.Name, fmt.Sprintf("the worker gives the reason %s by itself, and reasons does not say what it means: it is unclassified", w), "list it under reasons with a class and an owner"})
			}
		}
		if q.Horizon > 0 && q.Horizon < q.Retention {
			out = append(out, Remark{RemarkHorizon, q.Name, fmt.Sprintf("deduplication remembers for %s and a message may lie in quarantine for %s: one that is released late can have its effect twice", Span(q.Horizon), Span(q.Retention)), "make horizon longer than retention"})
		}
		if q.Retries > 0 && q.Jitter == 0 {
			out = append(out, Remark{RemarkJitter, q.Name, "without jitter all messages that failed together come back together", "set jitter, such as 20%"})
		}
		if q.Timeout > consumerTimeout {
			out = append(out, Remark{RemarkTimeout, q.Name, fmt.Sprintf("a run may take %s, and by default a broker takes a message back after %s", Span(q.Timeout), Span(consumerTimeout)), "shorten timeout, or raise the broker's consumer_timeout"})
		}
	}
	return out
}
