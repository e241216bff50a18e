package local

import (
	"encoding/binary"
	"fmt"
)

const recordVersion = 1

// record is one stored message.
type record struct {
	arrived    int64 // milliseconds since 1970
	expires    int64 // 0 is never
	exchange   string
	routingKey string
	properties []byte
	body       []byte
}

// encode is the inverse of decodeRecord. Names have at most 255 bytes.
func (r *record) encode() []byte {
	out := make([]byte, 0, 1+16+2+len(r.exchange)+len(r.routingKey)+4+len(r.properties)+len(r.body))
	out = append(out, recordVersion)
	out = binary.BigEndian.AppendUint64(out, uint64(r.arrived))
	out = binary.BigEndian.AppendUint64(out, uint64(r.expires))
	out = append(append(out, byte(len(r.exchange))), r.exchange...)
	out = append(append(out, byte(len(r.routingKey))), r.routingKey...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(r.properties)))
	return append(append(out, r.properties...), r.body...)
}

// decodeRecord reads a record. The result shares no memory with raw, which is
// valid only inside its transaction.
func decodeRecord(raw []byte) (*record, error) {
	c := cursor{rest: raw}
	if v := c.take(1); !c.short && v[0] != recordVersion {
		return nil, fmt.Errorf("%w: message record of version %d", ErrFormat, v[0])
	}
	r := &record{arrived: int64(c.number(8)), expires: int64(c.number(8))}
	r.exchange = string(c.take(int(c.number(1))))
	r.routingKey = string(c.take(int(c.number(1))))
	r.properties = append([]byte{}, c.take(int(c.number(4)))...)
	r.body = append([]byte{}, c.rest...)
	if c.short {
		return nil, fmt.Errorf("%w: message record is cut off", ErrFormat)
	}
	return r, nil
}

// recordExpires reads only the expiry, for opening without copying bodies.
func recordExpires(raw []byte) (int64, error) {
	c := cursor{rest: raw}
	v := c.take(1)
	c.take(8)
	expires := int64(c.number(8))
	if c.short || v[0] != recordVersion {
		return 0, fmt.Errorf("%w: message record is damaged or of another version", ErrFormat)
	}
	return expires, nil
}

// cursor reads from the front of rest. Once short, it yields nothing.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if c.short || n > len(c.rest) {
		c.short = true
		return nil
	}
	out := c.rest[:n]
	c.rest = c.rest[n:]
	return out
}

// number reads an unsigned number of n bytes.
func (c *cursor) number(n int) uint64 {
	var v uint64
	for _, b := range c.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}
