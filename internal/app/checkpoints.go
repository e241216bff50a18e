package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"

	"github.com/redrivehq/redrive/internal/keyfile"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// exported keeps a copy of each checkpoint outside the store's file: an older
// copy of the file that is put back is noticed by them.
type exported struct {
	dir    string
	logger *slog.Logger
}

// add writes a checkpoint that is durable in the store.
func (e exported) add(size uint64, signed []byte) {
	path := filepath.Join(e.dir, fmt.Sprintf("%020d", size))
	err := os.MkdirAll(e.dir, 0o700)
	if err == nil {
		err = writeDurably(path, signed)
	}
	if err != nil {
		e.logger.Error("a checkpoint was not exported", slog.Uint64("size", size), slog.Any("error", err))
	}
}

func writeDurably(path string, b []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// check refuses a store that is behind the newest exported checkpoint, or that
// contradicts it.
func (e exported) check(kv ledger.KV, keys *keyfile.Keys) error {
	names, err := filepath.Glob(filepath.Join(e.dir, "????????????????????"))
	if err != nil || len(names) == 0 {
		return err
	}
	path := slices.Max(names)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the newest exported checkpoint: %w", err)
	}
	v, err := note.NewVerifier(keys.Verifier)
	if err != nil {
		return fmt.Errorf("verifier key: %w", err)
	}
	c, _, _, err := log.ParseCheckpoint(b, keys.Origin, v)
	if err != nil {
		return fmt.Errorf("%s is no checkpoint of this ledger (%w); if it does not belong here, move it away: %w", path, err, ledger.ErrIntegrity)
	}
	return kv.View(func(r ledger.Reader) error {
		if have := ledger.Size(r); have < c.Size {
			return fmt.Errorf("the store has %d records and an exported checkpoint covers %d: it is an older copy, and going on would repeat what was done since; put the newer store back: %w", have, c.Size, ledger.ErrIntegrity)
		}
		root, err := ledger.Root(r, c.Size)
		if err != nil {
			return err
		}
		if root != event.Digest(c.Hash) {
			return fmt.Errorf("the store's first %d records are not those of the exported checkpoint %s: %w", c.Size, path, ledger.ErrIntegrity)
		}
		return nil
	})
}
