package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/management"
	"github.com/redrivehq/redrive/internal/broker/topology"
)

const (
	// lookWithin bounds all that is asked for one queue or one destination.
	lookWithin = 30 * time.Second
	// surveyAge is how long answers serve several looks. The statistics behind
	// them are as old.
	surveyAge = 5 * time.Second
	// maxSurveyed bounds the queues of a vhost that are looked at, and maxAsked
	// the questions that following their dead letters may take.
	maxSurveyed = 10_000
	maxAsked    = 500
)

// surveyor asks the management API and keeps what it said for a moment, so that
// several queues of one vhost are one survey.
type surveyor struct {
	cfg     *management.Config // nil: there is nobody to ask
	vhost   string
	major   int    // of RabbitMQ's version, 0 of another broker
	cluster string // what AMQP calls the broker
	age     time.Duration

	turn sync.Mutex
	api  *management.Client
	last *survey
	born time.Time
}

func newSurveyor(k *control) *surveyor {
	return &surveyor{cfg: k.cfg.Management, vhost: k.cfg.VHost, major: k.id.major(), cluster: k.id.cluster, age: surveyAge}
}

func (s *surveyor) close() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.api != nil {
		s.api.Close()
	}
}

// errNotSet is why nothing is known without an address.
var errNotSet = errors.New("broker.management is not set")

// look runs f with a survey. Looks take turns. The error is that of f, or says
// why nothing can be known.
func (s *surveyor) look(ctx context.Context, f func(*chart) error) error {
	if s.cfg == nil {
		return errNotSet
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.api == nil {
		api, err := management.New(*s.cfg)
		if err != nil {
			return err
		}
		s.api = api
	}
	if s.last == nil || time.Since(s.born) >= s.age {
		fresh := &survey{queues: map[string]answer[*topology.Queue]{}, exchanges: map[string]answer[*topology.Exchange]{}, keys: map[string]answer[[]string]{}}
		if err := s.recognise(ctx); err != nil {
			return err
		}
		s.last, s.born = fresh, time.Now()
	}
	return f(&chart{s: s, survey: s.last, ctx: ctx})
}

// recognise makes sure that the management API is that of the broker that AMQP
// is connected to.
func (s *surveyor) recognise(ctx context.Context) error {
	o, err := s.api.Overview(ctx)
	if err == nil && s.cluster != "" && o.Cluster != s.cluster {
		err = fmt.Errorf("it is that of cluster %q, and the broker is cluster %q", cut(o.Cluster), cut(s.cluster))
	}
	return err
}

// answer is what was found out, or why it was not.
type answer[T any] struct {
	value T
	err   error
}

// survey is what the management API said.
type survey struct {
	asked     int
	queues    map[string]answer[*topology.Queue]
	exchanges map[string]answer[*topology.Exchange]
	keys      map[string]answer[[]string]
	policies  map[string]management.Table // nil while not asked for
	all       []topology.Queue            // nil while not asked for
	more      bool                        // there are more than all
}

// chart is a survey as a topology.Map, which asks for what is not there yet.
type chart struct {
	s *surveyor
	*survey
	ctx context.Context //nolint:containedctx // the life of one look
}

var _ topology.Map = (*chart)(nil)

var errTooMany = fmt.Errorf("following all dead letters of the vhost takes more than %d questions", maxAsked)

// once returns what is known under name, asking for it when nothing is.
func once[T any](c *chart, known map[string]answer[T], name string, ask func() (T, error)) (T, error) {
	if a, ok := known[name]; ok {
		return a.value, a.err
	}
	var a answer[T]
	if c.asked == maxAsked {
		return a.value, errTooMany
	}
	c.asked++
	a.value, a.err = ask()
	if errors.Is(a.err, management.ErrNotFound) {
		a.err = topology.ErrMissing
	}
	if c.ctx.Err() == nil { // what failed because the caller went away is asked again
		known[name] = a
	}
	return a.value, a.err
}

// Queue implements topology.Map.
func (c *chart) Queue(name string) (*topology.Queue, error) {
	return once(c, c.queues, name, func() (*topology.Queue, error) {
		q, err := c.s.api.Queue(c.ctx, c.s.vhost, name)
		if err != nil {
			return nil, err
		}
		f := inForce(q, c.s.major)
		return &f, nil
	})
}

// Exchange implements topology.Map.
func (c *chart) Exchange(name string) (*topology.Exchange, error) {
	return once(c, c.exchanges, name, func() (*topology.Exchange, error) {
		x, err := c.s.api.Exchange(c.ctx, c.s.vhost, name)
		if err != nil {
			return nil, err
		}
		bindings, err := c.s.api.BindingsFrom(c.ctx, c.s.vhost, name)
		if err != nil {
			return nil, err
		}
		f := &topology.Exchange{Name: x.Name, Type: x.Type, Internal: x.Internal}
		for _, b := range bindings {
			to := topology.Binding{Key: b.Key, Arguments: len(b.Arguments) > 0}
			if b.DestinationType == "exchange" {
				to.Exchange = b.Destination
			} else {
				to.Queue = b.Destination
			}
			f.Bindings = append(f.Bindings, to)
		}
		c.alternate(x, f)
		return f, nil
	})
}

// alternate finds the alternate exchange: that of the arguments, else that of
// the policy in force.
func (c *chart) alternate(x *management.Exchange, f *topology.Exchange) {
	const name = "alternate-exchange"
	if own, ok := x.Arguments.Text(name); ok {
		f.Alternate = own
		return
	}
	if x.Policy == "" {
		return
	}
	if c.policies == nil {
		p, err := c.s.api.Policies(c.ctx, c.s.vhost)
		if err != nil {
			f.Incomplete = err.Error()
			return
		}
		c.policies = p
	}
	f.Alternate, _ = c.policies[string(x.Policy)].Text(name)
}

// Keys implements topology.Map.
func (c *chart) Keys(queue string) ([]string, error) {
	return once(c, c.keys, queue, func() ([]string, error) {
		bindings, err := c.s.api.BindingsTo(c.ctx, c.s.vhost, queue)
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, b := range bindings {
			// A key with a wildcard is a pattern only in a topic, but a key like
			// that is rare elsewhere; a fanout's key means nothing.
			if b.Source == "" || strings.ContainsAny(b.Key, "*#") {
				continue
			}
			if x, err := c.Exchange(b.Source); err == nil && (x.Type == "direct" || x.Type == "topic") {
				seen[b.Key] = true
			}
		}
		if len(bindings) == 1 && bindings[0].Source == "" {
			seen[queue] = true // through the default exchange only
		}
		return slices.Sorted(maps.Keys(seen)), nil
	})
}

// list is every queue of the vhost, up to maxSurveyed.
func (c *chart) list() ([]topology.Queue, error) {
	if c.all != nil {
		return c.all, nil
	}
	found, more, err := c.s.api.Queues(c.ctx, c.s.vhost, maxSurveyed)
	if err != nil {
		return nil, err
	}
	all := make([]topology.Queue, 0, len(found))
	for i := range found {
		f := inForce(&found[i], c.s.major)
		all = append(all, f)
		c.queues[f.Name] = answer[*topology.Queue]{value: &f}
	}
	c.all, c.more = all, more
	return all, nil
}
