package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/evidence"
	"github.com/redrivehq/redrive/internal/postgrestest"
	"github.com/redrivehq/redrive/redrive"
)

// rows are what every source has to tell in the suite: two rows of one
// operation, a stated absence, and texts that need care.
var rows = []redrive.Effect{
	{Operation: "op-1", Count: 1, Status: "shipped"}, {Operation: "op-2", Count: 0}, {Operation: "op-3", Count: 1, Status: "a, \"b\""},
	{Operation: "op-3", Count: 2, Status: "late"}, {Operation: `o"p,4`, Count: 1}, {Operation: "öp-5\u2028x", Count: 1_000_000},
}

func sortRows(list []redrive.Effect) []redrive.Effect {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b redrive.Effect) int {
		return strings.Compare(fmt.Sprintf("%q %d", a.Operation, a.Count), fmt.Sprintf("%q %d", b.Operation, b.Count))
	})
	return list
}

func operations() []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.Operation)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// suite is what redrive.Effects asks of a source that holds the rows.
func suite(t *testing.T, e redrive.Effects, source string) {
	t.Helper()
	if e.Source() != source {
		t.Errorf("source %q, want %q", e.Source(), source)
	}
	for range 2 { // reading again yields the same
		var got []redrive.Effect
		if err := e.Each(t.Context(), operations(), func(x redrive.Effect) error {
			got = append(got, x)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if g, w := fmt.Sprintf("%#v", sortRows(got)), fmt.Sprintf("%#v", sortRows(rows)); g != w {
			t.Errorf("got  %s\nwant %s", g, w)
		}
	}
	enough, n := errors.New("enough"), 0
	if err := e.Each(t.Context(), operations(), func(redrive.Effect) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
		t.Errorf("an error of the reader: %v after %d rows", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Each(ctx, operations(), func(redrive.Effect) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func open(t *testing.T, name, text string) *evidence.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := evidence.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // was only read
	return f
}

const goodCSV = "\ufeffoperation,count,status\r\nop-1,1,shipped\r\nop-2,0,\nop-3,1,\"a, \"\"b\"\"\"\nop-3,2,late\n\"o\"\"p,4\",1,\nöp-5\u2028x,1000000,"

func TestCSV(t *testing.T) { suite(t, open(t, "e.csv", goodCSV), "csv") }

func TestNDJSON(t *testing.T) {
	suite(t, open(t, "e.ndjson", "\ufeff"+`{"operation":"op-1","count":1,"status":"shipped"}
{"count":0,"operation":"op-2"}

{"operation":"op-3","count":1,"status":"a, \"b\""}
{"operation":"op-3","count":2,"status":"late"}
{"operation":"o\"p,4","count":1}
{"operation":"öp-5\u2028x","count":1000000}`), "ndjson")
}

// What is malformed is refused with its line, and nothing of it is quoted.
func TestMalformedFiles(t *testing.T) {
	const secret = "order-4711"
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct{ file, text, want string }{
		"empty":         {"e.csv", "", "line 1 of the evidence: there is no header"},
		"other header":  {"e.csv", "operation;count\n", "line 1 of the evidence: the header"},
		"other names":   {"e.csv", "id,count\n", "the header must be"},
		"more fields":   {"e.csv", "operation,count\n" + secret + ",1,x\n", "line 2 of the evidence: 3 fields, the header has 2"},
		"no number":     {"e.csv", "operation,count\na,1\n\n" + secret + "," + secret + "\n", "line 4 of the evidence: the count is no whole number"},
		"negative":      {"e.csv", "operation,count\n" + secret + ",-1\n", "the count is no whole number"},
		"fraction":      {"e.csv", "operation,count\n" + secret + ",1.0\n", "the count is no whole number"},
		"too many":      {"e.csv", "operation,count\n" + secret + ",1000001\n", "above 1000000"},
		"quotes":        {"e.csv", "operation,count\n\"" + secret + "\"x,1\n", "line 2 of the evidence: the quotes"},
		"nameless":      {"e.csv", "operation,count\n,1\n", "the operation is empty"},
		"long":          {"e.csv", "operation,count\n" + long + ",1\n", "5000 bytes"},
		"long status":   {"e.csv", "operation,count,status\n" + secret + ",1," + long[:300] + "\n", "300 bytes"},
		"no text":       {"e.csv", "operation,count\n" + secret + "\xff,1\n", "not UTF-8"},
		"no JSON":       {"e.ndjson", "{\"operation\":\"a\",\"count\":1}\n" + secret, "line 2 of the evidence: want one JSON object"},
		"two objects":   {"e.ndjson", `{"operation":"` + secret + `","count":1} {}`, "line 1 of the evidence: want one"},
		"unknown name":  {"e.jsonl", `{"operation":"` + secret + `","count":1,"sum":2}`, "without other names"},
		"no count":      {"e.jsonl", `{"operation":"` + secret + `"}`, "operation and count are required"},
		"count as text": {"e.jsonl", `{"operation":"` + secret + `","count":"1"}`, "want one JSON object"},
		"doubled name":  {"e.jsonl", `{"operation":"a","operation":"` + secret + `","count":1}`, "want one JSON object"},
		"other case":    {"e.jsonl", `{"operation":"a","Count":1,"count":2}`, "want one JSON object"},
		"no text in it": {"e.jsonl", "{\"operation\":\"" + secret + "\xff\",\"count\":1}", "not UTF-8"},
		"half a letter": {"e.jsonl", `{"operation":"` + secret + `\ud800","count":1}`, "want one JSON object"},
		"null":          {"e.jsonl", `{"operation":"` + secret + `","count":null}`, "operation and count are required"},
		"endless row":   {"e.csv", "operation,count\n\"" + strings.Repeat(secret+"\n", 20_000), "line 2 of the evidence: it has more than"},
		"long line":     {"e.jsonl", `{"operation":"` + strings.Repeat("x", 70_000), "line 1 of the evidence: it has more than"},
	} {
		err := open(t, c.file, c.text).Each(t.Context(), nil, func(redrive.Effect) error { return nil })
		if !errors.Is(err, evidence.ErrMalformed) || !errors.Is(err, redrive.ErrArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v quotes the row", name, err)
		}
	}
	if _, err := evidence.Open("e.xlsx"); !errors.Is(err, redrive.ErrArgument) {
		t.Errorf("another kind of file: %v", err)
	}
	if _, err := evidence.Open(filepath.Join(t.TempDir(), "none.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(goodCSV), true)
	f.Add([]byte(`{"operation":"op-1","count":1}`), false)
	f.Fuzz(func(t *testing.T, text []byte, isCSV bool) {
		name := "e.ndjson"
		if isCSV {
			name = "e.csv"
		}
		err := open(t, name, string(text)).Each(t.Context(), nil, func(x redrive.Effect) error {
			if x.Operation == "" || x.Count > evidence.MaxCount || len(x.Operation) > evidence.MaxOperation || len(x.Status) > evidence.MaxStatus {
				t.Errorf("%+v was taken", x)
			}
			return nil
		})
		if err != nil && !errors.Is(err, evidence.ErrMalformed) {
			t.Errorf("%v", err)
		}
	})
}

const query = "SELECT op, n, status FROM effects WHERE op = ANY($1)"

func connect(t *testing.T, q evidence.Query) *evidence.SQL {
	t.Helper()
	e, err := evidence.Connect(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // was only read
	return e
}

func TestSQL(t *testing.T) {
	pg := postgrestest.Start(t)
	var b strings.Builder
	b.WriteString("CREATE TABLE effects (op text, n int, status text); CREATE TABLE wide (op bigint, n int);\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "INSERT INTO effects VALUES (E'%s', %d, nullif(E'%s', ''));\n", strings.ReplaceAll(r.Operation, "\u2028", `\u2028`), r.Count, r.Status)
	}
	b.WriteString("INSERT INTO effects SELECT 'many-' || i, 1, null FROM generate_series(1, 2500) i; INSERT INTO effects VALUES ('null', null, null), ('less', -1, null);\n" +
		"INSERT INTO wide VALUES (4711, 1); CREATE ROLE reader LOGIN PASSWORD 'hunter2'; GRANT SELECT ON effects TO reader;")
	pg.Exec(t, b.String())
	address := pg.Address("postgres")
	suite(t, connect(t, evidence.Query{Address: address, SQL: query}), "sql")

	t.Run("batches", func(t *testing.T) {
		var ops []string
		for i := range 2500 {
			ops = append(ops, fmt.Sprintf("many-%d", i+1))
		}
		slices.Sort(ops)
		n := 0
		// The length of each array comes back as the status.
		e := connect(t, evidence.Query{Address: address, SQL: "SELECT op, n, cardinality($1::text[])::text FROM effects WHERE op = ANY($1)"})
		if err := e.Each(t.Context(), ops, func(x redrive.Effect) error {
			if n++; x.Status != "1000" && x.Status != "500" {
				return fmt.Errorf("an array of %s", x.Status)
			}
			return nil
		}); err != nil || n != 2500 {
			t.Errorf("%d rows: %v", n, err)
		}
	})
	t.Run("several statements", func(t *testing.T) {
		// The simple protocol would take them, and with a COMMIT leave the
		// transaction that only reads.
		e, err := evidence.Connect(t.Context(), evidence.Query{Address: address + "&default_query_exec_mode=simple_protocol",
			SQL: "SELECT op, n FROM effects WHERE op = ANY($1); COMMIT; DELETE FROM effects"})
		if err == nil {
			err = errors.Join(e.Each(t.Context(), []string{"op-1"}, func(redrive.Effect) error { return nil }), e.Close())
		}
		if !errors.Is(err, redrive.ErrArgument) || !strings.Contains(err.Error(), "simple_protocol") {
			t.Errorf("%v", err)
		}
		suite(t, connect(t, evidence.Query{Address: address, SQL: query}), "sql")
	})
	t.Run("refusals", func(t *testing.T) { refusals(t, address) })
	t.Run("password", func(t *testing.T) {
		pg.Passwords(t)
		dir := t.TempDir()
		for name, c := range map[string]struct {
			text string
			mode os.FileMode
			want string
		}{
			"right": {"hunter2\n", 0o600, ""}, "wrong": {"swordfish", 0o600, "SQLSTATE 28P01"}, "open": {"hunter2", 0o644, "run: chmod 600"},
		} {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			e, err := evidence.Connect(t.Context(), evidence.Query{Address: pg.Address("reader"), SQL: query, PasswordFile: file})
			if err == nil {
				err = errors.Join(e.Each(t.Context(), []string{"op-1"}, func(redrive.Effect) error { return nil }), e.Close())
			}
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), strings.TrimSpace(c.text))) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// refusals are queries that must not be run, or whose answers are none.
func refusals(t *testing.T, address string) {
	for name, c := range map[string]struct{ sql, want string }{
		"it writes":     {"WITH x AS (DELETE FROM effects WHERE op = ANY($1) RETURNING op, n) SELECT * FROM x", "SQLSTATE 25006"},
		"no table":      {"SELECT op, n FROM nothing WHERE op = ANY($1)", `relation "nothing" does not exist`},
		"two commands":  {"SELECT op, n FROM effects WHERE op = ANY($1); DROP TABLE effects", "SQLSTATE 42601"},
		"one column":    {"SELECT op FROM effects WHERE op = ANY($1)", "gives 1 columns"},
		"no count":      {"SELECT 'order-4711', n FROM effects WHERE op = 'null' OR op = ANY($1) ORDER BY n NULLS FIRST", "the count is null or negative"},
		"negative":      {"SELECT 'order-4711', n FROM effects WHERE op = 'less' OR op = ANY($1) ORDER BY n", "the count is null or negative"},
		"other types":   {"SELECT n, op FROM effects WHERE op = ANY($1)", "want operation as text"},
		"other keys":    {"SELECT op, n FROM wide WHERE op = ANY($1)", "so compare text with it"},
		"quoting error": {"SELECT ('order-4711' || op)::int::text, n FROM effects WHERE op = ANY($1)", "SQLSTATE 22P02, whose message may quote data"},
		"too slow":      {"SELECT op, n FROM effects, pg_sleep(30) WHERE op = ANY($1)", "SQLSTATE 57014"},
	} {
		e, err := evidence.Connect(t.Context(), evidence.Query{Address: address, SQL: c.sql, Timeout: 200_000_000})
		if err == nil {
			err = errors.Join(e.Each(t.Context(), []string{"op-1"}, func(redrive.Effect) error { return nil }), e.Close())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "order-4711") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Addresses that would send a password in the open, or trust whoever answers,
// are refused before anything is sent; no error repeats them.
func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"mysql://db.example/shop": "no URL of the form", "host=db.example dbname=shop": "no URL of the form", "postgres://%zz": "no URL of the form",
		"postgres://shop:hunter2@db.example/shop":                      "has a password in it",
		"postgres://shop@db.example/shop?password=hunter2":             "has a password in it",
		"postgres://shop@db.example/shop?sslpassword=hunter2":          "has a password in it",
		"postgres://shop@one.example,two.example/shop":                 "several hosts",
		"postgres://shop@db.example/shop?sslmode=disable":              "does not prove who answers",
		"postgres://shop@db.example/shop?sslmode=require":              "does not prove who answers",
		"postgres://shop@192.0.2.1/shop?sslmode=prefer":                "does not prove who answers",
		"postgres://shop@db.example/shop?sslrootcert=/nowhere/hunter2": "has a part that PostgreSQL does not know",
	} {
		_, err := evidence.Connect(t.Context(), evidence.Query{Address: address, SQL: query})
		if !errors.Is(err, redrive.ErrArgument) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	t.Setenv("PGHOST", "127.0.0.1,db.example")
	_, err := evidence.Connect(t.Context(), evidence.Query{Address: "postgres:///shop", SQL: query})
	if !errors.Is(err, redrive.ErrArgument) || !strings.Contains(err.Error(), "several hosts") {
		t.Errorf("several hosts of the environment: %v", err)
	}
	_, err = evidence.Connect(t.Context(), evidence.Query{Address: "postgres://shop@127.0.0.1:9/shop", SQL: query})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1/shop does not answer") {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := evidence.Connect(t.Context(), evidence.Query{Address: "postgres://shop@127.0.0.1:9/shop", SQL: "SELECT 1"}); !errors.Is(err, redrive.ErrArgument) {
		t.Errorf("no parameter: %v", err)
	}
}
