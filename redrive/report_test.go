package redrive_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/outcome"
	"github.com/redrivehq/redrive/redrive"
)

// Reports that cannot be trusted are counted apart, by reason, and change
// nothing else.
func TestReportsThatAreNotTaken(t *testing.T) {
	b := newBook(t)
	b.orders(5)
	no := b.running()
	p := b.sent(no, 2)
	before := b.gen(no)
	bad := make([]outcome.Report, 7)
	for i := range bad {
		bad[i] = b.report(no, p[0], event.OutcomeSucceeded)
	}
	bad[0].MAC[15] ^= 1                                    // forged
	bad[1].Stamp.Position = 1                              // somebody else's position
	bad[2].Stamp.Position = 4                              // released never
	bad[3].Stamp.Try = 2                                   // a try that was not made
	bad[4].Stamp.Envelope = bad[4].Stamp.Generation        // another envelope
	bad[5].Stamp.Position = 5                              // beyond the cohort
	bad[6].Stamp.Generation = "01J9ZK6V7Q8R9S0T1V2W3X4Y5Z" // no such generation
	guess := b.report(no, p[1], event.OutcomeSucceeded)    // a valid MAC for an intent that was not made
	guess.Stamp.Position, guess.Stamp.Envelope = 4, b.ulid(5)
	guess.MAC = b.keys.Stamp.Sign(guess.Stamp, "", "orders")
	rc := b.must(func(v ledger.View) ([]event.Event, error) {
		return b.stamps.Report(v, b.keys, slices.Concat(bad, []outcome.Report{guess}), 3, "broker")
	})
	got := map[string]uint64{}
	for _, r := range rc.Records {
		u, ok := r.Body.(*event.OutcomeUnmatched)
		if !ok || r.Subj != (event.Subject{}) {
			t.Fatalf("recorded %s about %+v", r.Body.Kind(), r.Subj)
		}
		got[u.Reason] = u.Count
	}
	want := map[string]uint64{redrive.UnmatchedMalformed: 3, redrive.UnmatchedForged: 6, redrive.UnmatchedUnknown: 2}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(before, b.gen(no)); d != "" {
		t.Errorf("the generation changed: %s", d)
	}
}

// A stamp is bound to its destination: a copy that was published elsewhere
// proves nothing.
func TestReportForAnotherDestination(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running()
	r := b.report(no, b.sent(no, 1)[0], event.OutcomeSucceeded)
	r.MAC = b.keys.Stamp.Sign(r.Stamp, "", "payments")
	if got := kinds(b.reported(r)); len(got) != 1 || got[0] != event.KindOutcomeUnmatched {
		t.Errorf("recorded %v", got)
	}
}

func TestReportAlreadyKnownIsNotRecordedAgain(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running()
	p := b.sent(no, 1)
	b.outcome(no, p, event.OutcomeSucceeded)
	if rc := b.outcome(no, p, event.OutcomeSucceeded); rc.First != 0 {
		t.Errorf("recorded %v", kinds(rc))
	}
}

// What a consumer says is in the ledger as a commitment only.
func TestReportsDoNotShowTheirWords(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	no := b.running()
	r := b.report(no, b.sent(no, 1)[0], event.OutcomeSucceeded)
	r.Operation, r.Effect, r.Detail, r.ConsumerVersion = "planted-op", "planted-effect", "planted-detail", "planted-version"
	rc := b.reported(r)
	rep, ok := rc.Records[0].Body.(*event.OutcomeReported)
	if !ok || rep.Details == "" || rep.Via != "command" || rep.Try != 1 {
		t.Fatalf("%+v", rc.Records[0].Body)
	}
	for _, rec := range rc.Records {
		line, err := rec.AppendLine(nil)
		b.ok(err)
		if s := string(line); strings.Contains(s, "planted-op") || strings.Contains(s, "planted-effect") || strings.Contains(s, "planted-detail") {
			t.Errorf("in the open: %s", s)
		}
	}
	b.view(func(v ledger.View) {
		list, err := ledger.GetObject(v, rep.Details)
		b.ok(err)
		if strings.Contains(string(list), "planted") || len(list) != len("0 ")+64+1 {
			t.Errorf("the list of commitments is %q", list)
		}
	})
}

func TestClose(t *testing.T) {
	b := newBook(t)
	b.orders(6)
	no := b.running()
	p := b.sent(no, 4)
	doubt := b.intended(no, 2)
	b.resolve(no, end(doubt, event.Ambiguous, "connection_lost")...)
	b.abort(no)
	b.outcome(no, p[:2], event.OutcomeSucceeded)
	b.outcome(no, p[2:3], event.OutcomeAmbiguous)
	closing := func(s redrive.Statement, why string) error {
		_, err := b.update(func(v ledger.View) ([]event.Event, error) { return redrive.Close(v, no, s, why) })
		return err
	}
	all := redrive.Statement{Ambiguous: 3, Missing: 1}
	if err := closing(redrive.Statement{Ambiguous: 3}, "w"); !errors.Is(err, redrive.ErrState) {
		t.Errorf("closed while an outcome is awaited: %v", err)
	}
	b.now = b.now.Add(time.Hour)
	b.due()
	for _, s := range []redrive.Statement{{}, {Ambiguous: 2, Missing: 1}, {Ambiguous: 3}, {Ambiguous: 3, Missing: 1, Withheld: 1}} {
		if err := closing(s, "w"); !errors.Is(err, redrive.ErrState) {
			t.Errorf("closed with the statement %+v: %v", s, err)
		}
	}
	if err := closing(all, ""); !errors.Is(err, redrive.ErrArgument) {
		t.Errorf("closed without a reason: %v", err)
	}
	b.ok(closing(all, "asked everyone"))
	if g := b.state(no, event.Closed); g.Ended == nil || g.Ended.Why != "asked everyone" || g.Ended.By != b.actor {
		t.Errorf("%+v", g.Ended)
	}
}

func TestRulings(t *testing.T) {
	b := newBook(t)
	envs := b.orders(12)
	no := b.running()
	p := b.intended(no, 3)
	b.resolve(no, end(p, event.Ambiguous, "connection_lost")...)
	ruling := func(id event.IntentID, why string) error {
		_, err := b.update(func(v ledger.View) ([]event.Event, error) { return redrive.Rule(v, id, event.RuledDelivered, why) })
		return err
	}
	for _, id := range []event.IntentID{{Gen: no, Pos: 3, Try: 1}, {Gen: no, Pos: 0, Try: 2}, {Gen: no, Pos: 0}, {Gen: no, Pos: 0, Try: 200}} {
		if err := ruling(id, "w"); !errors.Is(err, redrive.ErrState) {
			t.Errorf("ruled on %s, which is not ambiguous: %v", id, err)
		}
	}
	if err := ruling(event.IntentID{Gen: no, Pos: 99, Try: 1}, "w"); !errors.Is(err, redrive.ErrNoGeneration) {
		t.Errorf("%v", err)
	}
	if err := ruling(event.IntentID{Gen: no, Pos: 0, Try: 1}, ""); !errors.Is(err, redrive.ErrArgument) {
		t.Errorf("ruled without a reason: %v", err)
	}
	b.rule(no, p[0], event.RuledDelivered)
	b.rule(no, p[1], event.RuledNotDelivered)
	b.custody(envs[0], event.Released)
	b.custody(envs[1], event.Quarantined)
	b.view(func(v ledger.View) {
		g := b.gen(no)
		if d := cmp.Diff([]event.IntentID{{Gen: no, Pos: 2, Try: 1}}, redrive.AmbiguousIntents(v, g, 10)); d != "" {
			t.Error(d)
		}
		if got := redrive.AmbiguousIntents(v, g, 0); len(got) != 0 {
			t.Errorf("more than asked for: %v", got)
		}
	})
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.RuleAll(v, no, event.RuledDelivered, "w") })
	if _, err := b.update(func(v ledger.View) ([]event.Event, error) { return redrive.RuleAll(v, no, event.RuledDelivered, "w") }); !errors.Is(err, redrive.ErrState) {
		t.Errorf("nothing left to rule on: %v", err)
	}
}

func TestFind(t *testing.T) {
	b := newBook(t)
	b.orders(2)
	first, err := b.freeze([]event.EnvelopeNo{1}, nil)
	b.ok(err)
	second, err := b.freeze([]event.EnvelopeNo{2}, nil)
	b.ok(err)
	b.view(func(v ledger.View) {
		id := b.gen(second).ID
		for _, name := range []string{"2", id, id[:24]} {
			if no, err := redrive.Find(v, name); err != nil || no != second {
				t.Errorf("%s: %d, %v", name, no, err)
			}
		}
		for _, name := range []string{"", "3", "0", id[:3], id[:4], "ZZZZZZ"} { // too short, or several
			if no, err := redrive.Find(v, name); !errors.Is(err, redrive.ErrNoGeneration) {
				t.Errorf("%q: %d, %v", name, no, err)
			}
		}
		if all, err := redrive.All(v); err != nil || len(all) != 2 || all[0].No != second || all[1].No != first {
			t.Errorf("%v %v", all, err)
		}
	})
}

// The next deadline is that of an outcome that is still awaited.
func TestDeadlinesOfOutcomes(t *testing.T) {
	b := newBook(t)
	b.orders(12)
	no := b.running()
	first := b.sent(no, 2)
	b.now = b.now.Add(30 * time.Minute)
	second := b.sent(no, 2)
	b.outcome(no, first[:1], event.OutcomeSucceeded)
	b.now = b.now.Add(30*time.Minute - time.Millisecond)
	if rc := b.due(); rc.First != 0 {
		t.Errorf("too early: %v", kinds(rc))
	}
	b.now = b.now.Add(time.Millisecond)
	b.due()
	if m := b.member(no, first[1].Pos); m.Disposition() != event.Missing {
		t.Errorf("%s", m.Disposition())
	}
	b.outcome(no, second[:1], event.OutcomeAdmitted)
	b.now = b.now.Add(time.Hour)
	b.due()
	if g := b.gen(no); g.Counts[event.Missing] != 2 || g.Counts[event.Admitted] != 1 || g.Counts[event.Succeeded] != 1 {
		t.Errorf("%v", g.Counts) // an admitted member stays admitted
	}
	if rc := b.due(); rc.First != 0 {
		t.Errorf("missed again: %v", kinds(rc))
	}
}
