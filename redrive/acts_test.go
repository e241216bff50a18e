package redrive_test

import (
	"context"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// message is a dead message, as far as these tests care.
type message struct {
	op, reason, typ, body string
	headers               []amqpwire.Field
	id                    string
	redelivered           bool
}

func (m message) delivery(b *book) quarantine.Delivery {
	b.Helper()
	v := amqpwire.View{Present: amqpwire.Headers, Headers: m.headers}
	for _, h := range [][2]string{{"x-operation-id", m.op}, {"x-death-reason", m.reason}, {"x-event-type", m.typ}} {
		if h[1] != "" {
			v.Headers = append(v.Headers, amqpwire.StringField(h[0], h[1]))
		}
	}
	if m.id != "" {
		v.Present |= amqpwire.MessageID
		v.MessageID = m.id
	}
	props, err := amqpwire.Build(v)
	b.ok(err)
	b.last++
	return quarantine.Delivery{Receipt: b.last, Queue: "orders.dlq", Exchange: "", RoutingKey: "orders.dlq", Properties: props,
		Body: []byte(m.body), Redelivered: m.redelivered, DeliveryCount: -1}
}

// capture takes messages in one batch and returns their numbers.
func (b *book) capture(ms ...message) (nos []event.EnvelopeNo) {
	b.Helper()
	ds := make([]quarantine.Delivery, len(ms))
	for i, m := range ms {
		ds[i] = m.delivery(b)
	}
	nos, _ = b.captured(ds...)
	return nos
}

func (b *book) captured(ds ...quarantine.Delivery) (nos []event.EnvelopeNo, rc ledger.Receipt) {
	b.Helper()
	var batch quarantine.Batch
	for _, d := range ds {
		p, err := b.pr.Prepare(d, quarantine.Origin{Cluster: "c", VHost: "/"}, b.now)
		b.ok(err)
		batch.New = append(batch.New, p)
	}
	var first event.EnvelopeNo
	rc = b.must(func(v ledger.View) ([]event.Event, error) {
		first = quarantine.Count(v) + 1
		return quarantine.Capture(v, b.keys, batch, b.stamps)
	})
	for i := range ds {
		nos = append(nos, first+event.EnvelopeNo(i))
	}
	return nos, rc
}

// orders captures n messages, each an operation of its own.
func (b *book) orders(n int) []event.EnvelopeNo {
	b.Helper()
	var ms []message
	from := 0
	b.view(func(v ledger.View) { from = int(quarantine.Count(v)) })
	for i := range n {
		ms = append(ms, message{op: fmt.Sprint("order-", from+i), reason: "unknown_sku", body: fmt.Sprint(`{"n":`, from+i, `}`)})
	}
	return b.capture(ms...)
}

// cohort chooses among all quarantined envelopes, as the use case does.
func (b *book) cohort(v ledger.View) ([]event.EnvelopeNo, []redrive.Exclusion) {
	ops := redrive.NewOperations()
	var cs []redrive.Candidate
	rs, err := redrive.LoadReservations(v)
	b.ok(err)
	quarantine.ScanCells(v, 1, func(no event.EnvelopeNo, c *quarantine.Cell) bool {
		ops.Note(c, rs.Of(no) != 0)
		if c.Custody == event.Quarantined {
			cs = append(cs, redrive.Candidate{No: no, Cell: *c})
		}
		return true
	})
	return redrive.Cohort(cs, ops, func(no event.EnvelopeNo) bool { return rs.Of(no) != 0 })
}

// plan freezes everything that can move; change edits the manifest first.
func (b *book) plan(change ...func(*redrive.Manifest)) event.GenerationNo {
	b.Helper()
	var members []event.EnvelopeNo
	var out []redrive.Exclusion
	b.view(func(v ledger.View) { members, out = b.cohort(v) })
	no, err := b.freeze(members, out, change...)
	b.ok(err)
	return no
}

// manifest describes a cohort with wide limits, one stage and an hour for
// outcomes.
func (b *book) manifest(members []event.EnvelopeNo, out []redrive.Exclusion) *redrive.Manifest {
	m := &redrive.Manifest{ID: b.id(), Version: redrive.ManifestVersion, At: uint64(b.now.UnixMilli()), Members: uint64(len(members)),
		Limits: event.Limits{Window: 64, Burst: 64, RateMilli: 1_000_000_000, Exposure: 1000}, Evidence: redrive.EvidenceOutcomes,
		Deadline: 3_600_000, RoutingKey: "orders", Fix: "none stated", Ambiguity: "hold", Order: "none", Planner: b.actor.Subject,
		SelfApprove: 10_000_000, Stages: []uint64{uint64(len(members))}, Strip: redrive.DefaultStrip(), Approvers: 1}
	b.view(func(v ledger.View) { m.Ledger = v.Seq })
	for _, x := range out {
		if x.Reason == redrive.ReasonDuplicate {
			m.Deduplicated++
		} else {
			m.Withheld++
		}
	}
	return m
}

func (b *book) freeze(members []event.EnvelopeNo, out []redrive.Exclusion, change ...func(*redrive.Manifest)) (no event.GenerationNo, err error) {
	b.Helper()
	m := b.manifest(members, out)
	for _, fn := range change {
		fn(m)
	}
	b.stash(m, members, out)
	_, err = b.update(func(v ledger.View) ([]event.Event, error) {
		events, n, err := redrive.Freeze(v, m)
		no = n
		return events, err
	})
	return no, err
}

// stash stores what a plan refers to before it is frozen.
func (b *book) stash(m *redrive.Manifest, members []event.EnvelopeNo, out []redrive.Exclusion) {
	b.Helper()
	objects := redrive.ReservationObjects(m.ID, members)
	chunks, digests := redrive.MemberObjects(members)
	lists, excluded := redrive.ExclusionObjects(out)
	m.Chunks, m.Excluded = digests, excluded
	objects = append(append(append(objects, chunks...), lists...), redrive.FollowObjects(m.ID, out)...)
	b.ok(b.log.Store(context.Background(), ledger.Request{Actor: b.actor}, objects))
}

func (b *book) approve(no event.GenerationNo) {
	b.Helper()
	digest := b.gen(no).Manifest
	b.must(func(v ledger.View) ([]event.Event, error) {
		return redrive.Approve(v, no, digest, b.actor, "", redrive.ApprovalRules{})
	})
}

// running plans, approves and starts everything that can move.
func (b *book) running(change ...func(*redrive.Manifest)) event.GenerationNo {
	b.Helper()
	no := b.plan(change...)
	b.approve(no)
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
	b.tick(1000) // the bucket begins empty
	return no
}

func stages(ends ...uint64) func(*redrive.Manifest) {
	return func(m *redrive.Manifest) { m.Stages = ends }
}

func (b *book) tick(ms int) { b.now = b.now.Add(msec(ms)) }

func (b *book) intend(no event.GenerationNo, limit int) redrive.Intention {
	b.Helper()
	var in redrive.Intention
	b.must(func(v ledger.View) ([]event.Event, error) {
		var events []event.Event
		var err error
		in, events, err = redrive.Intend(v, no, limit)
		return events, err
	})
	return in
}

// intended is intend that must pick exactly n members.
func (b *book) intended(no event.GenerationNo, n int) []redrive.Pick {
	b.Helper()
	in := b.intend(no, n)
	if len(in.Picks) != n {
		b.Fatalf("picked %d, want %d (hold %q)", len(in.Picks), n, in.Hold)
	}
	return in.Picks
}

func (b *book) resolve(no event.GenerationNo, vs ...redrive.Verdict) ledger.Receipt {
	b.Helper()
	return b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Resolve(v, no, vs) })
}

// end makes the same verdict about several picks.
func end(picks []redrive.Pick, r event.Resolution, reason string) (out []redrive.Verdict) {
	for _, p := range picks {
		out = append(out, redrive.Verdict{Pos: p.Pos, Try: p.Try, Resolution: r, Reason: reason})
	}
	return out
}

// sent intends n members and confirms them.
func (b *book) sent(no event.GenerationNo, n int) []redrive.Pick {
	b.Helper()
	picks := b.intended(no, n)
	b.resolve(no, end(picks, event.Confirmed, "")...)
	return picks
}

// released is the message of a pick as it went out.
func (b *book) released(no event.GenerationNo, p redrive.Pick) (msg redrive.Message) {
	b.Helper()
	b.view(func(v ledger.View) {
		g, err := redrive.Get(v, no)
		b.ok(err)
		o, err := quarantine.GetOriginal(v, b.keys, b.store, p.Env)
		b.ok(err)
		f, err := quarantine.GetFacts(v, p.Env)
		b.ok(err)
		msg, err = redrive.BuildMessage(o, g.Destination.For(f), &redrive.Manifest{Strip: redrive.DefaultStrip()}, b.stamps.Stamp(g, f, p), redrive.ReleaserCaps{})
		b.ok(err)
	})
	return msg
}

// comeBack is the released message, dead again.
func (b *book) comeBack(no event.GenerationNo, p redrive.Pick) quarantine.Delivery {
	b.Helper()
	m := b.released(no, p)
	b.last++
	return quarantine.Delivery{Receipt: b.last, Queue: "orders.dlq", Exchange: m.Dest.Exchange, RoutingKey: "orders.dlq",
		Properties: m.Properties, Body: m.Body, DeliveryCount: -1}
}

// report is what a consumer says about a pick.
func (b *book) report(no event.GenerationNo, p redrive.Pick, o event.Outcome) outcome.Report {
	b.Helper()
	s, mac, _, err := stamp.Read(amqpwire.Parse(b.released(no, p).Properties))
	b.ok(err)
	return outcome.Report{Stamp: s, MAC: mac, Outcome: o, ConsumerVersion: "2.4.1", Effect: "order shipped"}
}

func (b *book) reported(reports ...outcome.Report) ledger.Receipt {
	b.Helper()
	return b.must(func(v ledger.View) ([]event.Event, error) {
		return b.stamps.Report(v, b.keys, reports, 0, "command")
	})
}

// outcome reports the same about several picks.
func (b *book) outcome(no event.GenerationNo, picks []redrive.Pick, o event.Outcome) ledger.Receipt {
	b.Helper()
	var rs []outcome.Report
	for _, p := range picks {
		rs = append(rs, b.report(no, p, o))
	}
	return b.reported(rs...)
}

func (b *book) due() ledger.Receipt {
	b.Helper()
	return b.must(redrive.Due)
}

// kinds lists what a receipt's records are.
func kinds(rc ledger.Receipt) (out []event.Kind) {
	for _, r := range rc.Records {
		out = append(out, r.Body.Kind())
	}
	return out
}

func cellIn(b *book, r ledger.Reader, no event.EnvelopeNo) event.Custody {
	b.Helper()
	c, ok := quarantine.GetCell(r, no)
	if !ok {
		b.Fatalf("envelope %d does not exist", no)
	}
	return c.Custody
}

// reservedBy answers which open generation has an envelope.
func reservedBy(t tb, r ledger.Reader) func(event.EnvelopeNo) event.GenerationNo {
	t.Helper()
	rs, err := redrive.LoadReservations(r)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return rs.Of
}

// ulid is what an envelope is called outside.
func (b *book) ulid(no event.EnvelopeNo) (id string) {
	b.Helper()
	b.view(func(v ledger.View) {
		f, err := quarantine.GetFacts(v, no)
		b.ok(err)
		id = f.ID.String()
	})
	return id
}
