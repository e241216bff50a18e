package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxHops bounds the exchanges that one publish is followed through.
const maxHops = 100

// Reached is where a publish ends.
type Reached struct {
	Queues []string // sorted, each once; never nil
	// Alternates are the exchanges that took it because it had no route in
	// another one.
	Alternates []string
}

// Reach follows a publish to an exchange with a routing key. It returns
// ErrMissing when the exchange does not exist; any other error means that it
// cannot be told where the publish ends, and says why.
func Reach(m Map, exchange, key string) (Reached, error) {
	w := walk{m: m, key: key, queues: map[string]bool{}, seen: map[string]bool{}}
	if err := w.visit(exchange); err != nil {
		return Reached{}, err
	}
	out := Reached{Queues: slices.Sorted(maps.Keys(w.queues)), Alternates: w.alternates}
	if out.Queues == nil {
		out.Queues = []string{}
	}
	return out, nil
}

// Leads reports whether any routing key can take a message from an exchange to
// a queue.
func Leads(m Map, exchange, queue string) (bool, error) {
	if exchange == "" {
		return true, nil
	}
	w := walk{m: m, any: true, queues: map[string]bool{}, seen: map[string]bool{}}
	err := w.visit(exchange)
	return w.queues[queue], err
}

// walk is one publish on its way.
type walk struct {
	m          Map
	key        string
	any        bool // all bindings match
	queues     map[string]bool
	seen       map[string]bool
	alternates []string
}

func (w *walk) visit(name string) error {
	if name == "" {
		return w.byName()
	}
	if w.seen[name] {
		return nil
	}
	if len(w.seen) == maxHops {
		return fmt.Errorf("the message passes through more than %d exchanges", maxHops)
	}
	w.seen[name] = true
	x, err := w.m.Exchange(name)
	if err != nil {
		return err
	}
	routed := false
	for _, b := range x.Bindings {
		ok, err := w.matches(x, b)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		routed = true
		if b.Exchange == "" {
			w.queues[b.Queue] = true
		} else if err := w.hop(b.Exchange); err != nil {
			return err
		}
	}
	if routed && !w.any {
		return nil
	}
	switch {
	case x.Alternate != "":
		if !w.any {
			w.alternates = append(w.alternates, x.Alternate)
		}
		return w.hop(x.Alternate)
	case x.Incomplete != "":
		return fmt.Errorf("whether exchange %s has an alternate one is not known: %s", name, x.Incomplete)
	}
	return nil
}

// hop goes on to another exchange. One that is gone takes nothing.
func (w *walk) hop(name string) error {
	err := w.visit(name)
	if errors.Is(err, ErrMissing) {
		return nil
	}
	return err
}

// byName is the default exchange: the routing key names the queue.
func (w *walk) byName() error {
	_, err := w.m.Queue(w.key)
	if errors.Is(err, ErrMissing) {
		return nil
	}
	if err == nil {
		w.queues[w.key] = true
	}
	return err
}

func (w *walk) matches(x *Exchange, b Binding) (bool, error) {
	if w.any {
		return true, nil
	}
	switch x.Type {
	case "fanout":
		return true, nil
	case "direct":
		return b.Key == w.key, nil
	case "topic":
		return TopicMatches(b.Key, w.key), nil
	}
	return false, fmt.Errorf("exchange %s is of type %s, whose routing depends on more than the routing key", x.Name, x.Type)
}

// TopicMatches tells whether a binding key of a topic exchange takes a routing
// key: "*" stands for one word, "#" for any number of words between dots. The
// table of reachable pattern positions keeps it linear in pattern × words, also
// for patterns of many "#".
func TopicMatches(binding, key string) bool {
	pattern := words(binding)
	at := make([]bool, len(pattern)+1) // can the words so far be matched by pattern[:i]?
	at[0] = true
	skipHashes(at, pattern)
	for _, w := range words(key) {
		next := make([]bool, len(pattern)+1)
		for i, p := range pattern {
			switch {
			case !at[i]:
			case p == "#":
				next[i] = true
			case p == "*" || p == w:
				next[i+1] = true
			}
		}
		skipHashes(next, pattern)
		at = next
	}
	return at[len(pattern)]
}

// words splits a key; an empty one has none.
func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// skipHashes lets every "#" match no word at all.
func skipHashes(at []bool, pattern []string) {
	for i, p := range pattern {
		if at[i] && p == "#" {
			at[i+1] = true
		}
	}
}
