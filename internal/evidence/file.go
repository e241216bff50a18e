package evidence

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/redrivehq/redrive/redrive"
)

// Limits of evidence. What is larger is refused with its place.
const (
	MaxCount     = 1_000_000 // effects of one operation in one row
	MaxOperation = 4 << 10   // bytes
	MaxStatus    = 256       // bytes
	maxLine      = 64 << 10
)

// ErrMalformed is wrapped by errors about the content of evidence. The message
// names the line and what is wrong with it, and quotes nothing of it.
var ErrMalformed = fmt.Errorf("malformed evidence: %w", redrive.ErrArgument)

// File is evidence in a file.
type File struct {
	path, source string
	f            *os.File
}

// Open opens a file whose name ends in .csv, .ndjson or .jsonl.
func Open(path string) (*File, error) {
	e := &File{path: path}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".csv":
		e.source = "csv"
	case ".ndjson", ".jsonl":
		e.source = "ndjson"
	default:
		return nil, fmt.Errorf("evidence %s: want a file that ends in .csv, .ndjson or .jsonl: %w", filepath.Base(path), redrive.ErrArgument)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the evidence: %w: %w", err, redrive.ErrArgument)
	}
	e.f = f
	return e, nil
}

// Source implements redrive.Effects.
func (e *File) Source() string { return e.source }

// Close implements redrive.Effects.
func (e *File) Close() error {
	if err := e.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Each implements redrive.Effects. It yields every row, whatever was released.
func (e *File) Each(ctx context.Context, _ []string, fn func(redrive.Effect) error) error {
	if _, err := e.f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the evidence: %w", err)
	}
	each := eachCSV
	if e.source == "ndjson" {
		each = eachNDJSON
	}
	return each(e.f, func(x redrive.Effect) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(x)
	})
}

var byteOrderMark = []byte("\xef\xbb\xbf")

func withoutMark(r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, maxLine)
	head, err := b.Peek(len(byteOrderMark))
	if bytes.Equal(head, byteOrderMark) {
		_, err = b.Discard(len(byteOrderMark))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

func malformed(line int, format string, args ...any) error {
	return fmt.Errorf("line %d of the evidence: %s: %w", line, fmt.Sprintf(format, args...), ErrMalformed)
}

// errTooLong ends a row that has no end.
var errTooLong = errors.New("too long")

// rows hands out so much of a file as one more row may have: the reader of CSV
// would keep an open quote until the end of the file in memory.
type rows struct {
	from      io.Reader
	at, until int64
}

// Read implements io.Reader.
func (r *rows) Read(p []byte) (int, error) {
	if r.at >= r.until {
		return 0, errTooLong
	}
	n, err := r.from.Read(p[:min(int64(len(p)), r.until-r.at)])
	r.at += int64(n)
	return n, err
}

func eachCSV(in io.Reader, fn func(redrive.Effect) error) error {
	b, err := withoutMark(in)
	if err != nil {
		return fmt.Errorf("read the evidence: %w", err)
	}
	next := &rows{from: b}
	r := csv.NewReader(next)
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	columns, line := 0, 0
	for {
		next.until = r.InputOffset() + maxLine
		row, err := r.Read()
		if errors.Is(err, errTooLong) {
			return malformed(line+1, "it has more than %d bytes", maxLine)
		}
		if errors.Is(err, io.EOF) {
			if columns == 0 {
				return malformed(1, "there is no header; want operation,count,status")
			}
			return nil
		}
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return malformed(bad.StartLine, "the quotes are not those of RFC 4180")
		}
		if err != nil {
			return fmt.Errorf("read the evidence: %w", err)
		}
		line, _ = r.FieldPos(0)
		if columns == 0 {
			if !slices.Equal(row, []string{"operation", "count", "status"}) && !slices.Equal(row, []string{"operation", "count"}) {
				return malformed(line, "the header must be operation,count,status or operation,count")
			}
			columns = len(row)
			continue
		}
		if len(row) != columns {
			return malformed(line, "%d fields, the header has %d", len(row), columns)
		}
		n, err := strconv.ParseUint(row[1], 10, 64)
		if err != nil {
			return malformed(line, "the count is no whole number from 0 on")
		}
		x := redrive.Effect{Operation: strings.Clone(row[0]), Count: n}
		if columns == 3 {
			x.Status = strings.Clone(row[2])
		}
		if err := check(line, x); err != nil {
			return err
		}
		if err := fn(x); err != nil {
			return err
		}
	}
}

func eachNDJSON(in io.Reader, fn func(redrive.Effect) error) error {
	b, err := withoutMark(in)
	if err != nil {
		return fmt.Errorf("read the evidence: %w", err)
	}
	lines := bufio.NewScanner(b)
	lines.Buffer(nil, maxLine)
	line := 0
	for lines.Scan() {
		line++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if !utf8.Valid(lines.Bytes()) {
			return malformed(line, "it is not UTF-8")
		}
		x, err := parseObject(lines.Bytes())
		if err != nil {
			return malformed(line, "%s", err)
		}
		if err := check(line, x); err != nil {
			return err
		}
		if err := fn(x); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return malformed(line+1, "it has more than %d bytes", maxLine)
	case err != nil:
		return fmt.Errorf("read the evidence: %w", err)
	}
	return nil
}

// parseObject reads one object. Its errors quote nothing.
func parseObject(b []byte) (redrive.Effect, error) {
	var row struct {
		Operation *string `json:"operation"`
		Count     *uint64 `json:"count"`
		Status    string  `json:"status"`
	}
	if err := json.Unmarshal(b, &row, json.RejectUnknownMembers(true)); err != nil {
		return redrive.Effect{}, errors.New(`want one JSON object as in {"operation":"…","count":1,"status":"…"}, without other names`)
	}
	if row.Operation == nil || row.Count == nil {
		return redrive.Effect{}, errors.New("operation and count are required")
	}
	return redrive.Effect{Operation: *row.Operation, Count: *row.Count, Status: row.Status}, nil
}

// check holds a row to the limits.
func check(line int, x redrive.Effect) error {
	switch {
	case x.Operation == "":
		return malformed(line, "the operation is empty")
	case len(x.Operation) > MaxOperation:
		return malformed(line, "the operation has %d bytes, at most %d are allowed", len(x.Operation), MaxOperation)
	case !utf8.ValidString(x.Operation) || !utf8.ValidString(x.Status):
		return malformed(line, "it is not UTF-8")
	case x.Count > MaxCount:
		return malformed(line, "the count is above %d", MaxCount)
	case len(x.Status) > MaxStatus:
		return malformed(line, "the status has %d bytes, at most %d are allowed", len(x.Status), MaxStatus)
	}
	return nil
}
