package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
)

// phase tells what was going on when an error came: the same reply code means
// "never" while opening and "not now" on something that once worked.
type phase int

const (
	opening phase = iota
	running
)

// classify wraps err with the sentinel of package quarantine that says what to
// do about it, keeping the broker's own words. It is nil for nil.
func classify(err error, p phase) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, quarantine.ErrClosed), errors.Is(err, quarantine.ErrQueueMissing),
		errors.Is(err, quarantine.ErrRefused), errors.Is(err, quarantine.ErrUnreachable):
		return err
	}
	return fmt.Errorf("%w: %s", sentinel(err, p), words(err))
}

// sentinel chooses the sentinel for an error of the library or the network.
func sentinel(err error, p phase) error {
	var certInvalid *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &certInvalid) || errors.As(err, &unknown) {
		return quarantine.ErrRefused
	}
	// With TLS 1.3 a broker that dislikes our certificate says so only when the
	// library reads, and the library keeps the text of the error alone.
	if p == opening && strings.Contains(err.Error(), "remote error: tls: ") {
		return quarantine.ErrRefused
	}
	// The library makes these two up when the socket went away in silence.
	if errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) {
		return quarantine.ErrUnreachable
	}
	if errors.Is(err, amqp.ErrSASL) {
		return quarantine.ErrRefused
	}
	var reply *amqp.Error
	if !errors.As(err, &reply) || !reply.Server {
		return quarantine.ErrUnreachable
	}
	return replySentinel(reply, p)
}

// replySentinel chooses the sentinel for a reply code.
func replySentinel(reply *amqp.Error, p phase) error {
	switch reply.Code {
	case amqp.NotFound:
		// "home node … is down or inaccessible": the queue is there, its node is not.
		if !strings.HasSuffix(reply.Reason, "is down or inaccessible") {
			return quarantine.ErrQueueMissing
		}
	case amqp.NotAllowed:
		// A limit on connections, or a vhost that has not come up yet.
		if !strings.HasSuffix(reply.Reason, "is reached") && !strings.HasSuffix(reply.Reason, "is down") {
			return quarantine.ErrRefused
		}
	case amqp.AccessRefused, amqp.ResourceLocked, amqp.NotImplemented:
		return quarantine.ErrRefused
	case amqp.PreconditionFailed:
		if p == opening {
			return quarantine.ErrRefused
		}
	}
	return quarantine.ErrUnreachable
}

// words is the text of an error for people: the broker's reply when there is one.
func words(err error) string {
	var reply *amqp.Error
	switch {
	case errors.Is(err, amqp.ErrCredentials):
		return "the connection ended during log-in"
	case errors.Is(err, amqp.ErrVhost):
		return "the connection ended while the vhost was opened"
	case !errors.As(err, &reply):
		return err.Error()
	case reply.Server && reply.Code == amqp.AccessRefused && strings.Contains(reply.Reason, "Login was refused"):
		return fmt.Sprintf("%d %s (the user guest may log in from the broker's own machine only)", reply.Code, cut(reply.Reason))
	case reply.Server:
		return fmt.Sprintf("%d %s", reply.Code, cut(reply.Reason))
	default:
		return "connection lost: " + cut(reply.Reason)
	}
}

// maxWords bounds what is kept of a broker's text.
const maxWords = 400

func cut(s string) string {
	if len(s) > maxWords {
		s = s[:maxWords] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// sizeLimit reads the size of a message and the most that the broker takes out
// of the reply with which it refuses one.
func sizeLimit(reply *amqp.Error) (size, most int, ok bool) {
	const begins = "PRECONDITION_FAILED - message size %d is larger than configured max size %d"
	if !reply.Server || reply.Code != amqp.PreconditionFailed {
		return 0, 0, false
	}
	n, _ := fmt.Sscanf(reply.Reason, begins, &size, &most)
	return size, most, n == 2 && most > 0
}

// replyCode returns the broker's reply code, 0 when err is something else.
func replyCode(err error) int {
	var reply *amqp.Error
	if errors.As(err, &reply) && reply.Server {
		return reply.Code
	}
	return 0
}
