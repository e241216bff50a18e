package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/api"
)

// Plots are drawn on a field of this size; the page scales them.
const (
	width, height = 520, 232
	left, right   = 46, 10
	top, bottom   = 26, 22
)

// layer is one kind of thing in a plot: its class in the style sheet, its name,
// and its number in each bucket.
type layer struct {
	class, name string
	of          func(*api.Point) uint64
}

var outcomes = []layer{
	{"succeeded", "succeeded", func(p *api.Point) uint64 { return p.Succeeded }},
	{"deduplicated", "deduplicated", func(p *api.Point) uint64 { return p.Deduplicated }},
	{"rejected", "rejected", func(p *api.Point) uint64 { return p.Rejected }},
	{"requarantined", "came back", func(p *api.Point) uint64 { return p.Requarantined }},
	{"undelivered", "undelivered", func(p *api.Point) uint64 { return p.Undelivered }},
	{"ambiguous", "in doubt", func(p *api.Point) uint64 { return p.Ambiguous + p.EffectInDoubt }},
	{"missing", "deadline passed", func(p *api.Point) uint64 { return p.Missed }},
}

// svg is a drawing under construction.
type svg struct{ b strings.Builder }

func (s *svg) add(format string, args ...any) { fmt.Fprintf(&s.b, format, args...) }

// begin opens a drawing that says what it shows to those who do not see it.
func (s *svg) begin(id, title, desc string, h int) {
	s.add(`<svg viewBox="0 0 %d %d" role="img" aria-labelledby="%s-t %s-d"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>`,
		width, h, id, id, id, html.EscapeString(title), id, html.EscapeString(desc))
}

func (s *svg) end() template.HTML {
	s.add(`</svg>`)
	return template.HTML(s.b.String()) //nolint:gosec // numbers, and texts of ours and escaped ones
}

// scale is a linear axis from 0 to a number that reads easily.
type scale struct{ top float64 }

func newScale(largest float64) scale {
	if largest <= 0 {
		return scale{1}
	}
	unit := math.Pow(10, math.Floor(math.Log10(largest)))
	for _, f := range []float64{1, 2, 4, 5, 8, 10} {
		if largest <= f*unit {
			return scale{f * unit}
		}
	}
	return scale{10 * unit}
}

func (s scale) y(v float64) float64 {
	return top + (height-top-bottom)*(1-min(v/s.top, 1))
}

// frame draws the axes: three lines with their numbers, and three times.
func (s *svg) frame(sc scale, from time.Time, span time.Duration, unit string) {
	for _, part := range []float64{0, 0.5, 1} {
		y := sc.y(part * sc.top)
		s.add(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="axis" x="%d" y="%.1f" text-anchor="end">%s</text>`,
			left, width-right, y, y, left-6, y+4, number(part*sc.top))
	}
	s.add(`<text class="axis" x="%d" y="%d">%s</text>`, left, 12, html.EscapeString(unit))
	layout := "15:04:05"
	if span >= 48*time.Hour {
		layout = "01-02 15:04"
	}
	for i, anchor := range []string{"start", "middle", "end"} {
		part := float64(i) / 2
		x := left + part*(width-left-right)
		at := from.Add(time.Duration(part * float64(span)))
		s.add(`<text class="axis" x="%.1f" y="%d" text-anchor="%s">%s</text>`, x, height-bottom+15, anchor, at.UTC().Format(layout))
	}
}

func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// span is a stretch of time in which a generation stood still.
type span struct{ from, to time.Time }

// standstills reads them off the timeline.
func standstills(r *api.Report) []span {
	var out []span
	var since *time.Time
	for i := range r.Timeline {
		m := &r.Timeline[i]
		switch m.Kind {
		case "generation.paused":
			if since == nil {
				since = &m.At
			}
		case "generation.resumed", "generation.aborted", "generation.closed":
			if since != nil {
				out = append(out, span{*since, m.At})
				since = nil
			}
		}
	}
	if since != nil {
		out = append(out, span{from: *since})
	}
	return out
}

// chart is the field of one plot over time.
type chart struct {
	svg
	from   time.Time
	bucket time.Duration
	points []api.Point
}

func newChart(r *api.Report) *chart {
	bucket, err := time.ParseDuration(r.Series.Bucket)
	if err != nil || bucket <= 0 {
		bucket = time.Second
	}
	return &chart{from: r.Series.From, bucket: bucket, points: r.Series.Points}
}

func (c *chart) length() time.Duration { return c.bucket * time.Duration(len(c.points)) }

func (c *chart) x(at time.Time) float64 {
	part := float64(at.Sub(c.from)) / float64(c.length())
	return left + max(0, min(part, 1))*(width-left-right)
}

// bar returns the left edge and the width of a bucket's bar.
func (c *chart) bar(i int) (x, w float64) {
	step := float64(width-left-right) / float64(len(c.points))
	w = min(max(step*0.8, 1), 26)
	return left + (float64(i)+0.5)*step - w/2, w
}

// pauses shades the time in which the generation stood still.
func (c *chart) pauses(spans []span) {
	for _, s := range spans {
		to := float64(width - right)
		if !s.to.IsZero() {
			to = c.x(s.to)
		}
		x := c.x(s.from)
		if to-x < 0.5 {
			continue // outside of the plot, or too short to see
		}
		c.add(`<rect class="pause" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x, top, to-x, height-top-bottom)
	}
}

// ratePlot shows how fast messages went out, and how fast the broker took them.
func ratePlot(r *api.Report) template.HTML {
	c := newChart(r)
	seconds := c.bucket.Seconds()
	largest, sent, taken := 0.0, uint64(0), uint64(0)
	for i := range c.points {
		p := &c.points[i]
		largest = max(largest, float64(p.Intents)/seconds, float64(p.Confirmed)/seconds)
		sent, taken = sent+p.Intents, taken+p.Confirmed
	}
	sc := newScale(largest)
	c.begin("rate", "Messages per second over time", fmt.Sprintf("%d publishes were begun and %d confirmed in %s, at most %s per second in a bucket of %s.",
		sent, taken, c.length(), number(largest), r.Series.Bucket), height)
	c.pauses(standstills(r))
	c.frame(sc, c.from, c.length(), "per second, in buckets of "+r.Series.Bucket)
	var line []string
	for i := range c.points {
		p := &c.points[i]
		x, w := c.bar(i)
		if y := sc.y(float64(p.Intents) / seconds); p.Intents > 0 {
			c.add(`<rect class="intents" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="1"/>`, x, y, w, height-bottom-y)
		}
		line = append(line, fmt.Sprintf("%.1f,%.1f", x+w/2, sc.y(float64(p.Confirmed)/seconds)))
	}
	if len(line) == 1 {
		x, w := c.bar(0)
		y := sc.y(float64(c.points[0].Confirmed) / seconds)
		c.add(`<line class="confirmed" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x-3, x+w+3, y, y)
	} else {
		c.add(`<polyline class="confirmed" points="%s"/>`, strings.Join(line, " "))
	}
	return c.end()
}

// outcomePlot shows what became known over time, kinds on top of each other.
func outcomePlot(r *api.Report) template.HTML {
	c := newChart(r)
	largest := 0.0
	totals := make([]uint64, len(outcomes))
	for i := range c.points {
		sum := uint64(0)
		for k, l := range outcomes {
			n := l.of(&c.points[i])
			totals[k] += n
			sum += n
		}
		largest = max(largest, float64(sum))
	}
	var parts []string
	for k, l := range outcomes {
		if totals[k] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", totals[k], l.name))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing yet"}
	}
	sc := newScale(largest)
	c.begin("outcomes", "What became known over time", strings.Join(parts, ", ")+".", height)
	c.pauses(standstills(r))
	c.frame(sc, c.from, c.length(), "in buckets of "+r.Series.Bucket)
	for i := range c.points {
		x, w := c.bar(i)
		base := float64(0)
		for _, l := range outcomes {
			n := float64(l.of(&c.points[i]))
			if n == 0 {
				continue
			}
			c.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, l.class, x, sc.y(base+n), w, sc.y(base)-sc.y(base+n))
			base += n
		}
	}
	return c.end()
}

// funnelPlot shows how the selected became fewer.
func funnelPlot(r *api.Report) template.HTML {
	f := &r.Generation.Funnel
	rows := []struct {
		class, name string
		n           uint64
	}{
		{"intents", "selected", f.Selected}, {"confirmed", "moved", f.Moved}, {"succeeded", "succeeded", f.Succeeded},
		{"admitted", "admitted", f.Admitted}, {"deduplicated", "deduplicated", f.Deduplicated}, {"rejected", "rejected", f.Rejected},
		{"requarantined", "came back", f.Requarantined}, {"ambiguous", "ambiguous", f.Ambiguous}, {"missing", "missing", f.Missing},
	}
	const rowHeight, label, value = 25, 104, 64
	s := &svg{}
	var said []string
	for _, x := range rows {
		said = append(said, fmt.Sprintf("%s %d", x.name, x.n))
	}
	s.begin("funnel", "Funnel", strings.Join(said, ", ")+".", rowHeight*len(rows)+4)
	for i, x := range rows {
		y := float64(i*rowHeight + 4)
		w := 0.0
		if f.Selected > 0 {
			w = (width - label - value) * float64(x.n) / float64(f.Selected)
		}
		if x.n > 0 {
			w = max(w, 2)
		}
		s.add(`<text class="label" x="%d" y="%.1f" text-anchor="end">%s</text>`, label-8, y+14, x.name)
		s.add(`<rect class="track" x="%d" y="%.1f" width="%d" height="18" rx="3"/>`, label, y, width-label-value)
		s.add(`<rect class="%s" x="%d" y="%.1f" width="%.1f" height="18" rx="3"/>`, x.class, label, y, w)
		s.add(`<text class="value" x="%d" y="%.1f" text-anchor="end">%d</text>`, width-2, y+14, x.n)
	}
	return s.end()
}
