package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/management"
	"github.com/redrivehq/redrive/internal/broker/topology"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// Inspect implements quarantine.Source. Without a management API it knows what
// AMQP tells, and says what it does not know.
func (s *Source) Inspect(ctx context.Context, queue string) (quarantine.Inspection, error) {
	d, err := s.Depth(ctx, queue)
	if err != nil {
		return quarantine.Inspection{}, err
	}
	out := quarantine.Inspection{Queue: queue, Kind: d.Kind, Consumers: d.Consumers, At: d.At}
	var found []quarantine.Finding
	err = s.survey.look(ctx, func(c *chart) error {
		q, err := c.Queue(queue)
		if errors.Is(err, topology.ErrMissing) {
			err = fmt.Errorf("it knows no queue %q", queue)
		}
		if err != nil {
			return err
		}
		out.Kind, out.Consumers = q.Kind, consumers(q, out.Consumers)
		found = append(topology.AsSource(q), topology.DeadLetters(c, q)...)
		found = append(found, c.feeders(queue)...)
		return nil
	})
	if err != nil {
		found = append(kindOnly(queue, out.Kind), notInspected(err))
	}
	out.Findings = quarantine.SortFindings(found)
	return out, nil
}

// feeders judges the queues of the vhost that feed a queue.
func (c *chart) feeders(queue string) []quarantine.Finding {
	all, err := c.list()
	if err != nil {
		return []quarantine.Finding{{Code: quarantine.FoundFeedersUnknown, Severity: quarantine.Unknown,
			Text: "which queues dead-letter to the captured ones is not known: " + err.Error()}}
	}
	found := topology.Feeders(c, queue, all)
	if c.more {
		found = append(found, quarantine.Finding{Code: quarantine.FoundFeedersUnknown, Severity: quarantine.Unknown,
			Text: fmt.Sprintf("the vhost has more than %d queues; what the others dead-letter is not known", maxSurveyed)})
	}
	return found
}

// judge adds to a route what the broker does with what it takes there.
func (r *Releaser) judge(ctx context.Context, d redrive.Destination, route *redrive.Route) {
	err := r.survey.look(ctx, func(c *chart) error {
		route.Receivers, route.Findings = topology.Target(c, d.Exchange, d.RoutingKey)
		if q, err := c.Queue(d.RoutingKey); err == nil && d.SingleQueue() {
			route.Kind, route.Consumers = q.Kind, consumers(q, route.Consumers)
		}
		return nil
	})
	if err != nil {
		route.Findings = append(route.Findings, notInspected(err))
		if route.Kind == topology.Stream {
			route.Findings = append(route.Findings, topology.AsTarget(&topology.Queue{Name: d.RoutingKey, Kind: route.Kind})...)
		}
		if d.SingleQueue() {
			route.Receivers = []string{d.RoutingKey}
		}
	}
	route.Findings = quarantine.SortFindings(route.Findings)
}

// kindOnly judges a queue of which nothing but its kind is known.
func kindOnly(queue, kind string) []quarantine.Finding {
	switch kind {
	case topology.Stream:
		return topology.AsSource(&topology.Queue{Name: queue, Kind: kind})
	case topology.Quorum, "":
		return []quarantine.Finding{{Code: quarantine.FoundDeliveryLimit, Severity: quarantine.Unknown, Subject: queue,
			Text:   "if it is a quorum queue with a delivery limit, which from RabbitMQ 4.0 is 20 by default, and no dead-letter exchange, messages that were returned too often are dropped, and each lost connection returns all that was in flight",
			Advice: "keep prefetch small"}}
	}
	return nil
}

// consumers is the number that AMQP tells, which is too small for quorum queues
// before 4.3. What the management API tells is seconds old.
func consumers(q *topology.Queue, told int) int {
	if q.Kind == topology.Quorum {
		return max(told, q.Consumers)
	}
	return told
}

// notInspected says once for all of them which facts are not known, why, and
// how they can be. It is the same for every queue, so that it can be shown once.
func notInspected(why error) quarantine.Finding {
	f := quarantine.Finding{Code: quarantine.FoundNotInspected, Severity: quarantine.Unknown,
		Text: "limits, time-to-live, dead-letter ways, alternate exchanges and bindings are not known: " + why.Error()}
	switch {
	case errors.Is(why, errNotSet):
		f.Advice = "enable the plugin rabbitmq_management at the broker, give the user the tag management, and set broker.management to its address, such as http://127.0.0.1:15672"
	case errors.Is(why, management.ErrDenied):
		f.Advice = "give the user the tag management and permissions in the vhost, or set broker.management_user and broker.management_password_file"
	case errors.Is(why, management.ErrUnreachable):
		f.Advice = "check broker.management, and that the plugin rabbitmq_management is enabled"
	default:
		f.Advice = "check broker.management"
	}
	return f
}
