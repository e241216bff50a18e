package management

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Table is what RabbitMQ calls arguments or a policy's definition.
type Table map[string]any

// UnmarshalJSON implements json.Unmarshaler. An empty table comes as an object,
// or from some versions as an empty list or text; null stays nil. Numbers keep
// all their digits.
func (t *Table) UnmarshalJSON(b []byte) error {
	switch string(bytes.TrimSpace(b)) {
	case "null":
		return nil
	case "[]", `""`:
		*t = Table{}
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode((*map[string]any)(t))
}

// Int returns a whole number.
func (t Table) Int(name string) (int64, bool) {
	n, ok := t[name].(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

// Text returns a string.
func (t Table) Text(name string) (string, bool) {
	s, ok := t[name].(string)
	return s, ok
}

// True reports whether a value is the boolean true.
func (t Table) True(name string) bool {
	b, ok := t[name].(bool)
	return ok && b
}

// Word is a string; a value of another form, which some versions have there,
// is "".
type Word string

// UnmarshalJSON implements json.Unmarshaler.
func (w *Word) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*w = Word(s)
	}
	return nil
}

// Queue is what the API says about a queue.
type Queue struct {
	Name       string `json:"name"`
	VHost      string `json:"vhost"`
	Type       string `json:"type"` // classic, quorum, stream
	Durable    bool   `json:"durable"`
	AutoDelete bool   `json:"auto_delete"`
	Exclusive  bool   `json:"exclusive"`
	Arguments  Table  `json:"arguments"`
	State      Word   `json:"state"`

	// Effective is what policy and operator policy come to, nil while the
	// statistics of the queue are not there.
	Effective Table `json:"effective_policy_definition"`
	Consumers *int  `json:"consumers"`      // nil while not there
	Ready     *int  `json:"messages_ready"` // nil while not there
	// DeadLettering counts dead messages that wait inside a quorum queue.
	DeadLettering int64 `json:"messages_dlx"`
	// ExclusiveConsumer is the tag of a consumer that keeps all others out.
	ExclusiveConsumer Word `json:"exclusive_consumer_tag"`
	// Policy and OperatorPolicy are the names of those in force, "" for none.
	Policy         Word `json:"policy"`
	OperatorPolicy Word `json:"operator_policy"`
}

// Statistics reports whether policies and counts are known.
func (q *Queue) Statistics() bool { return q.Effective != nil }

// Exchange is what the API says about an exchange.
type Exchange struct {
	Name      string `json:"name"`
	VHost     string `json:"vhost"`
	Type      string `json:"type"`
	Internal  bool   `json:"internal"`
	Arguments Table  `json:"arguments"`
	Policy    Word   `json:"policy"` // name of the policy in force, "" for none
}

// Binding leads from an exchange to a queue or an exchange.
type Binding struct {
	Source          string `json:"source"`
	VHost           string `json:"vhost"`
	Destination     string `json:"destination"`
	DestinationType string `json:"destination_type"` // queue, exchange
	Key             string `json:"routing_key"`
	Arguments       Table  `json:"arguments"`
}

// Overview says which broker this is.
type Overview struct {
	Product string `json:"product_name"`
	Version string `json:"product_version"`
	Cluster string `json:"cluster_name"`
}

// Overview asks which broker this is.
func (m *Client) Overview(ctx context.Context) (Overview, error) {
	var o Overview
	err := m.get(ctx, &o, "columns=product_name,product_version,cluster_name", "overview")
	if err == nil && o.Cluster == "" {
		err = fmt.Errorf("%w: it does not name the cluster", ErrAnswer)
	}
	return o, err
}

// columns are the fields of Queue.
const columns = "name,vhost,type,durable,auto_delete,exclusive,arguments,state,effective_policy_definition," +
	"consumers,messages_ready,messages_dlx,exclusive_consumer_tag,policy,operator_policy"

// Queue asks for one queue.
func (m *Client) Queue(ctx context.Context, vhost, name string) (*Queue, error) {
	var q Queue
	if err := m.get(ctx, &q, "columns="+columns, "queues", vhost, name); err != nil {
		return nil, err
	}
	return &q, same("queue", q.Name, name, q.VHost, vhost)
}

func same(what, name, wanted, vhost, in string) error {
	if name != wanted || vhost != in {
		return fmt.Errorf("%w: it is about another %s", ErrAnswer, what)
	}
	return nil
}

// pageSize is the most that one page of a list holds.
const pageSize = 500

// Queues lists the queues of a vhost, ordered by name, up to limit. more tells
// that there are others.
func (m *Client) Queues(ctx context.Context, vhost string, limit int) (all []Queue, more bool, err error) {
	for page, pages := 1, 1; page <= pages; page++ {
		var answer struct {
			Items *[]Queue `json:"items"`
			Pages int      `json:"page_count"`
		}
		query := url.Values{"columns": {columns}, "page": {strconv.Itoa(page)}, "page_size": {strconv.Itoa(pageSize)}, "sort": {"name"}}
		if err := m.get(ctx, &answer, query.Encode(), "queues", vhost); err != nil {
			return nil, false, err
		}
		if answer.Items == nil {
			return nil, false, fmt.Errorf("%w: it lists no queues", ErrAnswer)
		}
		all, pages = append(all, *answer.Items...), answer.Pages
		if len(all) > limit || len(all) == limit && page < pages {
			return all[:limit], true, nil
		}
	}
	return all, false, nil
}

// Exchange asks for one exchange, which is not the default one: that has no
// name.
func (m *Client) Exchange(ctx context.Context, vhost, name string) (*Exchange, error) {
	var x Exchange
	if err := m.get(ctx, &x, "", "exchanges", vhost, name); err != nil {
		return nil, err
	}
	return &x, same("exchange", x.Name, name, x.VHost, vhost)
}

// BindingsFrom lists the bindings that lead away from an exchange.
func (m *Client) BindingsFrom(ctx context.Context, vhost, exchange string) ([]Binding, error) {
	var all []Binding
	err := m.get(ctx, &all, "", "exchanges", vhost, exchange, "bindings", "source")
	return all, err
}

// BindingsTo lists the bindings that lead to a queue, that of the default
// exchange among them.
func (m *Client) BindingsTo(ctx context.Context, vhost, queue string) ([]Binding, error) {
	var all []Binding
	err := m.get(ctx, &all, "", "queues", vhost, queue, "bindings")
	return all, err
}

// Policies returns the definitions of a vhost's policies by name.
func (m *Client) Policies(ctx context.Context, vhost string) (map[string]Table, error) {
	var all []struct {
		Name       string `json:"name"`
		Definition Table  `json:"definition"`
	}
	if err := m.get(ctx, &all, "", "policies", vhost); err != nil {
		return nil, err
	}
	out := make(map[string]Table, len(all))
	for _, p := range all {
		out[p.Name] = p.Definition
	}
	return out, nil
}

// Prefetches asks for the prefetch of each consumer of a queue, 0 for one that
// has no limit of its own. It is nil when the broker's statistics do not tell.
func (m *Client) Prefetches(ctx context.Context, vhost, name string) ([]int, error) {
	var q struct {
		Name, VHost string
		Consumers   *[]struct {
			Prefetch int `json:"prefetch_count"`
		} `json:"consumer_details"`
	}
	if err := m.get(ctx, &q, "columns=name,vhost,consumer_details.prefetch_count", "queues", vhost, name); err != nil {
		return nil, err
	}
	if err := same("queue", q.Name, name, q.VHost, vhost); err != nil || q.Consumers == nil {
		return nil, err
	}
	out := make([]int, 0, len(*q.Consumers))
	for _, c := range *q.Consumers {
		out = append(out, c.Prefetch)
	}
	return out, nil
}

// tags are those of a user: a list, or before 3.9 a text with commas.
type tags []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *tags) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*t = strings.Split(text, ",")
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// SetsPolicies asks whether the user may set policies in vhosts that are open
// to it.
func (m *Client) SetsPolicies(ctx context.Context) (bool, error) {
	var who struct {
		Tags tags `json:"tags"`
	}
	err := m.get(ctx, &who, "", "whoami")
	return slices.Contains(who.Tags, "administrator") || slices.Contains(who.Tags, "policymaker"), err
}

// Policy is a policy for queues.
type Policy struct {
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Priority   int            `json:"priority"`
	Definition map[string]any `json:"definition"`
}

// SetPolicy makes a policy, or replaces the one of that name.
func (m *Client) SetPolicy(ctx context.Context, vhost, name string, p Policy) error {
	return m.put(ctx, p, "policies", vhost, name)
}
