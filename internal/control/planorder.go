package control

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// maxGapExamples bounds the envelopes that a plan shows before which messages
// are missing.
const maxGapExamples = 20

// order puts the members into the order of their keys, when the plan or its
// destination says so.
func (p *planning) order(set *config.Destination) error {
	r, m := &p.req, &p.m
	m.Order = either(either(r.Order, set.Order), redrive.OrderNone)
	if err := config.CheckOrder(m.Order, either(r.OnFailure, set.OnFailure)); err != nil {
		return usage(err)
	}
	if m.Order == redrive.OrderNone {
		if r.OnFailure != "" {
			return usage(errors.New("--on-failure says what a failure does to the rest of its key: it needs --order per-key"))
		}
		return nil
	}
	m.OnFailure = either(either(r.OnFailure, set.OnFailure), redrive.OnFailureBlock)
	if m.Evidence == redrive.EvidenceReturns {
		return usage(errors.New("--order per-key waits for the outcome of each message before the next one of its key, and under evidence returns_only none is ever reported; have the consumer report and plan with --evidence outcomes, or plan with --order none"))
	}
	members, err := p.keyed()
	if err != nil {
		return err
	}
	passed, err := p.passed(members)
	if err != nil {
		return err
	}
	p.keys = redrive.OrderKeys(members, passed)
	if m.OnFailure == redrive.OnFailureContinue && p.keys.Unproven > 0 {
		return usage(fmt.Errorf("--on-failure continue needs a sequence number in every message that has an ordering key, so that gaps are explicit; %d of %d have none: see identity.sequence in the configuration, or choose block, park or rebuild", p.keys.Unproven, p.keys.Keyed))
	}
	p.rearrange(p.keys.Members)
	m.Heads = p.keys.Heads
	p.warnOrder()
	return nil
}

func (p *planning) warnOrder() {
	k := p.keys
	if k.Keyed == 0 && k.Heads > 0 {
		p.warn = append(p.warn, "no member has an ordering key: nothing is ordered; see identity.ordering_key in the configuration")
	}
	if n := k.Keys - k.Numeric; n > 0 {
		p.warn = append(p.warn, fmt.Sprintf("%d keys have messages without a sequence number: they go in the order of their capture, and gaps in them are unknown", n))
	}
	if k.Overtaken > 0 {
		p.warn = append(p.warn, fmt.Sprintf("%d keys are overtaken: a later message of theirs has been delivered already", k.Overtaken))
	}
	if p.m.Evidence == redrive.EvidenceReconcile {
		p.warn = append(p.warn, "order per-key under evidence reconcile: the next message of a key goes only after business data has proved the one before; until then it is missing, which is a failure")
	}
}

// keyed reads what the members, in capture order, say about order.
func (p *planning) keyed() ([]redrive.Keyed, error) {
	kinds := map[event.EnvelopeNo]uint64{}
	for i := range p.found {
		c := &p.found[i]
		kinds[c.No] = uint64(c.Cell.Reason)<<16 | uint64(c.Cell.Type)
	}
	list := make([]redrive.Keyed, 0, len(p.members))
	slices.Sort(p.members)
	err := p.eachMember(func(v ledger.View, no event.EnvelopeNo) error {
		f, err := factsNow(v, no)
		if err != nil {
			return err
		}
		list = append(list, redrive.Keyed{No: no, Key: f.OrderingKey, Sequence: f.Sequence, Kind: kinds[no]})
		return nil
	})
	return list, err
}

// passed collects which messages of the keys an earlier generation has
// delivered, as far as their outcomes are known.
func (p *planning) passed(members []redrive.Keyed) (redrive.Passed, error) {
	keys := map[string]bool{}
	for _, m := range members {
		if m.Key != "" {
			keys[m.Key] = true
		}
	}
	passed := redrive.Passed{}
	if len(keys) == 0 {
		return passed, nil
	}
	err := p.c.eachCell(factsPage, func(v ledger.View, no event.EnvelopeNo, cell *quarantine.Cell) error {
		if cell.Custody != event.ResolvedForNow || cell.Gen == 0 || cell.Flags.Has(quarantine.FlagSettledByPerson) {
			return nil
		}
		f, err := factsNow(v, no)
		if err == nil && keys[f.OrderingKey] {
			passed.Note(f.OrderingKey, f.Sequence)
		}
		return err
	})
	return passed, err
}

// rearrange gives the members another order. Duplicates follow their sibling.
func (p *planning) rearrange(members []event.EnvelopeNo) {
	at := make(map[event.EnvelopeNo]event.Position, len(members))
	for i, no := range members {
		at[no] = event.Position(i)
	}
	for i := range p.out {
		if p.out[i].Reason == redrive.ReasonDuplicate {
			p.out[i].Sibling = at[p.siblings[p.out[i].Env]]
		}
	}
	p.members = members
}

// noteSiblings keeps which member goes in the place of each duplicate, for as
// long as positions still change.
func (p *planning) noteSiblings() {
	p.siblings = map[event.EnvelopeNo]event.EnvelopeNo{}
	for _, x := range p.out {
		if x.Reason == redrive.ReasonDuplicate {
			p.siblings[x.Env] = p.members[x.Sibling]
		}
	}
}

// wireOrder is what a plan shows about order.
func (p *planning) wireOrder() *api.PlanOrder {
	out := &api.PlanOrder{Order: p.m.Order, OnFailure: p.m.OnFailure, Examples: []api.GapExample{}, Overtaken: "unknown"}
	k := p.keys
	if k == nil {
		return out
	}
	out.Keys, out.Keyed, out.Unordered, out.Numeric = k.Keys, k.Keyed, uint64(len(k.Members))-k.Keyed, k.Numeric
	out.Gaps, out.Unknown = k.Gaps, k.Unknown
	if k.Keys > 0 && k.Delivered == k.Keys || k.Overtaken > 0 {
		out.Overtaken = fmt.Sprint(k.Overtaken)
	}
	_ = p.c.log.View(func(v ledger.View) error { // examples are a courtesy
		for i, l := range k.Links {
			if l.Missing == 0 || l.Missing == redrive.UnknownGap {
				continue
			}
			if f, err := quarantine.GetFacts(v, k.Members[i]); err == nil {
				out.Examples = append(out.Examples, api.GapExample{Envelope: f.ID.String(), Missing: uint64(l.Missing)})
			}
			if len(out.Examples) == maxGapExamples {
				break
			}
		}
		return nil
	})
	return out
}

// doubt settles what becomes of members whose publish is in doubt.
func (p *planning) doubt(set *config.Destination, d redrive.Destination) error {
	r, m := &p.req, &p.m
	m.Ambiguity = either(either(r.Ambiguity, set.Ambiguity), redrive.AmbiguityHold)
	m.Inbox = uint64(time.Duration(set.Inbox.Horizon).Milliseconds())
	if r.RetryNacked {
		if !d.SingleQueue() {
			return usage(fmt.Errorf("--retry-nacked: a nack is definite only where one queue is the destination, not with %s: another queue may have taken the message", destinationText(d)))
		}
		m.RetryNacked = redrive.MaxNackRetries
	}
	switch {
	case m.Ambiguity != redrive.AmbiguityHold && m.Ambiguity != redrive.AmbiguityRetry:
		return usage(fmt.Errorf("ambiguity %.40q: want hold or retry", m.Ambiguity))
	case m.Inbox == 0 && m.Ambiguity == redrive.AmbiguityRetry:
		whither := "the destination"
		if d != (redrive.Destination{}) { // nothing died, or nothing is free: no queue is known yet
			whither = destinationText(d)
		}
		return usage(fmt.Errorf("--ambiguity retry may publish a message twice, so it needs a consumer that remembers message ids: declare inbox.horizon for %s, or plan with --ambiguity hold", whither))
	case m.Inbox == 0:
		return nil
	case m.Ambiguity == redrive.AmbiguityRetry && p.stays(redrive.ReasonBeyondHorizon) > 0:
		return usage(fmt.Errorf("--ambiguity retry: %d of the selected messages are older than nine tenths of the declared inbox horizon; the consumer may have forgotten them: plan younger ones apart, or plan with --ambiguity hold", p.stays(redrive.ReasonBeyondHorizon)))
	}
	return p.againstInbox()
}

// stays counts what is withheld for a reason.
func (p *planning) stays(reason string) (n int) {
	for _, x := range p.out {
		if x.Reason == reason {
			n++
		}
	}
	return n
}

// againstInbox holds the oldest member against what the consumer remembers.
func (p *planning) againstInbox() error {
	unnamed, example := 0, event.EnvelopeNo(0)
	err := p.eachMember(func(v ledger.View, no event.EnvelopeNo) error {
		f, err := quarantine.GetFacts(v, no)
		if err != nil {
			return err
		}
		if first := redrive.FirstAttempt(f); p.oldest.IsZero() || first.Before(p.oldest) {
			p.oldest = first
		}
		if f.MessageID == "" {
			unnamed++
			example = no
		}
		return nil
	})
	if err != nil || p.m.Ambiguity != redrive.AmbiguityRetry || len(p.members) == 0 {
		return err
	}
	if unnamed > 0 {
		return usage(fmt.Errorf("--ambiguity retry: %d members have no message id, by which the consumer would know them again (envelope #%d is one); leave them out, or plan with --ambiguity hold", unnamed, example))
	}
	// The last member goes out when all before it have, and may be retried then.
	margin := redrive.RetryMargin + redrive.RetryAfter + p.expectedTime()
	horizon := time.Duration(p.m.Inbox) * time.Millisecond
	if !redrive.InboxHolds(p.now, p.oldest, horizon, margin) {
		return usage(fmt.Errorf("--ambiguity retry: the oldest message is from %s, %s ago, and the inbox is declared to remember %s, of which nine tenths count, with %s for the release itself; its consumer may have forgotten it: plan younger ones apart, or plan with --ambiguity hold",
			p.oldest.UTC().Format(time.RFC3339), p.now.Sub(p.oldest).Round(time.Second), horizon, margin.Round(time.Second)))
	}
	return nil
}

// expectedTime is how long the members take at the stated rate.
func (p *planning) expectedTime() time.Duration {
	if p.m.Limits.RateMilli == 0 {
		return 0
	}
	return time.Duration(len(p.members)) * time.Second * 1000 / time.Duration(p.m.Limits.RateMilli)
}

func (p *planning) wireDoubt() *api.PlanDoubt {
	out := &api.PlanDoubt{Policy: p.m.Ambiguity, RetryNacked: p.m.RetryNacked}
	if p.m.Inbox > 0 {
		out.Horizon = (time.Duration(p.m.Inbox) * time.Millisecond).String()
	}
	if !p.oldest.IsZero() {
		at := p.oldest.UTC()
		out.Oldest, out.OldestAge = &at, p.now.Sub(p.oldest).Round(time.Second).String()
	}
	return out
}
