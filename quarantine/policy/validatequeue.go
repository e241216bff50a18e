package policy

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// check checks a queue that has its defaults.
func (q *Queue) check(p *Policy) *Fault {
	for _, fn := range []func() *Fault{q.checkNames, q.checkNumbers, q.checkDelays, q.checkTimes, q.checkHeaders, q.checkSchemas, q.checkOrdering} {
		if f := fn(); f != nil {
			return f
		}
	}
	return q.checkWords(p)
}

// checkName checks the name of a queue as AMQP has it.
func checkName(s string) *Fault {
	switch {
	case s == "":
		return fault("is required")
	case len(s) > MaxName:
		return fault("the name has %d bytes, at most %d", len(s), MaxName)
	case !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\r\n"):
		return fault("%.40q: want a name of one line", s)
	case strings.HasPrefix(s, "amq."):
		return fault("%.40q: the broker keeps names that begin with amq. for itself", s)
	}
	return nil
}

func (q *Queue) checkNames() *Fault {
	if f := checkName(q.Name); f != nil {
		return f.at("queue")
	}
	if q.Kind != Quorum && q.Kind != Classic {
		return fault("%.40q: want quorum or classic", q.Kind).at("kind")
	}
	if q.Mode != PerDelay && q.Mode != Shared {
		return fault("%.40q: want per-delay or shared", q.Mode).at("retry", "mode")
	}
	if f := checkName(q.RetryQueue); f != nil {
		return f.at("retry", "queue")
	}
	for _, name := range q.RetryQueues() {
		if f := checkName(name); f != nil {
			return fault("with the delay behind it, %s", f.Reason).at("retry", "queue")
		}
	}
	return checkName(q.Quarantine).at("quarantine")
}

func (q *Queue) checkNumbers() *Fault {
	for _, x := range []struct {
		name             string
		has, least, most int
	}{
		{"prefetch", q.Prefetch, 1, 1000}, {"replicas", q.Replicas, 1, 10_000}, {"retries", q.Retries, 0, MaxRetries},
		{"delivery_limit", q.DeliveryLimit, 0, 1000},
	} {
		if x.has < x.least || x.has > x.most {
			return fault("%d: want %d to %d", x.has, x.least, x.most).at(x.name)
		}
	}
	if q.Alerts.Depth < 1 || q.Alerts.Depth > 1_000_000_000 {
		return fault("%d: want 1 to 1000000000", q.Alerts.Depth).at("alerts", "depth")
	}
	return nil
}

func (q *Queue) checkDelays() *Fault {
	switch {
	case len(q.Delays) > q.Retries:
		return fault("%d of them with %d retries: the last ones are never used", len(q.Delays), q.Retries).at("delays")
	case len(q.Delays) == 0 && q.Retries > 0:
		return fault("%d retries need at least one", q.Retries).at("delays")
	case !(q.Jitter >= 0 && q.Jitter <= 1):
		return fault("%g: want 0%% to 100%%", q.Jitter*100).at("jitter")
	}
	for i, d := range q.Delays {
		if d < time.Millisecond || d > maxDelay || d%time.Millisecond != 0 {
			return fault("%s: want 1ms to %s in whole milliseconds", d, Span(maxDelay)).at("delays", i)
		}
	}
	return nil
}

func (q *Queue) checkTimes() *Fault {
	for _, x := range []struct {
		at          []any
		has         time.Duration
		least, most time.Duration
	}{
		{[]any{"retention"}, q.Retention, time.Minute, maxPeriod}, {[]any{"timeout"}, q.Timeout, 0, maxTimeout},
		{[]any{"horizon"}, q.Horizon, 0, maxPeriod}, {[]any{"alerts", "for"}, q.Alerts.For, time.Second, maxPeriod},
	} {
		if x.has < x.least || x.has > x.most {
			return fault("%s: want %s to %s", Span(x.has), Span(x.least), Span(x.most)).at(x.at...)
		}
	}
	return nil
}

// list pairs the names of the headers with their keys in the file.
func (h *Headers) list() []struct{ key, name string } {
	return []struct{ key, name string }{
		{"reason", h.Reason}, {"last_reason", h.LastReason}, {"attempts", h.Attempts}, {"first_failed", h.FirstFailed},
		{"last_error", h.LastError}, {"error_code", h.ErrorCode}, {"trace_id", h.TraceID}, {"consumer_version", h.Consumer},
	}
}

// Keyed returns the names by their keys in the file.
func (h *Headers) Keyed() map[string]string {
	out := map[string]string{}
	for _, x := range h.list() {
		out[x.key] = x.name
	}
	return out
}

// taken are headers, or beginnings of them, that the broker or redrive write.
var taken = []string{"x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count", "x-opt-", "x-redrive-"}

func (q *Queue) checkHeaders() *Fault {
	seen := map[string]string{}
	for _, h := range q.Headers.list() {
		f := (*Fault)(nil)
		other, twice := seen[h.name]
		switch {
		case len(h.name) > MaxName || !utf8.ValidString(h.name) || strings.ContainsAny(h.name, "\x00\r\n"):
			f = fault("want a name of one line, at most %d bytes", MaxName)
		case twice:
			f = fault("%.40q is the name of %s already", h.name, other)
		case reserved(h.name):
			f = fault("%.40q is written by the broker or by redrive itself; take another name", h.name)
		}
		if f != nil {
			return f.at("headers", h.key)
		}
		seen[h.name] = h.key
	}
	return nil
}

// reserved reports whether the broker or redrive writes a header. The reason of
// the contract, x-death-reason, only looks like one of theirs.
func reserved(name string) bool {
	if name == "CC" || name == "BCC" || name == "x-death" {
		return true
	}
	return name != "x-death-reason" && slices.ContainsFunc(taken, func(p string) bool { return strings.HasPrefix(name, p) })
}

func (q *Queue) checkSchemas() *Fault {
	for _, typ := range sortedKeys(q.Schemas) {
		switch name := q.Schemas[typ]; {
		case typ == "" || len(typ) > MaxName:
			return fault("an event type has 1 to %d bytes; * stands for all others", MaxName).at("schemas")
		case !fs.ValidPath(name) || name == ".":
			return fault("%.80q: want a file beside the policy, such as schemas/order.json", name).at("schemas", typ)
		}
	}
	return nil
}

// checkExpression looks at the shape only; capture reads it.
func checkExpression(s string) *Fault {
	for _, kind := range []string{"header:", "property:", "body:/"} {
		if strings.HasPrefix(s, kind) && len(s) > len(kind)-strings.Count(kind, "/") {
			return nil
		}
	}
	return fault("expression %.80q: want header:NAME, property:NAME or body:/JSON/POINTER", s)
}

func (q *Queue) checkOrdering() *Fault {
	o := &q.Ordering
	switch {
	case o.OnFailure != Continue && o.OnFailure != Park:
		return fault("%.40q: want continue or park", o.OnFailure).at("ordering", "on_failure")
	case o.Key == "" && (o.Sequence != "" || o.OnFailure == Park):
		return fault("is required by sequence, and by on_failure: park").at("ordering", "key")
	}
	for key, s := range map[string]string{"key": o.Key, "sequence": o.Sequence} {
		if s == "" {
			continue
		}
		if f := checkExpression(s); f != nil {
			return f.at("ordering", key)
		}
	}
	if q.Operation != "" {
		return checkExpression(q.Operation).at("operation")
	}
	return nil
}

// Keyed returns the words by their keys in the file.
func (w *Words) Keyed() map[string]string {
	return map[string]string{"malformed": w.Malformed, "exhausted": w.Exhausted, "unknown": w.Unknown,
		"duplicate": w.Duplicate, "parked": w.Parked, "crash": w.Crash}
}

func (q *Queue) checkWords(p *Policy) *Fault {
	words := q.Words.Keyed()
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(words)) {
		w := words[key]
		f := checkWord(w)
		if other, twice := seen[w]; twice && f == nil {
			f = fault("%.40q is the word for %s already", w, other)
		}
		r, listed := p.Reasons[w]
		if key == "duplicate" && listed && r.Action != ActionDrop && f == nil {
			f = fault("reason %.40q has to have action drop: the effect is there already", w)
		}
		if key != "duplicate" && listed && r.Action == ActionDrop && f == nil {
			f = fault("reason %.40q must not be dropped: the message failed", w)
		}
		if f != nil {
			return f.at("words", key)
		}
		seen[w] = key
	}
	return nil
}
