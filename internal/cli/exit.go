package cli

import (
	"errors"

	"github.com/redrivehq/redrive/internal/api"
)

// Exit codes of redrive. "ledger verify" has its own: 0 verified, 1 mismatch,
// 2 usage, 3 incomplete.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitRefused    = 3  // refused or incomplete
	exitThreshold  = 4  // stopped by a threshold
	exitUnfinished = 5  // finished, but some are missing, ambiguous, undelivered or requarantined
	exitIntegrity  = 6  // stored data contradicts itself, or a law is broken
	exitTemporary  = 75 // try again
)

var exitOf = map[api.Code]int{
	api.CodeUsage: exitUsage, api.CodeConfig: exitUsage,
	api.CodeNotFound: exitRefused, api.CodeRefused: exitRefused, api.CodeErased: exitRefused, api.CodeMissing: exitRefused,
	api.CodeUnsafe: exitRefused, api.CodeNewer: exitRefused,
	api.CodeHeld: exitTemporary, api.CodeTemporary: exitTemporary, api.CodeNoSpace: exitTemporary, api.CodeCommit: exitTemporary,
	api.CodeIntegrity: exitIntegrity,
	api.CodeFailed:    exitFailed, api.CodeBroker: exitFailed, api.CodeCancelled: exitFailed,
}

// exitError ends a command with a code. Its text, when not empty, goes to
// stderr.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// exitCode is the one mapping from errors to exit codes.
func exitCode(err error) int {
	var x *exitError
	var e *api.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &x):
		return x.code
	case errors.As(err, &e):
		if code, ok := exitOf[e.Code]; ok {
			return code
		}
		return exitFailed
	case errors.As(err, new(usageError)):
		return exitUsage
	}
	return exitFailed
}

// usageError marks wrong words on the command line.
type usageError struct{ error }

// generationExit is the exit code of a command that stayed with a generation.
func generationExit(g *api.Generation) int {
	switch g.State {
	case "paused":
		for _, p := range g.Pauses {
			if p.Reason != "operator" {
				return exitThreshold
			}
		}
		return exitRefused
	case "rejected", "expired", "aborted":
		return exitRefused
	}
	if unfinished(g) > 0 {
		return exitUnfinished
	}
	return exitOK
}

// unfinished counts the members with which a generation has not ended well.
func unfinished(g *api.Generation) (n uint64) {
	for _, d := range []string{"missing", "ambiguous_publish", "ambiguous_effect", "undelivered", "requarantined", "pending", "waiting", "in_flight"} {
		n += g.Tally[d]
	}
	return n
}
