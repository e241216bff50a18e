// Package evidence reads business data that tells which operations had an
// effect. Its types implement redrive.Effects.
//
// # CSV
//
// A header row, then one row for each operation, or several whose counts add
// up:
//
//	operation,count,status
//	order-4711,1,shipped
//	order-4712,0,
//
// The header is exactly operation,count or operation,count,status. Count is a
// decimal number without sign, at most MaxCount. Quotes are those of RFC 4180; a
// byte order mark before the header is ignored. Everything else is an error
// with its line.
//
// # NDJSON
//
// One JSON object on each line, with the same three names; status may be
// missing, other names are refused:
//
//	{"operation":"order-4711","count":1,"status":"shipped"}
//
// # SQL
//
// A query on PostgreSQL with one parameter, $1, an array of operations as text,
// and two or three columns in the order above:
//
//	SELECT order_id, count(*), min(status) FROM shipments
//	WHERE order_id = ANY($1) GROUP BY order_id
//
// It runs in a read-only transaction for up to BatchSize operations at a time.
//
// # Invariants
//
// An error never quotes a row: operations come from messages.
package evidence
