package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/postgrestest"
	"github.com/redrivehq/redrive/quarantine/worker/dedup/deduptest"
	"github.com/redrivehq/redrive/quarantine/worker/dedup/postgres"
)

func TestSuite(t *testing.T) {
	server := postgrestest.Start(t)
	seen := map[*testing.T]bool{}
	deduptest.Run(t, func(t *testing.T, horizon time.Duration) deduptest.Store {
		if !seen[t] {
			seen[t] = true
			server.Exec(t, "DROP TABLE IF EXISTS redrive_inbox, redrive_parked_keys")
		}
		s, err := postgres.Open(t.Context(), server.Address("postgres"), horizon)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	})
}

// TestRights: a user who may not create tables uses those that are there.
func TestRights(t *testing.T) {
	server := postgrestest.Start(t)
	server.Exec(t, "CREATE ROLE small LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	if _, err := postgres.Open(t.Context(), server.Address("small"), time.Hour); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Fatalf("%v", err)
	}
	server.Exec(t, postgres.Tables+"GRANT SELECT, INSERT, UPDATE, DELETE ON redrive_inbox, redrive_parked_keys TO small")
	s, err := postgres.Open(t.Context(), server.Address("small"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Park(t.Context(), "q", "k", time.Unix(1, 0)); err != nil {
		t.Error(err)
	}
}

// TestAddress never repeats a password.
func TestAddress(t *testing.T) {
	for _, dsn := range []string{"postgres://u:s3cret@[/x", "postgres://u:s3cret@127.0.0.1:1/x?connect_timeout=1"} {
		if _, err := postgres.Open(t.Context(), dsn, time.Hour); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}
