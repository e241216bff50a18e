package quarantine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Standing is what is said of an envelope: all of it may change after capture.
type Standing struct {
	Reason string
	Class  string // name of an event.Class
	Owner  string
}

// Reclassification is a change of what is said of an envelope.
type Reclassification struct {
	No      event.EnvelopeNo
	Was, Is Standing
}

// GetStanding returns what is said of an envelope now.
func GetStanding(r ledger.Reader, no event.EnvelopeNo) (Standing, error) {
	c, ok := GetCell(r, no)
	if !ok {
		return Standing{}, fmt.Errorf("envelope #%d: %w", no, ErrNoEnvelope)
	}
	return Standing{Reason: WordText(r, c.Reason), Class: c.Class.String(), Owner: WordText(r, c.Owner)}, nil
}

// Rejudge says what a policy says of an envelope that was captured under another
// one. The message is read again, with these rules; when its payload is gone, or
// when somebody has changed its reason since, that reason stays and class and
// owner follow from it. Of a purged one nothing changes.
func Rejudge(r ledger.Reader, keys Keys, blobs Blobs, no event.EnvelopeNo, rules *Rules, j *Judge) (Reclassification, error) {
	was, err := GetStanding(r, no)
	if err != nil {
		return Reclassification{}, err
	}
	out := Reclassification{No: no, Was: was, Is: was}
	c, _ := GetCell(r, no)
	if c.Custody == event.Purged {
		return out, nil
	}
	f, err := GetFacts(r, no)
	if err != nil {
		return out, err
	}
	now := *f
	if c.Flags.Has(PayloadGone) || was.Reason != f.Reason {
		byCode, _ := j.policy.ReasonOf(f.ErrorCode)
		now.Reason = was.Reason
		now.Class, now.Owner = j.policy.Classify(was.Reason, f.LastReason, byCode)
	} else {
		o, err := GetOriginal(r, keys, blobs, no)
		if err != nil {
			return out, err
		}
		v := amqpwire.Parse(o.Properties)
		now.DiedQueue, now.Reason, now.LastReason = "", "", ""
		broker := rules.identify(&now, &v, o.Body)
		j.judge(&now, &v, o, broker, rules.errorText(&v, o.Body))
	}
	// A reason can be changed and not be taken away.
	out.Is = Standing{Reason: cmp.Or(now.Reason, was.Reason), Class: now.Class.String(), Owner: now.Owner}
	return out, nil
}

// Reclassify records changes, with the version of the policy that they follow
// from. It returns ErrNotNow when an envelope does not stand any more as it was
// when its change was found. Envelopes whose standing stays are left out.
func Reclassify(v ledger.View, changes []Reclassification, policyVersion, why string) ([]event.Event, error) {
	if len(why) > 1024 {
		return nil, needText("why", why)
	}
	type said struct{ class, reason string }
	classified, assigned := map[said][]event.EnvelopeNo{}, map[string][]event.EnvelopeNo{}
	for _, c := range changes {
		now, err := GetStanding(v, c.No)
		if err != nil {
			return nil, err
		}
		if now != c.Was {
			return nil, fmt.Errorf("envelope #%d was changed by somebody else meanwhile; look again, and run it again: %w", c.No, ErrNotNow)
		}
		if c.Is == c.Was {
			continue
		}
		key := said{c.Is.Class, ""}
		if c.Is.Reason != c.Was.Reason {
			key.reason = c.Is.Reason
		}
		classified[key] = append(classified[key], c.No)
		if c.Is.Owner != c.Was.Owner {
			assigned[c.Is.Owner] = append(assigned[c.Is.Owner], c.No)
		}
	}
	var out []event.Event
	for _, key := range inOrder(classified, func(a, b said) int { return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.class, b.class)) }) {
		out = append(out, parts(event.RangesOf(classified[key]...), func(p event.Ranges) event.Body {
			return &event.EnvelopeClassified{Envs: p, Class: key.class, Reason: key.reason, Policy: policyVersion, Why: why}
		})...)
	}
	for _, owner := range inOrder(assigned, cmp.Compare[string]) {
		out = append(out, parts(event.RangesOf(assigned[owner]...), func(p event.Ranges) event.Body {
			return &event.EnvelopeAssigned{Envs: p, Owner: owner, Why: why}
		})...)
	}
	return out, nil
}

func inOrder[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}
