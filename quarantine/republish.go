package quarantine

import (
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Headers of a copy that a worker made, which tell capture what the copy's own
// exchange and routing key no longer do.
const (
	HeaderDiedQueue        = "x-died-queue"         // the queue in which the message failed
	HeaderDiedAt           = "x-died-at"            // when, RFC 3339
	HeaderOriginExchange   = "x-origin-exchange"    // how it had been published before its first failure
	HeaderOriginRoutingKey = "x-origin-routing-key" // …
	HeaderOriginExpiration = "x-origin-expiration"  // the time-to-live that a retry delay replaced, milliseconds
)

// HeaderLastOfKey marks the last released message of a parked ordering key. It
// holds for one release.
const HeaderLastOfKey = "x-redrive-last-of-key"

// BrokerHeaders lists the headers that no copy of a message takes along: what
// brokers wrote about its deliveries and deaths, and what would route or delay
// the copy elsewhere. A broker that finds its own words in a fresh message may
// go on counting, or take it for one that goes round in a circle and drop it.
// Exact names, no prefixes.
func BrokerHeaders() []string {
	return []string{
		amqpwire.HeaderDeath,
		amqpwire.HeaderFirstDeathExchange, amqpwire.HeaderFirstDeathQueue, amqpwire.HeaderFirstDeathReason,
		amqpwire.HeaderLastDeathExchange, amqpwire.HeaderLastDeathQueue, amqpwire.HeaderLastDeathReason,
		amqpwire.HeaderDeliveryCount, amqpwire.HeaderAcquiredCount,
		"CC", "BCC", "x-delay",
	}
}

// Limits are what a broker takes of one publish.
type Limits struct {
	MaxBody   int    // bytes, 0 when the broker does not bound it
	MaxHeader int    // bytes of one content header frame payload, 0 when not bounded
	UserID    string // the user that a user-id property may name, "" when unchecked
}

// UnsendableError says why a broker would refuse a copy, which therefore never
// reaches the wire, where it could take the whole window with it.
type UnsendableError struct {
	Reason string // stable code: "unwalkable_headers", "invalid_property", "body_too_large" or "header_too_large"
	Detail string // for people; never a message's content
	Excess int    // by how many bytes the headers are too large, 0 for other reasons
}

func (e *UnsendableError) Error() string { return e.Reason + ": " + e.Detail }

// headerFrame is what a content header frame holds before the properties:
// class, weight and body size.
const headerFrame = 12

// Republish finishes the properties of a copy: e holds the changes to those
// that v shows. A foreign user id is dropped. What the broker would refuse is an
// *UnsendableError.
func (l Limits) Republish(e *amqpwire.Editor, v *amqpwire.View, body int) ([]byte, error) {
	if v.UserID != l.UserID {
		e.Drop(amqpwire.UserID)
	}
	props, err := e.Bytes()
	if errors.Is(err, amqpwire.ErrUnwalkable) {
		return nil, &UnsendableError{Reason: "unwalkable_headers", Detail: "the header table cannot be edited without guessing"}
	}
	if err != nil {
		return nil, &UnsendableError{Reason: "invalid_property", Detail: fmt.Sprint(err)}
	}
	size := len(props) + headerFrame
	switch {
	case l.MaxBody > 0 && body > l.MaxBody:
		return nil, &UnsendableError{Reason: "body_too_large", Detail: fmt.Sprintf("%d bytes, the broker takes %d", body, l.MaxBody)}
	case l.MaxHeader > 0 && size > l.MaxHeader:
		return nil, &UnsendableError{Reason: "header_too_large", Detail: fmt.Sprintf("%d bytes, the broker takes %d", size, l.MaxHeader), Excess: size - l.MaxHeader}
	case v.ReplyTo == "amq.rabbitmq.reply-to":
		return nil, &UnsendableError{Reason: "invalid_property", Detail: "direct reply-to: the requester is gone"}
	}
	return props, nil
}

// Find returns the first value that one of the expressions yields, valid UTF-8
// and at most 512 bytes; "" when none does.
func Find(es []Expression, v *amqpwire.View, body []byte) string {
	s, _ := find(es, v, body)
	return s
}

// Fingerprint is the digest of the meaning of a message: its type and its body,
// canonical when that is JSON. Integers keep their digits.
func Fingerprint(eventType string, body []byte) [16]byte { return fingerprint(eventType, body) }

// CleanText makes text from a message fit to be shown and stored: valid UTF-8,
// at most limit bytes, never cut within a character.
func CleanText(s string, limit int) string { return clean(s, limit) }
