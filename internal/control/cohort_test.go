package control_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// siblings stores the same operations from two queues: n in each, of which
// each envelope of one queue has its twin in the other.
func (w *world) siblings(n int) {
	w.Helper()
	from := w.next
	for _, queue := range []string{"a.dlq", "b.dlq"} {
		ds := make([]quarantine.Delivery, 0, n)
		for i := range n {
			ds = append(ds, dead(fmt.Sprintf("order-%d", from+i), []byte("same")))
		}
		w.capture(queue, ds...)
	}
}

func of(queue string) api.PlanRequest {
	return api.PlanRequest{Queue: queue, Rate: 1_000_000, Burst: 64, Bake: "1ms"}
}

// openOperations reads the operations of members of open generations, with how many of
// these generations have each.
func (w *world) openOperations() map[string]int {
	w.Helper()
	out := map[string]int{}
	must(w, w.store.View(func(r ledger.Reader) error {
		gens, err := redrive.Unfinished(r)
		if err != nil {
			return err
		}
		for _, g := range gens {
			if !g.State.Open() {
				continue
			}
			if err := redrive.EachMember(r, g, func(_ event.Position, env event.EnvelopeNo) error {
				f, err := quarantine.GetFacts(r, env)
				if err == nil {
					out[f.Operation]++
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	return out
}

// While a generation is open no other one has one of its operations.
func TestAnOperationGoesOutOnce(t *testing.T) {
	w := newWorld(t)
	w.siblings(3)
	do(w, api.GenerationPlan, of("a.dlq"))
	_, err := api.Call(as("ann"), w.c, api.GenerationPlan, of("b.dlq"), nil)
	if !refusedWith(err, api.CodeRefused) {
		t.Errorf("the twins were planned: %v", err)
	}
	w.orders(1)
	p := do(w, api.GenerationPlan, api.PlanRequest{All: true, ToQueue: "orders"})
	want := map[string]uint64{redrive.ReasonReserved: 3, redrive.ReasonOperationReserved: 3}
	for _, x := range p.Excluded {
		if want[x.Reason] != x.Count {
			t.Errorf("%d stay as %s, want %v", x.Count, x.Reason, want)
		}
	}
	if p.Members != 1 {
		t.Errorf("%d members, want the order alone", p.Members)
	}
	do(w, api.GenerationReject, api.GenerationAct{ID: "1", Why: "no"})
	if p := do(w, api.GenerationPlan, of("b.dlq")); p.Members != 3 {
		t.Errorf("%d members after the rejection, want 3", p.Members)
	}
}

// A plan that is frozen while another one is made sends that one back to
// select again: it sees the operations that are taken now.
func TestAStalePlanSelectsAgain(t *testing.T) {
	w := newWorld(t)
	w.siblings(3)
	w.capture("b.dlq", dead("alone", []byte("b")))
	w.kv.afterView("(*planning).choose", func() { do(w, api.GenerationPlan, of("a.dlq")) })
	p := do(w, api.GenerationPlan, of("b.dlq"))
	if p.Generation.Number != 2 || p.Members != 1 {
		t.Errorf("generation %d has %d members, want 2 with the one operation that is free", p.Generation.Number, p.Members)
	}
	for op, n := range w.openOperations() {
		if n != 1 {
			t.Errorf("%s is in %d open generations", op, n)
		}
	}
}

// Plans that are made at the same time share no operation, whichever is first,
// and what goes out goes out once.
func TestConcurrentPlansShareNoOperation(t *testing.T) {
	w := newWorld(t)
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		w.siblings(1 + rnd.IntN(3))
		queues := []string{"a.dlq", "b.dlq", "a.dlq", "b.dlq"}
		rnd.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		made := make([]*api.Generation, len(queues))
		var wg sync.WaitGroup
		for i, q := range queues {
			wg.Go(func() {
				p, err := api.Call(as("ann"), w.c, api.GenerationPlan, of(q), nil)
				if err == nil {
					made[i] = p.Generation
				} else if !refusedWith(err, api.CodeRefused) {
					t.Errorf("seed %d: %v", seed, err)
				}
			})
		}
		wg.Wait()
		for op, n := range w.openOperations() {
			if n != 1 {
				t.Fatalf("seed %d: %s is in %d open generations", seed, op, n)
			}
		}
		for _, g := range made {
			if g != nil {
				do(w, api.GenerationReject, api.GenerationAct{ID: fmt.Sprint(g.Number), Why: "next"})
			}
		}
	}
}

// A publisher that gives a whole batch one message id has not named one
// operation; the same id with the same content is one.
func TestReusedMessageID(t *testing.T) {
	w := newWorld(t)
	w.capture("orders.dlq", dead("same", []byte("row 1")), dead("same", []byte("row 2")), dead("same", []byte("row 2")))
	p := do(w, api.GenerationPlan, api.PlanRequest{All: true, DryRun: true})
	if p.Members != 2 || len(p.Excluded) != 1 || p.Excluded[0] != (api.Excluded{Reason: redrive.ReasonDuplicate, Count: 1}) {
		t.Errorf("%d members, %v stay", p.Members, p.Excluded)
	}
}
