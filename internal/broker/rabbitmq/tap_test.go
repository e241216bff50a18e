package rabbitmq

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// stream is a net.Conn that only reads.
type stream struct {
	net.Conn
	r io.Reader
}

func (s stream) Read(p []byte) (int, error) { return s.r.Read(p) }
func (stream) Write(p []byte) (int, error)  { return len(p), nil }
func (stream) Close() error                 { return nil }

// record is a sink that keeps what it gets.
type record struct {
	delivered []delivered
	returned  []returned
	confirms  []confirm
}

func (r *record) deliver(d delivered) { r.delivered = append(r.delivered, d) }
func (r *record) back(b returned)     { r.returned = append(r.returned, b) }
func (r *record) settle(c confirm)    { r.confirms = append(r.confirms, c) }

func frame(typ byte, channel uint16, payload string) string {
	return string(append(append(appendFrameHead(nil, typ, channel, len(payload)), payload...), frameEnd))
}

func methodFrame(channel uint16, id uint32, args string) string {
	return frame(frameMethod, channel, string(binary.BigEndian.AppendUint32(nil, id))+args)
}

func contentHeader(size uint64, props string) string {
	return "\x00\x3c\x00\x00" + string(binary.BigEndian.AppendUint64(nil, size)) + props
}

const (
	deliverArgs = "\x03tag" + "\x00\x00\x00\x00\x00\x00\x00\x07" + "\x01" + "\x01x" + "\x03key"
	returnArgs  = "\x01\x38" + "\x08NO_ROUTE" + "\x00" + "\x01q"
	ackArgs     = "\x00\x00\x00\x00\x00\x00\x00\x09" + "\x01"
)

// readTap feeds a tap and returns what the library and the sink got of it.
func readTap(r io.Reader) (library []byte, got record, err error) {
	t := newTap(stream{r: r}, &got)
	defer t.kill()
	t.beat = time.Now().Add(time.Hour) // heartbeats have a test of their own
	library, err = io.ReadAll(t)
	return library, got, err
}

func TestTapTakesMessagesOut(t *testing.T) {
	heartbeat := frame(frameHeartbeat, 0, "")
	other := methodFrame(1, 60<<16|21, "\x03tag")
	in := other +
		methodFrame(1, methodBasicDeliver, deliverArgs) + heartbeat +
		frame(frameHeader, 1, contentHeader(5, "\x00\x80\x01m")) +
		frame(frameBody, 1, "he") + methodFrame(2, 50<<16|11, "reply on another channel") + frame(frameBody, 1, "llo") +
		methodFrame(1, methodBasicReturn, returnArgs) + frame(frameHeader, 1, contentHeader(0, "\x00\x00")) +
		methodFrame(1, methodBasicAck, ackArgs) + methodFrame(1, methodBasicNack, ackArgs) + other
	want := record{
		delivered: []delivered{{tag: 7, redelivered: true, exchange: "x", routingKey: "key", props: []byte("\x00\x80\x01m"), body: []byte("hello")}},
		returned:  []returned{{code: 312, text: "NO_ROUTE", routingKey: "q", props: []byte{0, 0}, body: []byte{}}},
		confirms:  []confirm{{9, true, true}, {9, true, false}},
	}
	wantLibrary := other + heartbeat + methodFrame(2, 50<<16|11, "reply on another channel") + other
	for name, r := range map[string]io.Reader{
		"at once":      bytes.NewReader([]byte(in)),
		"byte by byte": iotest.OneByteReader(bytes.NewReader([]byte(in))),
	} {
		library, got, err := readTap(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(library) != wantLibrary {
			t.Errorf("%s: the library got %q", name, library)
		}
		opt := cmp.AllowUnexported(record{}, delivered{}, returned{}, confirm{})
		if d := cmp.Diff(want, got, opt); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestTapRefusesWhatIsNoFrame(t *testing.T) {
	deliver := methodFrame(1, methodBasicDeliver, deliverArgs)
	header := frame(frameHeader, 1, contentHeader(5, "\x00\x00"))
	for name, in := range map[string]string{
		"end missing":               deliver[:len(deliver)-1] + "x",
		"deliver cut off":           methodFrame(1, methodBasicDeliver, deliverArgs[:9]),
		"return cut off":            methodFrame(1, methodBasicReturn, returnArgs[:4]),
		"ack cut off":               methodFrame(1, methodBasicAck, ackArgs[:8]),
		"header too short":          deliver + frame(frameHeader, 1, "\x00\x3c\x00\x00"),
		"two headers":               deliver + header + header,
		"body before header":        deliver + frame(frameBody, 1, "x"),
		"more body than announced":  deliver + header + frame(frameBody, 1, "123456"),
		"body beyond every limit":   deliver + frame(frameHeader, 1, contentHeader(1<<40, "\x00\x00")),
		"header beyond every limit": deliver + string(appendFrameHead(nil, frameHeader, 1, 1<<31)),
		"method beyond every limit": string(appendFrameHead(nil, frameMethod, 1, 1<<31)),
	} {
		_, got, err := readTap(bytes.NewReader([]byte(in)))
		if err == nil || len(got.delivered)+len(got.returned)+len(got.confirms) > 0 {
			t.Errorf("%s: %v, got %+v", name, err, got)
		}
	}
	// An answer that is not AMQP is for the library to complain about.
	if library, _, err := readTap(bytes.NewReader([]byte("AMQP\x01\x01\x00\x09"))); err != nil || string(library) != "AMQP\x01\x01\x00\x09" {
		t.Errorf("got %q, %v", library, err)
	}
}

func TestTapReportsTrafficAsHeartbeat(t *testing.T) {
	var got record
	tp := newTap(stream{r: bytes.NewReader(bytes.Repeat([]byte(methodFrame(1, methodBasicAck, ackArgs)), 100))}, &got)
	defer tp.kill()
	library, err := io.ReadAll(tp)
	if err != nil || string(library) != frame(frameHeartbeat, 0, "") || len(got.confirms) != 100 {
		t.Errorf("the library got %q, the sink %d confirms: %v", library, len(got.confirms), err)
	}
}

// TestOutboxFindsFrameBoundaries: whatever the library's writes are cut into,
// frames of the driver go between frames only.
func TestOutboxFindsFrameBoundaries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []byte("AMQP\x00\x00\x09\x01")
		ends := map[int]bool{len(all): true}
		channel := uint16(0)
		for range rapid.IntRange(0, 6).Draw(t, "frames") {
			kind := rapid.IntRange(0, 3).Draw(t, "kind")
			switch kind {
			case 0:
				all = append(all, frame(frameHeartbeat, 0, "")...)
			case 1:
				channel = rapid.Uint16().Draw(t, "channel")
				all = append(all, methodFrame(channel, methodChannelOpen, "\x00")...)
			case 2:
				all = append(all, methodFrame(3, 60<<16|20, rapid.StringN(0, 40, -1).Draw(t, "args"))...)
			default:
				all = append(all, frame(frameMethod, 9, rapid.StringN(0, 3, 3).Draw(t, "short"))...)
			}
			ends[len(all)] = true
		}
		var o outbox
		o.init()
		for at := 0; at < len(all); {
			n := rapid.IntRange(1, len(all)-at).Draw(t, "write")
			if _, err := o.write(all[at : at+n]); err != nil {
				t.Fatal(err)
			}
			at += n
			ok, err := o.try(func(func([]byte), uint16) {})
			if err != nil || ok != ends[at] {
				t.Fatalf("after %d bytes: %v, %v; frames end at %v", at, ok, err, ends)
			}
		}
		if o.channel != channel {
			t.Fatalf("channel %d, want %d", o.channel, channel)
		}
		if got := bytes.Join(o.chunks, nil); !bytes.Equal(got, all) {
			t.Fatalf("wrote %x, want %x", got, all)
		}
	})
}

// FuzzTap: bytes of a broker gone mad end the stream with an error at worst,
// and the library never gets more than came in, heartbeats aside.
func FuzzTap(f *testing.F) {
	f.Add([]byte(methodFrame(1, methodBasicDeliver, deliverArgs) + frame(frameHeader, 1, contentHeader(2, "\x00\x00")) + frame(frameBody, 1, "ab")))
	f.Add([]byte(methodFrame(1, methodBasicReturn, returnArgs) + frame(frameHeader, 1, contentHeader(0, "\x00\x00"))))
	f.Add([]byte("AMQP\x00\x00\x09\x01" + frame(frameHeartbeat, 0, "")))
	f.Fuzz(func(t *testing.T, in []byte) {
		library, got, _ := readTap(bytes.NewReader(in))
		total := len(library)
		for _, d := range got.delivered {
			total += len(d.props) + len(d.body)
		}
		for _, r := range got.returned {
			total += len(r.props) + len(r.body)
		}
		if total > len(in) {
			t.Fatalf("%d bytes out of %d", total, len(in))
		}
	})
}
