package rabbitmq

import (
	"encoding/binary"
	"errors"
)

// Frame types, and the sizes around a payload.
const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	frameEnd       = 0xce

	frameHead     = 7 // type, channel, size
	frameOverhead = frameHead + 1
	contentHead   = 12 // class, weight, body size: what precedes the properties
)

// Methods that the tap handles itself, as class<<16 | method.
const (
	methodChannelOpen  = 20<<16 | 10
	methodBasicPublish = 60<<16 | 40
	methodBasicReturn  = 60<<16 | 50
	methodBasicDeliver = 60<<16 | 60
	methodBasicAck     = 60<<16 | 80
	methodBasicNack    = 60<<16 | 120
)

const classBasic = 60

// errFrame is returned for bytes that are no AMQP frame.
var errFrame = errors.New("malformed frame from the broker")

// delivered is a basic.deliver with its content.
type delivered struct {
	tag         uint64
	redelivered bool
	exchange    string
	routingKey  string
	props       []byte
	body        []byte
}

// returned is a basic.return with its content.
type returned struct {
	code       uint16
	text       string
	exchange   string
	routingKey string
	props      []byte
	body       []byte
}

// confirm is a basic.ack or basic.nack from the broker.
type confirm struct {
	tag      uint64
	multiple bool
	ack      bool
}

// args reads method arguments; the first thing that does not fit makes all
// later reads zero and bad true.
type args struct {
	b   []byte
	bad bool
}

func (a *args) take(n int) []byte {
	if a.bad || n > len(a.b) {
		a.bad = true
		return nil
	}
	out := a.b[:n]
	a.b = a.b[n:]
	return out
}

func (a *args) octet() byte {
	if b := a.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (a *args) short() uint16 {
	if b := a.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (a *args) long() uint64 {
	if b := a.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (a *args) text() string { return string(a.take(int(a.octet()))) }

func parseDeliver(b []byte) (delivered, error) {
	a := args{b: b}
	a.text() // consumer tag
	d := delivered{tag: a.long(), redelivered: a.octet()&1 != 0, exchange: a.text(), routingKey: a.text()}
	if a.bad {
		return delivered{}, errFrame
	}
	return d, nil
}

func parseReturn(b []byte) (returned, error) {
	a := args{b: b}
	r := returned{code: a.short(), text: a.text(), exchange: a.text(), routingKey: a.text()}
	if a.bad {
		return returned{}, errFrame
	}
	return r, nil
}

func parseConfirm(b []byte, ack bool) (confirm, error) {
	a := args{b: b}
	c := confirm{tag: a.long(), multiple: a.octet()&1 != 0, ack: ack}
	if a.bad {
		return confirm{}, errFrame
	}
	return c, nil
}

// appendFrameHead appends what precedes a payload of n bytes.
func appendFrameHead(b []byte, typ byte, channel uint16, n int) []byte {
	b = append(b, typ)
	b = binary.BigEndian.AppendUint16(b, channel)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendText(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// appendPublish appends the method and content header frames of a mandatory
// publish. Names are at most 255 bytes.
func appendPublish(b []byte, channel uint16, exchange, routingKey string, props []byte, bodySize int) []byte {
	b = appendFrameHead(b, frameMethod, channel, 4+2+1+len(exchange)+1+len(routingKey)+1)
	b = binary.BigEndian.AppendUint32(b, methodBasicPublish)
	b = append(b, 0, 0) // reserved
	b = appendText(b, exchange)
	b = appendText(b, routingKey)
	b = append(b, 1, frameEnd) // mandatory, never immediate
	b = appendFrameHead(b, frameHeader, channel, contentHead+len(props))
	b = binary.BigEndian.AppendUint16(b, classBasic)
	b = append(b, 0, 0) // weight
	b = binary.BigEndian.AppendUint64(b, uint64(bodySize))
	b = append(b, props...)
	return append(b, frameEnd)
}

// appendAck appends a settlement of one delivery, or of all up to it.
func appendAck(b []byte, channel uint16, tag uint64, multiple bool) []byte {
	b = appendFrameHead(b, frameMethod, channel, 4+8+1)
	b = binary.BigEndian.AppendUint32(b, methodBasicAck)
	b = binary.BigEndian.AppendUint64(b, tag)
	if multiple {
		return append(b, 1, frameEnd)
	}
	return append(b, 0, frameEnd)
}

// appendGiveBack appends a nack that puts one delivery back into its queue.
// There is no way here to reject or to discard one.
func appendGiveBack(b []byte, channel uint16, tag uint64) []byte {
	const requeue = 1 << 1
	b = appendFrameHead(b, frameMethod, channel, 4+8+1)
	b = binary.BigEndian.AppendUint32(b, methodBasicNack)
	b = binary.BigEndian.AppendUint64(b, tag)
	return append(b, requeue, frameEnd)
}
