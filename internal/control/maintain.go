package control

import (
	"context"
	"errors"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/quarantine"
)

// WireError gives any error of this or a lower package its stable code.
func WireError(err error) error { return wireError(err) }

// Maintain does what time brings: due events, and a checkpoint when the newest
// one is too old for what was written since.
func (c *Controller) Maintain(ctx context.Context) error {
	if err := c.settleDue(ctx); err != nil && !errors.Is(err, ledger.ErrNoSpace) {
		return err
	}
	return c.log.CheckpointIfDue(ctx)
}

// BlobStore lists and deletes blobs, for the collection of those that nothing
// refers to any more.
type BlobStore interface {
	Blobs() ([]string, error)
	DeleteBlob(name string) error
}

// CollectBlobs removes blobs that no envelope refers to: of purged ones, and
// of captures that did not happen.
func (c *Controller) CollectBlobs(s BlobStore) error {
	names, err := s.Blobs()
	if err != nil {
		return err
	}
	var used map[string]bool
	if err := c.log.View(func(v ledger.View) error { used = quarantine.BlobNames(v); return nil }); err != nil {
		return err
	}
	for _, n := range names {
		if !used[n] {
			err = errors.Join(err, s.DeleteBlob(n))
		}
	}
	return err
}
