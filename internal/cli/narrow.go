package cli

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/redrivehq/redrive/internal/api"
)

// narrowingFlags add the conditions that plans and lists share. The expression
// is called --where everywhere, also where the others have the prefix where-.
func narrowingFlags(f *pflag.FlagSet, n *api.Narrowing, prefix string) {
	f.StringVar(&n.Schema, prefix+"schema", "", "schema version")
	f.StringVar(&n.OlderThan, prefix+"older-than", "", "died first at least so long ago, as in 36h or 14d; captured, where that is unknown")
	f.StringVar(&n.NewerThan, prefix+"newer-than", "", "died first within so long")
	f.Uint16Var(&n.MinAttempts, prefix+"min-attempts", 0, "attempt of its lineage at least; 1 has never been released")
	f.Uint16Var(&n.MaxAttempts, prefix+"max-attempts", 0, "attempt of its lineage at most")
	f.StringVar(&n.Generation, prefix+"generation", "", "selected by this generation, or came back from it")
	f.StringSliceVar(&n.Outcomes, prefix+"outcome", nil, "what it became in that generation, as in requarantined,missing")
	f.StringVar(&n.Note, prefix+"note", "", "text that occurs in a note on it")
	f.StringVar(&n.Where, "where", "", "expression over env, headers, properties, body and now, as in 'body.total > 100'")
	neverEmpty(f, prefix+"schema", prefix+"older-than", prefix+"newer-than", prefix+"generation", prefix+"outcome", prefix+"note", "where")
}

// condition is a flag that narrows down what is meant. An empty one, as an unset
// variable of a script leaves it, would mean more.
type condition struct{ pflag.Value }

// Set implements pflag.Value.
func (c condition) Set(s string) error {
	if s == "" {
		return errors.New("it is empty, which would match more than you mean: say what to match, or leave it out")
	}
	return c.Value.Set(s)
}

// neverEmpty makes conditions of flags that are there.
func neverEmpty(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		x := f.Lookup(name)
		x.Value = condition{x.Value}
		x.DefValue = "" // the help would show the "[]" of a list that it does not know
	}
}
