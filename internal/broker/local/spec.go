package local

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/redrivehq/redrive/quarantine"
)

// QueueSpec describes a queue. Queues are durable; a specification never
// changes once declared.
type QueueSpec struct {
	Name string `json:"name"` // 1 to 255 bytes
	// DeadLetter is where rejected, expired and surplus messages go. Nil drops
	// them.
	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`
	// MessageTTL is how long a message may wait; the message's own expiration
	// counts when it is shorter. 0 is for ever, otherwise at least 1 ms.
	MessageTTL time.Duration `json:"message_ttl,omitempty"`
	// DeliveryLimit is how often a message may be redelivered: it is handed out
	// DeliveryLimit + 1 times. 0 is without limit.
	DeliveryLimit int `json:"delivery_limit,omitempty"`
	// MaxLength is the most messages that may be ready. 0 is without limit.
	MaxLength int `json:"max_length,omitempty"`
	// Overflow says what gives way when the queue is full. Defaults to
	// RejectPublish.
	Overflow Overflow `json:"overflow,omitempty"`
}

// DeadLetter is the target of dead letters.
type DeadLetter struct {
	Exchange   string `json:"exchange"`    // "" is the default exchange
	RoutingKey string `json:"routing_key"` // "" keeps the message's own
}

// ToQueue sends dead letters to one queue by name.
func ToQueue(name string) *DeadLetter { return &DeadLetter{RoutingKey: name} }

// Overflow is what a full queue does.
type Overflow string

// The two ways to overflow.
const (
	RejectPublish Overflow = "reject-publish" // the new message is nacked
	DropHead      Overflow = "drop-head"      // the oldest is dead-lettered, reason maxlen
)

// ExchangeSpec describes an exchange.
type ExchangeSpec struct {
	Name string `json:"name"` // 1 to 255 bytes
	Kind Kind   `json:"kind"`
}

// Kind is how an exchange routes.
type Kind string

// The kinds of exchanges. In a topic, "*" stands for one word and "#" for any
// number of words between dots.
const (
	Direct Kind = "direct"
	Fanout Kind = "fanout"
	Topic  Kind = "topic"
)

// Binding leads from an exchange to a queue.
type Binding struct {
	Exchange string `json:"exchange"`
	Queue    string `json:"queue"`
	Key      string `json:"key"`
}

func (s QueueSpec) withDefaults() QueueSpec {
	if s.Overflow == "" {
		s.Overflow = RejectPublish
	}
	return s
}

func (s QueueSpec) validate() error {
	switch {
	case !validName(s.Name):
		return fmt.Errorf("%w: queue name must have 1 to 255 bytes", ErrSpec)
	case s.MessageTTL < 0 || s.MessageTTL > 0 && s.MessageTTL < time.Millisecond:
		return fmt.Errorf("%w: queue %q: message TTL must be 0 or at least 1 ms", ErrSpec, s.Name)
	case s.DeliveryLimit < 0 || s.MaxLength < 0:
		return fmt.Errorf("%w: queue %q: limits must not be negative", ErrSpec, s.Name)
	case s.Overflow != RejectPublish && s.Overflow != DropHead:
		return fmt.Errorf("%w: queue %q: overflow must be %s or %s", ErrSpec, s.Name, RejectPublish, DropHead)
	case s.DeadLetter != nil && (len(s.DeadLetter.Exchange) > 255 || len(s.DeadLetter.RoutingKey) > 255):
		return fmt.Errorf("%w: queue %q: dead-letter names must have at most 255 bytes", ErrSpec, s.Name)
	}
	return nil
}

func (s QueueSpec) equal(o QueueSpec) bool {
	if (s.DeadLetter == nil) != (o.DeadLetter == nil) || s.DeadLetter != nil && *s.DeadLetter != *o.DeadLetter {
		return false
	}
	s.DeadLetter, o.DeadLetter = nil, nil
	return s == o
}

func (s ExchangeSpec) validate() error {
	if !validName(s.Name) {
		return fmt.Errorf("%w: exchange name must have 1 to 255 bytes", ErrSpec)
	}
	if !slices.Contains([]Kind{Direct, Fanout, Topic}, s.Kind) {
		return fmt.Errorf("%w: exchange %q: kind must be %s, %s or %s", ErrSpec, s.Name, Direct, Fanout, Topic)
	}
	return nil
}

func validName(s string) bool { return s != "" && len(s) <= 255 }

// Declare makes a queue. It is idempotent; ErrSpec is returned when the queue
// exists with another specification.
func (b *Broker) Declare(ctx context.Context, s QueueSpec) error {
	s = s.withDefaults()
	if err := s.validate(); err != nil {
		return err
	}
	return b.do(ctx, func(t *turn) error {
		if q := b.queues[s.Name]; q != nil {
			if !q.spec.equal(s) {
				return fmt.Errorf("%w: queue %q exists with other properties", ErrSpec, s.Name)
			}
			return nil
		}
		t.addQueue(s)
		return nil
	})
}

// DeclareExchange makes an exchange, like Declare a queue.
func (b *Broker) DeclareExchange(ctx context.Context, s ExchangeSpec) error {
	if err := s.validate(); err != nil {
		return err
	}
	return b.do(ctx, func(t *turn) error {
		if x := b.exchanges[s.Name]; x != nil {
			if x.spec != s {
				return fmt.Errorf("%w: exchange %q exists as %s", ErrSpec, s.Name, x.spec.Kind)
			}
			return nil
		}
		b.exchanges[s.Name] = &exchange{spec: s}
		t.putJSON(bucketExchanges, []byte(s.Name), s)
		return nil
	})
}

// Bind leads messages of an exchange to a queue. It is idempotent. ErrSpec is
// returned when the exchange does not exist, quarantine.ErrQueueMissing when
// the queue does not.
func (b *Broker) Bind(ctx context.Context, bd Binding) error {
	if len(bd.Key) > 255 {
		return fmt.Errorf("%w: binding key must have at most 255 bytes", ErrSpec)
	}
	return b.do(ctx, func(t *turn) error {
		x := b.exchanges[bd.Exchange]
		if x == nil {
			return fmt.Errorf("%w: exchange %q does not exist", ErrSpec, bd.Exchange)
		}
		if b.queues[bd.Queue] == nil {
			return missing(bd.Queue)
		}
		if slices.Contains(x.bindings, bd) {
			return nil
		}
		x.bindings = append(x.bindings, bd)
		t.putJSON(bucketBindings, t.json(bd), nil)
		return nil
	})
}

// DeleteQueue removes a queue with its messages and bindings. Its consumers
// are lost with quarantine.ErrQueueMissing.
func (b *Broker) DeleteQueue(ctx context.Context, name string) error {
	return b.do(ctx, func(t *turn) error {
		q := b.queues[name]
		if q == nil {
			return missing(name)
		}
		t.dropQueue(q)
		return nil
	})
}

func missing(queue string) error {
	return fmt.Errorf("queue %q: %w", queue, quarantine.ErrQueueMissing)
}

// storedQueue is a QueueSpec with the number that names its messages.
type storedQueue struct {
	QueueSpec
	Number uint32 `json:"number"`
}

// json encodes v, which always can be.
func (t *turn) json(v any) []byte {
	raw, err := json.Marshal(v)
	t.note(err)
	return raw
}
