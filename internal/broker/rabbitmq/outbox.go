package rabbitmq

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/redrivehq/redrive/quarantine"
)

const (
	// outboxLimit is how many bytes may wait for the network before publishes
	// have to wait too.
	outboxLimit = 256 << 10
	// chunkSize is how much is put together into one write.
	chunkSize = 64 << 10
	// byReference is from which size on a payload is not copied.
	byReference = 16 << 10
	// closeLinger is how long a closed connection may still write.
	closeLinger = 250 * time.Millisecond
	// protocolHeader is the size of what a client sends before any frame.
	protocolHeader = 8
)

// outbox collects what goes out and writes it from one goroutine, as much at a
// time as has come together: a window of small messages is a few writes, not
// one each.
//
// Two parties put bytes in: the library, whose writes may end anywhere, and
// the driver, which adds whole frames and only where a frame of the library
// has ended.
type outbox struct {
	mu      sync.Mutex
	chunks  net.Buffers
	size    int
	tail    bool // the last chunk may be appended to
	err     error
	changed chan struct{} // closed and replaced when room, boundary or err change
	wake    chan struct{}

	// Where the library is in its own stream of frames.
	head    []byte // of a frame whose size is not known yet
	missing int    // bytes of the current frame that are still to come
	channel uint16 // of the last channel.open that went out
}

func (o *outbox) init() {
	o.changed = make(chan struct{})
	o.wake = make(chan struct{}, 1)
	o.missing = protocolHeader
}

// write queues a copy of bytes of the library.
func (o *outbox) write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	o.track(p)
	o.addCopy(p)
	o.notify()
	o.wakeUp()
	return len(p), nil
}

// track follows the library's frames to know where one ends.
func (o *outbox) track(p []byte) {
	for len(p) > 0 {
		if o.missing > 0 {
			n := min(o.missing, len(p))
			o.missing -= n
			p = p[n:]
			continue
		}
		// The head, and of a method also which one it is.
		want, size := frameHead, -1
		if len(o.head) >= frameHead {
			size = int(binary.BigEndian.Uint32(o.head[3:]))
			want += 4
		}
		n := min(want-len(o.head), len(p))
		o.head = append(o.head, p[:n]...)
		p = p[n:]
		if len(o.head) < frameHead {
			continue
		}
		if size < 0 {
			size = int(binary.BigEndian.Uint32(o.head[3:]))
		}
		if o.head[0] == frameMethod && size >= 4 {
			if len(o.head) < frameHead+4 {
				continue
			}
			if binary.BigEndian.Uint32(o.head[frameHead:]) == methodChannelOpen {
				o.channel = binary.BigEndian.Uint16(o.head[1:])
			}
		}
		o.missing = frameOverhead + size - len(o.head)
		o.head = o.head[:0]
	}
}

// boundary reports whether a frame of the driver may go here.
func (o *outbox) boundary() bool { return o.missing == 0 && len(o.head) == 0 }

// add queues bytes of the driver. Large ones are not copied, so they must not
// change until they are answered.
func (o *outbox) add(p []byte) {
	if len(p) < byReference {
		o.addCopy(p)
		return
	}
	o.size += len(p)
	o.chunks = append(o.chunks, p)
	o.tail = false
}

func (o *outbox) addCopy(p []byte) {
	o.size += len(p)
	last := len(o.chunks) - 1
	if !o.tail || cap(o.chunks[last])-len(o.chunks[last]) < len(p) {
		o.chunks = append(o.chunks, make([]byte, 0, max(chunkSize, len(p))))
		o.tail = true
		last++
	}
	o.chunks[last] = append(o.chunks[last], p...)
}

// notify tells everyone who waits in ready that something changed.
func (o *outbox) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// wakeUp makes run look.
func (o *outbox) wakeUp() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// ready waits until try would succeed. It gives up with ctx, when stop is
// closed, or with the error that ended the connection; nothing was queued then.
func (o *outbox) ready(ctx context.Context, stop <-chan struct{}) error {
	for {
		o.mu.Lock()
		err, ok, changed := o.err, o.size <= outboxLimit && o.boundary(), o.changed
		o.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-stop:
			return quarantine.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try queues the frames that put writes, all of them or none. It reports false
// when the moment is wrong, see ready.
func (o *outbox) try(put func(add func([]byte), channel uint16)) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false, o.err
	}
	if o.size > outboxLimit || !o.boundary() {
		return false, nil
	}
	put(o.add, o.channel)
	o.wakeUp()
	return true, nil
}

// send queues frames as soon as the moment is right.
func (o *outbox) send(ctx context.Context, put func(add func([]byte), channel uint16)) error {
	for {
		if err := o.ready(ctx, nil); err != nil {
			return err
		}
		if ok, err := o.try(put); ok || err != nil {
			return err
		}
	}
}

// run writes what is queued until the outbox is closed or the network fails,
// then closes conn.
func (o *outbox) run(conn net.Conn) {
	defer conn.Close()
	for range o.wake {
		o.mu.Lock()
		chunks, closing := o.chunks, o.err != nil
		o.chunks, o.size, o.tail = nil, 0, false
		o.notify()
		o.mu.Unlock()
		if len(chunks) > 0 {
			if _, err := chunks.WriteTo(conn); err != nil {
				o.fail(err)
				return
			}
		} else if !closing {
			continue
		}
		if closing {
			return
		}
	}
}

// close accepts nothing more; run writes the rest.
func (o *outbox) close() { o.fail(net.ErrClosed) }

// fail accepts nothing more and tells why. The first reason stays.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.notify()
	o.wakeUp()
}
