package rabbitmq

import (
	"bytes"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// deliver implements sink; a releaser consumes nothing.
func (c *channel) deliver(delivered) {}

// settle implements sink: the broker answers for one publish, or for all up to
// it.
func (c *channel) settle(f confirm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.flights) - 1
	if f.tag > 0 || !f.multiple {
		if f.tag < c.base || f.tag-c.base > uint64(last) || last < 0 {
			return // answered before, or the channel is over
		}
		last = int(f.tag - c.base)
	}
	first := last
	if f.multiple {
		first = 0
	}
	for _, fl := range c.flights[first : last+1] {
		c.answer(fl, f.ack)
	}
	c.forget()
	c.maybeFinish()
}

// answer books a confirm of one flight. The caller holds mu.
func (c *channel) answer(fl *flight, ack bool) {
	if fl.done {
		return
	}
	fl.done = true
	switch {
	case fl.late:
		c.late--
		// Only a confirm is news: a return or nack leaves what was said, that
		// nobody should count on the message being there.
		if ack && fl.back == "" {
			c.emit(redrive.Result{Token: fl.m.Token, Resolution: event.Confirmed, Late: true})
		}
		return
	case fl.back != "":
		c.emit(redrive.Result{Token: fl.m.Token, Resolution: event.Returned, Reason: "no_route", Detail: fl.back})
	case ack:
		c.emit(redrive.Result{Token: fl.m.Token, Resolution: event.Confirmed})
	default:
		c.emit(redrive.Result{Token: fl.m.Token, Resolution: event.Nacked, Reason: "nacked", Detail: "the broker could not take the message"})
	}
	c.unsettled--
}

// forget drops answered flights from the front. The caller holds mu.
func (c *channel) forget() {
	n := 0
	for n < len(c.flights) && c.flights[n].done {
		c.flights[n] = nil
		n++
	}
	c.flights = c.flights[n:]
	c.base += uint64(n)
}

// back implements sink: the broker had no queue for a message. It does not say
// for which, and its confirm will follow. A return that fits no publish leaves
// all of them in doubt, because each confirm to come could be that one's.
func (c *channel) back(r returned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fl := c.match(r); fl != nil {
		fl.back = strconv.Itoa(int(r.code)) + " " + cut(r.text)
		return
	}
	c.refuseFromNow(reasonClosed)
	c.finish("unmatched_return", "the broker returned a message that fits none in flight")
}

// match finds the flight of a returned message: the oldest with the same bytes,
// or else, since a broker may write properties anew, the oldest with the same
// destination, body and stamp. Without a stamp, equal messages are told apart
// by order only, which is right for their number in any case. The caller holds
// mu.
func (c *channel) match(r returned) *flight {
	similar := func(fl *flight) bool {
		return !fl.done && fl.back == "" && fl.m.Dest.Exchange == r.exchange &&
			fl.m.Dest.RoutingKey == r.routingKey && bytes.Equal(fl.m.Body, r.body)
	}
	for _, fl := range c.flights {
		if similar(fl) && bytes.Equal(fl.m.Properties, r.props) {
			return fl
		}
	}
	want := traits(r.props)
	for _, fl := range c.flights {
		if similar(fl) && traits(fl.m.Properties) == want {
			return fl
		}
	}
	return nil
}

// trait is what a broker keeps of properties when it writes them anew.
type trait struct {
	generation, envelope, intent, messageID, correlationID, kind string
}

func traits(props []byte) trait {
	header := func(name string) string {
		v, _ := amqpwire.Lookup(props, name)
		s, _ := v.Text()
		return s
	}
	property := func(p amqpwire.Property) string {
		s, _ := amqpwire.Short(props, p)
		return s
	}
	return trait{
		header(stamp.HeaderGeneration), header(stamp.HeaderEnvelope), header(stamp.HeaderIntent),
		property(amqpwire.MessageID), property(amqpwire.CorrelationID), property(amqpwire.Type),
	}
}

// expire runs when the oldest publish may have reached its deadline, and again
// when the grace for late confirms is over.
func (c *channel) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	now := time.Now()
	reason := "confirm_deadline"
	if c.blocked != "" {
		reason = reasonBlocked
	}
	wait := time.Duration(-1)
	for _, fl := range c.flights {
		if fl.done || fl.late {
			continue
		}
		if wait = c.o.ConfirmDeadline - now.Sub(fl.at); wait > 0 {
			break
		}
		wait = -1
		c.refuseFromNow(reasonClosed)
		c.resolveAmbiguous(fl, reason, c.blocked)
		fl.late = true
		c.late++
		c.lastLate = now
	}
	grace := c.o.LateGrace - now.Sub(c.lastLate)
	switch {
	case wait > 0:
		c.timer.Reset(wait)
	case c.late > 0 && grace > 0:
		c.timer.Reset(grace)
	case c.late > 0:
		c.finish(reasonClosed, "")
	default:
		c.timer = nil // the next publish sets it again
	}
	c.maybeFinish()
}

// resolveAmbiguous emits the result of a flight nobody answered for. The caller
// holds mu.
func (c *channel) resolveAmbiguous(fl *flight, reason, detail string) {
	c.unsettled--
	if fl.back != "" {
		c.emit(redrive.Result{Token: fl.m.Token, Resolution: event.Returned, Reason: "no_route", Detail: fl.back})
		return
	}
	c.emit(redrive.Result{Token: fl.m.Token, Resolution: event.Ambiguous, Reason: reason, Detail: detail})
}

// maybeFinish ends a channel that takes no more and has nothing to wait for.
// The caller holds mu.
func (c *channel) maybeFinish() {
	if c.stopped != "" && c.unsettled == 0 && c.late == 0 {
		c.finish(reasonClosed, "")
	}
}

// lose ends the channel: what is in flight may or may not have arrived.
func (c *channel) lose(reason, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch reason {
	case reasonClosed:
		c.refuseFromNow(reasonClosed)
	default:
		c.refuseFromNow(reasonNotConnected)
	}
	c.finish(reason, detail)
}

// blame finds the message for whose size the broker closed the channel: the
// oldest of that size, because the broker takes nothing after it. That one was
// certainly not stored, and the limit is known from now on.
func (c *channel) blame(reply *amqp.Error) {
	size, most, ok := sizeLimit(reply)
	if !ok {
		return
	}
	c.r.learned.Store(int64(most))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fl := range c.flights {
		if !fl.done && len(fl.m.Body) == size {
			fl.done = true
			if !fl.late {
				c.emit(redrive.Result{Token: fl.m.Token, Resolution: event.Nacked, Reason: reasonBody, Detail: words(reply)})
				c.unsettled--
			} else {
				c.late--
			}
			return
		}
	}
}

// finish ends the channel once. The caller holds mu.
func (c *channel) finish(reason, detail string) {
	if c.over {
		return
	}
	c.over = true
	for _, fl := range c.flights {
		if !fl.done && !fl.late {
			c.resolveAmbiguous(fl, reason, detail)
		}
	}
	c.flights, c.late = nil, 0
	if c.timer != nil {
		c.timer.Stop()
	}
	close(c.ended)
	c.signal()
	c.r.remove(c)
	c.r.closing.Go(c.link.close)
}

// emit queues a result for the reader of Results. The caller holds mu.
func (c *channel) emit(r redrive.Result) {
	c.results = append(c.results, r)
	c.signal()
}

func (c *channel) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// pump hands results over, so that a slow reader of them never holds up the
// goroutine that reads the connection. A slot is free again when its result is
// on its way, which bounds both lists.
func (c *channel) pump() {
	defer close(c.out)
	for range c.wake {
		c.mu.Lock()
		rs, over := c.results, c.over
		c.results = nil
		c.mu.Unlock()
		for _, r := range rs {
			c.out <- r
			if !r.Late {
				<-c.slots
			}
		}
		if over {
			return
		}
	}
}
