// Package rawamqp is a client for tests that speaks AMQP 0-9-1 byte by byte, so
// that they can publish what no client library would, and see exactly what is
// in a queue.
//
// It knows one connection with one channel, and waits for the answer to each
// request; PublishAll and Take move many messages in one go. Properties are the
// bytes that package amqpwire describes. Nothing is checked on the way out: a
// message that the broker refuses ends the client, and the next request fails
// the test with the broker's words. Try is for messages that may be refused.
//
//	c := rawamqp.Dial(t, node.URL())
//	c.Declare("dead", rawamqp.Quorum...)
//	c.Publish("", "dead", []byte{0x20, 0, 0, 0, 0, 11, 1, 'h', 'L', 0, 0, 0, 0, 0, 0, 0, 1}, nil)
//	m, ok := c.Get("dead")
package rawamqp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// patience bounds each answer of the broker.
const patience = 30 * time.Second

// Quorum are the arguments of a quorum queue.
var Quorum = []amqpwire.Field{amqpwire.StringField("x-queue-type", "quorum")}

// Client is one connection with one channel in confirm mode.
type Client struct {
	t        testing.TB
	address  string
	conn     net.Conn
	in       *bufio.Reader
	out      *bufio.Writer
	frameMax int
	returns  int
	sent     uint64 // publishes on the channel, which is the number of the last one
}

// Message is what Get takes from a queue.
type Message struct {
	Exchange    string
	RoutingKey  string
	Redelivered bool
	Ready       int // messages left in the queue
	Properties  []byte
	Body        []byte
}

// Method numbers, as class<<16 | method.
const (
	connectionStart   = 10<<16 | 10
	connectionStartOk = 10<<16 | 11
	connectionTune    = 10<<16 | 30
	connectionTuneOk  = 10<<16 | 31
	connectionOpen    = 10<<16 | 40
	connectionOpenOk  = 10<<16 | 41
	connectionClose   = 10<<16 | 50
	channelOpen       = 20<<16 | 10
	channelOpenOk     = 20<<16 | 11
	channelClose      = 20<<16 | 40
	channelCloseOk    = 20<<16 | 41
	exchangeDeclare   = 40<<16 | 10
	exchangeDeclareOk = 40<<16 | 11
	queueDeclare      = 50<<16 | 10
	queueDeclareOk    = 50<<16 | 11
	queueBind         = 50<<16 | 20
	queueBindOk       = 50<<16 | 21
	queueDelete       = 50<<16 | 40
	queueDeleteOk     = 50<<16 | 41
	basicConsume      = 60<<16 | 20
	basicConsumeOk    = 60<<16 | 21
	basicCancel       = 60<<16 | 30
	basicCancelOk     = 60<<16 | 31
	basicPublish      = 60<<16 | 40
	basicReturn       = 60<<16 | 50
	basicDeliver      = 60<<16 | 60
	basicGet          = 60<<16 | 70
	basicGetOk        = 60<<16 | 71
	basicGetEmpty     = 60<<16 | 72
	basicAck          = 60<<16 | 80
	basicReject       = 60<<16 | 90
	basicNack         = 60<<16 | 120
	confirmSelect     = 85<<16 | 10
	confirmSelectOk   = 85<<16 | 11
)

// Dial logs in at an address as a test node gives it. The connection ends with
// the test.
func Dial(t testing.TB, address string) *Client {
	t.Helper()
	c := &Client{t: t, address: address}
	t.Cleanup(c.Close)
	c.dial()
	return c
}

// dial connects, logs in and opens the channel.
func (c *Client) dial() {
	c.t.Helper()
	u, err := url.Parse(c.address)
	if err != nil {
		c.t.Fatal("rawamqp: bad address")
	}
	if c.conn, err = net.DialTimeout("tcp", u.Host, patience); err != nil {
		c.t.Fatalf("rawamqp: %v", err)
	}
	c.in, c.out = bufio.NewReader(c.conn), bufio.NewWriterSize(c.conn, 64<<10)
	c.write([]byte("AMQP\x00\x00\x09\x01"))
	c.await(connectionStart)
	password, _ := u.User.Password()
	login := "\x00" + u.User.Username() + "\x00" + password
	args := append([]byte{0, 0, 0, 0}, short("PLAIN")...)
	args = append(binary.BigEndian.AppendUint32(args, uint32(len(login))), login...)
	c.method(0, connectionStartOk, append(args, short("en_US")...))
	tune := c.await(connectionTune)
	c.frameMax = int(binary.BigEndian.Uint32(tune[2:]))
	c.method(0, connectionTuneOk, append(tune[:6:6], 0, 0)) // the broker's offers, without heartbeats
	vhost := "/"
	if len(u.Path) > 1 {
		vhost = u.Path[1:]
	}
	c.method(0, connectionOpen, append(short(vhost), 0, 0))
	c.await(connectionOpenOk)
	c.openChannel()
}

func (c *Client) openChannel() {
	c.t.Helper()
	c.sent = 0
	c.call(channelOpen, []byte{0}, channelOpenOk)
	c.call(confirmSelect, []byte{0}, confirmSelectOk)
}

// Declare makes a durable queue.
func (c *Client) Declare(queue string, args ...amqpwire.Field) {
	c.t.Helper()
	c.call(queueDeclare, append(append(append([]byte{0, 0}, short(queue)...), 1<<1), c.table(args)...), queueDeclareOk)
}

// DeclareExchange makes a durable exchange.
func (c *Client) DeclareExchange(name, kind string) {
	c.t.Helper()
	c.declareExchange(name, kind, 1<<1)
}

// DeclareInternal makes a durable exchange that no client may publish to.
func (c *Client) DeclareInternal(name, kind string) {
	c.t.Helper()
	c.declareExchange(name, kind, 1<<1|1<<3)
}

func (c *Client) declareExchange(name, kind string, bits byte) {
	c.t.Helper()
	c.call(exchangeDeclare, append(append(append(append([]byte{0, 0}, short(name)...), short(kind)...), bits), 0, 0, 0, 0), exchangeDeclareOk)
}

// Bind routes an exchange's messages with that key to a queue.
func (c *Client) Bind(queue, exchange, key string) {
	c.t.Helper()
	args := append(append(append([]byte{0, 0}, short(queue)...), short(exchange)...), short(key)...)
	c.call(queueBind, append(args, 0, 0, 0, 0, 0), queueBindOk)
}

// Delete removes a queue and what is in it.
func (c *Client) Delete(queue string) {
	c.t.Helper()
	c.call(queueDelete, append(append([]byte{0, 0}, short(queue)...), 0), queueDeleteOk)
}

// Publish sends one message, mandatory, and waits for its confirm. It fails the
// test when the broker does not take it or has no route.
func (c *Client) Publish(exchange, key string, props, body []byte) {
	c.t.Helper()
	c.Send(exchange, key, props, body)
	before := c.returns
	id, _ := c.next()
	for id == basicReturn {
		c.content()
		c.returns++
		id, _ = c.next()
	}
	if id != basicAck || c.returns != before {
		c.t.Fatalf("rawamqp: publish to %q %q: answer %d, %d returned", exchange, key, id&0xffff, c.returns-before)
	}
}

// PublishAll sends messages 0 to n-1 without waiting in between, and then waits
// for all confirms. It fails the test like Publish. There is at most one window
// of them in flight, so that the broker's answers do not pile up.
func (c *Client) PublishAll(n int, message func(i int) (exchange, key string, props, body []byte)) {
	c.t.Helper()
	const window = 1000
	open := map[uint64]bool{}
	for i := 0; i < n || len(open) > 0; {
		for ; i < n && len(open) < window; i++ {
			exchange, key, props, body := message(i)
			c.send(exchange, key, props, body)
			open[c.sent] = true
		}
		for len(open) > 0 {
			id, args := c.next()
			if id != basicAck {
				c.t.Fatalf("rawamqp: answer %d to one of %d publishes", id&0xffff, len(open))
			}
			tag, multiple := binary.BigEndian.Uint64(args), args[8] != 0
			delete(open, tag)
			for t := range open {
				if multiple && t < tag {
					delete(open, t)
				}
			}
		}
	}
}

// Verdict is what a broker says to one publish.
type Verdict struct {
	// Answer is "ack", "nack", "returned", "channel closed" or "connection closed".
	Answer string
	Code   int    // of what closed
	Text   string // of what closed
}

// Closed reports whether the publish cost a channel or a connection.
func (v Verdict) Closed() bool { return v.Code != 0 }

// Try sends one message, mandatory, and tells what the broker says to it. What
// the broker closed is opened again.
func (c *Client) Try(exchange, key string, props, body []byte) Verdict {
	c.t.Helper()
	c.Send(exchange, key, props, body)
	v := Verdict{}
	for {
		id, args := c.nextOf()
		switch id {
		case basicReturn:
			c.content()
			v.Answer = "returned"
			continue // its confirm follows
		case basicAck, basicNack:
			if v.Answer == "" {
				v.Answer = map[uint32]string{basicAck: "ack", basicNack: "nack"}[id]
			}
			return v
		case channelClose:
			v.Answer, v.Code = "channel closed", int(binary.BigEndian.Uint16(args))
			v.Text, _ = text(args[2:])
			c.method(1, channelCloseOk, nil)
			c.openChannel()
			return v
		case connectionClose:
			v.Answer, v.Code = "connection closed", int(binary.BigEndian.Uint16(args))
			v.Text, _ = text(args[2:])
			c.Close()
			c.dial()
			return v
		default:
			c.t.Fatalf("rawamqp: answer %d to a publish", id&0xffff)
		}
	}
}

// Send sends one message, mandatory, and waits for nothing.
func (c *Client) Send(exchange, key string, props, body []byte) {
	c.t.Helper()
	c.send(exchange, key, props, body)
	c.flush()
}

func (c *Client) send(exchange, key string, props, body []byte) {
	c.t.Helper()
	c.sent++
	c.method(1, basicPublish, append(append(append([]byte{0, 0}, short(exchange)...), short(key)...), 1))
	header := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(len(body)))
	c.frame(2, 1, append(header, props...))
	for len(body) > 0 {
		n := min(len(body), c.frameMax-8)
		c.frame(3, 1, body[:n])
		body = body[n:]
	}
}

// Get takes one message from a queue for good; it is false when there is none.
func (c *Client) Get(queue string) (Message, bool) {
	c.t.Helper()
	c.method(1, basicGet, append(append([]byte{0, 0}, short(queue)...), 1))
	id, args := c.next()
	if id == basicGetEmpty {
		return Message{}, false
	}
	if id != basicGetOk {
		c.t.Fatalf("rawamqp: answer %d to a get", id)
	}
	m := Message{Redelivered: args[8] != 0}
	args = args[9:]
	m.Exchange, args = text(args)
	m.RoutingKey, args = text(args)
	m.Ready = int(binary.BigEndian.Uint32(args))
	m.Properties, m.Body = c.content()
	return m, true
}

// Take consumes n messages from a queue for good, as a consumer gets them. It
// waits for those that are not there yet.
func (c *Client) Take(queue string, n int) []Message {
	c.t.Helper()
	const noAck = 1 << 1
	args := append(append(append([]byte{0, 0}, short(queue)...), short("raw")...), noAck)
	c.call(basicConsume, append(args, 0, 0, 0, 0), basicConsumeOk)
	all := make([]Message, 0, n)
	for len(all) < n {
		all = append(all, c.delivery(c.await(basicDeliver)))
	}
	c.method(1, basicCancel, append(short("raw"), 0))
	if id, _ := c.next(); id != basicCancelOk {
		c.t.Fatalf("rawamqp: the queue holds more than %d messages", n)
	}
	return all
}

func (c *Client) delivery(args []byte) (m Message) {
	c.t.Helper()
	_, args = text(args)
	m.Redelivered = args[8] != 0
	m.Exchange, args = text(args[9:])
	m.RoutingKey, _ = text(args)
	m.Properties, m.Body = c.content()
	return m
}

// Reject takes the message at the front of a queue and rejects it, which
// dead-letters it when the queue has a target for that.
func (c *Client) Reject(queue string) {
	c.t.Helper()
	c.method(1, basicGet, append(append([]byte{0, 0}, short(queue)...), 0))
	id, args := c.next()
	if id != basicGetOk {
		c.t.Fatalf("rawamqp: answer %d to a get", id)
	}
	c.content()
	c.method(1, basicReject, append(append([]byte(nil), args[:8]...), 0))
	// A request behind it: when it is answered, the rejection is done.
	c.call(confirmSelect, []byte{0}, confirmSelectOk)
}

// LocalAddr is the client's end of the connection, as the broker's log has it.
func (c *Client) LocalAddr() string { return c.conn.LocalAddr().String() }

// Close ends the connection without a goodbye.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// Drain takes all messages from a queue for good.
func (c *Client) Drain(queue string) []Message {
	c.t.Helper()
	var all []Message
	for {
		m, ok := c.Get(queue)
		if !ok {
			return all
		}
		all = append(all, m)
	}
}

// table encodes arguments.
func (c *Client) table(args []amqpwire.Field) []byte {
	b, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Headers, Headers: args})
	if err != nil {
		c.t.Fatalf("rawamqp: %v", err)
	}
	return b[2:]
}

func (c *Client) call(id uint32, args []byte, want uint32) {
	c.t.Helper()
	c.method(1, id, args)
	c.await(want)
}

func (c *Client) await(want uint32) []byte {
	c.t.Helper()
	id, args := c.next()
	if id != want {
		c.t.Fatalf("rawamqp: got method %d.%d, want %d.%d", id>>16, id&0xffff, want>>16, want&0xffff)
	}
	return args
}

// next reads the next method. A close by the broker fails the test.
func (c *Client) next() (id uint32, args []byte) {
	c.t.Helper()
	id, args = c.nextOf()
	if id == connectionClose || id == channelClose {
		reason, _ := text(args[2:])
		c.t.Fatalf("rawamqp: the broker closes: %d %s", binary.BigEndian.Uint16(args), reason)
	}
	return id, args
}

// nextOf reads the next method, whatever it is.
func (c *Client) nextOf() (id uint32, args []byte) {
	c.t.Helper()
	typ, payload := c.readFrame()
	if typ != 1 || len(payload) < 4 {
		c.t.Fatalf("rawamqp: frame of type %d where a method was due", typ)
	}
	return binary.BigEndian.Uint32(payload), payload[4:]
}

// content reads the content header and body that follow a method.
func (c *Client) content() (props, body []byte) {
	c.t.Helper()
	typ, header := c.readFrame()
	if typ != 2 || len(header) < 14 {
		c.t.Fatalf("rawamqp: frame of type %d where a content header was due", typ)
	}
	size := binary.BigEndian.Uint64(header[4:])
	for uint64(len(body)) < size {
		typ, part := c.readFrame()
		if typ != 3 {
			c.t.Fatalf("rawamqp: frame of type %d where a body was due", typ)
		}
		body = append(body, part...)
	}
	return header[12:], body
}

// readFrame reads a frame of any size.
func (c *Client) readFrame() (typ byte, payload []byte) {
	c.t.Helper()
	c.flush()
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatalf("rawamqp: %v", err)
	}
	var head [7]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		c.t.Fatalf("rawamqp: %v", err)
	}
	payload = make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	if _, err := io.ReadFull(c.in, payload); err != nil {
		c.t.Fatalf("rawamqp: %v", err)
	}
	if end := len(payload) - 1; payload[end] == 0xce {
		return head[0], payload[:end]
	}
	c.t.Fatal("rawamqp: a frame without its end")
	return 0, nil
}

func (c *Client) method(channel uint16, id uint32, args []byte) {
	c.t.Helper()
	c.frame(1, channel, append(binary.BigEndian.AppendUint32(nil, id), args...))
}

func (c *Client) frame(typ byte, channel uint16, payload []byte) {
	c.t.Helper()
	b := binary.BigEndian.AppendUint16([]byte{typ}, channel)
	c.write(binary.BigEndian.AppendUint32(b, uint32(len(payload))))
	c.write(payload)
	c.write([]byte{0xce})
}

func (c *Client) write(b []byte) {
	c.t.Helper()
	if _, err := c.out.Write(b); err != nil {
		c.t.Fatalf("rawamqp: %v", err)
	}
}

func (c *Client) flush() {
	c.t.Helper()
	if err := c.out.Flush(); err != nil {
		c.t.Fatalf("rawamqp: %v", err)
	}
}

func short(s string) []byte {
	if len(s) > 255 {
		panic(fmt.Sprintf("rawamqp: a short string of %d bytes", len(s)))
	}
	return append([]byte{byte(len(s))}, s...)
}

func text(b []byte) (string, []byte) {
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:]
}
