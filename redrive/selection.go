package redrive

import (
	"reflect"

	"github.com/redrivehq/redrive/ledger/event"
)

// Selection is what was asked for, kept with the cohort that it gave. Times
// are frozen: an age that was asked for stands as the moment it meant.
type Selection struct {
	Class       string
	Died        string
	DiedBefore  uint64 // first death before it, ms; 0 is no bound
	DiedFrom    uint64 // first death at or after it, ms
	Generation  string // ULID: its members, and what came back of them
	IDs         []string
	Lineage     string
	MaxAttempts uint64 // attempt of the lineage at most, 0 is no bound
	MinAttempts uint64
	Note        string   // occurs in an annotation
	Outcomes    []string // dispositions in Generation
	Owner       string
	Queue       string
	Reason      string
	Schema      string
	Type        string
	Where       string // expression; its "now" is Manifest.At
	WhereIn     string // language of Where, with its version
}

func (s *Selection) visit(c *event.Coder) {
	event.Text(c, "class", &s.Class)
	event.Text(c, "died", &s.Died)
	event.Num(c, "died_before", &s.DiedBefore)
	event.Num(c, "died_from", &s.DiedFrom)
	event.Text(c, "generation", &s.Generation)
	event.Texts(c, "ids", &s.IDs)
	event.Text(c, "lineage", &s.Lineage)
	event.Num(c, "max_attempts", &s.MaxAttempts)
	event.Num(c, "min_attempts", &s.MinAttempts)
	event.Text(c, "note", &s.Note)
	event.Texts(c, "outcomes", &s.Outcomes)
	event.Text(c, "owner", &s.Owner)
	event.Text(c, "queue", &s.Queue)
	event.Text(c, "reason", &s.Reason)
	event.Text(c, "schema", &s.Schema)
	event.Text(c, "type", &s.Type)
	event.Text(c, "where", &s.Where)
	event.Text(c, "where_in", &s.WhereIn)
}

func (s *Selection) empty() bool { return reflect.ValueOf(s).Elem().IsZero() }
