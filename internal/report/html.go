package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/safetext"
)

//go:embed page.gohtml
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"at":         func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"iso":        func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"words":      func(s string) string { return strings.ReplaceAll(s, "_", " ") },
	"who":        who,
	"kindParts":  kindParts,
	"limitName":  func(s string) string { return strings.ReplaceAll(strings.SplitN(s, "=", 2)[0], "_", " ") },
	"limitValue": func(s string) string { _, v, _ := strings.Cut(s, "="); return v },
	"sub":        func(a, b uint64) uint64 { return a - min(a, b) },
	"reason":     func(s string) string { return orElse(s, "no reason given") },
	"owner":      func(s string) string { return orElse(s, "nobody: no owner is configured") },
}).Parse(pageText))

// view is what the page shows.
type view struct {
	R         *api.Report
	G         *api.Generation
	Made      time.Time
	Statement []string
	Remaining uint64
	Owners    []owner
	Approvals []api.Moment
	Tally     []count
	Outcomes  []layer
	Funnel    template.HTML
	Rate      template.HTML
	Outcome   template.HTML
	Buckets   []bucket
	Pauses    int
}

// owner is who has to decide about what remains.
type owner struct {
	Name   string
	Count  uint64
	Groups []api.EnvelopeGroup
}

type count struct {
	Name string
	N    uint64
}

// bucket is one row of the table behind the plots.
type bucket struct {
	At      time.Time
	Numbers []uint64
}

// HTML writes the report as one page that needs nothing else.
func HTML(w io.Writer, r api.Report, made time.Time) error {
	r = cleaned(r)
	v := view{R: &r, G: &r.Generation, Made: made, Statement: strings.Split(strings.TrimRight(r.Text, "\n"), "\n"), Funnel: funnelPlot(&r),
		Pauses: len(standstills(&r))}
	v.owners()
	for _, m := range r.Timeline {
		switch m.Kind {
		case "generation.approved", "generation.rejected":
			v.Approvals = append(v.Approvals, m)
		}
	}
	for name, n := range r.Generation.Tally {
		v.Tally = append(v.Tally, count{name, n})
	}
	slices.SortFunc(v.Tally, func(a, b count) int {
		if a.N != b.N {
			return int(min(b.N, 1<<40)) - int(min(a.N, 1<<40))
		}
		return strings.Compare(a.Name, b.Name)
	})
	if r.Series != nil && len(r.Series.Points) > 0 {
		v.Outcomes = present(r.Series.Points)
		v.Rate, v.Outcome = ratePlot(&r), outcomePlot(&r)
		for i := range r.Series.Points {
			p := &r.Series.Points[i]
			b := bucket{At: p.At, Numbers: []uint64{p.Intents, p.Confirmed}}
			for _, l := range v.Outcomes {
				b.Numbers = append(b.Numbers, l.of(p))
			}
			if slices.Max(b.Numbers) > 0 {
				v.Buckets = append(v.Buckets, b)
			}
		}
	}
	if err := page.Execute(w, v); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// owners puts what remains under who owns its resolution, most first.
func (v *view) owners() {
	at := map[string]int{}
	for _, g := range v.R.Remaining {
		v.Remaining += g.Count
		i, ok := at[g.Owner]
		if !ok {
			i = len(v.Owners)
			at[g.Owner] = i
			v.Owners = append(v.Owners, owner{Name: g.Owner})
		}
		v.Owners[i].Count += g.Count
		v.Owners[i].Groups = append(v.Owners[i].Groups, g)
	}
	slices.SortStableFunc(v.Owners, func(a, b owner) int { return int(min(b.Count, 1<<40)) - int(min(a.Count, 1<<40)) })
}

// present are the outcomes of which there was one.
func present(points []api.Point) (out []layer) {
	for _, l := range outcomes {
		if slices.ContainsFunc(points, func(p api.Point) bool { return l.of(&p) > 0 }) {
			out = append(out, l)
		}
	}
	return out
}

// Name is the name of a layer in the table behind the plots.
func (l layer) Name() string { return l.name }

// Class is its class in the style sheet.
func (l layer) Class() string { return l.class }

// kindParts splits the kind of a record into its subject and what happened.
func kindParts(kind string) []string {
	subject, what, _ := strings.Cut(kind, ".")
	return []string{subject, what}
}

func who(by, as string) string {
	if as != "" {
		return by + " as " + as
	}
	return by
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// cleaned makes every text of a report visible as it is: nobody can forget one.
func cleaned(r api.Report) api.Report {
	text := r.Text
	out := reflect.New(reflect.TypeOf(r)).Elem()
	out.Set(clean(reflect.ValueOf(r)))
	r = out.Interface().(api.Report) //nolint:errcheck,forcetypeassert // it was made as one
	r.Text = safetext.Block(text)
	return r
}

// clean copies a value with all of its texts made safe.
func clean(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(safetext.Clean(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(clean(v.Elem()))
			out.Set(p)
		}
	case reflect.Struct:
		out.Set(v)
		for i := range v.NumField() {
			if out.Field(i).CanSet() {
				out.Field(i).Set(clean(v.Field(i)))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(clean(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for _, k := range v.MapKeys() {
				out.SetMapIndex(clean(k), clean(v.MapIndex(k)))
			}
		}
	default:
		out.Set(v)
	}
	return out
}
