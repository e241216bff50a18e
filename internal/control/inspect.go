package control

import (
	"context"
	"fmt"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/quarantine"
)

// wireFinding is a finding as others see it.
func wireFinding(f quarantine.Finding) api.Finding {
	return api.Finding{Code: f.Code, Severity: string(f.Severity), Subject: f.Subject, Text: f.Text, Advice: f.Advice}
}

// findingText is a finding in one line.
func findingText(f quarantine.Finding) string {
	text := f.Code + ": " + f.Text
	if f.Subject != "" {
		text = f.Subject + ": " + text
	}
	return text
}

// look inspects the queue before anything is taken from it. What would make the
// capture itself lose messages refuses it; what loses messages otherwise is
// noted and goes into the summary. A broker that does not answer is the
// business of the capture that follows.
func (cp *capture) look(ctx context.Context) error {
	src, err := cp.c.o.Brokers.Source(ctx)
	if err != nil {
		return nil //nolint:nilerr // the capture meets the same error, and knows what to do
	}
	in, err := src.Inspect(ctx, cp.queue)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	for _, f := range in.Findings {
		switch {
		case f.Code == quarantine.FoundExclusive:
			// The broker refuses by itself, and knows better whether it still is so.
		case f.Severity == quarantine.Blocks:
			return &api.Error{Code: api.CodeRefused, Message: fmt.Sprintf("nothing was taken: %s (%s); %s", f.Text, f.Code, f.Advice)}
		case f.Severity == quarantine.Loses && f.Subject != "":
			cp.sum.Warnings = append(cp.sum.Warnings, wireFinding(f))
			cp.tell(api.Progress{Stage: "note", Message: "warning: " + findingText(f)})
		}
	}
	return nil
}
