package control

import (
	"context"
	"errors"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// errorCodes maps sentinels to codes: the one place where that is done. The
// first that matches wins.
var errorCodes = []struct {
	is   error
	code api.Code
}{
	{context.Canceled, api.CodeCancelled},
	{ledger.ErrCommit, api.CodeCommit},
	{ledger.ErrNoSpace, api.CodeNoSpace},
	{ledger.ErrIntegrity, api.CodeIntegrity},
	{ledger.ErrClosed, api.CodeTemporary},
	{event.ErrFuture, api.CodeNewer},
	{event.ErrTooLarge, api.CodeUsage},
	{keyfile.ErrMissing, api.CodeMissing},
	{keyfile.ErrUnsafe, api.CodeUnsafe},
	{keyfile.ErrDamaged, api.CodeIntegrity},
	{config.ErrInvalid, api.CodeConfig},
	{quarantine.ErrNoEnvelope, api.CodeNotFound},
	{quarantine.ErrSeveral, api.CodeRefused},
	{quarantine.ErrNotNow, api.CodeRefused},
	{quarantine.ErrOtherOperation, api.CodeRefused},
	{quarantine.ErrErased, api.CodeErased},
	{quarantine.ErrQueueMissing, api.CodeNotFound},
	{quarantine.ErrOtherBroker, api.CodeRefused},
	{quarantine.ErrRefused, api.CodeBroker},
	{quarantine.ErrUnreachable, api.CodeTemporary},
	{redrive.ErrNoGeneration, api.CodeNotFound},
	{redrive.ErrState, api.CodeRefused},
	{redrive.ErrReserved, api.CodeRefused},
	{redrive.ErrStale, api.CodeTemporary},
	{redrive.ErrEmpty, api.CodeRefused},
	{redrive.ErrArgument, api.CodeUsage},
	{quarantine.ErrArgument, api.CodeUsage},
	{errUsage, api.CodeUsage},
	{context.DeadlineExceeded, api.CodeTemporary},
}

// errUsage marks requests that make no sense whatever the state is.
var errUsage = errors.New("usage")

// usageError keeps the text of an error and marks it as one of usage.
type usageError struct{ error }

func (usageError) Is(target error) bool { return target == errUsage }
func (u usageError) Unwrap() error      { return u.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// said is the text of err without the bare name of its kind at the end, which is
// told by the code and would stand behind the command that people are to type.
func said(err error) string {
	s := err.Error()
	for _, kind := range []error{redrive.ErrState, redrive.ErrArgument, quarantine.ErrArgument} {
		s = strings.TrimSuffix(s, ": "+kind.Error())
	}
	return s
}

func wireError(err error) error {
	var done *api.Error
	if errors.As(err, &done) {
		// With what was said around it, and with what else went wrong.
		return &api.Error{Code: done.Code, Message: said(err)}
	}
	for _, c := range errorCodes {
		if errors.Is(err, c.is) {
			return &api.Error{Code: c.code, Message: said(err)}
		}
	}
	return &api.Error{Code: api.CodeFailed, Message: said(err)}
}
