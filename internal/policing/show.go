package policing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
)

// Show spells a policy out. Notes are those about the queues at a broker.
func Show(file string, p *policy.Policy, notes func(policy.Queue) []quarantine.Finding) api.PolicyShow {
	out := api.PolicyShow{File: file, Version: p.Version, DefaultOwner: cmp.Or(p.DefaultOwner, policy.Unassigned),
		Reasons: []api.PolicyReason{}, Rules: []api.PolicyRule{}, Masks: []api.PolicyMask{}, Queues: []api.PolicyQueue{}, Notes: []api.PolicyFinding{}}
	for _, name := range slices.Sorted(maps.Keys(p.Reasons)) {
		r := p.Reasons[name]
		class, owner := p.Classify(name)
		out.Reasons = append(out.Reasons, api.PolicyReason{Name: name, Class: class.String(), Action: does(r), Owner: owner, Codes: r.Codes})
	}
	if n := p.NeverRetry; len(n.Codes) > 0 {
		out.NeverRetry = &api.PolicyNeverRetry{Codes: n.Codes, Reason: n.Reason, Owner: cmp.Or(n.Owner, out.DefaultOwner)}
	}
	for _, r := range p.Rules {
		out.Rules = append(out.Rules, api.PolicyRule(r))
	}
	for _, m := range p.Masks {
		out.Masks = append(out.Masks, api.PolicyMask(m))
	}
	for i := range p.Queues {
		out.Queues = append(out.Queues, showQueue(&p.Queues[i]))
		out.Notes = append(out.Notes, findings(notes(p.Queues[i]))...)
	}
	for _, r := range p.Remarks() {
		out.Notes = append(out.Notes, api.PolicyFinding{Code: r.Code, Severity: string(quarantine.Risks), Subject: r.Subject, Text: r.Text, Advice: r.Advice})
	}
	return out
}

// does is what becomes of a message, also where the class alone decides.
func does(r policy.Reason) string {
	switch r.Class {
	case event.Systemic:
		return "wait"
	case event.BusinessRejection:
		return "acknowledge"
	}
	return string(r.Does())
}

func showQueue(q *policy.Queue) api.PolicyQueue {
	span := policy.Span
	out := api.PolicyQueue{
		Queue: q.Name, Kind: q.Kind, Replicas: q.Replicas, Prefetch: q.Prefetch, Retries: q.Retries, Runs: q.Runs(), DeliveryLimit: q.DeliveryLimit,
		MaxDeliveries: q.MaxDeliveries(), Jitter: q.Jitter, RetryMode: string(q.Mode), Ladder: []api.PolicyRung{}, LadderTime: span(q.Ladder()),
		OutcomeTime: span(q.OutcomeDeadline()), Quarantine: q.Quarantine, Retention: span(q.Retention), Schemas: q.Schemas,
		Headers: q.Headers.Keyed(), Words: q.Words.Keyed(), Operation: q.Operation,
		Alerts: api.PolicyAlertsLimits{For: span(q.Alerts.For), Depth: q.Alerts.Depth},
	}
	if q.Timeout > 0 {
		out.Timeout = span(q.Timeout)
	}
	if q.Horizon > 0 {
		out.Horizon = span(q.Horizon)
	}
	if o := q.Ordering; o.Key != "" {
		out.Ordering = &api.PolicyOrdering{Key: o.Key, Sequence: o.Sequence, OnFailure: o.OnFailure}
	}
	var sum time.Duration
	for run := 1; run <= q.Retries; run++ {
		sum += q.Delay(run)
		out.Ladder = append(out.Ladder, api.PolicyRung{Run: run, Arrives: run - 1, Queue: q.RetryQueueFor(run), Delay: span(q.Delay(run)),
			Earliest: span(q.DelayFor(run, 0)), Latest: span(q.DelayFor(run, 1)), Sum: span(sum)})
	}
	return out
}
