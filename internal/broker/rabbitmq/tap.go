package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// Bounds of what the tap takes from a broker.
const (
	maxMethodSize = 1 << 20   // one method frame
	maxPropsSize  = 64 << 20  // properties of one message
	maxBodySize   = 512 << 20 // the broker's own upper bound of a body
	readAhead     = 64 << 10

	// beatEvery is how often traffic that the library does not see is reported
	// to it as a heartbeat.
	beatEvery = time.Second
)

// sink receives what the tap takes out of the stream. Its methods are called
// in wire order from one goroutine, the library's reader, and must not block:
// behind them wait heartbeats and replies.
type sink interface {
	deliver(d delivered)
	back(r returned)
	settle(c confirm)
}

// tap is the network connection under the client library. It takes deliveries,
// returns and confirms out of the stream before the library can decode them,
// and puts publishes and settlements into it between the library's own frames.
// The library is left with what it is good at: log-in, heartbeats, channels
// and requests.
//
// A broker that sends messages all the time sends no heartbeats, and the
// library must not think it dead because the tap took every frame: after a
// frame that was taken, at most once in beatEvery, the library gets a
// heartbeat in its place.
type tap struct {
	net.Conn
	in   *bufio.Reader
	pass []byte // what the library reads next
	raw  bool   // not AMQP frames: everything goes to the library
	sink sink
	beat time.Time

	parts atomic.Uint64 // frames of messages that came in

	content content // message whose frames are coming in
	out     outbox
}

// content is a message of which the method has been seen.
type content struct {
	channel  uint16
	deliver  *delivered // one of the two while a message is coming in
	back     *returned
	header   bool // the content header has been seen
	props    []byte
	body     []byte
	bodySize uint64
}

func (c *content) open() bool { return c.deliver != nil || c.back != nil }

func newTap(conn net.Conn, s sink) *tap {
	t := &tap{Conn: conn, in: bufio.NewReaderSize(conn, readAhead), sink: s}
	t.out.init()
	go t.out.run(conn)
	return t
}

// Read gives the library its part of the stream.
func (t *tap) Read(p []byte) (int, error) {
	for len(t.pass) == 0 {
		if err := t.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.pass)
	t.pass = t.pass[n:]
	return n, nil
}

// next handles one frame: it fills pass, or hands a part of a message on.
func (t *tap) next() error {
	head, err := t.in.Peek(1)
	if err != nil {
		return err
	}
	if t.raw || head[0] != frameMethod && head[0] != frameHeader && head[0] != frameBody && head[0] != frameHeartbeat {
		t.raw = true
		b := make([]byte, 512)
		n, err := t.in.Read(b)
		t.pass = b[:n]
		return err
	}
	if head, err = t.in.Peek(frameHead); err != nil {
		return err
	}
	typ, channel, size := head[0], binary.BigEndian.Uint16(head[1:]), binary.BigEndian.Uint32(head[3:])
	ofContent := t.content.open() && channel == t.content.channel && typ != frameHeartbeat
	switch {
	case ofContent && typ == frameHeader:
		err = t.readHeader(size)
	case ofContent && typ == frameBody:
		err = t.readBody(size)
	case size > maxMethodSize:
		return fmt.Errorf("%w: %d bytes", errFrame, size)
	default:
		return t.readOther(int(size))
	}
	if err == nil {
		t.parts.Add(1)
		t.taken()
	}
	return err
}

// taken gives the library a heartbeat when it is due.
func (t *tap) taken() {
	if now := time.Now(); now.Sub(t.beat) >= beatEvery {
		t.beat = now
		t.pass = append(appendFrameHead(nil, frameHeartbeat, 0, 0), frameEnd)
	}
}

// readOther reads a whole frame that is no content. Methods that concern
// messages are taken, all else goes to the library.
func (t *tap) readOther(size int) error {
	frame := make([]byte, frameOverhead+size)
	if _, err := io.ReadFull(t.in, frame); err != nil {
		return err
	}
	if frame[len(frame)-1] != frameEnd {
		return errFrame
	}
	payload := frame[frameHead : frameHead+size]
	if frame[0] != frameMethod || size < 4 {
		t.pass = frame
		return nil
	}
	taken, err := t.method(binary.BigEndian.Uint16(frame[1:]), payload)
	switch {
	case err != nil:
		return err
	case taken:
		t.taken()
	default:
		t.pass = frame
	}
	return nil
}

// method takes the methods that concern messages.
func (t *tap) method(channel uint16, payload []byte) (taken bool, err error) {
	id, rest := binary.BigEndian.Uint32(payload), payload[4:]
	switch id {
	case methodBasicDeliver:
		d, err := parseDeliver(rest)
		t.content = content{channel: channel, deliver: &d}
		return true, err
	case methodBasicReturn:
		r, err := parseReturn(rest)
		t.content = content{channel: channel, back: &r}
		return true, err
	case methodBasicAck, methodBasicNack:
		c, err := parseConfirm(rest, id == methodBasicAck)
		if err == nil {
			t.sink.settle(c)
		}
		return true, err
	default:
		return false, nil
	}
}

// readHeader reads the content header frame at the front of the stream. It may
// be larger than what was negotiated: the broker adds to the headers of a dead
// letter without looking at the limit.
func (t *tap) readHeader(size uint32) error {
	if size < contentHead+2 || size > contentHead+maxPropsSize || t.content.header {
		return fmt.Errorf("%w: content header of %d bytes", errFrame, size)
	}
	payload, err := t.payload(nil, int(size))
	if err != nil {
		return err
	}
	c := &t.content
	c.header = true
	c.bodySize = binary.BigEndian.Uint64(payload[4:])
	c.props = payload[contentHead:]
	if c.bodySize > maxBodySize {
		return fmt.Errorf("%w: a body of %d bytes", errFrame, c.bodySize)
	}
	// A size that is only claimed gets no memory.
	c.body = make([]byte, 0, min(c.bodySize, 1<<20))
	return t.complete()
}

func (t *tap) readBody(size uint32) error {
	c := &t.content
	if !c.header || uint64(len(c.body))+uint64(size) > c.bodySize {
		return fmt.Errorf("%w: body frame of %d bytes", errFrame, size)
	}
	var err error
	if c.body, err = t.payload(c.body, int(size)); err != nil {
		return err
	}
	return t.complete()
}

// payload reads the frame at the front of the stream and appends its payload.
func (t *tap) payload(to []byte, size int) ([]byte, error) {
	if _, err := t.in.Discard(frameHead); err != nil {
		return nil, err
	}
	for size > 0 {
		n := min(size, 1<<20)
		at := len(to)
		to = slices.Grow(to, n)[:at+n]
		if _, err := io.ReadFull(t.in, to[at:]); err != nil {
			return nil, err
		}
		size -= n
	}
	end, err := t.in.ReadByte()
	if err == nil && end != frameEnd {
		err = errFrame
	}
	return to, err
}

// complete hands the message on when nothing of it is missing.
func (t *tap) complete() error {
	c := t.content
	if uint64(len(c.body)) < c.bodySize {
		return nil
	}
	t.content = content{}
	if c.deliver != nil {
		c.deliver.props, c.deliver.body = c.props, c.body
		t.sink.deliver(*c.deliver)
		return nil
	}
	c.back.props, c.back.body = c.props, c.body
	t.sink.back(*c.back)
	return nil
}

// Write takes the library's frames. It never waits for the network, so that a
// broker that stopped reading cannot hold up heartbeats' bookkeeping.
func (t *tap) Write(p []byte) (int, error) { return t.out.write(p) }

// Close ends the connection after a moment for what is still to be written,
// such as the answer to a close of the broker.
func (t *tap) Close() error {
	_ = t.SetWriteDeadline(time.Now().Add(closeLinger))
	t.out.close()
	return nil
}

// kill ends the connection at once.
func (t *tap) kill() {
	t.out.close()
	_ = t.Conn.Close()
}
