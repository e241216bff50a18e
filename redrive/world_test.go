package redrive_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// world is a book under random acts, with what a bystander would write down.
type world struct {
	*book
	rt      *rapid.T
	gens    []event.GenerationNo
	limits  map[event.GenerationNo]event.Limits // as planned; they are only tightened
	wire    []published
	settled map[event.EnvelopeNo]bool // by a person

	before, mono, epoch uint64 // ms of earlier epochs, and of this one by the ledger's own clock
	sends               map[event.GenerationNo]sends
}

// published is a message as it left the house.
type published struct {
	gen  event.GenerationNo
	pick redrive.Pick
	back quarantine.Delivery
}

// TestWorld does random things, legal and not, in random order. After each of
// them the laws hold; at the end of each run the ledger is verified and
// rebuilt.
func TestWorld(t *testing.T) {
	root, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		rt.Cleanup(func() { _ = os.RemoveAll(dir) })
		w := &world{book: openBook(rt, dir), rt: rt, limits: map[event.GenerationNo]event.Limits{},
			settled: map[event.EnvelopeNo]bool{}, sends: map[event.GenerationNo]sends{}}
		w.orders(12)
		w.begin()
		rt.Repeat(map[string]func(*rapid.T){
			"move 1": w.move, "move 2": w.move, "move 3": w.move, "move 4": w.move,
			"capture": w.captureSome, "plan": w.planSome, "begin": func(*rapid.T) { w.begin() }, "act": w.act, "envelope": w.envelope,
			"late": w.late, "return": w.returnSome, "outcome": w.outcomeSome, "rule": w.ruleSome,
			"restart": w.restartSome, "clock": w.clock, "due": func(*rapid.T) { w.due() }, "resume": w.resumeSome,
			"": func(*rapid.T) { w.pass(); w.laws(); w.custodies() },
		})
	})
}

// move releases some members and lets each of them have its fate: nothing yet,
// an answer of the broker, a word of the consumer, in either order.
func (w *world) move(rt *rapid.T) {
	from := len(w.wire)
	w.intendSome(rt)
	for i := from; i < len(w.wire); i++ {
		p := w.wire[i]
		for _, act := range rapid.SampledFrom([]string{"", "r", "r", "ro", "or", "o", "ro", "rb", "br", "rob"}).Draw(rt, "fate") {
			switch act {
			case 'r':
				w.resolveOne(rt, p)
			case 'o':
				w.outcomeOne(rt, p)
			case 'b':
				w.returnOne(rt, p)
			}
		}
	}
}

// latest picks from the end of a list more often.
func latest[T any](rt *rapid.T, name string, from []T) (v T, ok bool) {
	if len(from) > 1 && rapid.Bool().Draw(rt, "latest "+name) {
		return from[len(from)-1], true
	}
	return pick(rt, name, from)
}

func pick[T any](rt *rapid.T, name string, from []T) (v T, ok bool) {
	if len(from) == 0 {
		return v, false
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(rt, name)], true
}

func (w *world) captureSome(rt *rapid.T) {
	var ms []message
	for range rapid.IntRange(1, 3).Draw(rt, "n") {
		op := rapid.SampledFrom([]string{"", "a", "b", "order-1", "order-2"}).Draw(rt, "op")
		ms = append(ms, message{op: op, reason: rapid.SampledFrom([]string{"unknown_sku", "half_done", "x"}).Draw(rt, "reason"),
			body: `{"op":"` + op + rapid.SampledFrom([]string{"", "", "", "!"}).Draw(rt, "variant") + `"}`})
	}
	w.capture(ms...)
}

func (w *world) planSome(rt *rapid.T) {
	var members []event.EnvelopeNo
	var out []redrive.Exclusion
	w.view(func(v ledger.View) { members, out = w.cohort(v) })
	if len(members) == 0 {
		return
	}
	n := rapid.IntRange(1, len(members)).Draw(rt, "members")
	if n < len(members) {
		out = nil // the siblings of duplicates may be cut off
	}
	limits := event.Limits{Window: rapid.Uint32Range(1, 6).Draw(rt, "window"), Burst: rapid.Uint32Range(1, 4).Draw(rt, "burst"),
		Exposure: rapid.Uint32Range(1, 8).Draw(rt, "exposure"), RateMilli: rapid.Uint64Range(500, 2_000_000).Draw(rt, "rate")}
	no, err := w.freeze(members[:n], out, func(m *redrive.Manifest) {
		if m.Limits = limits; rapid.Bool().Draw(rt, "staged") {
			m.Stages = redrive.DefaultStages(uint64(n))
		}
		m.Evidence = rapid.SampledFrom([]redrive.Evidence{redrive.EvidenceOutcomes, redrive.EvidenceReturns}).Draw(rt, "evidence")
	})
	w.ok(err)
	w.gens = append(w.gens, no)
	w.limits[no] = limits
}

// begin plans, approves and starts whatever can move.
func (w *world) begin() {
	w.planSome(w.rt)
	if len(w.gens) == 0 {
		return
	}
	if no := w.gens[len(w.gens)-1]; w.gen(no).State == event.Planned {
		w.approve(no)
		w.must(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) })
		w.tick(2000)
	}
}

// try makes a decision that may be refused for its state, which then must not
// have written anything.
func (w *world) try(decide ledger.Decide) (ledger.Receipt, bool) {
	w.Helper()
	before := w.seq()
	rc, err := w.update(decide)
	if err == nil {
		return rc, true
	}
	if !errors.Is(err, redrive.ErrState) && !errors.Is(err, quarantine.ErrNotNow) && !errors.Is(err, quarantine.ErrErased) {
		w.Fatalf("%v", err)
	}
	if w.seq() != before {
		w.Fatalf("refused, and yet %d records were written: %v", w.seq()-before, err)
	}
	return rc, false
}

func (w *world) seq() (n uint64) {
	w.view(func(v ledger.View) { n = v.Seq })
	return n
}

func (w *world) act(rt *rapid.T) {
	no, ok := latest(rt, "generation", w.gens)
	if !ok {
		return
	}
	g := w.gen(no)
	w.try(rapid.SampledFrom([]ledger.Decide{
		func(v ledger.View) ([]event.Event, error) {
			return redrive.Approve(v, no, g.Manifest, w.actor, "", redrive.ApprovalRules{})
		},
		func(v ledger.View) ([]event.Event, error) { return redrive.Reject(v, no, "w") },
		func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) },
		func(v ledger.View) ([]event.Event, error) { return redrive.PauseBy(v, no, redrive.PauseOperator, "w") },
		func(v ledger.View) ([]event.Event, error) { return redrive.Abort(v, no, "w") },
		func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) },
		func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) },
		func(v ledger.View) ([]event.Event, error) {
			l := g.Limits
			l.Window, l.RateMilli = max(l.Window-1, 1), l.RateMilli/2+1
			return redrive.Limit(v, no, l, "w", false)
		},
		func(v ledger.View) ([]event.Event, error) {
			t, err := g.Tally()
			return must(redrive.Close(v, no, redrive.Statement{Ambiguous: t.Ambiguous(), Missing: t.By[event.Missing], Withheld: t.By[event.Withheld]}, "w"))(err)
		},
	}).Draw(rt, "act"))
}

func must(events []event.Event, err error) func(error) ([]event.Event, error) {
	return func(other error) ([]event.Event, error) { return events, errors.Join(err, other) }
}

func (w *world) resumeSome(rt *rapid.T) {
	if no, ok := latest(rt, "generation", w.gens); ok {
		w.try(func(v ledger.View) ([]event.Event, error) { return w.resumption(v, no, "w") })
	}
}

func (w *world) envelope(rt *rapid.T) {
	var n int
	w.view(func(v ledger.View) { n = int(quarantine.Count(v)) })
	no := event.EnvelopeNo(rapid.IntRange(1, n).Draw(rt, "envelope"))
	if gen, ok := latest(rt, "generation", w.gens); ok && rapid.Bool().Draw(rt, "next") {
		g := w.gen(gen) // rather the one that would go next
		if uint64(g.Next) < g.Members {
			w.view(func(v ledger.View) {
				var err error
				no, err = g.EnvelopeAt(v, g.Next)
				w.ok(err)
			})
		}
	}
	envs := event.RangesOf(no)
	rc, done := w.try(rapid.SampledFrom([]ledger.Decide{
		func(v ledger.View) ([]event.Event, error) { return quarantine.Hold(v, envs, "w", "") },
		func(v ledger.View) ([]event.Event, error) { return quarantine.Unhold(v, envs, "w") },
		func(v ledger.View) ([]event.Event, error) { return quarantine.View(v, envs, "raw", "w") },
		func(v ledger.View) ([]event.Event, error) {
			return quarantine.Resolve(v, envs, "w", "", reservedBy(w, v))
		},
		func(v ledger.View) ([]event.Event, error) {
			return quarantine.Purge(v, envs, "T-1", "w", reservedBy(w, v))
		},
	}).Draw(rt, "act"))
	if done && rc.Records[0].Body.Kind() == event.KindEnvelopeResolved {
		w.settled[no] = true
	}
}

func (w *world) restartSome(rt *rapid.T) {
	w.pass()
	w.restart(rapid.Bool().Draw(rt, "clean"))
	w.view(func(v ledger.View) {
		gens, err := redrive.All(v)
		w.ok(err)
		for _, g := range gens {
			if g.Unresolved != 0 {
				w.Errorf("generation %d has %d unresolved intents after a restart", g.No, g.Unresolved)
			}
		}
	})
}

func (w *world) clock(rt *rapid.T) {
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, time.Minute, time.Hour, -time.Hour, 25 * time.Hour}).Draw(rt, "by"))
}

// pass is the time that has passed by the ledger's monotonic clock, over all
// epochs. The wall clock, which may be set back, measures no rate.
func (w *world) pass() int64 {
	w.view(func(v ledger.View) {
		w.ok(ledger.Records(v, ledger.Size(v), func(r *event.Record) bool {
			if r.Epoch != w.epoch {
				w.before, w.mono, w.epoch = w.before+w.mono, 0, r.Epoch
			}
			w.mono = r.Mono
			return false
		}))
	})
	return int64(w.before + w.mono)
}

// paced checks the rate over every window of a generation's life, which may
// span pauses, changes of limits and restarts.
func (w *world) paced(no event.GenerationNo) {
	s, l := w.sends[no], w.limits[no]
	for i := range s {
		for j := i; j < len(s); j++ {
			if n, most := j-i+1, uint64(s[j]-s[i])*l.RateMilli/1_000_000+uint64(l.Burst); uint64(n) > most {
				w.Fatalf("generation %d: %d intents in %d ms, at most %d are allowed", no, n, s[j]-s[i], most)
			}
		}
	}
}

// intendSome is T1: everything that bounds it is checked against what it did.
func (w *world) intendSome(rt *rapid.T) {
	no, ok := latest(rt, "generation", w.gens)
	if !ok {
		return
	}
	w.try(func(v ledger.View) ([]event.Event, error) { return redrive.Advance(v, no, nil) })
	before := w.gen(no)
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
	in := w.intend(no, rapid.IntRange(1, 6).Draw(rt, "limit"))
	if len(in.Picks) == 0 {
		return
	}
	g := w.gen(no)
	exposed := g.Counts[event.InFlight] + g.Counts[event.Pending] + g.Counts[event.Admitted] + g.Counts[event.AmbiguousPublish]
	switch {
	case before.State != event.Running:
		w.Errorf("intents while %s", before.State)
	case g.Unresolved > uint64(g.Limits.Window):
		w.Errorf("%d unresolved, the window is %d", g.Unresolved, g.Limits.Window)
	case exposed > uint64(g.Limits.Exposure):
		w.Errorf("%d exposed, the cap is %d", exposed, g.Limits.Exposure)
	case uint64(g.Next) > g.Stages[g.Stage]:
		w.Errorf("position %d in stage %v of %v", g.Next-1, g.Stage, g.Stages)
	}
	for _, p := range in.Picks {
		w.custody(p.Env, event.Released)
		if c := w.cell(p.Env); c.Flags.Has(quarantine.Held) || c.Gen != no {
			w.Errorf("released: %+v", c)
		}
		w.wire = append(w.wire, published{no, p, w.comeBack(no, p)})
		w.sends[no] = append(w.sends[no], w.pass())
	}
	w.paced(no)
}

func (w *world) resolveOne(rt *rapid.T, p published) {
	v := redrive.Verdict{Pos: p.pick.Pos, Try: p.pick.Try, Resolution: rapid.SampledFrom(event.Resolutions).Draw(rt, "resolution"), Reason: "no_route"}
	v.Again = v.Resolution == event.Refused && rapid.Bool().Draw(rt, "again")
	if rapid.Bool().Draw(rt, "good") {
		v = redrive.Verdict{Pos: p.pick.Pos, Try: p.pick.Try, Resolution: event.Confirmed}
	}
	w.resolve(p.gen, v)
}

func (w *world) late(rt *rapid.T) {
	if p, ok := pick(rt, "published", w.wire); ok {
		w.resolve(p.gen, redrive.Verdict{Pos: p.pick.Pos, Try: p.pick.Try, Resolution: event.Confirmed, Late: true})
	}
}

func (w *world) ruleSome(rt *rapid.T) {
	no, ok := latest(rt, "generation", w.gens)
	if !ok {
		return
	}
	r := rapid.SampledFrom([]event.Ruling{event.RuledDelivered, event.RuledNotDelivered}).Draw(rt, "ruling")
	w.try(func(v ledger.View) ([]event.Event, error) { return redrive.RuleAll(v, no, r, "w") })
}

// returnSome lets a released message die again, sometimes not as it went out.
func (w *world) returnSome(rt *rapid.T) {
	p, ok := pick(rt, "published", w.wire)
	if !ok {
		return
	}
	w.returnOne(rt, p)
}

func (w *world) returnOne(rt *rapid.T, p published) {
	before, d, valid := w.gen(p.gen), p.back, true
	switch rapid.IntRange(0, 4).Draw(rt, "tampered") {
	case 0:
		d.Body, valid = append([]byte("x"), d.Body...), false
	case 1:
		e := amqpwire.Edit(d.Properties)
		e.Set(amqpwire.StringField("x-redrive-mac", "00000000000000000000000000000000"))
		props, err := e.Bytes()
		w.ok(err)
		d.Properties, valid = props, false
	}
	nos, _ := w.captured(d)
	purged := w.cell(p.pick.Env).Custody == event.Purged // its body cannot be compared any more
	if child := w.cell(nos[0]).Parent == p.pick.Env; child != (valid && !purged) {
		w.Errorf("child %v, valid %v, parent purged %v", child, valid, purged)
	}
	if m := w.member(p.gen, p.pick.Pos); valid && !purged && m.Disposition() != event.Requarantined {
		w.Errorf("the member that came back is %s", m.Disposition())
	}
	if g := w.gen(p.gen); (!valid || purged) && g.Counts != before.Counts {
		w.Errorf("a forgery moved the tally from %v to %v", before.Counts, g.Counts)
	}
}

// outcomeSome reports what a consumer says, sometimes forged or guessed.
func (w *world) outcomeSome(rt *rapid.T) {
	p, ok := pick(rt, "published", w.wire)
	if !ok {
		return
	}
	w.outcomeOne(rt, p)
}

func (w *world) outcomeOne(rt *rapid.T, p published) {
	before := w.gen(p.gen)
	o := rapid.SampledFrom(append([]event.Outcome{event.OutcomeSucceeded, event.OutcomeSucceeded}, event.Outcomes...)).Draw(rt, "outcome")
	r := w.saying(p, o)
	kind := rapid.IntRange(0, 5).Draw(rt, "forged")
	switch kind {
	case 0:
		r.MAC[3] ^= 1
	case 1:
		r.Stamp.Try++
	case 2:
		r.Stamp.Position++
	}
	rc := w.reported(r)
	if g := w.gen(p.gen); kind <= 2 && (g.Counts != before.Counts || len(kinds(rc)) != 1 || kinds(rc)[0] != event.KindOutcomeUnmatched) {
		w.Errorf("a forged report moved the tally: %v, %v to %v", kinds(rc), before.Counts, g.Counts)
	}
}

// saying is a report about a message as it went out; its original may be gone.
func (w *world) saying(p published, o event.Outcome) outcome.Report {
	w.Helper()
	s, mac, _, err := stamp.Read(amqpwire.Parse(p.back.Properties))
	w.ok(err)
	return outcome.Report{Stamp: s, MAC: mac, Outcome: o, ConsumerVersion: "2.4.1", Effect: "shipped"}
}

// custodies compares every envelope's custody with the disposition of the
// member that moved it last.
func (w *world) custodies() {
	w.view(func(v ledger.View) {
		position := map[event.GenerationNo]map[event.EnvelopeNo]event.Position{}
		for _, no := range w.gens {
			g, err := redrive.Get(v, no)
			w.ok(err)
			position[no] = map[event.EnvelopeNo]event.Position{}
			w.ok(redrive.EachMember(v, g, func(p event.Position, e event.EnvelopeNo) error { position[no][e] = p; return nil }))
		}
		quarantine.ScanCells(v, 1, func(no event.EnvelopeNo, c *quarantine.Cell) bool {
			pos, member := position[c.Gen][no]
			want := event.Quarantined
			if member {
				m := redrive.GetMember(v, c.Gen, pos)
				want = custody[m.Disposition()]
			}
			follower := c.Gen != 0 && !member && c.Custody == event.ResolvedForNow
			switch {
			case c.Custody == want, c.Custody == event.Purged, follower, w.settled[no] && c.Custody == event.ResolvedForNow:
			default:
				w.Errorf("envelope %d is %s, want %s: %+v", no, c.Custody, want, *c)
			}
			return true
		})
	})
}
