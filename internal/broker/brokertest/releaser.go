package brokertest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

func releaserChecks() []check {
	return []check{
		{"invalid options are refused", nil, invalidChannel},
		{"route tells what is there and publishes nothing", nil, routes},
		{"each publish has exactly one result", nil, oneResult},
		{"an exchange routes by key", nil, viaExchange},
		{"returned and confirmed in one window are told apart", nil, returnedApart},
		{"a missing exchange is never a success", nil, missingExchange},
		{"a full queue is a nack", func(h Harness) bool { return h.FullQueue != nil }, fullQueue},
		{"a refused message is not sent and has no result", nil, notSent},
		{"what a stream cannot hold is refused", hasStreams, streamTakes},
		{"close waits for confirms", nil, closeWaits},
		{"close of the releaser ends its channels", nil, releaserClose},
		{"many publish at once", nil, concurrentPublish},
	}
}

// publish hands over messages with tokens from the first one on.
func (e *env) publish(c redrive.Channel, token uint64, ms ...Raw) {
	e.Helper()
	for i, m := range ms {
		if err := c.Publish(e.ctx, message(token+uint64(i), m)); err != nil {
			e.Fatalf("publish: %v", err)
		}
	}
}

func message(token uint64, m Raw) redrive.Message {
	return redrive.Message{
		Token: token, Dest: redrive.Destination{Exchange: m.Exchange, RoutingKey: m.RoutingKey},
		Properties: m.Properties, Body: m.Body,
	}
}

// results takes n results.
func (e *env) results(c redrive.Channel, n int) []redrive.Result {
	e.Helper()
	out := make([]redrive.Result, 0, n)
	for len(out) < n {
		select {
		case r, ok := <-c.Results():
			if !ok {
				e.Fatalf("results end after %d of %d", len(out), n)
			}
			out = append(out, r)
		case <-e.ctx.Done():
			e.Fatalf("%d of %d results came", len(out), n)
		}
	}
	return out
}

// noMore closes a channel, and fails when it has further results.
func (e *env) noMore(c redrive.Channel) {
	e.Helper()
	if err := c.Close(e.ctx); err != nil {
		e.Fatalf("close: %v", err)
	}
	for {
		select {
		case r, ok := <-c.Results():
			if !ok {
				return
			}
			e.Errorf("one result too many: %+v", r)
		case <-e.ctx.Done():
			e.Fatal("results do not end")
		}
	}
}

func (e *env) wantConfirmed(rs ...redrive.Result) {
	e.Helper()
	for _, r := range rs {
		if r.Resolution != event.Confirmed || r.Late {
			e.Errorf("%+v, want confirmed", r)
		}
	}
}

func invalidChannel(e *env) {
	r := e.releaser()
	for _, o := range []redrive.ChannelOptions{
		{Window: 0, ConfirmDeadline: time.Second}, {Window: 4097, ConfirmDeadline: time.Second},
		{Window: 1, ConfirmDeadline: 99 * time.Millisecond}, {Window: 1, ConfirmDeadline: 11 * time.Minute},
	} {
		if c, err := r.Open(e.ctx, o); err == nil || c != nil {
			e.Errorf("%+v: channel %v, error %v", o, c, err)
		}
	}
}

func routes(e *env) {
	r := e.releaser()
	q := e.fill(2)
	x := e.h.NewExchange(e.TB, q, "k")
	for _, c := range []struct {
		dest redrive.Destination
		want bool
	}{
		{redrive.Destination{RoutingKey: q}, true},
		{redrive.Destination{RoutingKey: absent}, false},
		{redrive.Destination{Exchange: x, RoutingKey: "k"}, true},
		{redrive.Destination{Exchange: absent, RoutingKey: "k"}, false},
		{redrive.Destination{RoutingKey: q}, true}, // an absent one has broken nothing
	} {
		got, err := r.Route(e.ctx, c.dest)
		if err != nil || got.Exists != c.want || got.At.IsZero() {
			e.Errorf("%+v: %+v, %v, want exists %v", c.dest, got, err, c.want)
		}
		if got.Exists && got.Ready != -1 && got.Ready != 2 {
			e.Errorf("%+v: %d are ready, want 2 or unknown", c.dest, got.Ready)
		}
	}
	e.holds(q, numbers(0, 2)...)
}

func oneResult(e *env) {
	q := e.h.NewQueue(e.TB)
	c := e.channel(e.releaser(), 4)
	for i := range 10 {
		e.publish(c, uint64(100+i), Raw{RoutingKey: q, Properties: persistent(), Body: number(i)})
		r := e.results(c, 1)[0]
		e.wantConfirmed(r)
		if r.Token != uint64(100+i) {
			e.Errorf("token %d, want %d", r.Token, 100+i)
		}
	}
	e.noMore(c)
	e.holds(q, numbers(0, 10)...)
}

func viaExchange(e *env) {
	q := e.h.NewQueue(e.TB)
	x := e.h.NewExchange(e.TB, q, "good")
	c := e.channel(e.releaser(), 4)
	e.publish(c, 1,
		Raw{Exchange: x, RoutingKey: "good", Properties: persistent(), Body: number(1)},
		Raw{Exchange: x, RoutingKey: "bad", Properties: persistent(), Body: number(2)})
	for _, r := range e.results(c, 2) {
		want := map[uint64]event.Resolution{1: event.Confirmed, 2: event.Returned}[r.Token]
		if r.Resolution != want {
			e.Errorf("%+v, want %s", r, want)
		}
	}
	got := e.h.Drain(e.TB, q)
	if len(got) != 1 || got[0].Exchange != x || got[0].RoutingKey != "good" {
		e.Errorf("the queue holds %+v", got)
	}
}

func returnedApart(e *env) {
	const window = 200
	q := e.h.NewQueue(e.TB)
	c := e.channel(e.releaser(), window)
	var kept [][]byte
	for i := range window {
		// All bodies and properties are alike to who looks for identity there.
		m := Raw{RoutingKey: q, Properties: []byte{0, 0}, Body: number(i)}
		if i%3 == 2 {
			m.RoutingKey = absent
		} else {
			kept = append(kept, m.Body)
		}
		e.publish(c, uint64(i), m)
	}
	seen := map[uint64]bool{}
	for _, r := range e.results(c, window) {
		want := event.Confirmed
		if r.Token%3 == 2 {
			want = event.Returned
		}
		if r.Resolution != want || seen[r.Token] {
			e.Errorf("%+v, want %s; seen before: %v", r, want, seen[r.Token])
		}
		if want == event.Returned && r.Reason != "no_route" {
			e.Errorf("token %d was returned for %q", r.Token, r.Reason)
		}
		seen[r.Token] = true
	}
	e.noMore(c)
	e.holds(q, kept...)
}

func missingExchange(e *env) {
	r := e.releaser()
	c := e.channel(r, 4)
	err := c.Publish(e.ctx, message(1, Raw{Exchange: absent, RoutingKey: "k", Properties: persistent()}))
	if !errors.Is(err, redrive.ErrNotSent) {
		if got := e.results(c, 1)[0]; got.Resolution == event.Confirmed || got.Token != 1 {
			e.Errorf("%+v", got)
		}
	}
	// The releaser goes on, if with another channel.
	q := e.h.NewQueue(e.TB)
	next := e.channel(r, 1)
	e.publish(next, 2, Raw{RoutingKey: q, Properties: persistent(), Body: number(2)})
	e.wantConfirmed(e.results(next, 1)...)
	e.holds(q, number(2))
}

func fullQueue(e *env) {
	c := e.channel(e.releaser(), 4)
	e.publish(c, 1, Raw{RoutingKey: e.h.FullQueue(e.TB), Properties: persistent(), Body: number(1)})
	if r := e.results(c, 1)[0]; r.Resolution != event.Nacked || r.Reason == "" {
		e.Errorf("%+v, want nacked", r)
	}
	q := e.h.NewQueue(e.TB)
	e.publish(c, 2, Raw{RoutingKey: q, Properties: persistent(), Body: number(2)})
	e.wantConfirmed(e.results(c, 1)...)
	e.noMore(c)
}

func notSent(e *env) {
	r := e.releaser()
	q := e.h.NewQueue(e.TB)
	c := e.channel(r, 4)
	reasonOf := func(err error) string {
		var refused *redrive.RefusedError
		if !errors.As(err, &refused) {
			return ""
		}
		return refused.Reason
	}
	for _, props := range [][]byte{nil, {}, {0x80}, {0x80, 0, 200, 'x'}, {0x20, 0, 0, 0, 0, 9, 1}} {
		err := c.Publish(e.ctx, message(1, Raw{RoutingKey: q, Properties: props}))
		e.wantErr("properties that end too early", err, redrive.ErrNotSent)
		if got := reasonOf(err); got != "invalid_property" {
			e.Errorf("properties %x: reason %q", props, got)
		}
	}
	if most := r.Caps().MaxBody; most > 0 && most <= 32<<20 {
		err := c.Publish(e.ctx, message(1, Raw{RoutingKey: q, Properties: persistent(), Body: make([]byte, most+1)}))
		e.wantErr("a body that is too large", err, redrive.ErrNotSent)
		if got := reasonOf(err); got != "body_too_large" {
			e.Errorf("reason %q", got)
		}
	}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	err := c.Publish(ctx, message(1, Raw{RoutingKey: q, Properties: persistent()}))
	e.wantErr("an ended context", err, redrive.ErrNotSent)
	// The channel has survived all of it.
	e.publish(c, 2, Raw{RoutingKey: q, Properties: persistent(), Body: number(2)})
	e.wantConfirmed(e.results(c, 1)...)
	e.noMore(c)
	err = c.Publish(e.ctx, message(3, Raw{RoutingKey: q, Properties: persistent()}))
	e.wantErr("a closed channel", err, redrive.ErrNotSent)
	if got := reasonOf(err); got != "channel_closed" {
		e.Errorf("reason %q", got)
	}
	e.holds(q, number(2))
}

func streamTakes(e *env) {
	r := e.releaser()
	c := e.channel(r, 4)
	q := e.h.QueueOf[quarantine.QueueStream](e.TB)
	route, err := r.Route(e.ctx, redrive.Destination{RoutingKey: q})
	if err != nil || route.Refuses == "" {
		e.Fatalf("%+v, %v: a stream that holds everything", route, err)
	}
	dec := amqpwire.Value{Kind: amqpwire.Dec, Data: amqpwire.Decimal{Scale: 2, Unscaled: 1}}
	for _, f := range []amqpwire.Field{{Name: "price", Value: dec}, amqpwire.ArrayField("x-prices", dec)} {
		props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{f}})
		if err != nil {
			e.Fatal(err)
		}
		err = c.Publish(e.ctx, message(1, Raw{RoutingKey: q, Properties: props}))
		e.wantErr("a decimal to a stream", err, redrive.ErrNotSent)
		// Another queue takes it, and the stream takes others.
		e.publish(c, 2, Raw{RoutingKey: e.h.NewQueue(e.TB), Properties: props})
		e.publish(c, 3, Raw{RoutingKey: q, Properties: persistent()})
		e.wantConfirmed(e.results(c, 2)...)
	}
	e.noMore(c)
}

func closeWaits(e *env) {
	const n = 50
	q := e.h.NewQueue(e.TB)
	c := e.channel(e.releaser(), n)
	for i := range n {
		e.publish(c, uint64(i), Raw{RoutingKey: q, Properties: persistent(), Body: number(i)})
	}
	for range 2 {
		if err := c.Close(e.ctx); err != nil {
			e.Fatal(err)
		}
	}
	e.wantConfirmed(e.results(c, n)...)
	e.noMore(c)
	e.holds(q, numbers(0, n)...)
}

func releaserClose(e *env) {
	r := e.releaser()
	q := e.h.NewQueue(e.TB)
	c := e.channel(r, 2)
	e.publish(c, 1, Raw{RoutingKey: q, Properties: persistent(), Body: number(1)})
	for range 2 {
		if err := r.Close(); err != nil {
			e.Fatal(err)
		}
	}
	got := e.results(c, 1)[0]
	if got.Resolution != event.Confirmed && got.Resolution != event.Ambiguous {
		e.Errorf("%+v", got)
	}
	e.noMore(c)
	if c, err := r.Open(e.ctx, redrive.ChannelOptions{Window: 1, ConfirmDeadline: time.Second}); err == nil || c != nil {
		e.Errorf("a closed releaser opened %v, error %v", c, err)
	}
	if _, err := r.Route(e.ctx, redrive.Destination{RoutingKey: q}); err == nil {
		e.Error("a closed releaser looked at a route")
	}
}

func concurrentPublish(e *env) {
	const channels, writers, each = 2, 4, 50
	r := e.releaser()
	q := e.h.NewQueue(e.TB)
	var wg sync.WaitGroup
	var open []redrive.Channel
	for k := range channels {
		c := e.channel(r, 16)
		open = append(open, c)
		for w := range writers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range each {
					token := (k*writers+w)*each + i
					if err := c.Publish(e.ctx, message(uint64(token), Raw{RoutingKey: q, Properties: persistent(), Body: number(token)})); err != nil {
						e.Errorf("publish: %v", err)
						return
					}
				}
			}()
		}
	}
	seen := map[uint64]bool{}
	for _, c := range open {
		for _, res := range e.results(c, writers*each) {
			e.wantConfirmed(res)
			if seen[res.Token] {
				e.Errorf("two results for %d", res.Token)
			}
			seen[res.Token] = true
		}
	}
	wg.Wait()
	for _, c := range open {
		e.noMore(c)
	}
	var got [][]byte
	for _, m := range e.h.Drain(e.TB, q) {
		got = append(got, m.Body)
	}
	if len(got) != channels*writers*each {
		e.Errorf("the queue holds %d messages, want %d", len(got), channels*writers*each)
	}
	checkPerWriterOrder(e, got, each)
}

// checkPerWriterOrder makes sure that what one goroutine published in turn on
// one channel is in the queue in turn.
func checkPerWriterOrder(e *env, got [][]byte, each int) {
	e.Helper()
	for w := 0; w*each < len(got); w++ {
		var mine [][]byte
		for _, b := range got {
			if bytes.Compare(b, number(w*each)) >= 0 && bytes.Compare(b, number((w+1)*each)) < 0 {
				mine = append(mine, b)
			}
		}
		if diff := cmp.Diff(texts(numbers(w*each, (w+1)*each)), texts(mine)); diff != "" {
			e.Errorf("writer %d (-want +got):\n%s", w, diff)
		}
	}
}
