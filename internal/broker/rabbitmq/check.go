package rabbitmq

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// maxShort is the most bytes of a short string.
const maxShort = 255

// Reasons of a RefusedError.
const (
	reasonProperty     = "invalid_property"
	reasonHeader       = "header_too_large"
	reasonBody         = "body_too_large"
	reasonNoExchange   = "no_exchange"
	reasonNoPermission = "no_permission"
	reasonClosed       = "channel_closed"
	reasonNotConnected = "not_connected"
	reasonBlocked      = "blocked"
	reasonCancelled    = "cancelled"
)

func refuse(reason, format string, args ...any) *redrive.RefusedError {
	return &redrive.RefusedError{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// check refuses a message for which the broker would close the channel or the
// connection, and with it throw the whole window into doubt. refused is nil when
// there is no such reason; byStream is nil when there is none at a stream
// either. What is checked is what RabbitMQ is known to do.
func check(m redrive.Message, caps redrive.ReleaserCaps) (refused, byStream *redrive.RefusedError) {
	if n := len(m.Dest.Exchange); n > maxShort {
		return refuse(reasonProperty, "the exchange name has %d bytes, at most %d are possible", n, maxShort), nil
	}
	if n := len(m.Dest.RoutingKey); n > maxShort {
		return refuse(reasonProperty, "the routing key has %d bytes, at most %d are possible", n, maxShort), nil
	}
	if n := contentHead + len(m.Properties); caps.MaxHeader > 0 && n > caps.MaxHeader {
		return refuse(reasonHeader, "properties and headers need %d bytes, the broker takes %d", n, caps.MaxHeader), nil
	}
	if caps.MaxBody > 0 && len(m.Body) > caps.MaxBody {
		return refuse(reasonBody, "the body has %d bytes, the broker takes %d (max_message_bytes in its address says otherwise)", len(m.Body), caps.MaxBody), nil
	}
	if len(m.Properties) > 1 && m.Properties[1]&1 != 0 {
		return refuse(reasonProperty, "the property flags go on in a second word, which the broker cannot read"), nil
	}
	decimals := 0
	err := amqpwire.Walk(m.Properties, func(k amqpwire.Kind, value []byte) error {
		if k == amqpwire.Dec {
			decimals++
		}
		return checkValue(k, value)
	})
	if err != nil {
		return refuse(reasonProperty, "%v", err), nil
	}
	if refused = checkProperties(m.Properties, caps); refused != nil {
		return refused, nil
	}
	return nil, checkForStream(m.Properties, decimals, of(caps))
}

// checkForStream refuses what a stream cannot hold: trying to, the broker ends
// the connection with nothing but INTERNAL_ERROR.
func checkForStream(props []byte, decimals int, id identity) *redrive.RefusedError {
	if decimals > 0 {
		return refuse(reasonProperty, "a header is a decimal, which a stream cannot hold")
	}
	if !id.atLeast(13) {
		return nil
	}
	if v, ok := amqpwire.Lookup(props, "x-stream-filter-value"); ok {
		if text, ok := v.Data.(string); !ok || !utf8.ValidString(text) {
			return refuse(reasonProperty, "header x-stream-filter-value is not text, which a stream wants it to be")
		}
	}
	if v, ok := amqpwire.Short(props, amqpwire.Type); ok && v == "amqp-1.0" {
		return refuse(reasonProperty, "type amqp-1.0 makes a stream read the body as AMQP 1.0, and fail where it is not")
	}
	return nil
}

// streamRefuses lists the kinds of header values that a stream does not hold.
const streamRefuses = "D"

// streamLoses lists those that it drops or turns into others.
func (i identity) streamLoses() string {
	if i.atLeast(13) {
		return "FALx"
	}
	return "FAL"
}

// checkValue refuses floats that are no number: the broker cannot read them,
// and ends the connection.
func checkValue(k amqpwire.Kind, value []byte) error {
	var f float64
	switch k {
	case amqpwire.Float32:
		f = float64(math.Float32frombits(binary.BigEndian.Uint32(value)))
	case amqpwire.Float64:
		f = math.Float64frombits(binary.BigEndian.Uint64(value))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("a header of type %s is not a finite number", k)
	}
	return nil
}

// checkProperties refuses what the broker validates by closing the channel.
func checkProperties(props []byte, caps redrive.ReleaserCaps) *redrive.RefusedError {
	if v, ok := amqpwire.Octet(props, amqpwire.DeliveryMode); ok && v != 1 && v != 2 && majorVersion(caps) == 3 {
		return refuse(reasonProperty, "delivery_mode %d is not one that RabbitMQ 3 takes", v)
	}
	if v, ok := amqpwire.Short(props, amqpwire.UserID); ok && v != caps.UserID {
		return refuse(reasonProperty, "user_id is not the user that is logged in")
	}
	if v, ok := amqpwire.Short(props, amqpwire.Expiration); ok && !isExpiration(v) {
		return refuse(reasonProperty, "expiration is not a number of milliseconds of at most ten years")
	}
	if v, ok := amqpwire.Short(props, amqpwire.ReplyTo); ok && v == "amq.rabbitmq.reply-to" {
		return refuse(reasonProperty, "reply_to asks for a direct reply, which only its consumer may")
	}
	for _, name := range []string{"CC", "BCC"} {
		if v, ok := amqpwire.Lookup(props, name); ok && v.Kind != amqpwire.Array {
			return refuse(reasonProperty, "header %s is of type %s, not an array", name, v.Kind)
		}
	}
	return nil
}

// maxExpiration is the longest that the broker takes: ten years.
const maxExpiration = 10 * 365 * 24 * 60 * 60 * 1000

// isExpiration reports whether the broker reads s as a time. It takes a sign
// and leading zeros, and nothing else around the digits.
func isExpiration(s string) bool {
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return true
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return err == nil && n <= maxExpiration && s[0] != '-'
}
