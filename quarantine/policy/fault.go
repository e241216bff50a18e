package policy

import (
	"fmt"
	"strings"
)

// Fault is what is wrong at one place of a policy.
type Fault struct {
	// Path leads there: keys of the file (string) and indexes of lists (int).
	Path   []any
	Reason string // what is wrong and what is expected
}

// Error implements error: queues[0].retries: 101: want 0 to 100.
func (f *Fault) Error() string {
	var b strings.Builder
	for i, step := range f.Path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	if b.Len() == 0 {
		return f.Reason
	}
	return b.String() + ": " + f.Reason
}

func fault(format string, args ...any) *Fault { return &Fault{Reason: fmt.Sprintf(format, args...)} }

// at puts steps before the path.
func (f *Fault) at(steps ...any) *Fault {
	if f == nil {
		return nil
	}
	return &Fault{Path: append(append([]any{}, steps...), f.Path...), Reason: f.Reason}
}
