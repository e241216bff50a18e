package amqpwire

import (
	"crypto/sha256"
	"encoding/binary"
)

// digestDomain separates these digests from all others, and is their version.
const digestDomain = "redrive wire digest v1\n"

// WireDigest identifies the exact bytes of a message across redeliveries. It is
// the SHA-256 of
//
//	"redrive wire digest v1\n" exchange routing-key properties body
//
// where each of the four parts is preceded by its length in 64 bits.
//
// The headers x-delivery-count and x-acquired-count are left out, because the
// broker itself changes them from one delivery to the next; and since it adds a
// header table to a message that had none in order to write them, a table that
// is empty without them counts as absent. Properties that cannot be walked go
// in as they are.
func WireDigest(exchange, routingKey string, props, body []byte) [32]byte {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	h.Write([]byte(digestDomain))
	part([]byte(exchange))
	part([]byte(routingKey))
	part(withoutCounters(props))
	part(body)
	var sum [32]byte
	h.Sum(sum[:0])
	return sum
}

// withoutCounters returns props as WireDigest takes them.
func withoutCounters(props []byte) []byte {
	l := scan(props)
	if l.problem != "" || l.flags&Headers == 0 {
		return props
	}
	e := Edit(props)
	e.Strip(HeaderDeliveryCount, HeaderAcquiredCount)
	b, err := e.Bytes()
	if err != nil {
		return props
	}
	l = scan(b)
	if s := l.of(Headers); s.to-s.from == 4 {
		e = Edit(b)
		e.Drop(Headers)
		if b, err = e.Bytes(); err != nil {
			return props
		}
	}
	return b
}
