package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
)

// atlas is a Map out of what a test says. A name that begins with "?" cannot be
// looked up.
type atlas struct {
	queues    []Queue
	exchanges []Exchange
	keys      map[string][]string
}

var errDark = errors.New("it is dark there")

func (a *atlas) Queue(name string) (*Queue, error) {
	if strings.HasPrefix(name, "?") {
		return nil, errDark
	}
	for i := range a.queues {
		if a.queues[i].Name == name {
			return &a.queues[i], nil
		}
	}
	return nil, ErrMissing
}

func (a *atlas) Exchange(name string) (*Exchange, error) {
	if strings.HasPrefix(name, "?") {
		return nil, errDark
	}
	for i := range a.exchanges {
		if a.exchanges[i].Name == name {
			return &a.exchanges[i], nil
		}
	}
	return nil, ErrMissing
}

func (a *atlas) Keys(queue string) ([]string, error) { return a.keys[queue], nil }

func TestTopicMatches(t *testing.T) {
	// Measured on RabbitMQ 3.10 and 4.0: an empty key has no word, "." has two.
	for _, c := range []struct {
		binding, key string
		want         bool
	}{
		{"*", "", false}, {"#", "", true}, {"*.#", "", false}, {"", "", true}, {"*.*", "", false},
		{"*", ".", false}, {"#", ".", true}, {"*.#", ".", true}, {"", ".", false}, {"*.*", ".", true},
		{"*", "a", true}, {"a.#.b", "a.b", true}, {"a.#.b", "a.x.y.b", true}, {"a.*.b", "a.b", false}, {"A", "a", false},
	} {
		if got := TopicMatches(c.binding, c.key); got != c.want {
			t.Errorf("binding %q, key %q: %v, want %v", c.binding, c.key, got, c.want)
		}
	}
}

func TestReach(t *testing.T) {
	long := []Exchange{}
	for i := range maxHops + 1 {
		long = append(long, Exchange{Name: fmt.Sprint("hop", i), Type: "fanout", Bindings: []Binding{{Exchange: fmt.Sprint("hop", i+1)}}})
	}
	a := &atlas{queues: []Queue{NewQueue("a"), NewQueue("b")}, exchanges: append(long,
		Exchange{Name: "direct", Type: "direct", Bindings: []Binding{{Queue: "a", Key: "k"}, {Queue: "a", Key: "k"}, {Queue: "b", Key: "l"}}},
		Exchange{Name: "ring", Type: "fanout", Bindings: []Binding{{Exchange: "ring"}, {Exchange: "direct"}}},
		Exchange{Name: "gone", Type: "fanout", Bindings: []Binding{{Exchange: "absent"}, {Queue: "b"}}},
		Exchange{Name: "spare", Type: "direct", Alternate: "direct", Bindings: []Binding{{Queue: "b", Key: "own"}}},
		Exchange{Name: "lost", Type: "direct", Alternate: "absent"},
		Exchange{Name: "half", Type: "direct", Incomplete: "policies are secret", Bindings: []Binding{{Queue: "b", Key: "own"}}},
		Exchange{Name: "heads", Type: "headers", Bindings: []Binding{{Queue: "a", Arguments: true}}},
		Exchange{Name: "no heads", Type: "headers"},
		Exchange{Name: "dark", Type: "fanout", Bindings: []Binding{{Exchange: "?"}}},
	)}
	for _, c := range []struct {
		exchange, key string
		queues, via   []string
		err           string
	}{
		{"", "a", []string{"a"}, nil, ""},
		{"", "absent", []string{}, nil, ""},
		{"", "?", nil, nil, "dark"},
		{"direct", "k", []string{"a"}, nil, ""},
		{"direct", "other", []string{}, nil, ""},
		{"absent", "k", nil, nil, ErrMissing.Error()},
		{"ring", "l", []string{"b"}, nil, ""},
		{"gone", "", []string{"b"}, nil, ""},
		{"spare", "own", []string{"b"}, nil, ""},
		{"spare", "k", []string{"a"}, []string{"direct"}, ""},
		{"lost", "k", []string{}, []string{"absent"}, ""},
		{"half", "own", []string{"b"}, nil, ""},
		{"half", "k", nil, nil, "policies are secret"},
		{"heads", "k", nil, nil, "of type headers"},
		{"no heads", "k", []string{}, nil, ""},
		{"dark", "k", nil, nil, "dark"},
		{"hop0", "k", nil, nil, "more than 100 exchanges"},
	} {
		r, err := Reach(a, c.exchange, c.key)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s %q: error %v, want %q", c.exchange, c.key, err, c.err)
			continue
		}
		if diff := cmp.Diff(c.queues, r.Queues); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s", c.exchange, c.key, diff)
		}
		if !slices.Equal(c.via, r.Alternates) {
			t.Errorf("%s %q goes by %v, want %v", c.exchange, c.key, r.Alternates, c.via)
		}
	}
	for exchange, want := range map[string]bool{"direct": true, "ring": true, "lost": false, "heads": true, "": true} {
		if ok, err := Leads(a, exchange, "a"); ok != want || err != nil {
			t.Errorf("%q leads to a: %v, %v; want %v", exchange, ok, err, want)
		}
	}
}

// What is not known is never told as if it were.
func TestUnknownIsNoVerdict(t *testing.T) {
	a := &atlas{queues: []Queue{NewQueue("dead")}, exchanges: []Exchange{{Name: "heads", Type: "headers", Bindings: []Binding{{Queue: "dead", Arguments: true}}}}}
	limited := NewQueue("limited")
	limited.Kind, limited.DeliveryLimit, limited.Incomplete = Quorum, 5, "too young"
	for _, f := range AsSource(&limited) {
		if f.Severity != quarantine.Unknown {
			t.Errorf("a queue whose policies are not known: %+v", f)
		}
	}
	dark := NewQueue("dark")
	dark.DeadLetter = &DeadLetter{Exchange: "?", RoutingKey: "k", HasKey: true}
	heads := NewQueue("heads")
	heads.DeadLetter = &DeadLetter{Exchange: "heads", RoutingKey: "k", HasKey: true}
	fs := quarantine.SortFindings(Feeders(a, "dead", []Queue{limited, dark, heads}))
	if len(fs) != 1 || fs[0].Severity != quarantine.Unknown || fs[0].Code != quarantine.FoundFeedersUnknown || !strings.Contains(fs[0].Text, "limited, dark, heads") {
		t.Errorf("feeders %+v", fs)
	}
	for _, f := range DeadLetters(a, &dark) {
		if f.Severity != quarantine.Unknown {
			t.Errorf("a dead-letter exchange that cannot be looked at: %+v", f)
		}
	}
	if receivers, fs := Target(a, "?", "k"); receivers != nil || len(fs) != 1 || fs[0].Severity != quarantine.Unknown {
		t.Errorf("receivers %v, %+v", receivers, fs)
	}
	for i := range 12 {
		q := NewQueue(fmt.Sprint("astray", i))
		q.DeadLetter = &DeadLetter{Exchange: "absent"}
		a.queues = append(a.queues, q)
	}
	fs = Feeders(a, "dead", a.queues)
	if len(fs) != 1 || !strings.Contains(fs[0].Text, "astray4 and 7 more") {
		t.Errorf("many queues without a way for dead letters: %+v", fs)
	}
}

// What only plugins make, and what cannot be told, as destinations.
func TestTarget(t *testing.T) {
	safe := NewQueue("safe")
	safe.DeadLetter = &DeadLetter{RoutingKey: "safe", HasKey: true}
	change := func(name string, f func(*Queue)) Queue {
		q := safe
		q.Name = name
		f(&q)
		return q
	}
	a := &atlas{
		queues: []Queue{
			safe,
			change("dedup", func(q *Queue) { q.Deduplicates = true }),
			change("fleeting", func(q *Queue) { q.AutoDelete = true }),
			change("own", func(q *Queue) { q.Exclusive = true }),
			change("transient", func(q *Queue) { q.Durable = false }),
			change("expiring", func(q *Queue) { q.Expires = 1 }),
			change("down", func(q *Queue) { q.State = "down" }),
			change("stuck", func(q *Queue) { q.Stuck = 7 }),
			change("young", func(q *Queue) { q.DeadLetter, q.Incomplete = nil, "too young" }),
			change("rejects", func(q *Queue) { q.DeadLetter, q.MaxBytes, q.Overflow = nil, 10, RejectPublishDLX }),
		},
		exchanges: []Exchange{
			{Name: "delayed", Type: "x-delayed-message", Bindings: []Binding{{Queue: "safe", Key: "k"}}},
			{Name: "seen", Type: "x-message-deduplication", Bindings: []Binding{{Queue: "safe", Key: "k"}}},
			{Name: "inner", Type: "direct", Internal: true, Bindings: []Binding{{Queue: "safe", Key: "k"}}},
			{Name: "secret", Type: "direct", Incomplete: "no permission", Bindings: []Binding{{Queue: "safe", Key: "k"}}},
			{Name: "half", Type: "direct", Bindings: []Binding{{Queue: "gone", Key: "k"}, {Queue: "safe", Key: "k"}}},
			{Name: "wide", Type: "fanout"},
		},
	}
	for i := range maxReceivers + 5 {
		q := change(fmt.Sprintf("q%02d", i), func(q *Queue) { q.Durable = false })
		a.queues = append(a.queues, q)
		a.exchanges[5].Bindings = append(a.exchanges[5].Bindings, Binding{Queue: q.Name})
	}
	for _, c := range []struct {
		exchange, key string
		receivers     []string
		want          []string
	}{
		{"", "safe", []string{"safe"}, nil},
		{"", "dedup", []string{"dedup"}, []string{"loses deduplication dedup"}},
		{"", "fleeting", []string{"fleeting"}, []string{"loses auto_delete fleeting"}},
		{"", "own", []string{"own"}, []string{"loses exclusive own"}},
		{"", "transient", []string{"transient"}, []string{"loses not_durable transient"}},
		{"", "expiring", []string{"expiring"}, []string{"loses queue_expires expiring"}},
		{"", "down", []string{"down"}, []string{"risks queue_state down"}},
		{"", "stuck", []string{"stuck"}, []string{"risks dead_letters_stuck stuck"}},
		{"", "young", []string{"young"}, []string{"unknown not_inspected young"}},
		{"", "rejects", []string{"rejects"}, []string{"loses no_dlx rejects", "risks length_reject_publish rejects"}},
		{"delayed", "k", nil, []string{"risks delayed_exchange delayed", "unknown receivers_unknown delayed"}},
		{"seen", "k", nil, []string{"loses deduplication seen", "unknown receivers_unknown seen"}},
		{"inner", "k", []string{"safe"}, []string{"blocks internal_exchange inner"}},
		{"secret", "k", []string{"safe"}, []string{"unknown alternate_exchange secret"}},
		{"half", "k", []string{"gone", "safe"}, nil}, // deleted between two questions
	} {
		receivers, found := Target(a, c.exchange, c.key)
		if diff := cmp.Diff(c.receivers, receivers); diff != "" {
			t.Errorf("receivers of %s %s (-want +got):\n%s", c.exchange, c.key, diff)
		}
		var got []string
		for _, f := range quarantine.SortFindings(found) {
			got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Subject))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.exchange, c.key, diff)
		}
	}
	if receivers, found := Target(a, "wide", ""); len(receivers) != maxReceivers+5 || len(found) != maxReceivers {
		t.Errorf("%d receivers, %d findings; want all receivers, and %d looked at", len(receivers), len(found), maxReceivers)
	}
}
