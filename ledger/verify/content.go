package verify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger/event"
)

// content checks the objects and payloads that a record names.
func (v *verifier) content(ctx context.Context, r *event.Record) error {
	v.forget(r)
	if !v.ext.inRange(r.Seq) {
		return nil // a record of a key, there for the signatures alone
	}
	for _, text := range references(r.Body) {
		d, err := event.ParseDigest(text)
		if err != nil {
			v.fail(LawObject, r.Seq, "%v", err)
			continue
		}
		if r.Seq < v.opt.Since {
			continue
		}
		data, err := v.object(ctx, r, d)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		if err := v.nested(ctx, r, data); err != nil {
			return err
		}
		if err := v.payloads(ctx, r, data); err != nil {
			return err
		}
	}
	return nil
}

// object returns the object named d, or nil after saying why not.
func (v *verifier) object(ctx context.Context, r *event.Record, d event.Digest) ([]byte, error) {
	data, err := v.src.Object(ctx, d)
	switch {
	case errors.Is(err, ErrNoObject):
		v.rep.incomplete("record %d: object %s is missing", r.Seq, d)
		return nil, nil
	case err != nil:
		return nil, err
	case sha256.Sum256(data) != d:
		v.fail(LawObject, r.Seq, "object %s has other content", d)
		return nil, nil
	}
	if !v.objects[d] {
		v.objects[d] = true
		v.rep.Objects++
	}
	return data, nil
}

func (v *verifier) nested(ctx context.Context, r *event.Record, data []byte) error {
	if v.opt.References == nil {
		return nil
	}
	more, err := v.opt.References(r, data)
	if err != nil {
		v.fail(LawObject, r.Seq, "its object cannot be read: %v", err)
		return nil
	}
	for _, d := range more {
		if v.objects[d] {
			continue
		}
		if _, err := v.object(ctx, r, d); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) payloads(ctx context.Context, r *event.Record, list []byte) error {
	b, ok := r.Body.(*event.EnvelopeCaptured)
	if !ok || v.opener == nil {
		return nil
	}
	seen := map[event.EnvelopeNo]bool{}
	for c, err := range v.opener.Commitments(ctx, r, list) {
		if err != nil {
			return fmt.Errorf("payloads: %w", err)
		}
		seen[c.Env] = true
		switch mac := hmac.New(sha256.New, c.Key); {
		case uint64(c.Env)-uint64(r.Subj.Env) >= b.Count:
			v.fail(LawPayload, r.Seq, "a commitment to envelope %d, which is not of this batch", c.Env)
		case c.Erased:
			v.rep.Erased++
			v.erased[c.Env] = struct{}{}
		default:
			mac.Write(c.Content)
			if !hmac.Equal(mac.Sum(nil), c.Sum[:]) {
				v.fail(LawPayload, r.Seq, "envelope %d: %s is not what was committed to", c.Env, c.Part)
				continue
			}
			v.rep.Payloads++
		}
	}
	if uint64(len(seen)) != b.Count {
		v.rep.incomplete("record %d: payloads of %d envelopes looked at instead of %d", r.Seq, len(seen), b.Count)
	}
	return nil
}

// forget takes envelopes from the erased ones when r says why they are.
func (v *verifier) forget(r *event.Record) {
	var envs event.Ranges
	switch b := r.Body.(type) {
	case *event.EnvelopePurged:
		envs = b.Envs
	case *event.EnvelopeExpired:
		envs = b.Envs
	}
	if len(envs) == 0 {
		return
	}
	for env := range v.erased {
		if envs.Contains(uint64(env)) {
			delete(v.erased, env)
		}
	}
}
