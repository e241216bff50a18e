package evidence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/redrivehq/redrive/redrive"
)

// BatchSize is how many operations one run of a query asks for.
const BatchSize = 1000

// Query says what to ask which database. The password stands neither in the
// address nor on a command line.
type Query struct {
	// Address is a URL, postgres://USER@HOST:PORT/DATABASE?…
	Address string
	// SQL is one statement with the parameter $1, an array of text.
	SQL string
	// PasswordFile is a file of one line, mode 0600. Defaults to what PGPASSWORD
	// and the file of PGPASSFILE say.
	PasswordFile string
	// Timeout bounds each run of the query. Defaults to 30 s.
	Timeout time.Duration
}

// SQL is evidence in a PostgreSQL database.
type SQL struct {
	q     Query
	conn  *pgx.Conn
	place string // host and database
}

// Connect logs in to the database. Over a network it does so with TLS and a
// verified name only.
func Connect(ctx context.Context, q Query) (*SQL, error) {
	if q.Timeout == 0 {
		q.Timeout = 30 * time.Second
	}
	if !strings.Contains(q.SQL, "$1") {
		return nil, unusable("the query has no $1, which stands for the array of operations; as in: SELECT order_id, count(*) FROM shipments WHERE order_id = ANY($1) GROUP BY order_id")
	}
	cfg, err := parseAddress(q.Address)
	if err != nil {
		return nil, err
	}
	e := &SQL{q: q, place: cfg.Host + "/" + cfg.Database}
	if q.PasswordFile != "" {
		if cfg.Password, err = readPassword(q.PasswordFile); err != nil {
			return nil, err
		}
	}
	cfg.RuntimeParams["application_name"] = "redrive"
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	if e.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, e.failed("connect", err)
	}
	return e, nil
}

// unusable says that a request makes no sense, whatever the database holds.
func unusable(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), redrive.ErrArgument)
}

// parseAddress decides about TLS. Its errors do not show the address.
func parseAddress(address string) (*pgx.ConnConfig, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, unusable("the address of the evidence is no URL of the form postgres://USER@HOST:PORT/DATABASE")
	}
	if _, has := u.User.Password(); has || u.Query().Has("password") || u.Query().Has("sslpassword") {
		return nil, unusable("the address of the evidence has a password in it: put it into a file and name that with --evidence-password-file, or set PGPASSWORD")
	}
	mode := u.Query().Get("sslmode")
	cfg, err := withMode(u, either(mode, "verify-full"))
	if err != nil {
		return nil, err
	}
	switch {
	case slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != cfg.Host || f.Port != cfg.Port }):
		return nil, unusable("the address of the evidence, or PGHOST, names several hosts: give one")
	case cfg.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol:
		// It takes several statements, of which one could end the transaction.
		return nil, unusable("default_query_exec_mode=simple_protocol cannot promise that the query only reads: leave it out, or use exec")
	case local(cfg.Host) && mode == "":
		return withMode(u, "prefer")
	case !local(cfg.Host) && mode != "" && mode != "verify-full":
		return nil, unusable("sslmode=%s does not prove who answers at %s: use verify-full, with sslrootcert=FILE for a private authority", mode, cfg.Host)
	}
	return cfg, nil
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func withMode(u *url.URL, mode string) (*pgx.ConnConfig, error) {
	c := *u
	v := c.Query()
	v.Set("sslmode", mode)
	c.RawQuery = v.Encode()
	cfg, err := pgx.ParseConfig(c.String())
	if err != nil {
		return nil, unusable("the address of the evidence has a part that PostgreSQL does not know, or names a certificate that cannot be read") // the driver's own words repeat the address
	}
	return cfg, nil
}

// local reports whether a host is this machine: a socket, or a loopback
// address.
func local(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

func readPassword(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", unusable("read the password of the evidence: %v", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return "", unusable("%s has mode %#o; run: chmod 600 %s", path, st.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", unusable("read the password of the evidence: %v", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// Source implements redrive.Effects.
func (e *SQL) Source() string { return "sql" }

// Close implements redrive.Effects.
func (e *SQL) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return e.conn.Close(ctx)
}

// Each implements redrive.Effects: it asks for the operations only, all of them
// at one state of the database.
func (e *SQL) Each(ctx context.Context, operations []string, fn func(redrive.Effect) error) error {
	tx, err := e.conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return e.failed("begin to read", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(end) // nothing was written
	}()
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", e.q.Timeout.Milliseconds())); err != nil {
		return e.failed("begin to read", err)
	}
	for batch := range slices.Chunk(operations, BatchSize) {
		if err := e.ask(ctx, tx, batch, fn); err != nil {
			return err
		}
	}
	return nil
}

func (e *SQL) ask(ctx context.Context, tx pgx.Tx, batch []string, fn func(redrive.Effect) error) error {
	rows, err := tx.Query(ctx, e.q.SQL, batch)
	if err != nil {
		return e.failed("ask", err)
	}
	defer rows.Close()
	for line := 1; rows.Next(); line++ {
		columns := len(rows.FieldDescriptions())
		if columns != 2 && columns != 3 {
			return unusable("the query at %s gives %d columns: want operation, count, and perhaps status", e.place, columns)
		}
		var operation, status *string
		var count *int64
		into := []any{&operation, &count, &status}[:columns]
		if err := rows.Scan(into...); err != nil {
			return fmt.Errorf("row %d of the query at %s: want operation as text (::text), count as a whole number, status as text: %w", line, e.place, ErrMalformed)
		}
		if operation == nil || count == nil || *count < 0 {
			return fmt.Errorf("row %d of the query at %s: the operation is null, or the count is null or negative: %w", line, e.place, ErrMalformed)
		}
		x := redrive.Effect{Operation: *operation, Count: uint64(*count)}
		if status != nil {
			x.Status = *status
		}
		if err := check(line, x); err != nil {
			return fmt.Errorf("the query at %s: %w", e.place, err)
		}
		if err := fn(x); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return e.failed("ask", err)
	}
	return nil
}

// Classes of SQLSTATE whose messages speak of the connection, the query or the
// schema. What others say can quote a value.
var speakable = []string{"08", "0A", "25", "28", "3D", "3F", "42", "53", "57"}

// failed says what went wrong without repeating a value or the address.
func (e *SQL) failed(doing string, err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && slices.Contains(speakable, pg.Code[:2]):
		return fmt.Errorf("%s: the evidence at %s answers: %s (SQLSTATE %s)", doing, e.place, pg.Message, pg.Code)
	case errors.As(err, &pg):
		return fmt.Errorf("%s: the evidence at %s answers with SQLSTATE %s, whose message may quote data; $1 is an array of text, so compare text with it, as in order_id::text = ANY($1)", doing, e.place, pg.Code)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: the evidence at %s: %w", doing, e.place, context.Canceled)
	case pgconn.Timeout(err):
		return fmt.Errorf("%s: the evidence at %s does not answer in time: %w", doing, e.place, context.DeadlineExceeded)
	case doing == "connect":
		return fmt.Errorf("connect: the evidence at %s does not answer: %s", e.place, reachable(err))
	}
	return fmt.Errorf("%s: the evidence at %s: the query and its parameter do not fit, or the connection was lost; compare text with $1, as in order_id::text = ANY($1)", doing, e.place)
}

// reachable is the cause of a failed connection, without the driver's account
// of the address.
func reachable(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
