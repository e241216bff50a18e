package redrive_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

func cand(no event.EnvelopeNo, change func(*quarantine.Cell)) redrive.Candidate {
	c := redrive.Candidate{No: no, Cell: quarantine.Cell{Custody: event.Quarantined}}
	if change != nil {
		change(&c.Cell)
	}
	return c
}

// Release order is capture order, except that the first of each reason and
// type goes before.
func TestCohortTriesEveryKindFirst(t *testing.T) {
	var cs []redrive.Candidate
	for i, k := range [][2]quarantine.Word{{1, 1}, {1, 1}, {2, 1}, {1, 1}, {1, 2}, {2, 1}, {0, 0}} {
		cs = append(cs, cand(event.EnvelopeNo(i+1), func(c *quarantine.Cell) { c.Reason, c.Type = k[0], k[1] }))
	}
	members, out := redrive.Cohort(cs, redrive.NewOperations(), func(event.EnvelopeNo) bool { return false })
	if d := cmp.Diff([]event.EnvelopeNo{1, 3, 5, 7, 2, 4, 6}, members); d != "" || len(out) != 0 {
		t.Errorf("%s%v", d, out)
	}
}

// One candidate for each reason to stay, and the one that goes.
func TestExclusionsHaveStableReasons(t *testing.T) {
	type cell = quarantine.Cell
	cases := []struct {
		reason string
		change func(*cell)
	}{
		{redrive.ReasonNotQuarantined, func(c *cell) { c.Custody = event.Released }},
		{redrive.ReasonNotQuarantined, func(c *cell) { c.Custody = event.Purged; c.Flags = quarantine.PayloadGone }},
		{redrive.ReasonHeld, func(c *cell) { c.Flags = quarantine.Held }},
		{redrive.ReasonPayloadGone, func(c *cell) { c.Flags = quarantine.PayloadGone }},
		{redrive.ReasonReserved, nil},
		{redrive.ReasonAmbiguousEffect, func(c *cell) { c.Class = event.AmbiguousOutcome }},
		{redrive.ReasonPossibleDuplicate, func(c *cell) { c.Flags = quarantine.FlagPossibleDuplicate }},
		{redrive.ReasonConflict, func(c *cell) { c.Operation, c.Meaning = 1, 1 }},
		{redrive.ReasonConflict, func(c *cell) { c.Operation, c.Meaning = 1, 2 }},
		{redrive.ReasonConflict, func(c *cell) { c.Operation, c.Meaning = 1, 1 }},
		{redrive.ReasonOperationResolved, func(c *cell) { c.Operation = 2 }},
		{redrive.ReasonOperationInDoubt, func(c *cell) { c.Operation = 3 }},
		{redrive.ReasonOperationReserved, func(c *cell) { c.Operation = 5 }},
		{"", func(c *cell) { c.Operation = 4 }},
		{redrive.ReasonDuplicate, func(c *cell) { c.Operation = 4 }},
		{"", nil}, {"", nil}, // no operation: never duplicates of each other
	}
	ops := redrive.NewOperations()
	ops.Note(&cell{Operation: 2, Custody: event.ResolvedForNow, Gen: 1}, false)
	ops.Note(&cell{Operation: 3, Custody: event.Released, Gen: 1}, false)
	ops.Note(&cell{Operation: 4, Custody: event.ResolvedForNow}, false) // by a person, never released
	ops.Note(&cell{Custody: event.Released}, false)                     // no operation: says nothing
	ops.Note(&cell{Operation: 5, Custody: event.Quarantined}, true)     // of a member of an open generation
	var cs []redrive.Candidate
	for i, c := range cases {
		cs = append(cs, cand(event.EnvelopeNo(i+1), c.change))
		ops.Note(&cs[i].Cell, false) // as the use case does, for every envelope of the store
	}
	members, out := redrive.Cohort(cs, ops, func(no event.EnvelopeNo) bool { return cases[no-1].reason == redrive.ReasonReserved })
	got := map[event.EnvelopeNo]string{}
	for _, x := range out {
		got[x.Env] = x.Reason
		if x.Reason == redrive.ReasonDuplicate && members[x.Sibling] != 14 {
			t.Errorf("the sibling of the duplicate is envelope %d", members[x.Sibling])
		}
	}
	for i, c := range cases {
		no := event.EnvelopeNo(i + 1)
		if got[no] != c.reason || (c.reason == "") != slices.Contains(members, no) {
			t.Errorf("envelope %d: %q, want %q", no, got[no], c.reason)
		}
	}
}

func TestDefaultStages(t *testing.T) {
	for _, c := range []struct {
		members uint64
		want    []uint64
	}{
		{1, []uint64{1}}, {2, []uint64{1, 2}}, {11, []uint64{1, 11}}, {12, []uint64{1, 11, 12}},
		{100, []uint64{1, 11, 21, 100}}, {1_000_000, []uint64{1, 11, 1011, 1_000_000}},
	} {
		if d := cmp.Diff(c.want, redrive.DefaultStages(c.members)); d != "" {
			t.Errorf("%d members: %s", c.members, d)
		}
	}
}

func TestOpenGenerationsDoNotOverlap(t *testing.T) {
	b := newBook(t)
	envs := b.orders(40_000 / 400) // within one block of the bitmap
	no, err := b.freeze(envs[10:20], nil)
	b.ok(err)
	_, err = b.freeze(envs[19:30], nil)
	if !errors.Is(err, redrive.ErrReserved) {
		t.Fatalf("overlapping plans: %v", err)
	}
	if _, err := b.freeze(envs[20:30], nil); err != nil {
		t.Errorf("plans side by side: %v", err)
	}
	b.view(func(v ledger.View) {
		for i, env := range envs[:31] {
			gen := reservedBy(t, v)(env)
			if want := i >= 10 && i < 30; (gen != 0) != want || want && (gen == no) != (i < 20) {
				t.Errorf("envelope %d is reserved by %d", env, gen)
			}
		}
	})
}

// What an abort frees can be planned in the next moment, and what it left in
// flight cannot.
func TestPlanningAgainRightAfterAnAbort(t *testing.T) {
	b := newBook(t)
	envs := b.orders(12)
	first := b.running()
	flying := b.intended(first, 2)
	rc := b.abort(first)
	if a, ok := rc.Records[0].Body.(*event.GenerationAborted); !ok || a.Freed != 10 {
		t.Errorf("freed %+v", rc.Records[0].Body)
	}
	second := b.plan()
	if g := b.gen(second); g.Members != 10 {
		t.Fatalf("%d members, want 10", g.Members)
	}
	again := end(flying, event.Refused, "paused")
	again[0].Again, again[1].Again = true, true
	b.resolve(first, again...)
	b.custody(envs[0], event.Quarantined)
	third := b.plan()
	if g := b.gen(third); g.Members != 2 {
		t.Errorf("%d members, want 2", g.Members)
	}
	b.state(first, event.Closed)
}

func TestAbortFreesWhatNeverCameToAnEnd(t *testing.T) {
	b := newBook(t)
	b.orders(5)
	no := b.plan()
	b.must(func(v ledger.View) ([]event.Event, error) { return redrive.Reject(v, no, "no") })
	if g := b.gen(b.plan()); g.Members != 5 {
		t.Errorf("a rejected plan keeps %d of 5 members", 5-g.Members)
	}
	b.now = b.now.Add(7 * 24 * time.Hour)
	b.due()
	if g := b.gen(b.plan()); g.Members != 5 {
		t.Errorf("an expired plan keeps %d of 5 members", 5-g.Members)
	}
}

func TestTenThousandMembersInChunks(t *testing.T) {
	var members []event.EnvelopeNo
	for i := range 10_000 {
		members = append(members, event.EnvelopeNo(10_000-i)*3)
	}
	objects, digests := redrive.MemberObjects(members)
	if len(objects) != 3 || len(digests) != 3 || len(objects[0].Value) != 8*redrive.ChunkSize || len(objects[2].Value) != 8*(10_000-2*redrive.ChunkSize) {
		t.Fatalf("%d chunks", len(objects))
	}
	b := newBook(t)
	b.orders(1) // the ledger must have begun
	no, err := b.freeze(members, nil)
	b.ok(err)
	b.view(func(v ledger.View) {
		g, err := redrive.Get(v, no)
		b.ok(err)
		n := 0
		b.ok(redrive.EachMember(v, g, func(pos event.Position, env event.EnvelopeNo) error {
			if n++; env != members[pos] {
				return fmt.Errorf("position %d is envelope %d", pos, env)
			}
			return nil
		}))
		if n != 10_000 {
			t.Errorf("%d members", n)
		}
		for _, pos := range []event.Position{0, 4095, 4096, 8191, 8192, 9999} {
			if env, err := g.EnvelopeAt(v, pos); err != nil || env != members[pos] {
				t.Errorf("position %d: %d, %v", pos, env, err)
			}
		}
		if _, err := g.EnvelopeAt(v, 10_000); !errors.Is(err, redrive.ErrNoGeneration) {
			t.Errorf("beyond the cohort: %v", err)
		}
	})
}

func TestExclusionsAreListedInTheManifest(t *testing.T) {
	b := newBook(t)
	b.orders(1)
	var out []redrive.Exclusion
	for i := range 5000 {
		out = append(out, redrive.Exclusion{Env: event.EnvelopeNo(i + 2), Reason: redrive.ReasonHeld, Sibling: event.Position(i)})
	}
	no, err := b.freeze([]event.EnvelopeNo{1}, out)
	b.ok(err)
	var got []redrive.Exclusion
	b.view(func(v ledger.View) {
		m, err := redrive.GetManifest(v, b.gen(no).Manifest)
		b.ok(err)
		b.ok(redrive.Exclusions(v, m, func(x redrive.Exclusion) error { got = append(got, x); return nil }))
	})
	if d := cmp.Diff(out, got); d != "" {
		t.Error(d)
	}
}

func TestApproval(t *testing.T) {
	b := newBook(t)
	b.orders(3)
	no := b.plan(func(m *redrive.Manifest) { m.SelfApprove = 2 })
	other := event.Actor{Auth: "os", Subject: "approver"}
	approve := func(digest string, by event.Actor) error {
		_, err := b.update(func(v ledger.View) ([]event.Event, error) {
			return redrive.Approve(v, no, digest, by, "", redrive.ApprovalRules{TTL: time.Hour})
		})
		return err
	}
	digest := b.gen(no).Manifest
	if err := approve(digest, b.actor); !errors.Is(err, redrive.ErrState) {
		t.Errorf("the planner approved three, two are allowed: %v", err)
	}
	as := b.actor
	as.As = "approver" // asserted names prove nothing
	if err := approve(digest, as); !errors.Is(err, redrive.ErrState) {
		t.Errorf("approved by assertion: %v", err)
	}
	if err := approve(strings.Repeat("0", 64), other); !errors.Is(err, redrive.ErrState) {
		t.Errorf("another digest: %v", err)
	}
	b.ok(approve(digest, other))
	b.now = b.now.Add(time.Hour)
	if _, err := b.update(func(v ledger.View) ([]event.Event, error) { return redrive.Start(v, no) }); !errors.Is(err, redrive.ErrState) {
		t.Errorf("started on an approval that has expired: %v", err)
	}
	b.due()
	b.state(no, event.Expired)
}
