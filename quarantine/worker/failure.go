package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
)

// Failure is an error of a handler that says what kind of failure it is. The
// constructors below make one for each class; an error that holds none is
// unknown: it is retried, and quarantined when the retries are used up.
type Failure struct {
	Class event.Class
	// Reason is the stable name of what went wrong, as the policy knows it. ""
	// leaves it to the code.
	Reason string
	// Code is the error code of whatever failed: an HTTP status, an SQLSTATE, a
	// provider's own. The policy can map it to a reason, or forbid retries.
	Code string
	// Reference is where to look further: a ticket, a request id, or the effect
	// that is there already.
	Reference string
	// After is how long a dependency asks to be left alone, 0 when it does not
	// say. It counts for systemic failures.
	After time.Duration
	// Err is the cause. Its text is masked and cut to 512 bytes before anyone
	// sees it.
	Err error

	duplicate bool
}

// Permanent is a failure that no retry can mend, such as a part number that does
// not exist.
func Permanent(reason string, err error) *Failure {
	return &Failure{Class: event.Permanent, Reason: reason, Err: err}
}

// Transient is a failure that can be gone a moment later, such as a deadlock.
func Transient(reason string, err error) *Failure {
	return &Failure{Class: event.Transient, Reason: reason, Err: err}
}

// Systemic is the failure of a dependency that is down or overloaded, whatever
// the message. It spends no retry. After is how long the dependency asks to be
// left alone, 0 when it does not say.
func Systemic(reason string, after time.Duration, err error) *Failure {
	return &Failure{Class: event.Systemic, Reason: reason, After: after, Err: err}
}

// Rejected is no failure of the machinery: the business said no, and that is
// the message's terminal outcome.
func Rejected(reason string, err error) *Failure {
	return &Failure{Class: event.BusinessRejection, Reason: reason, Err: err}
}

// Duplicate says that the effect of the message is there already. Effect refers
// to it and may be "".
func Duplicate(effect string) *Failure {
	return &Failure{Class: event.Unclassified, Reference: effect, duplicate: true}
}

// Ambiguous says that an external effect may have happened. Such a message is
// never run again before somebody has looked.
func Ambiguous(reason string, err error) *Failure {
	return &Failure{Class: event.AmbiguousOutcome, Reason: reason, Err: err}
}

// Defect is a bug of this consumer, or a message that this version of it does
// not support: another version can do better.
func Defect(reason string, err error) *Failure {
	return &Failure{Class: event.ConsumerDefect, Reason: reason, Err: err}
}

// WithCode sets the error code and returns f.
func (f *Failure) WithCode(code string) *Failure {
	f.Code = code
	return f
}

// WithReference sets the reference and returns f.
func (f *Failure) WithReference(ref string) *Failure {
	f.Reference = ref
	return f
}

// Error is the text of the cause, or what is known besides it.
func (f *Failure) Error() string {
	switch {
	case f.Err != nil:
		return f.Err.Error()
	case f.duplicate:
		return "the effect is there already"
	case f.Reason != "":
		return f.Reason
	case f.Code != "":
		return "code " + f.Code
	}
	return f.Class.String()
}

// Unwrap is the cause.
func (f *Failure) Unwrap() error { return f.Err }

// CodeTimeout is the code of a run that the policy's time-out ended and whose
// error says no more than that.
const CodeTimeout = "timeout"

// errTimeout ends a run that took too long.
var errTimeout = errors.New("the time-out of the run has passed")

// errExit is the failure of a handler whose goroutine ended without a result.
var errExit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// understand makes a Failure of whatever a handler returned. An error that
// knows an SQLSTATE, as those of PostgreSQL drivers do, has it as its code.
func understand(err error, timedOut bool) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		out := *f
		if direct, ok := err.(*Failure); out.Err == nil && (!ok || direct != f) { //nolint:errorlint // whether it is wrapped is the question
			out.Err = err // the words of those who wrapped it
		}
		return &out
	}
	out := &Failure{Class: event.Unclassified, Err: err}
	var sql interface{ SQLState() string }
	switch {
	case errors.As(err, &sql):
		out.Code = sql.SQLState()
	case timedOut:
		out.Code = CodeTimeout
	}
	return out
}

// panicked is the failure of a handler that panicked.
func panicked(v any) error { return fmt.Errorf("panic: %v", v) }
