package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/term"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/safetext"
)

// print writes a response: as JSON, or as people read it.
func (c *command) print(resp any, show func()) error {
	if !c.json {
		show()
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(resp); err != nil {
		return err
	}
	_, err := io.WriteString(c.out, safeJSON(b.String()))
	return err
}

// safeJSON escapes in JSON text what a terminal would obey or hide. A reader
// of the JSON gets the same strings: outside of them there is only ASCII.
func safeJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf && r != 0x7f || safetext.Clean(string(r)) == string(r) {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			_, _ = fmt.Fprintf(&b, `\u%04x`, u) // a Builder never fails
		}
	}
	return b.String()
}

// say writes one line to people. Arguments of type string are made safe.
func (c *command) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, format+"\n", safe(args)...) // stdout is gone: nothing to tell anyone
}

// hint writes one line beside the answer.
func (c *command) hint(format string, args ...any) {
	_, _ = fmt.Fprintf(c.err, format+"\n", safe(args)...)
}

func safe(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if s, ok := a.(string); ok {
			a = safetext.Clean(s)
		}
		out[i] = a
	}
	return out
}

// table prints rows under a header.
func (c *command) table(header []string, rows [][]string) {
	t := table.NewWriter()
	t.SetOutputMirror(c.out)
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	h := make(table.Row, len(header))
	for i, s := range header {
		h[i] = s
	}
	t.AppendHeader(h)
	for _, r := range rows {
		row := make(table.Row, len(r))
		for i, s := range r {
			row[i] = safetext.Clean(s)
		}
		t.AppendRow(row)
	}
	t.SuppressTrailingSpaces()
	t.Render()
}

// terminal reports whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progress shows what a long command does: one line that is rewritten on a
// terminal, plain lines when something changed otherwise.
type progress struct {
	w     io.Writer
	tty   bool
	last  string
	shown time.Time
}

func (c *command) progress() *progress { return &progress{w: c.err, tty: terminal(c.err)} }

func (p *progress) show(r api.Progress) {
	text := progressText(r)
	if text == "" || text == p.last {
		return
	}
	// Plain lines are for logs: notes at once, numbers once a second.
	if !p.tty && r.Stage != "note" && time.Since(p.shown) < time.Second {
		return
	}
	p.last, p.shown = text, time.Now()
	switch {
	case r.Stage == "note":
		p.end()
		_, _ = fmt.Fprintln(p.w, text)
	case p.tty:
		_, _ = fmt.Fprint(p.w, "\r\x1b[K"+text)
	default:
		_, _ = fmt.Fprintln(p.w, text)
	}
}

// end leaves the rewritten line.
func (p *progress) end() {
	if p.tty && p.last != "" {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func progressText(r api.Progress) string {
	switch {
	case r.Stage == "note":
		return safetext.Clean(r.Message)
	case r.Stage == "capture":
		return fmt.Sprintf("%s: %d captured, %d already known", safetext.Clean(r.Message), r.Captured, r.Merged)
	case r.Generation != nil:
		g := r.Generation
		state := g.State
		if state == "paused" {
			var reasons []string
			for _, p := range g.Pauses {
				reasons = append(reasons, safetext.Clean(p.Reason))
			}
			state += " for " + strings.Join(reasons, ", ")
		}
		return fmt.Sprintf("generation %d %s, stage %d of %d: %s", g.Number, state, g.Stage, len(g.Stages), funnelText(g))
	}
	return ""
}

func funnelText(g *api.Generation) string {
	f := g.Funnel
	parts := []string{fmt.Sprintf("%d of %d moved", f.Moved, f.Selected)}
	for _, x := range []struct {
		n    uint64
		name string
	}{
		{f.Succeeded, "succeeded"}, {f.Rejected, "rejected"}, {f.Requarantined, "came back"}, {f.Ambiguous, "ambiguous"},
		{f.Missing, "missing"}, {f.Deduplicated, "deduplicated"}, {g.Tally["undelivered"], "undelivered"}, {g.Tally["pending"], "pending"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.name))
		}
	}
	return strings.Join(parts, ", ")
}

// stamp says that it is UTC: who reads it beside a log has to know.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// arrival names the way by which a message came. The default exchange has no name.
func arrival(exchange, key string) string {
	if exchange == "" {
		return "the default exchange, key " + key
	}
	return "exchange " + exchange + ", key " + key
}

func age(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
