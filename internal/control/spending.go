package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// spending follows how many deliveries the head of a queue has spent on
// sessions that settled nothing.
//
// Every session that ends badly costs each message that was in flight one
// delivery, and a queue with a delivery limit drops a message that has none
// left. It makes no difference to the message whether it was the link that
// broke or this process that was killed, so the count is in the ledger. It is
// written before a session opens (arm), and set to 0 by the first settlement
// of the session, which is recorded at once. From quarantine.MaxSpent on the
// queue is parked instead of opened.
//
// Nothing is written for a queue that is empty by the broker's word, so that a
// capture that finds nothing leaves no trace; when a message comes all the
// same, the count is written before it is looked at (learn).
type spending struct {
	times uint64   // deliveries of the head without a settlement, as recorded or better known
	armed bool     // one of them is recorded for the session that is or will be open
	taken bool     // that session has received something
	lost  int      // sessions in a row that ended badly
	head  [16]byte // wire digest of the message that the last one received first
	cause error    // how the last one ended
}

// over notes that a session has ended badly. One that has received nothing and
// was not lost has cost nothing.
func (sp *spending) over(lost bool, cause error) {
	if !sp.armed || !lost && !sp.taken {
		return
	}
	sp.armed, sp.taken = false, false
	sp.lost++
	sp.cause = cause
}

// Why a queue is parked.
const (
	reasonSessionsLost  = "sessions_lost"
	reasonDeliveryLimit = "delivery_limit_near"
	reasonUnstorable    = "cannot_be_stored"
)

// admit refuses a parked queue, or lets it be tried once more when that was
// asked for.
func (cp *capture) admit(ctx context.Context) error {
	var p quarantine.ParkedQueue
	var parked bool
	err := cp.c.log.View(func(v ledger.View) error {
		var err error
		p, parked, err = quarantine.Parked(v, cp.queue)
		cp.spending.times = quarantine.Spent(v, cp.queue)
		return err
	})
	if err != nil {
		return err
	}
	if cp.spending.times > 0 {
		cp.wary = maxWary
	}
	if parked && !cp.unpark {
		cp.sum.Parked = p.Reason
		return &api.Error{Code: api.CodeRefused, Message: fmt.Sprintf("queue %s is parked since %s (%s): %s; %s",
			cp.queue, p.Since.Format("2006-01-02 15:04:05"), p.Reason, p.Why, parkAdvice(p.Reason))}
	}
	if !parked && (!cp.unpark || cp.spending.times < quarantine.MaxSpent) {
		return nil
	}
	_, err = cp.c.log.Update(ctx, request(ctx, ""), func(ledger.View) ([]event.Event, error) {
		return []event.Event{{Body: &event.SourceUnparked{Queue: cp.queue}}}, nil
	})
	cp.spending.times = min(cp.spending.times, quarantine.MaxSpent-1)
	return err
}

// park stops the capture of this queue for everyone until it is unparked.
// Other queues go on.
func (cp *capture) park(reason, why string) error {
	cp.sum.Parked = reason
	_, err := cp.c.log.Update(context.Background(), ledger.Request{Actor: event.System, Urgent: true}, func(ledger.View) ([]event.Event, error) {
		return []event.Event{{Body: &event.SourceParked{Queue: cp.queue, Reason: reason, Why: cutText(why)}}}, nil
	})
	return errors.Join(&api.Error{Code: api.CodeRefused, Message: fmt.Sprintf("queue %s is parked now (%s), what it holds stays there: %s; %s",
		cp.queue, reason, why, parkAdvice(reason))}, err)
}

// parkAdvice says what to do about a parked queue.
func parkAdvice(reason string) string {
	const then = "then capture it with --unpark"
	switch reason {
	case reasonSessionsLost:
		return "look for what ends the sessions (the link, the broker's log, a program that is killed); a quorum queue drops a message at its delivery limit, so do it soon, " +
			then + ", which takes one message at a time and parks again after one failure"
	case reasonDeliveryLimit:
		return "raise the queue's delivery limit by a policy if you can, stop whoever else receives from it or peeks into it, " + then +
			", which takes one message at a time and parks again after one failure"
	case reasonUnstorable:
		return "take these messages out by another way or let the store take them (store.max_body_mib), " + then +
			"; each try costs what cannot be stored one delivery of its limit"
	}
	return "mend the cause, " + then
}

// arm leaves a mark in the ledger before the queue is asked for messages, or
// parks the queue when there are too many of them.
func (cp *capture) arm(ctx context.Context) error {
	if err := cp.recordSettled(); err != nil || cp.spending.armed {
		return err
	}
	if cp.spending.times >= quarantine.MaxSpent {
		return cp.park(cp.spending.parkReason())
	}
	if err := cp.c.o.KV.Room(false); err != nil {
		return err // whatever came would have to go back
	}
	d, err := cp.source.Depth(ctx, cp.queue)
	if errors.Is(err, quarantine.ErrQueueMissing) || err == nil && d.Ready == 0 {
		return err
	}
	return cp.spend(ctx, cp.spending.times+1)
}

func (sp *spending) parkReason() (reason, why string) {
	how := "the processes before this one ended without having settled anything"
	if sp.cause != nil {
		how = sp.cause.Error()
	}
	if sp.times > quarantine.MaxSpent {
		return reasonDeliveryLimit, fmt.Sprintf("the message at its head was delivered %d times without being settled: %s", sp.times, how)
	}
	return reasonSessionsLost, fmt.Sprintf("%d sessions in a row ended before anything was settled, each spent a delivery of the message at its head: %s", sp.times, how)
}

// spend records how often the head of the queue was delivered.
func (cp *capture) spend(ctx context.Context, times uint64) error {
	_, err := cp.c.log.Update(ctx, ledger.Request{Actor: event.System}, func(ledger.View) ([]event.Event, error) {
		return []event.Event{{Body: &event.SourceSpent{Queue: cp.queue, Deliveries: times}}}, nil
	})
	if err == nil {
		cp.spending.times, cp.spending.armed = times, true
	}
	return err
}

// learn looks at the first message of a session, before anything is done with
// it, for what it says about the deliveries that were spent.
func (cp *capture) learn(ctx context.Context, d quarantine.Delivery) error {
	sp := &cp.spending
	if cp.proven {
		return nil
	}
	if !sp.armed {
		if err := cp.spend(ctx, sp.times+1); err != nil {
			return err
		}
	}
	if sp.taken {
		return nil
	}
	sp.taken = true
	digest := amqpwire.WireDigest(d.Exchange, d.RoutingKey, d.Properties, d.Body)
	same := sp.head == [16]byte(digest[:])
	moved := !same && sp.head != [16]byte{} // not known of the process before this one
	sp.head = [16]byte(digest[:])
	times := uint64(d.DeliveryCount + 1)
	switch {
	case sp.times < 2:
		// A broker may mark a message as redelivered that it delivers for the
		// first time, with the count of the queue in which it died. Only one that
		// comes back has the count of this queue for certain.
	case !moved && d.Redelivered && times > sp.times:
		return cp.spend(ctx, times) // somebody else spends them too
	case same:
		// The count does not go on: it is nobody's. Ours does.
	case !d.Redelivered:
		sp.times = 1 // what the sessions before had in hand is gone after all
	case moved && d.DeliveryCount >= 0:
		// This one may have been in flight behind those before it, which are gone.
		// If it cannot be settled either, it was the last try.
		sp.times = min(times, quarantine.MaxSpent-1)
	case d.DeliveryCount >= 0:
		sp.times = times
	}
	return nil
}

// lift takes back the mark of a session that never was, or that received
// nothing and ended in order.
func (cp *capture) lift() error {
	if !cp.spending.armed || cp.spending.taken || cp.c.log.Err() != nil {
		return nil //nolint:nilerr // a ledger that is dead has said so
	}
	return cp.spend(context.Background(), cp.spending.times-1)
}

// maxWhy bounds the text of a record about a parked queue.
const maxWhy = 500

func cutText(s string) string {
	s = strings.ToValidUTF8(s, "�")
	for i := range s {
		if i > maxWhy {
			return s[:i] + "…"
		}
	}
	return s
}
