package brokertest

import (
	"bytes"
	"context"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
)

func settleChecks() []check {
	return []check{
		{"settle removes exactly what it was given", nil, settleExact},
		{"settle of nothing does nothing", nil, settleNothing},
		{"settling twice is an error", nil, settleTwice},
		{"an unknown receipt is an error", nil, settleUnknown},
		{"return delivers again and says so", nil, returnRedelivers},
		{"close gives back what is not settled", nil, sessionClose},
		{"close with an ended context still closes", nil, sessionCloseEnded},
		{"receipts die with their session", nil, receiptsDie},
		{"body and properties belong to the receiver", nil, bodyOwned},
	}
}

func settleExact(e *env) {
	q := e.fill(10)
	session := e.open(e.source(), q, 10)
	ds := e.receive(session, 10)
	var odd []quarantine.Receipt
	var even [][]byte
	for i, d := range ds {
		if i%2 == 1 {
			odd = append(odd, d.Receipt)
		} else {
			even = append(even, d.Body)
		}
	}
	// Out of order, to see that no settlement includes its predecessors.
	odd[0], odd[4] = odd[4], odd[0]
	e.settle(session, odd...)
	if err := session.Close(e.ctx); err != nil {
		e.Fatal(err)
	}
	e.depth(e.source(), q, 5)
	e.holds(q, even...)
}

func settleNothing(e *env) {
	q := e.fill(1)
	session := e.open(e.source(), q, 1)
	e.receive(session, 1)
	e.settle(session)
	if err := session.Return(e.ctx, nil); err != nil {
		e.Errorf("return of nothing: %v", err)
	}
	if err := session.Close(e.ctx); err != nil {
		e.Fatal(err)
	}
	e.holds(q, number(0))
}

func settleTwice(e *env) {
	q := e.fill(2)
	s := e.source()
	session := e.open(s, q, 2)
	ds := e.receive(session, 2)
	e.settle(session, ds[0].Receipt)
	if err := session.Settle(e.ctx, receipts(ds[:1])); err == nil {
		e.Error("the second settlement of a receipt was taken")
	}
	if err := s.Close(); err != nil {
		e.Fatal(err)
	}
	e.holds(q, number(1))
}

func settleUnknown(e *env) {
	q := e.fill(1)
	s := e.source()
	session := e.open(s, q, 1)
	ds := e.receive(session, 1)
	if err := session.Settle(e.ctx, []quarantine.Receipt{ds[0].Receipt + 1000}); err == nil {
		e.Error("a receipt that was never given was settled")
	}
	if err := s.Close(); err != nil {
		e.Fatal(err)
	}
	e.holds(q, number(0))
}

func returnRedelivers(e *env) {
	q := e.fill(3)
	session := e.open(e.source(), q, 3)
	ds := e.receive(session, 3)
	e.settle(session, ds[0].Receipt, ds[2].Receipt)
	if err := session.Return(e.ctx, receipts(ds[1:2])); err != nil {
		e.Fatal(err)
	}
	again := e.receive(session, 1)[0]
	if !bytes.Equal(again.Body, number(1)) || !again.Redelivered {
		e.Errorf("%q redelivered %v", again.Body, again.Redelivered)
	}
	if again.DeliveryCount == 0 {
		e.Error("delivery count 0 at the second time; unknown would be -1")
	}
	sameAgain(e.TB, ds[1].Properties, again.Properties)
	if err := session.Settle(e.ctx, receipts(ds[1:2])); err == nil && ds[1].Receipt != again.Receipt {
		e.Error("the receipt of a returned delivery was settled")
	}
}

func sessionClose(e *env) {
	q := e.fill(5)
	s := e.source()
	session := e.open(s, q, 3)
	if err := session.Err(); err != nil {
		e.Errorf("a session that lives says %v", err)
	}
	ds := e.receive(session, 3)
	e.settle(session, ds[0].Receipt)
	for range 2 {
		if err := session.Close(e.ctx); err != nil {
			e.Fatal(err)
		}
	}
	e.ended(session)
	e.wantErr("session", session.Err(), quarantine.ErrClosed)
	e.wantErr("settle", session.Settle(e.ctx, receipts(ds[1:])), quarantine.ErrClosed)
	e.wantErr("return", session.Return(e.ctx, receipts(ds[1:])), quarantine.ErrClosed)

	next := e.open(s, q, 10)
	again := e.receive(next, 4)
	for _, d := range again {
		// Number 3 took the place of the settled one, and was perhaps on its way.
		if seen := string(d.Body) < string(number(3)); seen && !d.Redelivered {
			e.Errorf("%q was handed out before and is not marked as redelivered", d.Body)
		}
		if bytes.Equal(d.Body, number(4)) && d.Redelivered {
			e.Errorf("%q was beyond the prefetch and is marked as redelivered", d.Body)
		}
	}
}

func sessionCloseEnded(e *env) {
	q := e.fill(2)
	s := e.source()
	session := e.open(s, q, 2)
	e.receive(session, 2)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_ = session.Close(ctx) // an error says that the answer was not waited for
	e.ended(session)
	e.wantErr("session", session.Err(), quarantine.ErrClosed)
	e.depth(s, q, 2)
}

func receiptsDie(e *env) {
	q := e.fill(2)
	s := e.source()
	old := e.open(s, q, 2)
	ds := e.receive(old, 2)
	if err := old.Close(e.ctx); err != nil {
		e.Fatal(err)
	}
	session := e.open(s, q, 2)
	now := e.receive(session, 2)
	if err := session.Settle(e.ctx, receipts(ds[:1])); err == nil {
		e.Error("a new session settled a receipt of an old one")
	}
	for _, d := range now {
		if d.Receipt == ds[0].Receipt || d.Receipt == ds[1].Receipt {
			e.Errorf("receipt %d of the old session means something in the new one", d.Receipt)
		}
	}
	if err := s.Close(); err != nil {
		e.Fatal(err)
	}
	e.holds(q, numbers(0, 2)...)
}

func bodyOwned(e *env) {
	q := e.h.NewQueue(e.TB)
	props := allProperties(e.TB)
	e.h.Publish(e.TB, Raw{RoutingKey: q, Properties: props, Body: []byte("untouched")})
	session := e.open(e.source(), q, 1)
	d := e.receive(session, 1)[0]
	before := bytes.Clone(d.Properties)
	clear(d.Body)
	clear(d.Properties)
	if err := session.Return(e.ctx, []quarantine.Receipt{d.Receipt}); err != nil {
		e.Fatal(err)
	}
	again := e.receive(session, 1)[0]
	if diff := cmp.Diff("untouched", string(again.Body)); diff != "" {
		e.Error(diff)
	}
	sameAgain(e.TB, before, again.Properties)
}
