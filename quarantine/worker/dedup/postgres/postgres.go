// Package postgres remembers operations and parked keys of a worker in
// PostgreSQL, for all of its replicas.
//
// Two tables are made where they are missing: redrive_inbox and
// redrive_parked_keys, in the first schema of the search path. A database user
// that may not create tables needs them made by somebody who may; Tables has the
// statements.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrivehq/redrive/quarantine/worker"
)

// Tables are the statements that make the tables. They may be run again.
const Tables = `
CREATE TABLE IF NOT EXISTS redrive_inbox (
	operation   text PRIMARY KEY,
	fingerprint bytea NOT NULL,
	done        boolean NOT NULL,
	effect      text NOT NULL DEFAULT '',
	at          timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS redrive_inbox_at ON redrive_inbox (at);
CREATE TABLE IF NOT EXISTS redrive_parked_keys (
	queue  text NOT NULL,
	key    text NOT NULL,
	since  timestamptz NOT NULL,
	PRIMARY KEY (queue, key)
);
`

// lock is the advisory lock under which the tables are made: two who make one
// at the same moment would fail each other.
const lock = 0x72656472697665

// sweepAtOnce bounds the operations that one new one lets forget.
const sweepAtOnce = 32

// Store implements worker.Inbox and worker.Keys.
type Store struct {
	pool    *pgxpool.Pool
	horizon time.Duration
}

var (
	_ worker.Inbox = (*Store)(nil)
	_ worker.Keys  = (*Store)(nil)
)

// Open connects to the database that dsn names and makes the tables where they
// are missing. Operations are forgotten when nothing was heard of them for the
// horizon, which must be longer than a message can be on its way, in quarantine
// included. Errors do not quote dsn.
func Open(ctx context.Context, dsn string, horizon time.Duration) (*Store, error) {
	if horizon <= 0 {
		return nil, fmt.Errorf("inbox: the horizon %v is not positive", horizon)
	}
	conf, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("inbox: the address of the database cannot be read; want postgres://USER@HOST/DATABASE")
	}
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	s := &Store{pool: pool, horizon: horizon}
	if err := s.prepare(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	var there int
	const both = `SELECT count(*) FROM unnest(ARRAY['redrive_inbox', 'redrive_parked_keys']) AS t(name) WHERE to_regclass(name) IS NOT NULL`
	if err := s.pool.QueryRow(ctx, both).Scan(&there); err != nil || there == 2 {
		return err
	}
	return s.tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(lock)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, Tables)
		return err
	})
}

// Close ends the connections.
func (s *Store) Close() { s.pool.Close() }

// tx runs f in a transaction.
func (s *Store) tx(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, f)
}

// Begin implements worker.Inbox. The row is locked while it is looked at, so two
// replicas see each other's word.
func (s *Store) Begin(ctx context.Context, op worker.Operation) (worker.Seen, error) {
	var seen worker.Seen
	err := s.tx(ctx, func(tx pgx.Tx) error {
		var err error
		seen, err = s.begin(ctx, tx, op)
		return err
	})
	if err != nil {
		return worker.Seen{}, fmt.Errorf("inbox: %w", err)
	}
	return seen, nil
}

func (s *Store) begin(ctx context.Context, tx pgx.Tx, op worker.Operation) (worker.Seen, error) {
	oldest := op.Now.Add(-s.horizon)
	const insert = `INSERT INTO redrive_inbox (operation, fingerprint, done, at) VALUES ($1, $2, false, $3)
		ON CONFLICT (operation) DO UPDATE SET fingerprint = $2, done = false, effect = '', at = $3 WHERE redrive_inbox.at < $4`
	tag, err := tx.Exec(ctx, insert, op.ID, op.Fingerprint[:], op.Now, oldest)
	if err != nil {
		return worker.Seen{}, err
	}
	if tag.RowsAffected() > 0 {
		const sweep = `DELETE FROM redrive_inbox WHERE operation IN
			(SELECT operation FROM redrive_inbox WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`
		_, err := tx.Exec(ctx, sweep, oldest, sweepAtOnce)
		return worker.Seen{State: worker.SeenNew}, err
	}
	var meaning []byte
	var done bool
	var effect string
	const look = `SELECT fingerprint, done, effect FROM redrive_inbox WHERE operation = $1 FOR UPDATE`
	if err := tx.QueryRow(ctx, look, op.ID).Scan(&meaning, &done, &effect); err != nil {
		return worker.Seen{}, err
	}
	switch {
	case string(meaning) != string(op.Fingerprint[:]):
		return worker.Seen{State: worker.SeenConflict}, nil
	case done:
		return worker.Seen{State: worker.SeenDone, Effect: effect}, nil
	}
	_, err = tx.Exec(ctx, `UPDATE redrive_inbox SET at = $2 WHERE operation = $1`, op.ID, op.Now)
	return worker.Seen{State: worker.SeenBegun}, err
}

// Done implements worker.Inbox. The first word about an effect stands.
func (s *Store) Done(ctx context.Context, op worker.Operation, effect string) error {
	const done = `INSERT INTO redrive_inbox (operation, fingerprint, done, effect, at) VALUES ($1, $2, true, $3, $4)
		ON CONFLICT (operation) DO UPDATE SET fingerprint = $2, done = true, effect = $3, at = $4
		WHERE NOT redrive_inbox.done OR redrive_inbox.at < $5`
	return s.exec(ctx, done, op.ID, op.Fingerprint[:], effect, op.Now, op.Now.Add(-s.horizon))
}

// Forget implements worker.Inbox.
func (s *Store) Forget(ctx context.Context, op worker.Operation) error {
	return s.exec(ctx, `DELETE FROM redrive_inbox WHERE operation = $1 AND fingerprint = $2 AND NOT done`, op.ID, op.Fingerprint[:])
}

// Shared implements worker.Keys.
func (s *Store) Shared() bool { return true }

// Parked implements worker.Keys.
func (s *Store) Parked(ctx context.Context, queue, key string) (parked bool, err error) {
	const look = `SELECT EXISTS (SELECT 1 FROM redrive_parked_keys WHERE queue = $1 AND key = $2)`
	if err := s.pool.QueryRow(ctx, look, queue, key).Scan(&parked); err != nil {
		return false, fmt.Errorf("parked keys: %w", err)
	}
	return parked, nil
}

// Park implements worker.Keys.
func (s *Store) Park(ctx context.Context, queue, key string, now time.Time) error {
	return s.exec(ctx, `INSERT INTO redrive_parked_keys (queue, key, since) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, queue, key, now)
}

// Clear implements worker.Keys.
func (s *Store) Clear(ctx context.Context, queue, key string) error {
	return s.exec(ctx, `DELETE FROM redrive_parked_keys WHERE queue = $1 AND key = $2`, queue, key)
}

func (s *Store) exec(ctx context.Context, sql string, args ...any) error {
	if _, err := s.pool.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}
