package redrive_test

import (
	"context"
	"testing"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/redrive"
)

// Every second member goes out repaired: each is found in whichever list it
// stands, and none of the others is.
func TestRepairListsFindEachMember(t *testing.T) {
	b := newBook(t)
	b.orders(1)
	var all []redrive.RepairedMember
	for i := range 2*redrive.ChunkSize + 7 {
		all = append(all, redrive.RepairedMember{Pos: event.Position(2*i + 1), Candidate: uint64(i%9 + 1), Commitment: event.Digest{byte(i), byte(i >> 8)}})
	}
	lists, digests := redrive.RepairObjects(all)
	if len(digests) != 3 {
		t.Fatalf("%d lists", len(digests))
	}
	b.ok(b.log.Store(context.Background(), ledger.Request{Actor: b.actor}, lists))
	g := &redrive.Generation{Repairs: digests}
	b.view(func(v ledger.View) {
		var l redrive.RepairLists
		for i, want := range all {
			got, err := l.Of(v, g, want.Pos)
			b.ok(err)
			if got != want {
				t.Fatalf("member %d is %+v", i, got)
			}
			if got, err = l.Of(v, g, want.Pos-1); err != nil || got != (redrive.RepairedMember{}) {
				t.Fatalf("position %d is %+v, %v", want.Pos-1, got, err)
			}
		}
		if got, err := l.Of(v, g, all[len(all)-1].Pos+1); err != nil || got.Candidate != 0 {
			t.Errorf("behind the last: %+v, %v", got, err)
		}
		if got, err := l.Of(v, &redrive.Generation{}, 1); err != nil || got.Candidate != 0 {
			t.Errorf("without lists: %+v, %v", got, err)
		}
	})
}
