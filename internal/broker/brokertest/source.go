package brokertest

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// absent is a name that no queue or exchange has.
const absent = "redrive.brokertest.absent"

func sourceChecks() []check {
	return []check{
		{"capabilities never change", nil, capsStay},
		{"a missing queue is not declared", nil, missingQueue},
		{"invalid options are refused", nil, invalidSession},
		{"denied access is refused for good", func(h Harness) bool { return h.NewRefused != nil }, refused},
		{"an ended context opens nothing", nil, endedContext},
		{"deliveries come in order with their routing", nil, order},
		{"prefetch bounds what is handed out", nil, prefetchBound},
		{"prefetch can be raised and lowered", nil, prefetchChanges},
		{"prefetch 0 is none", nil, prefetchNone},
		{"prefetch grows at no message's cost", nil, prefetchGrows},
		{"depth counts what is ready and never lies with zero", nil, depthCounts},
		{"depth tells the kind of a queue", nil, kinds},
		{"a stream is refused", hasStreams, streamRefused},
		{"close of the source ends all sessions", nil, sourceClose},
		{"a deleted queue ends the session", nil, queueDeleted},
		{"a broken connection ends the session and gives back", func(h Harness) bool { return h.Cut != nil }, cutSession},
		{"sessions share a queue without overlap", nil, concurrentSessions},
	}
}

func capsStay(e *env) {
	s := e.source()
	before := s.Caps()
	if before.Broker == "" {
		e.Error("the broker has no name")
	}
	session := e.open(s, e.h.NewQueue(e.TB), 1)
	if err := session.Close(e.ctx); err != nil {
		e.Fatal(err)
	}
	if diff := cmp.Diff(before, s.Caps()); diff != "" {
		e.Errorf("changed:\n%s", diff)
	}
	if got := e.releaser().Caps(); got.Broker != before.Broker || got.Cluster != before.Cluster || got.VHost != before.VHost {
		e.Errorf("releaser speaks of %s %s %s, source of %s %s %s",
			got.Broker, got.Cluster, got.VHost, before.Broker, before.Cluster, before.VHost)
	}
}

func missingQueue(e *env) {
	s := e.source()
	for range 2 { // the second time it is still missing: the first has not made it
		session, err := s.Open(e.ctx, quarantine.SessionOptions{Queue: absent, Prefetch: 1})
		e.wantErr("open", err, quarantine.ErrQueueMissing)
		if session != nil {
			e.Error("an error came with a session")
		}
		d, err := s.Depth(e.ctx, absent)
		e.wantErr("depth", err, quarantine.ErrQueueMissing)
		if d != (quarantine.Depth{}) {
			e.Errorf("an error came with depth %+v", d)
		}
	}
	// The source survives it.
	e.depth(s, e.fill(1), 1)
}

func invalidSession(e *env) {
	s := e.source()
	q := e.h.NewQueue(e.TB)
	for _, o := range []quarantine.SessionOptions{
		{Queue: "", Prefetch: 1}, {Queue: q, Prefetch: 0}, {Queue: q, Prefetch: -1}, {Queue: q, Prefetch: 1001},
	} {
		if session, err := s.Open(e.ctx, o); err == nil || session != nil {
			e.Errorf("%+v: session %v, error %v", o, session, err)
		}
	}
}

func refused(e *env) {
	s, err := e.h.NewRefused(e.TB)
	if err == nil {
		e.closers = append(e.closers, s.Close)
		_, err = s.Open(e.ctx, quarantine.SessionOptions{Queue: absent, Prefetch: 1})
	}
	e.wantErr("open", err, quarantine.ErrRefused)
}

func endedContext(e *env) {
	s := e.source()
	q := e.fill(1)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if session, err := s.Open(ctx, quarantine.SessionOptions{Queue: q, Prefetch: 1}); err == nil || session != nil {
		e.Errorf("session %v, error %v", session, err)
	}
	if d, err := s.Depth(ctx, q); err == nil || d != (quarantine.Depth{}) {
		e.Errorf("depth %+v, error %v", d, err)
	}
	// Nothing took the message: a session that opens now gets it.
	e.receive(e.open(s, q, 1), 1)
}

func order(e *env) {
	q := e.fill(100)
	x := e.h.NewExchange(e.TB, q, "some.key")
	e.h.Publish(e.TB, Raw{Exchange: x, RoutingKey: "some.key", Properties: persistent(), Body: number(100)})
	ds := e.receive(e.open(e.source(), q, 1000), 101)
	if diff := cmp.Diff(texts(numbers(0, 101)), texts(bodies(ds))); diff != "" {
		e.Errorf("order (-want +got):\n%s", diff)
	}
	seen := map[quarantine.Receipt]bool{}
	for i, d := range ds {
		wantX, wantKey := "", q
		if i == 100 {
			wantX, wantKey = x, "some.key"
		}
		if d.Queue != q || d.Exchange != wantX || d.RoutingKey != wantKey {
			e.Errorf("delivery %d: queue %q exchange %q key %q", i, d.Queue, d.Exchange, d.RoutingKey)
		}
		if d.Redelivered || d.DeliveryCount > 0 {
			e.Errorf("delivery %d: redelivered %v, count %d at the first time", i, d.Redelivered, d.DeliveryCount)
		}
		if seen[d.Receipt] {
			e.Errorf("receipt %d twice", d.Receipt)
		}
		seen[d.Receipt] = true
	}
}

func prefetchBound(e *env) {
	s := e.source()
	q := e.fill(12)
	session := e.open(s, q, 5)
	ds := e.receive(session, 5)
	e.depth(s, q, 7)
	e.none(session)
	e.settle(session, ds[1].Receipt, ds[3].Receipt)
	more := e.receive(session, 2)
	e.depth(s, q, 5)
	e.none(session)
	if diff := cmp.Diff(texts(numbers(5, 7)), texts(bodies(more))); diff != "" {
		e.Errorf("after two settlements (-want +got):\n%s", diff)
	}
}

func prefetchChanges(e *env) {
	s := e.source()
	q := e.fill(12)
	session := e.open(s, q, 1)
	all := e.receive(session, 1)
	if err := session.SetPrefetch(e.ctx, 8); err != nil {
		e.Fatal(err)
	}
	all = append(all, e.receive(session, 7)...)
	e.depth(s, q, 4)
	e.none(session)
	if diff := cmp.Diff(texts(numbers(0, 8)), texts(bodies(all))); diff != "" {
		e.Errorf("order after raising (-want +got):\n%s", diff)
	}
	if err := session.SetPrefetch(e.ctx, 2); err != nil {
		e.Fatal(err)
	}
	e.settle(session, receipts(all[:7])...)
	e.receive(session, 1) // one of eight is left, so one more fits
	e.depth(s, q, 3)
	e.none(session)
	for _, n := range []int{-1, 1001} {
		if err := session.SetPrefetch(e.ctx, n); err == nil {
			e.Errorf("prefetch %d was taken", n)
		}
	}
}

// prefetchNone ends what comes, and not what is open.
func prefetchNone(e *env) {
	s := e.source()
	q := e.fill(12)
	session := e.open(s, q, 3)
	ds := e.receive(session, 3)
	if err := session.SetPrefetch(e.ctx, 0); err != nil {
		e.Fatal(err)
	}
	e.settle(session, receipts(ds)...)
	e.depth(s, q, 9)
	e.none(session)
	if err := session.SetPrefetch(e.ctx, 4); err != nil {
		e.Fatal(err)
	}
	if diff := cmp.Diff(texts(numbers(3, 7)), texts(bodies(e.receive(session, 4)))); diff != "" {
		e.Errorf("after none (-want +got):\n%s", diff)
	}
}

// prefetchGrows raises the bound again and again while messages are on their
// way. None of them is delivered twice for that.
func prefetchGrows(e *env) {
	const n = 600
	s := e.source()
	session := e.open(s, e.fill(n), 1)
	for got, prefetch := 0, 1; got < n; {
		d := e.receive(session, 1)[0]
		if d.Redelivered {
			e.Errorf("delivery %d is marked as redelivered", got)
		}
		if string(d.Body) != string(number(got)) {
			e.Fatalf("delivery %d is %q", got, d.Body)
		}
		e.settle(session, d.Receipt)
		if got++; prefetch < 256 {
			prefetch *= 2
			if err := session.SetPrefetch(e.ctx, prefetch); err != nil {
				e.Fatal(err)
			}
		}
	}
}

func depthCounts(e *env) {
	s := e.source()
	q := e.fill(3)
	e.depth(s, q, 3)
	session := e.open(s, q, 2)
	e.receive(session, 2)
	d := e.depth(s, q, 1)
	if d.Consumers == 0 {
		e.Error("no consumer is counted; unknown would be -1")
	}
	if d.At.IsZero() {
		e.Error("no time")
	}
	if err := s.Close(); err != nil {
		e.Fatal(err)
	}
	if d, err := s.Depth(e.ctx, q); !errors.Is(err, quarantine.ErrClosed) || d != (quarantine.Depth{}) {
		e.Errorf("after close: %+v, %v", d, err)
	}
}

func kinds(e *env) {
	s, r := e.source(), e.releaser()
	if len(e.h.QueueOf) == 0 {
		e.Fatal("the harness makes no queue of any kind")
	}
	for kind, queue := range e.h.QueueOf {
		q := queue(e.TB)
		for range 2 { // what is remembered is the same
			if d := e.depth(s, q, 0); d.Kind != kind || kind == "" {
				e.Errorf("depth says kind %q, want %q", d.Kind, kind)
			}
			route, err := r.Route(e.ctx, redrive.Destination{RoutingKey: q})
			if err != nil || route.Kind != kind || route.Denied != "" {
				e.Errorf("route says %+v, %v, want kind %q", route, err, kind)
			}
			if stream := kind == quarantine.QueueStream; stream != (route.Refuses != "") || stream != (route.Loses != "") {
				e.Errorf("kind %q refuses headers %q and loses %q", kind, route.Refuses, route.Loses)
			}
		}
	}
	// Asking took nothing, whatever the kind.
	q := e.fill(3)
	if d := e.depth(s, q, 3); d.Kind == "" {
		e.Error("the kind of a queue with messages is not known")
	}
	e.holds(q, numbers(0, 3)...)
	if route, err := r.Route(e.ctx, redrive.Destination{Exchange: e.h.NewExchange(e.TB, q, "k"), RoutingKey: "k"}); err != nil || route.Kind != "" {
		e.Errorf("an exchange is of kind %q, %v", route.Kind, err)
	}
}

func hasStreams(h Harness) bool { return h.QueueOf[quarantine.QueueStream] != nil }

// streamRefused: a stream gives every session the same messages again.
func streamRefused(e *env) {
	s := e.source()
	q := e.h.QueueOf[quarantine.QueueStream](e.TB)
	e.h.Publish(e.TB, Raw{RoutingKey: q, Properties: persistent(), Body: number(0)})
	session, err := s.Open(e.ctx, quarantine.SessionOptions{Queue: q, Prefetch: 1})
	e.wantErr("open", err, quarantine.ErrRefused)
	if session != nil || err == nil || !strings.Contains(err.Error(), "stream") {
		e.Errorf("session %v, error %v", session, err)
	}
	// The source survives it.
	e.receive(e.open(s, e.fill(1), 1), 1)
}

func sourceClose(e *env) {
	s := e.source()
	q := e.fill(4)
	first, second := e.open(s, q, 2), e.open(s, q, 2)
	e.receive(first, 2)
	e.receive(second, 2)
	for range 2 {
		if err := s.Close(); err != nil {
			e.Fatal(err)
		}
	}
	for _, session := range []quarantine.Session{first, second} {
		e.ended(session)
		e.wantErr("session", session.Err(), quarantine.ErrClosed)
	}
	_, err := s.Open(e.ctx, quarantine.SessionOptions{Queue: q, Prefetch: 1})
	e.wantErr("open after close", err, quarantine.ErrClosed)
	e.depth(e.source(), q, 4)
	e.holds(q, numbers(0, 4)...)
}

func queueDeleted(e *env) {
	q := e.fill(1)
	session := e.open(e.source(), q, 2)
	ds := e.receive(session, 1)
	e.h.DeleteQueue(e.TB, q)
	e.ended(session)
	err := session.Err()
	if err == nil || errors.Is(err, quarantine.ErrClosed) {
		e.Errorf("the session says %v", err)
	}
	if !errors.Is(err, quarantine.ErrQueueMissing) && !errors.Is(err, quarantine.ErrUnreachable) {
		e.Errorf("%v wraps no sentinel", err)
	}
	if err := session.Settle(e.ctx, receipts(ds)); err == nil {
		e.Error("a receipt of a lost session was settled")
	}
	if err := session.Close(e.ctx); err != nil {
		e.Errorf("close of a lost session: %v", err)
	}
}

func cutSession(e *env) {
	q := e.fill(3)
	session := e.open(e.source(), q, 2)
	ds := e.receive(session, 2)
	e.h.Cut(e.TB)
	e.ended(session)
	e.wantErr("session", session.Err(), quarantine.ErrUnreachable)
	if err := session.Settle(e.ctx, receipts(ds)); err == nil {
		e.Error("a receipt of a lost session was settled")
	}
	again := e.receive(e.open(e.source(), q, 3), 3)
	redelivered := 0
	for _, d := range again {
		if d.Redelivered {
			redelivered++
		}
	}
	if redelivered != 2 {
		e.Errorf("%d of the 2 lost deliveries are marked as redelivered", redelivered)
	}
}

func concurrentSessions(e *env) {
	const total, workers = 400, 4
	s := e.source()
	q := e.fill(total)
	var mu sync.Mutex
	seen := map[string]int{}
	all := make(chan struct{})
	var wg sync.WaitGroup
	for range workers {
		session := e.open(s, q, 10)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case d, ok := <-session.Deliveries():
					if !ok {
						e.Errorf("session ended: %v", session.Err())
						return
					}
					if err := session.Settle(e.ctx, []quarantine.Receipt{d.Receipt}); err != nil {
						e.Errorf("settle: %v", err)
						return
					}
					mu.Lock()
					seen[string(d.Body)]++
					if len(seen) == total {
						close(all)
					}
					mu.Unlock()
				case <-all:
					return
				case <-e.ctx.Done():
					e.Error("not all messages came")
					return
				}
			}
		}()
	}
	wg.Wait()
	if len(seen) != total {
		e.Fatalf("%d of %d messages", len(seen), total)
	}
	if err := s.Close(); err != nil {
		e.Fatal(err)
	}
	e.holds(q)
}
