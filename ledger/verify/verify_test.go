package verify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/ledger/event"
)

// lived returns a ledger in which much happened and everything is in order.
func lived(tb testing.TB) *book {
	tb.Helper()
	b := running(tb)
	b.checkpoint()
	b.add(0, &event.EnvelopeSettled{Envs: event.Ranges{{First: 1, Last: 13}}})
	b.intend(1, 0, 1, 2, 3)
	b.resolve(event.Confirmed, 1, 0, 1)
	b.resolve(event.Returned, 1, 2)
	b.resolve(event.Ambiguous, 1, 3)
	b.checkpoint()
	b.outcome(event.OutcomeSucceeded, 1, 0)
	b.add(1, &event.OutcomeReported{Outcome: event.OutcomeRejected, Pos: pos(1), Try: 1, Details: b.object("details")})
	b.add(1, &event.GenerationAborted{Freed: 6})
	b.add(1, &event.GenerationSettling{})
	b.add(1, &event.GenerationClosed{Ambiguous: 1, Withheld: 2})
	b.wait(1000)
	b.plan(2)
	b.add(0, &event.LedgerClosed{})
	b.checkpoint()
	return b
}

func followed(*event.Record, []byte) ([]event.Digest, error) { return nil, nil }

func TestVerified(t *testing.T) {
	b := lived(t)
	rep := b.verify(Options{Pub: b.key.pub, Replay: true, References: followed})
	if rep.ExitCode() != 0 || rep.Verdict() != "verified" || len(rep.Warnings) != 0 {
		t.Fatalf("%+v", rep)
	}
	n := uint64(len(b.lines))
	if rep.Leaves != n || rep.Records != n || rep.Checkpoints != 3 || rep.Matched != 3 || rep.Unsigned != 0 || rep.Authentic != n || rep.Objects != 4 {
		t.Errorf("%+v", rep)
	}
	g := rep.Generations[0]
	want := Tally{Gen: 1, State: event.Closed, Selected: 13, Moved: 2}
	want.Counts[event.Waiting], want.Counts[event.DeduplicatedPlan], want.Counts[event.Withheld] = 6, 1, 2
	want.Counts[event.Succeeded], want.Counts[event.RejectedByConsumer] = 1, 1
	want.Counts[event.Undelivered], want.Counts[event.AmbiguousPublish] = 1, 1
	if g != want {
		t.Errorf("got  %+v\nwant %+v", g, want)
	}
}

// TestTrust walks through keys: none, the first, the second, a foreign one.
func TestTrust(t *testing.T) {
	rotated := func(oldSigns bool) (b *book, first, second string) {
		b = newBook(t)
		b.checkpoint()
		first = b.key.pub
		next := newSigner(t, 2)
		b.add(0, &event.LedgerRekeyed{Key: next.pub, Why: "yearly"})
		if oldSigns {
			b.checkpoint()
			b.key = next
		} else {
			b.key = next
			b.checkpoint()
		}
		b.add(0, filler())
		b.checkpoint()
		return b, first, next.pub
	}
	b, first, second := rotated(false)
	for name, c := range map[string]struct {
		pub       string
		exit      int
		authentic uint64
	}{
		"none":    {"", 0, 0},
		"first":   {first, 3, 2}, // it never vouched for the second
		"second":  {second, 0, 4},
		"foreign": {newSigner(t, 3).pub, 1, 0},
	} {
		rep := b.verify(Options{Pub: c.pub})
		if rep.ExitCode() != c.exit || rep.Authentic != c.authentic || rep.Matched != 3 {
			t.Errorf("%s: exit %d, authentic %d: %+v", name, rep.ExitCode(), rep.Authentic, rep)
		}
		if said := len(rep.Warnings) > 0 && strings.Contains(rep.Warnings[0], "authenticity is not proven"); said != (c.pub == "") {
			t.Errorf("%s: warnings %q", name, rep.Warnings)
		}
	}
	if b, first, _ := rotated(true); b.verify(Options{Pub: first}).ExitCode() != 0 {
		t.Error("the first key vouched for the second, and yet it is not trusted")
	}
	b.key = newSigner(t, 1)
	b.add(0, filler())
	b.checkpoint()
	b.held = second
	if f := b.verify(Options{}).First(); f == nil || f.Law != LawSignature {
		t.Errorf("the old key still signs: %v", f)
	}
	if _, err := Verify(context.Background(), b, Options{Pub: "nonsense"}); err == nil {
		t.Error("a trusted key that is none was accepted")
	}
	b = newBook(t)
	b.held = second
	if f := b.verify(Options{}).First(); f == nil || f.Law != LawKey {
		t.Errorf("the source holds another key: %v", f)
	}
}

func TestCheckpointsThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		law Law
		add func(b *book)
	}{
		"other origin": {LawCheckpoint, func(b *book) {
			b.notes = append(b.notes, b.signed("elsewhere\n2\n"+b.root().String()+"\n"))
		}},
		"other root": {LawRoot, func(b *book) { b.notes = append(b.notes, b.signed(origin+"\n2\n"+strings.Repeat("A", 43)+"=\n")) }},
		"beyond the end": {LawCheckpoint, func(b *book) {
			b.notes = append(b.notes, b.signed(origin+"\n3\n"+b.root().String()+"\n"))
		}},
		"twice":     {LawCheckpoint, func(b *book) { b.checkpoint(); b.checkpoint() }},
		"malformed": {LawCheckpoint, func(b *book) { b.notes = append(b.notes, []byte("nothing\n")) }},
		"descending": {LawCheckpoint, func(b *book) {
			b.checkpoint()
			b.add(0, filler())
			b.checkpoint()
			b.notes = append(b.notes, b.notes[0])
		}},
	} {
		b := newBook(t)
		c.add(b)
		rep := b.verify(Options{})
		if f := rep.First(); rep.ExitCode() != 1 || f.Law != c.law || !strings.HasPrefix(f.Place, "checkpoint ") {
			t.Errorf("%s: %v", name, rep.Findings)
		}
	}
}

// TestUncovered counts what no signature covers.
func TestUncovered(t *testing.T) {
	b := newBook(t)
	b.checkpoint()
	b.add(0, filler())
	rep := b.verify(Options{})
	if rep.ExitCode() != 0 || rep.Unsigned != 1 || !strings.Contains(strings.Join(rep.Warnings, "\n"), "not covered by a signature: 1") {
		t.Errorf("%+v", rep)
	}
	if rep := b.verify(Options{Pub: b.key.pub}); rep.ExitCode() != 3 || rep.Authentic != 2 {
		t.Errorf("with a trusted key: %+v", rep)
	}
}

// TestIncomplete has everything that cannot be checked end with 3.
func TestIncomplete(t *testing.T) {
	for name, c := range map[string]struct {
		say  string
		opt  Options
		edit func(b *book)
	}{
		"nothing": {"no records", Options{}, func(b *book) { b.lines, b.stored, b.notes = nil, nil, nil }},
		"object":  {"is missing", Options{}, func(b *book) { clear(b.objects) }},
		"payload": {"cannot open", Options{Payloads: true}, func(*book) {}},
		"newer version": {"newer version", Options{}, func(b *book) {
			b.add(0, filler())
			n := len(b.lines) - 1
			line := bytes.Replace(b.lines[n], []byte(`"v":1`), []byte(`"v":2`), 1)
			b.lines, b.stored = b.lines[:n], b.stored[:n]
			b.hashes = nil
			b.lines, b.stored = append(b.lines, line), append(b.stored, event.HashLine(line))
		}},
		"unknown kind": {"replay ended before record 21", Options{Replay: true}, func(b *book) { b.unknownKind() }},
		"unknown kind in a part": {"record 21: ", Options{}, func(b *book) {
			b.unknownKind()
			b.narrow(20, 21)
		}},
		"too many members": {"generation 3 selects more", Options{Replay: true}, func(b *book) {
			b.add(0, &event.LedgerOpened{})
			b.add(3, &event.GenerationPlanned{Limits: limits, Manifest: b.manifest(3), Members: maxReplayed + 1})
			b.approve(3)
		}},
		"too many envelopes": {"more envelopes", Options{Replay: true}, func(b *book) {
			b.add(0, &event.LedgerOpened{})
			b.put(event.Subject{Env: 14}, &event.EnvelopeCaptured{Count: 1 << 63, List: b.object("list")})
			b.add(0, &event.EnvelopeSettled{Envs: event.Ranges{{First: 14, Last: 1 << 62}}})
		}},
		"midway": {"replay: the scope begins at record 3", Options{Replay: true}, func(b *book) { b.narrow(3, 6) }},
	} {
		b := lived(t)
		b.next.Epoch++
		b.next.Mono = 0
		c.edit(b)
		rep := b.verify(c.opt)
		if rep.ExitCode() != 3 || rep.Verdict() != "incomplete" || !strings.Contains(strings.Join(rep.Incomplete, "\n"), c.say) {
			t.Errorf("%s: exit %d %v %v", name, rep.ExitCode(), rep.Incomplete, rep.Findings)
		}
	}
}

// unknownKind ends the ledger with a record that only a newer version knows.
func (b *book) unknownKind() {
	b.add(0, &event.LedgerOpened{})
	n := len(b.lines) - 1
	line := bytes.Replace(b.lines[n], []byte(`ledger.opened`), []byte(`ledger.unlocked`), 1)
	b.lines, b.stored = append(b.lines[:n:n], line), append(b.stored[:n:n], event.HashLine(line))
}

// narrow keeps the key records and those from first to last.
func (b *book) narrow(first, last uint64) {
	b.ext = Extent{Scope: Scope{From: 1, To: 2_000_000_000_000}, First: first, Last: last}
	b.lines = append(b.lines[:1:1], b.lines[first-1:last]...)
}

// choose keeps what belongs to one generation.
func (b *book) choose(gen event.GenerationNo) {
	b.ext = Extent{Scope: Scope{Gen: gen}, First: 1, Last: uint64(len(b.lines))}
	b.lines = slices.DeleteFunc(slices.Clone(b.lines), func(line []byte) bool {
		r, err := event.ParseRecord(line)
		return err != nil || !b.ext.holds(r)
	})
}

func TestExtentIsChecked(t *testing.T) {
	for name, edit := range map[string]func(b *book){
		"size":                 func(b *book) { b.ext.Size = uint64(len(b.lines)) + 1 },
		"records":              func(b *book) { b.ext.Records = uint64(len(b.lines)) - 1 },
		"epoch":                func(b *book) { b.ext.Epoch = 2 },
		"origin":               func(b *book) { b.ext.Origin = "elsewhere" },
		"epoch before":         func(b *book) { b.reopen(); b.narrow(20, 21); b.ext.Epoch = 1 },
		"epoch, generation 1":  func(b *book) { b.choose(1); b.ext.Epoch = 2 },
		"out of scope":         func(b *book) { b.narrow(3, 6); b.ext.Last = 5 },
		"first one missing":    func(b *book) { b.narrow(3, 6); b.ext.First = 2 },
		"last one missing":     func(b *book) { b.narrow(3, 6); b.ext.Last = 7 },
		"one between missing":  func(b *book) { b.narrow(3, 6); b.lines = append(b.lines[:2:2], b.lines[3:]...) },
		"two exchanged":        func(b *book) { b.narrow(3, 6); b.lines[2], b.lines[3] = b.lines[3], b.lines[2] },
		"one repeated":         func(b *book) { b.narrow(3, 6); b.lines[3] = b.lines[2] },
		"another generation's": func(b *book) { b.ext.Gen = 2 },
		"stored hash":          func(b *book) { b.stored[3][0] ^= 1 },
		"hash out of scope":    func(b *book) { b.narrow(3, 6); b.stored[8][0] ^= 1 },
		"hash in scope":        func(b *book) { b.narrow(3, 6); b.stored[4][0] ^= 1 },
		"fewer hashes":         func(b *book) { b.narrow(3, 6); b.stored = b.stored[:5] },
	} {
		b := lived(t)
		edit(b)
		rep := b.verify(Options{})
		if rep.ExitCode() != 1 {
			t.Errorf("%s: exit %d: %v", name, rep.ExitCode(), rep.Incomplete)
		} else if strings.HasPrefix(name, "epoch") && !strings.Contains(rep.First().Reason, "as the epoch") {
			t.Errorf("%s: %v", name, rep.First())
		}
	}
	b := lived(t)
	b.choose(1)
	if rep := b.verify(Options{Replay: true}); rep.ExitCode() != 0 || rep.Generations[0].State != event.Closed {
		t.Errorf("one generation, in order: %+v", rep)
	}
	b = lived(t)
	b.narrow(3, 6)
	b.ext.Epoch = 2 // begins after the range: a part cannot know
	if rep := b.verify(Options{Pub: b.key.pub}); rep.ExitCode() != 0 || rep.Records != 5 || rep.Leaves != uint64(len(b.stored)) {
		t.Errorf("in order: %+v", rep)
	}
}

// TestFlippedBits flips bits below the bundle, where no manifest protects them.
func TestFlippedBits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		b := lived(t)
		what := "line"
		list := b.lines
		if rnd.IntN(4) == 0 {
			what, list = "checkpoint", b.notes
		}
		i := rnd.IntN(len(list))
		bit := rnd.IntN(len(list[i]) * 8)
		list[i][bit/8] ^= 1 << (bit % 8)
		if rep := b.verify(Options{Replay: true}); rep.ExitCode() != 1 || rep.First().Place == "" {
			t.Fatalf("bit %d of %s %d: exit %d\n%s", bit, what, i+1, rep.ExitCode(), list[i])
		}
	}
}

func TestObjects(t *testing.T) {
	b := lived(t)
	for d := range b.objects {
		b.objects[d] = append(b.objects[d], '!')
		break
	}
	if f := b.verify(Options{}).First(); f == nil || f.Law != LawObject {
		t.Errorf("a changed object: %v", f)
	}
	b = lived(t)
	chunk, err := event.ParseDigest(b.object("chunk"))
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{References: func(r *event.Record, _ []byte) ([]event.Digest, error) {
		if r.Body.Kind() == event.KindGenerationPlanned {
			return []event.Digest{chunk}, nil
		}
		return nil, nil
	}}
	if rep := b.verify(opt); rep.ExitCode() != 0 || rep.Objects != 5 {
		t.Errorf("with a chunk: %+v", rep)
	}
	b.objects[chunk][0]++
	if rep := b.verify(opt); rep.ExitCode() != 1 {
		t.Errorf("with a changed chunk: %+v", rep)
	}
	delete(b.objects, chunk)
	if rep := b.verify(opt); rep.ExitCode() != 3 {
		t.Errorf("without a chunk: %+v", rep)
	}
	if opt.Since = 19; b.verify(opt).ExitCode() != 3 {
		t.Error("the plan of record 19 was spared")
	}
	opt.Since = uint64(len(b.lines)) + 1
	if rep := b.verify(opt); rep.ExitCode() != 0 || rep.Objects != 0 {
		t.Errorf("since later: %+v", rep)
	}
	opt = Options{References: func(*event.Record, []byte) ([]event.Digest, error) { return nil, errors.New("not a list") }}
	if rep := b.verify(opt); rep.ExitCode() != 1 {
		t.Errorf("an object that cannot be read: %+v", rep)
	}
}

// vault is a book that can open its envelopes.
type vault struct {
	*book
	list []Commitment
}

func (v *vault) Commitments(_ context.Context, r *event.Record, _ []byte) iter.Seq2[Commitment, error] {
	if r.Subj.Env != 1 {
		return each[Commitment](nil)
	}
	return each(v.list)
}

func TestPayloads(t *testing.T) {
	commit := func(env event.EnvelopeNo, content string) Commitment {
		mac := hmac.New(sha256.New, []byte("secret"))
		mac.Write([]byte(content))
		return Commitment{Env: env, Part: "body", Key: []byte("secret"), Content: []byte(content), Sum: event.Digest(mac.Sum(nil))}
	}
	for name, c := range map[string]struct {
		exit int
		edit func(v *vault)
	}{
		"in order":       {0, func(*vault) {}},
		"changed":        {1, func(v *vault) { v.list[1].Content = []byte("900") }},
		"of others":      {1, func(v *vault) { v.list[1].Env = 3 }},
		"one left out":   {3, func(v *vault) { v.list = v.list[:1] }},
		"gone":           {3, func(v *vault) { v.list[1].Erased = true }},
		"purged":         {0, func(v *vault) { v.list[1].Erased = true; v.add(0, &event.EnvelopePurged{Envs: pos(2)}) }},
		"expired":        {0, func(v *vault) { v.list[1].Erased = true; v.add(0, &event.EnvelopeExpired{Envs: pos(2)}) }},
		"another purged": {3, func(v *vault) { v.list[1].Erased = true; v.add(0, &event.EnvelopePurged{Envs: pos(1)}) }},
	} {
		v := &vault{newBook(t), []Commitment{commit(1, "100"), commit(2, "200")}}
		v.capture(1, 2)
		c.edit(v)
		rep, err := Verify(context.Background(), v, Options{Payloads: true})
		if err != nil || rep.ExitCode() != c.exit {
			t.Errorf("%s: %v %+v", name, err, rep)
		}
	}
}

// TestClosedInFlight warns: the next epoch has to deal with it.
func TestClosedInFlight(t *testing.T) {
	b := running(t)
	b.intend(1, 0, 1)
	b.add(0, &event.LedgerClosed{})
	rep := b.verify(Options{Replay: true})
	if rep.ExitCode() != 0 || !strings.Contains(strings.Join(rep.Warnings, "\n"), "in order with 2 unresolved intents") {
		t.Errorf("%+v", rep)
	}
}

// TestClockGoesBack warns, and does nothing else.
func TestClockGoesBack(t *testing.T) {
	b := newBook(t)
	b.next.TS -= drift
	b.add(0, filler())
	if rep := b.verify(Options{}); len(rep.Warnings) != 3 {
		t.Errorf("within the tolerance: %q", rep.Warnings)
	}
	b.next.TS -= drift + 1
	b.add(0, filler())
	rep := b.verify(Options{Replay: true})
	if rep.ExitCode() != 0 || !strings.Contains(strings.Join(rep.Warnings, "\n"), "record 4: the wall clock went back by 300 s") {
		t.Errorf("beyond it: %+v", rep)
	}
}

func TestReadingFails(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if rep, err := Verify(ctx, lived(t), Options{}); !errors.Is(err, context.Canceled) || rep != nil {
		t.Errorf("got %v, %v", rep, err)
	}
}

// TestFindingsAreBounded has thousands of breaches and keeps a hundred.
func TestFindingsAreBounded(t *testing.T) {
	b := newBook(t)
	for range 3 * MaxFindings {
		b.next.Prev[0] ^= 1
		b.add(0, filler())
	}
	if rep := b.verify(Options{}); len(rep.Findings) != MaxFindings || rep.Broken != 3*MaxFindings {
		t.Errorf("%d kept of %d", len(rep.Findings), rep.Broken)
	}
}

// TestContradictions counts tries that were seen although they were recorded as
// never delivered, in whichever order that became known.
func TestContradictions(t *testing.T) {
	b := running(t)
	b.intend(1, 0, 1, 2, 3)
	b.outcome(event.OutcomeAdmitted, 1, 0) // before its resolution
	b.resolve(event.Returned, 1, 0, 1)
	b.resolve(event.Nacked, 1, 2)
	b.resolve(event.Ambiguous, 1, 3)
	b.outcome(event.OutcomeSucceeded, 1, 2) // another queue took it: no contradiction
	b.rule(event.RuledNotDelivered, 1, 3)
	b.capture(14, 1)
	b.back(14, 3, 1, 0)
	b.outcome(event.OutcomeRejected, 1, 3)
	b.outcome(event.OutcomeSucceeded, 1, 3)
	b.wait(1000)
	b.intend(1, 4)
	b.again(1, 4)
	b.outcome(event.OutcomeSucceeded, 1, 4)
	rep := b.verify(Options{Replay: true})
	g := rep.Generations[0]
	if rep.ExitCode() != 0 || g.Contradictions != 3 || g.Conflicts != 1 || g.Moved != 4 {
		t.Errorf("%v %+v", rep.Findings, g)
	}
	if said := strings.Join(rep.Warnings, "\n"); !strings.Contains(said, "generation 1: 3 tries were seen") {
		t.Errorf("warnings %s", said)
	}
}
