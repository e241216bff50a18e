package app

import (
	"context"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/evidence"
	"github.com/redrivehq/redrive/redrive"
)

// evidenceOf opens the business data that a request names.
func evidenceOf(ctx context.Context, req api.ReconcileRequest) (redrive.Effects, error) {
	if req.File != "" {
		f, err := evidence.Open(req.File)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	s, err := evidence.Connect(ctx, evidence.Query{Address: req.Address, SQL: req.Query, PasswordFile: req.PasswordFile})
	if err != nil {
		return nil, err
	}
	return s, nil
}
