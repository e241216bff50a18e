package control_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// barrier holds the k-th write of a wire until it is opened.
type barrier struct {
	mu      sync.Mutex
	left    int
	reached chan struct{}
	open    chan struct{}
}

func newBarrier(k int) *barrier {
	return &barrier{left: k, reached: make(chan struct{}), open: make(chan struct{})}
}

func (b *barrier) before(redrive.Message) error {
	b.mu.Lock()
	b.left--
	mine := b.left == -1
	b.mu.Unlock()
	if mine {
		close(b.reached)
		<-b.open
	}
	return nil
}

// shards spreads seeds over stores that work at the same time: most of the time
// goes by in waiting for the disk.
func shards(t *testing.T, seeds uint64, fn func(t *testing.T, from, to uint64)) {
	t.Helper()
	const each = 25
	turns := make(chan struct{}, 4)
	var wg sync.WaitGroup
	for from := uint64(0); from < seeds; from += each {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			t.Run(fmt.Sprintf("seeds from %d", from), func(t *testing.T) { fn(t, from, from+each) })
		})
	}
	wg.Wait()
}

// A pause and an abort race while a burst is handed over, and perhaps somebody
// resumes between them. Whatever order the committer gives them, nothing goes
// out behind the abort but the write that was in progress.
func TestNothingIsPublishedBehindAnAbort(t *testing.T) {
	shards(t, 200, func(t *testing.T, from, to uint64) { raceAbort(newWorld(t), from, to) })
}

func raceAbort(w *world, from, to uint64) {
	const burst = 6
	for seed := from; seed < to; seed++ {
		rnd := rand.New(rand.NewPCG(seed, 1))
		id := w.planned(fast(w.orders(burst)...))
		b := newBarrier(rnd.IntN(burst - 1))
		w.wire.set(b.before, confirm)
		s := w.start(id)
		<-b.reached
		acts := []func(){
			func() {
				_, _ = api.Call(as("ann"), w.c, api.GenerationPause, api.PauseRequest{ID: id, Why: "look"}, nil)
			},
			func() {
				_, _ = api.Call(as("bob"), w.c, api.GenerationPause, api.PauseRequest{All: true, Why: "look"}, nil)
			},
			func() { w.resume(id) },
		}
		rnd.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
		acts = append(acts[:rnd.IntN(len(acts)+1)], func() { do(w, api.GenerationAbort, api.GenerationAct{ID: id, Why: "wrong"}) })
		rnd.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
		var wg sync.WaitGroup
		for _, act := range acts {
			wg.Go(act)
			for range rnd.IntN(200) {
				runtime.Gosched()
			}
		}
		wg.Wait()
		before := w.wire.count()
		close(b.open)
		w.end(s)
		w.until("the generation settles", func() bool { st := w.state(id); return st == "settling" || st == "closed" })
		if n := w.wire.count() - before; n != 1 {
			w.Fatalf("seed %d: %d writes ended behind the abort, want the one that was in progress", seed, n)
		}
	}
}

// A stop and a quick resume while the runner waits leave nothing behind: the
// release goes on, and no member has a try without a send.
func TestQuickResumeWhileTheRunnerWaits(t *testing.T) {
	const n = 12
	slow := func(w *world) api.PlanRequest {
		p := fast(w.orders(n)...)
		p.Rate, p.Burst = 0.001, 1
		return p
	}
	window := func(w *world) api.PlanRequest {
		w.wire.set(nil, silent)
		p := fast(w.orders(n)...)
		p.Window = 3
		return p
	}
	stage := func(w *world) api.PlanRequest {
		p := fast(w.orders(n)...)
		p.Stages, p.Evidence = []uint64{1}, "outcomes"
		return p
	}
	for _, tc := range []struct {
		name  string
		plan  func(w *world) api.PlanRequest
		sent  int // when the runner waits
		go1on func(w *world, id string)
	}{
		{"rate", slow, 0, func(w *world, id string) {
			_, err := api.Call(as("bob"), w.c, api.GenerationLimit, api.LimitRequest{ID: id, Rate: 1_000_000, Burst: 64, Approve: true, Why: "seen"}, nil)
			must(w, err)
		}},
		{"window", window, 3, func(w *world, _ string) { w.wire.confirmAll() }},
		{"stage", stage, 1, func(w *world, _ string) {
			do(w, api.OutcomeReport, api.OutcomeRequest{Via: "command", Reports: []string{w.reportOf(w.wire.messages()[0], event.OutcomeSucceeded)}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.planned(tc.plan(w))
			s := w.start(id)
			w.until("the runner waits", func() bool { return w.wire.count() == tc.sent && w.state(id) == "running" })
			rnd := rand.New(rand.NewPCG(7, 7))
			for range 20 {
				w.pause(id)
				for range rnd.IntN(2000) {
					runtime.Gosched()
				}
				r := w.resume(id)
				w.until("it runs again", func() bool { return w.state(id) == "running" })
				r.cancel()
				<-r.done
			}
			if got := w.wire.count(); got != tc.sent {
				t.Fatalf("%d messages went out, want %d", got, tc.sent)
			}
			tc.go1on(w, id)
			w.until("everything goes out", func() bool { return w.wire.count() == n })
			w.end(s)
			for p, m := range w.members(id) {
				if m.Tries != 1 {
					t.Errorf("member %d has %d tries and one send", p, m.Tries)
				}
			}
		})
	}
}

// Between a durable pause and the resume there is no intent, and behind an
// abort none at all; the wire sees at most the write that was in progress.
func TestNoIntentWhilePaused(t *testing.T) {
	runs := uint64(1000)
	if testing.Short() || raceEnabled {
		runs = 200
	}
	shards(t, runs, func(t *testing.T, from, to uint64) {
		w := newWorld(t)
		for seed := from; seed < to; seed++ {
			stopAndGo(w, seed)
		}
		w.noIntentBehindStops()
	})
}

// stopAndGo pauses and resumes one release at random moments, and aborts some.
// A release can be over before the moment comes; in one of four runs it cannot,
// because its first write lasts until the stop is durable.
func stopAndGo(w *world, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	writes, open := make(chan struct{}, 100), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(open) })
	if seed%4 != 0 {
		goOn()
	}
	w.wire.set(func(redrive.Message) error {
		writes <- struct{}{}
		<-open
		return nil
	}, confirm)
	plan := fast(w.orders(3 + rnd.IntN(5))...)
	plan.Window = uint32(1 + rnd.IntN(3)) // each window takes two commits
	id := w.planned(plan)
	s := w.start(id)
	for range 1 + rnd.IntN(3) {
		select {
		case <-writes:
		case <-s.done:
		}
		for range rnd.IntN(1000) {
			runtime.Gosched()
		}
		if rnd.IntN(6) == 0 {
			_, _ = api.Call(as("ann"), w.c, api.GenerationAbort, api.GenerationAct{ID: id, Why: "wrong"}, nil)
			break
		}
		if _, err := api.Call(as("ann"), w.c, api.GenerationPause, api.PauseRequest{ID: id, Why: "look"}, nil); err != nil {
			break // it is over
		}
		stopped := w.wire.count()
		goOn()
		for range rnd.IntN(1000) {
			runtime.Gosched()
		}
		if got := w.wire.count(); got > stopped+1 {
			w.Fatalf("seed %d: %d messages were written behind the pause", seed, got-stopped)
		}
		w.resume(id)
		w.until("it is resumed", func() bool { return w.state(id) != "paused" })
	}
	goOn()
	w.until("it ends", func() bool {
		switch w.state(id) {
		case "settling", "closed":
			return true
		case "paused":
			<-w.resume(id).done
		}
		return false
	})
	w.end(s)
}

// noIntentBehindStops reads the whole ledger.
func (w *world) noIntentBehindStops() {
	w.Helper()
	stopped := map[event.GenerationNo]string{}
	pauses, intents := 0, 0
	must(w, w.store.View(func(r ledger.Reader) error {
		return ledger.Records(r, 1, func(rec *event.Record) bool {
			no := rec.Subj.Gen
			switch rec.Body.Kind() {
			case event.KindGenerationPaused:
				pauses++
				if stopped[no] == "" {
					stopped[no] = fmt.Sprintf("the pause in record %d", rec.Seq)
				}
			case event.KindGenerationAborted:
				stopped[no] = fmt.Sprintf("the abort in record %d", rec.Seq)
			case event.KindGenerationResumed:
				delete(stopped, no)
			case event.KindMemberIntended:
				intents++
				if why := stopped[no]; why != "" {
					w.Errorf("record %d is an intent of generation %d behind %s", rec.Seq, no, why)
				}
			}
			return true
		})
	}))
	if pauses == 0 || intents == 0 {
		w.Errorf("%d pauses and %d intents: nothing was tested", pauses, intents)
	}
}
