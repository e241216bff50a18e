package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/safetext"
)

// CSV writes the members of a generation. Header comes first, then Row for each
// member, then Flush.
type CSV struct {
	w        *csv.Writer
	identity bool
}

// NewCSV begins a file; with identity each row also has the operation and the
// message id.
func NewCSV(w io.Writer, identity bool) *CSV { return &CSV{w: csv.NewWriter(w), identity: identity} }

var columns = []string{"position", "envelope", "disposition", "code", "custody", "reason", "class", "owner", "tries", "effect",
	"first_died", "captured", "confirmed"}

// Header writes the names of the columns.
func (c *CSV) Header() error {
	names := columns
	if c.identity {
		names = append(names[:len(names):len(names)], "operation", "message_id")
	}
	return c.w.Write(names)
}

// Row writes one member.
func (c *CSV) Row(m *api.MemberRow) error {
	row := []string{strconv.FormatUint(m.Position, 10), m.Envelope, m.Disposition, m.Code, m.Custody, m.Reason, m.Class, m.Owner,
		strconv.FormatUint(m.Tries, 10), m.Effect, when(m.FirstDied), when(&m.Captured), when(m.Confirmed)}
	if c.identity {
		row = append(row, m.Operation, m.MessageID)
	}
	for i := range row {
		row[i] = Field(row[i])
	}
	return c.w.Write(row)
}

// Flush writes what is buffered, and returns the first error of all.
func (c *CSV) Flush() error {
	c.w.Flush()
	if err := c.w.Error(); err != nil {
		return fmt.Errorf("write the rows: %w", err)
	}
	return nil
}

func when(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// formula are the characters with which spreadsheets begin a formula, and their
// wide forms.
const formula = "=+-@\t\r\n|\uff1d\uff0b\uff0d\uff20"

// Field makes a text safe for a cell: what a spreadsheet takes for the
// beginning of a formula gets an apostrophe before it, also behind spaces and
// quotes, which some programs take away first, and behind what some take for
// the end of a cell: LibreOffice, and Excel where a comma is for decimals, split
// at semicolons.
func Field(s string) string {
	var b strings.Builder
	for _, part := range strings.SplitAfter(s, ";") {
		bare := strings.TrimLeft(part, " \"'\u00a0")
		if first, n := utf8.DecodeRuneInString(bare); n > 0 && strings.ContainsRune(formula, first) {
			b.WriteByte('\'')
		}
		b.WriteString(safetext.Clean(part))
	}
	return b.String()
}
