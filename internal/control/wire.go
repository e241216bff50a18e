package control

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// compare orders by a number, then by a text.
func compare(a, b uint64, ta, tb string) int {
	return cmp.Or(cmp.Compare(a, b), strings.Compare(ta, tb))
}

func moment(ms uint64) time.Time { return time.UnixMilli(int64(ms)).UTC() }

func maybe(ms uint64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := moment(ms)
	return &t
}

func wireGroup(g quarantine.Group) api.EnvelopeGroup {
	return api.EnvelopeGroup{Reason: g.Reason, Class: g.Class, Owner: g.Owner, Count: g.Count, Oldest: time.Unix(int64(g.Oldest), 0).UTC()}
}

// envelope is what lists show of an envelope: no content of the message.
func (c *Controller) envelope(v ledger.View, no event.EnvelopeNo, reserved *redrive.Reservations) (api.Envelope, error) {
	f, err := quarantine.GetFacts(v, no)
	if err != nil {
		return api.Envelope{}, err
	}
	cell, _ := quarantine.GetCell(v, no)
	e := api.Envelope{
		ID: f.ID.String(), Number: uint64(no), Custody: cell.Custody.String(), Reason: quarantine.WordText(v, cell.Reason),
		Last: f.LastReason, Code: f.ErrorCode, Class: cell.Class.String(), Owner: quarantine.WordText(v, cell.Owner), Flags: flags(cell.Flags),
		Broker: api.BrokerReference{Cluster: f.Cluster, VHost: f.VHost, Queue: f.Queue, Exchange: f.Exchange, RoutingKey: text(f.RoutingKey), DiedIn: f.DiedQueue},
		Identity: api.Identity{Operation: f.Operation, From: f.OperationFrom, MessageID: f.MessageID, Fingerprint: hex.EncodeToString(f.Fingerprint[:]),
			WireDigest: hex.EncodeToString(f.Wire[:]), BodySHA256: hex.EncodeToString(f.BodyDigest[:]), Type: f.Type, Schema: f.Schema,
			OrderingKey: f.OrderingKey, Sequence: f.Sequence, Producer: f.Producer, Consumer: f.Consumer, TraceID: f.TraceID},
		Lineage: api.Lineage{Attempt: f.Attempt, Stamp: f.Stamp.String()},
		Times: api.Times{Captured: moment(f.Captured), FirstSeen: maybe(f.FirstSeen), FirstDied: maybe(f.FirstDied), Died: maybe(f.Died),
			Deadline: moment(f.FirstDied).Add(c.deadline(f.Queue))},
		DeliveryCount: f.DeliveryCount, Redelivered: f.Redelivered != 0, Attempts: f.Attempts, Policy: f.Policy,
		Size: f.BodySize, PropertySize: f.PropertiesSize, Generation: uint32(cell.Gen), Reserved: uint32(reserved.Of(no)),
	}
	for _, link := range []struct {
		to *string
		no event.EnvelopeNo
	}{{&e.Lineage.Root, f.Root}, {&e.Lineage.Parent, f.Parent}, {&e.Lineage.DuplicateOf, f.DuplicateOf}} {
		if link.no == 0 {
			continue
		}
		other, err := quarantine.GetFacts(v, link.no)
		if err != nil {
			return e, err
		}
		*link.to = other.ID.String()
	}
	return e, nil
}

// text makes bytes of a message fit for JSON.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func (c *Controller) deadline(queue string) time.Duration {
	r := c.retention()
	if d, ok := r.ByQueue[queue]; ok {
		return d
	}
	return r.Deadline
}

func flags(f quarantine.Flags) []string {
	out := []string{}
	for _, x := range []struct {
		flag quarantine.Flags
		name string
	}{
		{quarantine.Held, "held"}, {quarantine.Overdue, "overdue"}, {quarantine.PayloadGone, "payload_gone"}, {quarantine.Settled, "settled"},
		{quarantine.FlagStampInvalid, "stamp_invalid"}, {quarantine.FlagStampUnknown, "stamp_unknown"}, {quarantine.FlagDerived, "derived"},
		{quarantine.FlagPossibleDuplicate, "possible_duplicate"}, {quarantine.FlagRepaired, "repaired"}, {quarantine.FlagDuplicateRisk, "duplicate_risk"},
	} {
		if f.Has(x.flag) {
			out = append(out, x.name)
		}
	}
	return out
}

// detail adds what only a single envelope shows.
func (c *Controller) detail(v ledger.View, no event.EnvelopeNo, e *api.Envelope, req api.EnvelopeShowRequest) error {
	for _, kid := range quarantine.Kids(v, no) {
		f, err := quarantine.GetFacts(v, kid)
		if err != nil {
			return err
		}
		e.Lineage.Children = append(e.Lineage.Children, f.ID.String())
	}
	notes, err := quarantine.Notes(v, no)
	if err != nil {
		return err
	}
	for _, n := range notes {
		e.Notes = append(e.Notes, api.Note{At: moment(n.TS), By: n.Actor.Subject, Text: n.Text, Ticket: n.Ticket})
	}
	if e.Repairs, err = repairStates(v, no); err != nil {
		return err
	}
	cell, _ := quarantine.GetCell(v, no)
	if cell.Flags.Has(quarantine.PayloadGone) {
		if req.Payload {
			return fmt.Errorf("envelope %s: %w", e.ID, quarantine.ErrErased)
		}
		return nil
	}
	o, err := quarantine.GetOriginal(v, c.o.Keys, c.o.Blobs, no)
	if err != nil {
		return err
	}
	commitment, err := quarantine.Commitment(v, c.o.Keys, c.o.Blobs, no)
	if err != nil {
		return err
	}
	e.Commitment = commitment.String()
	source := c.o.Config.Source(e.Broker.Queue)
	rules, err := source.Rules()
	if err != nil {
		return err
	}
	e.Diagnostic = rules.Diagnostic(o, c.masks)
	e.Expiration = text(expiration(o))
	if req.Payload {
		e.Payload = c.payload(o, req.Raw)
	}
	return nil
}

// expiration is the one that a message was published with. What died has it
// only in its history.
func expiration(o *quarantine.Original) string {
	v := amqpwire.Parse(o.Properties)
	h := v.DeathHistory()
	found := v.Expiration
	for _, d := range h.Deaths {
		found = cmp.Or(found, d.OriginalExpiration)
	}
	return found
}

// maxPreview bounds the text of a payload that is not raw.
const maxPreview = 256 << 10

func (c *Controller) payload(o *quarantine.Original, raw bool) *api.Payload {
	view := amqpwire.Parse(o.Properties)
	show := func(s string) string {
		if raw {
			return text(s)
		}
		return quarantine.ApplyMasks(text(s), c.masks)
	}
	p := &api.Payload{Masked: !raw, ContentType: text(view.ContentType), Encoding: text(view.ContentEncoding), Problem: view.Problem, Headers: []api.Header{}}
	for _, h := range view.Headers {
		value, ok := h.Text()
		if !ok {
			value = fmt.Sprintf("%v", h.Data)
		}
		w := api.Header{Name: text(h.Name), Type: h.Kind.String(), Value: show(value)}
		if raw && ok && (h.Kind == amqpwire.Bytes || !utf8.ValidString(value)) {
			w.Base64 = base64.StdEncoding.EncodeToString([]byte(value))
		}
		p.Headers = append(p.Headers, w)
	}
	if raw {
		p.Base64 = base64.StdEncoding.EncodeToString(o.Body)
	}
	if utf8.Valid(o.Body) {
		body := string(o.Body)
		if !raw && len(body) > maxPreview {
			body = strings.ToValidUTF8(body[:maxPreview], "")
		}
		p.Text = show(body)
	}
	return p
}

func wireLimits(l event.Limits) api.Limits {
	return api.Limits{Rate: float64(l.RateMilli) / 1000, Burst: l.Burst, Window: l.Window, Exposure: l.Exposure}
}

func wireStep(s *redrive.Step) *api.Step {
	if s == nil {
		return nil
	}
	return &api.Step{By: s.By.Subject, As: s.By.As, At: moment(s.At), Why: s.Why}
}

// show reads one generation as others see it.
func (c *Controller) show(no event.GenerationNo) (api.Generation, error) {
	var w api.Generation
	err := c.log.View(func(v ledger.View) error {
		g, err := redrive.Get(v, no)
		if err != nil {
			return err
		}
		w, err = c.wire(v, g)
		return err
	})
	return w, err
}

// wire is a generation at one ledger position, with both laws checked.
func (c *Controller) wire(v ledger.View, g *redrive.Generation) (api.Generation, error) {
	m, err := redrive.GetManifest(v, g.Manifest)
	if err != nil {
		return api.Generation{}, err
	}
	w := *c.briefly(g)
	if !w.LawsHold {
		_, err := g.Tally()
		return w, err
	}
	if at := redrive.NextDue(v, g); !at.IsZero() {
		at = at.UTC()
		w.OutcomesDue = &at
	}
	if g.Checked != nil {
		checks, err := redrive.Checks(v, g.Checked.Checks)
		if err != nil {
			return w, err
		}
		w.Checked, w.Checks = g.Checked.Phase, wireChecks(checks)
	}
	w.Seq, w.Fix, w.Selection = v.Seq, m.Fix, selectionText(m.Selection)
	w.Watched = append([]string{}, m.Watched...)
	w.Forced, w.ForceWhy, w.Repaired = append([]string{}, m.Forced...), m.ForceWhy, m.Repaired
	for _, id := range redrive.AmbiguousIntents(v, g, 20) {
		w.Ambiguous = append(w.Ambiguous, id.String())
	}
	return w, nil
}

// briefly is what a generation's own state says, without reading anything.
func (c *Controller) briefly(g *redrive.Generation) *api.Generation {
	t, err := g.Tally()
	c.mu.Lock()
	driven := c.driven[g.No]
	c.mu.Unlock()
	w := &api.Generation{ID: g.ID, Number: uint32(g.No), State: string(g.State), Status: g.Status(), Manifest: g.Manifest,
		Order: g.Order(), OnFailure: g.OnFailure, Ambiguity: g.Ambiguity,
		Destination: destinationText(g.Destination), Evidence: string(g.Evidence), Stage: int(g.Stage) + 1, Stages: g.Stages, Limits: wireLimits(g.Limits),
		Bake: g.BakeTime().String(), Effective: effective(g), Thresholds: g.Thresholds.List(), Watched: []string{}, Deadline: (time.Duration(g.Deadline) * time.Millisecond).String(),
		Planned: &api.Step{By: g.Planner.Subject, As: g.Planner.As, At: moment(g.PlannedAt)}, Started: wireStep(g.Started), Ended: wireStep(g.Ended),
		Pauses: []api.PauseState{}, Forced: []string{}, Checks: []api.Check{}, Tally: map[string]uint64{}, LawsHold: err == nil, Contradictions: g.Contradictions, Regressions: g.Regressions, Driven: driven}
	w.Disputes, w.Doubles = g.Disputes, g.Doubles
	if g.Approval != nil {
		w.Approved = &api.Step{By: g.Approval.By.Subject, As: g.Approval.By.As, At: moment(g.Approval.At), Why: g.Approval.Why}
		w.Expires = maybe(g.Approval.Expires)
	}
	for _, p := range g.Pauses {
		w.Pauses = append(w.Pauses, api.PauseState{Reason: p.Reason, LookAgain: p.LookAgain(), Step: api.Step{By: p.By.Subject, As: p.By.As, At: moment(p.At), Why: p.Why}})
	}
	for d, n := range t.By {
		w.Tally[event.Disposition(d).String()] = n
	}
	by := func(d event.Disposition) uint64 { return t.By[d] }
	w.Funnel = api.Funnel{Selected: t.Selected, Moved: t.Moved, Admitted: by(event.Admitted), Succeeded: by(event.Succeeded),
		Deduplicated: by(event.DeduplicatedPlan) + by(event.DeduplicatedConsumer), Rejected: by(event.RejectedByConsumer),
		Requarantined: by(event.Requarantined), Ambiguous: t.Ambiguous(), Missing: by(event.Missing)}
	return w
}

// number and at spell what is 0 when it was not asked for.
func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func at(ms uint64) string {
	if ms == 0 {
		return ""
	}
	return moment(ms).Format(time.RFC3339)
}

// effective is what holds of the limits at this moment.
func effective(g *redrive.Generation) api.Effective {
	e := api.Effective{Rate: float64(g.EffectiveRate()) / 1000, Window: g.EffectiveWindow(), Throttles: []api.Throttle{}, Exposed: g.Exposed()}
	for _, t := range g.Throttles {
		e.Throttles = append(e.Throttles, api.Throttle{Reason: t.Reason, Permille: t.Permille, Since: moment(t.At), Why: t.Why})
	}
	return e
}

func selectionText(s redrive.Selection) string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"id", strings.Join(s.IDs, ",")}, {"lineage", s.Lineage}, {"queue", s.Queue}, {"died", s.Died},
		{"reason", s.Reason}, {"class", s.Class}, {"owner", s.Owner}, {"type", s.Type},
		{"schema", s.Schema}, {"died_before", at(s.DiedBefore)}, {"died_from", at(s.DiedFrom)},
		{"min_attempts", number(s.MinAttempts)}, {"max_attempts", number(s.MaxAttempts)},
		{"generation", s.Generation}, {"outcome", strings.Join(s.Outcomes, ",")}, {"note", s.Note}, {"where", s.Where},
	} {
		if p.value != "" {
			parts = append(parts, p.name+"="+p.value)
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}
