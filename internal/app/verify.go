package app

import (
	"context"
	"errors"
	"io/fs"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/control"
	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/internal/store/bolt"
	"github.com/redrivehq/redrive/ledger/verify"
)

// VerifyBundle verifies a bundle without any store. Payloads cannot be checked
// there: a bundle holds none, and the result says so.
func VerifyBundle(ctx context.Context, dir string, req api.VerifyRequest) (api.VerifyResult, error) {
	rep, err := verify.CheckBundle(ctx, dir, verify.Options{Pub: req.Pub, Replay: req.Replay, Payloads: req.Payloads, References: control.References})
	if errors.Is(err, fs.ErrNotExist) {
		return api.VerifyResult{}, &api.Error{Code: api.CodeUsage, Message: dir + " is not there"}
	}
	if err != nil {
		return api.VerifyResult{}, control.WireError(err)
	}
	return control.VerifyResult(rep), nil
}

// VerifyDamaged verifies a store that cannot be continued: its end contradicts
// itself, or looks like written by a newer version. Nothing is written to it.
func VerifyDamaged(ctx context.Context, s Settings, req api.VerifyRequest) (res api.VerifyResult, err error) {
	s = s.withDefaults()
	store, err := bolt.Open(s.Data, bolt.Options{Command: s.Command})
	if err != nil {
		return res, wire(err)
	}
	defer func() { err = errors.Join(err, wire(store.Close())) }()
	keys, err := keyfile.Open(s.Data)
	if err != nil {
		return res, wire(err)
	}
	src, err := control.NewStoreSource(store, keys, store, keys.Origin, keys.Verifier)
	if err != nil {
		return res, wire(err)
	}
	rep, err := verify.Verify(ctx, src, verify.Options{Pub: req.Pub, Replay: req.Replay, Payloads: req.Payloads, References: control.References})
	if err != nil {
		return res, wire(err)
	}
	return control.VerifyResult(rep), nil
}
