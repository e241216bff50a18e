package integration

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between the program and the broker and counts what the program
// publishes, settles and opens: frames on the wire, not what anybody says about
// them.
type proxy struct {
	t         testing.TB
	l         net.Listener
	to        string
	watch     func(*link, frame) verb // looks at each frame before it is handed on; nil hands on all
	published atomic.Int64
	settled   atomic.Int64 // basic.ack
	opened    atomic.Int64 // connections
	cuts      atomic.Int64 // of single connections
	wg        sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	// silence is held while the broker's answers are kept back.
	silence sync.Mutex
}

// link is one connection through the proxy. What a watcher notes in it is only
// looked at in watchers, which run one at a time for each link.
type link struct {
	client, server net.Conn
	gone           atomic.Bool // one direction has ended

	mu    sync.Mutex
	queue string // that it consumes, "" when it does not
	acks  int    // basic.ack handed on
	left  int    // a watcher's own count
}

// frame is one frame on its way. Class and method are 0 unless it is a method.
type frame struct {
	up            bool // to the broker
	body          bool // part of a message's body
	class, method uint16
	payload       []byte // the first bytes of it, a method's arguments
}

func (f frame) is(class, method uint16) bool { return f.class == class && f.method == method }

// verb is what a proxy does with a frame.
type verb int

const (
	pass  verb = iota
	stop       // both directions of its connection end, before this frame
	tear       // both end in the middle of this frame
	again      // it is asked about again in a moment
)

func newProxy(t testing.TB, to string) *proxy { return newWatchingProxy(t, to, nil) }

func newWatchingProxy(t testing.TB, to string, watch func(*link, frame) verb) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, l: l, to: to, watch: watch}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// sent waits until the program has published n messages.
func (p *proxy) sent(n int64) {
	p.t.Helper()
	eventually(p.t, "the release to get under way", func() bool { return p.published.Load() >= n })
}

// cut ends all connections without a word.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.opened.Add(1)
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		l := &link{client: client, server: server}
		p.wg.Go(func() {
			p.answer(l)
			l.gone.Store(true)
			_ = client.Close()
		})
		p.wg.Go(func() {
			in := bufio.NewReader(client)
			if _, err := io.CopyN(server, in, 8); err == nil { // the protocol header
				p.forward(l, server, in, true)
			}
			l.gone.Store(true)
			_ = server.Close()
		})
	}
}

// answer hands on what the broker says, until either connection ends.
func (p *proxy) answer(l *link) {
	if p.watch != nil {
		p.forward(l, l.client, bufio.NewReader(l.server), false)
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		p.silence.Lock()
		_, err = l.client.Write(buf[:n])
		p.silence.Unlock()
		if err != nil {
			return
		}
	}
}

// AMQP 0-9-1: frames are type, channel, size, payload, end mark. The payload of
// a method frame begins with class and method.
const (
	frameHead   = 7
	frameMethod = 1
	frameBody   = 3
	peeked      = 300 // bytes of a payload that a watcher gets to see

	channelClass = 20
	channelClose = 40 // of channelClass
	queueClass   = 50
	basic        = 60
	consume      = 20
	publish      = 40
	deliver      = 60
	ack          = 80
	declareOK    = 11 // of queueClass
)

// forward hands frames on, in either direction.
func (p *proxy) forward(l *link, to net.Conn, from *bufio.Reader, up bool) {
	for {
		head, err := from.Peek(frameHead)
		if err != nil {
			return
		}
		size := int(binary.BigEndian.Uint32(head[3:]))
		f := frame{up: up, body: head[0] == frameBody}
		if head[0] == frameMethod && size >= 4 {
			if head, err = from.Peek(frameHead + min(size, peeked)); err != nil {
				return
			}
			f.class, f.method, f.payload = binary.BigEndian.Uint16(head[7:]), binary.BigEndian.Uint16(head[9:]), head[11:]
		}
		whole := int64(frameHead + size + 1)
		v := p.look(l, f)
		if v == again && l.gone.Load() {
			return
		}
		if v == again {
			time.Sleep(time.Millisecond)
			continue
		}
		if v != pass {
			if v == tear {
				_, _ = io.CopyN(to, from, whole/2) // it ends now, one way or another
			}
			p.cuts.Add(1)
			_ = l.client.Close()
			_ = l.server.Close()
			return
		}
		if _, err := io.CopyN(to, from, whole); err != nil {
			return
		}
	}
}

// look counts a frame and asks the watcher about it.
func (p *proxy) look(l *link, f frame) verb {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.up && f.is(basic, consume) { // reserved short, then the queue
		l.queue = string(f.payload[3 : 3+f.payload[2]])
	}
	if p.watch != nil {
		if v := p.watch(l, f); v != pass {
			return v
		}
	}
	switch {
	case !f.up:
	case f.is(basic, publish):
		// A release is mandatory, which the last argument says. What is not is the
		// driver's question whether it may publish, in a transaction of its own.
		if f.payload[len(f.payload)-1]&1 != 0 {
			p.published.Add(1)
		}
	case f.is(basic, ack):
		p.settled.Add(1)
		l.acks++
	}
	return pass
}
