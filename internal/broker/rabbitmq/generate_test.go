package rabbitmq

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

const (
	maxVolume = 256 << 20 // bodies of 10,000 messages in all; fewer get their share
	maxBody   = 1 << 20
	maxProps  = 120 << 10 // well below what fits into a frame
	bigBody   = 64 << 10
)

// generated is a message that a broker takes.
type generated struct {
	key         string
	props, body []byte
}

// generator makes messages of every shape, as bytes: no encoder stands between
// it and the wire. The same seed makes the same messages.
type generator struct {
	r      *rand.Rand
	room   int     // bytes of bodies that may still come
	keep   float64 // share of big bodies that is kept big
	volume int
	props  int
	seen   map[string]int // what has been generated
}

// newGenerator prepares n messages.
func newGenerator(seed uint64, n int) *generator {
	room := maxVolume / 10_000 * n
	// Nearly all volume is in the few big ones of a log-uniform size.
	const meanSmall, meanBig = 5 << 10, 71 << 10
	return &generator{
		r: rand.New(rand.NewPCG(seed, 0)), room: room, seen: map[string]int{},
		keep: max(0, min(1, (0.8*float64(room)/float64(n)-meanSmall)/meanBig)),
	}
}

func (g *generator) one(in int) bool { return g.r.IntN(in) == 0 }

// next makes a message. A quorum queue of RabbitMQ 4 lets priorities above 4
// overtake, so flat ones stay below.
func (g *generator) next(flat bool) generated {
	m := generated{key: string(g.text(255)), body: g.nextBody()}
	m.props = g.properties(flat)
	g.props += len(m.props)
	return m
}

func (g *generator) nextBody() []byte {
	size := int(math.Exp2(g.r.Float64() * 20))
	if size >= bigBody && g.r.Float64() >= g.keep {
		size = int(math.Exp2(g.r.Float64() * 16))
	}
	switch {
	case g.one(30):
		size = 0
	case g.one(200): // around the edge of a frame
		size = 131072 - 8 + g.r.IntN(3) - 1
	}
	size = min(size, g.room)
	g.room -= size
	g.volume += size
	g.count("body", size >= bigBody, size == 0)
	b := make([]byte, size)
	g.fill(b)
	return b
}

func (g *generator) fill(b []byte) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, g.r.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
}

// count notes what was generated: big and empty ones apart.
func (g *generator) count(what string, big, empty bool) {
	g.seen[what]++
	if big {
		g.seen[what+" big"]++
	}
	if empty {
		g.seen[what+" empty"]++
	}
}

// text makes a string of at most n bytes, most often short.
func (g *generator) text(n int) []byte {
	switch g.r.IntN(8) {
	case 0, 1:
		return nil
	case 2:
		n = g.r.IntN(n + 1)
	case 3: // as long as can be
	default:
		n = g.r.IntN(min(n, 20) + 1)
	}
	b := make([]byte, n)
	g.fill(b)
	if !g.one(3) {
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz.-_ 0123456789"[b[i]%40]
		}
	}
	return b
}

func short(b []byte) []byte { return append([]byte{byte(len(b))}, b...) }

// properties makes flags and list: each property is there or not.
func (g *generator) properties(flat bool) []byte {
	flags := amqpwire.Property(g.r.Uint32()) &^ 3
	switch g.r.IntN(10) {
	case 0:
		flags = 0
	case 1:
		flags = math.MaxUint16 &^ 3
	case 2:
		flags |= amqpwire.Headers
	}
	b := binary.BigEndian.AppendUint16(nil, uint16(flags))
	for p := amqpwire.ContentType; p >= amqpwire.ClusterID; p >>= 1 {
		if flags&p == 0 {
			continue
		}
		v := g.property(p, flat)
		g.count(p.String(), false, len(v) == 1 && v[0] == 0)
		b = append(b, v...)
	}
	return b
}

func (g *generator) property(p amqpwire.Property, flat bool) []byte {
	switch p {
	case amqpwire.Headers:
		return g.headers()
	case amqpwire.DeliveryMode:
		return []byte{byte(1 + g.r.IntN(2))}
	case amqpwire.Priority:
		if flat {
			return []byte{byte(g.r.IntN(5))}
		}
		return []byte{byte(g.r.Uint32())}
	case amqpwire.Expiration: // any way of writing a time that this test does not reach
		ms := strconv.FormatInt(1e7+g.r.Int64N(maxExpiration-1e7+1), 10)
		return short([]byte([]string{"", "", "+", "0", "000", "+0", strings.Repeat("0", 200)}[g.r.IntN(7)] + ms))
	case amqpwire.Timestamp:
		return binary.BigEndian.AppendUint64(nil, g.number())
	case amqpwire.UserID:
		return short([]byte("guest")) // the broker takes no other
	case amqpwire.ReplyTo:
		if g.one(10) {
			return short([]byte("amq.rabbitmq.reply-to.gone"))
		}
	}
	return short(g.text(255))
}

// number makes 64 bits, often at an edge.
func (g *generator) number() uint64 {
	switch g.r.IntN(4) {
	case 0:
		return []uint64{0, 1, 1<<63 - 1, 1 << 63, math.MaxUint64, 1 << 53, 1<<31 - 1, 1 << 31}[g.r.IntN(8)]
	case 1:
		return uint64(g.r.Int64N(2e12))
	default:
		return g.r.Uint64()
	}
}

// headers makes a header table with its length.
func (g *generator) headers() []byte {
	var fields []byte
	switch g.r.IntN(200) {
	case 0:
		fields = append(append(short(g.text(255)), 'A'), sized(g.wide())...)
		g.seen["more than 8192 elements"]++
	case 1, 2, 3:
		fields = g.deep(33 + g.r.IntN(100))
		g.seen["deeper than 32"]++
	case 4:
		long := make([]byte, 10<<10+g.r.IntN(maxProps-20<<10))
		g.fill(long)
		fields = append(append(short(g.text(255)), 'S'), sized(long)...)
		g.seen["long header"]++
	}
	fields = append(fields, g.fields(4<<10, 1)...)
	if g.one(10) {
		cc := append([]byte{'S'}, sized([]byte("absent"))...)
		fields = append(append(append(fields, "\x02CC"...), 'A'), sized(cc)...)
	}
	return sized(fields)
}

func sized(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...)
}

// wide makes the items of an array.
func (g *generator) wide() (items []byte) {
	for range 8193 + g.r.IntN(4000) {
		items = append(items, g.value(0, math.MaxInt)...)
	}
	return items
}

// deep makes a field with n tables and arrays inside each other.
func (g *generator) deep(n int) []byte {
	v := g.value(100, 1)
	for range n {
		if g.one(2) {
			v = append([]byte{'A'}, sized(v)...)
		} else {
			v = append([]byte{'F'}, sized(append(short(g.text(10)), v...))...)
		}
	}
	return append(short(g.text(255)), v...)
}

// names that mean something to a broker or a consumer, if not here.
var names = []string{
	"", "x-death", "x-delivery-count", "x-acquired-count", "x-first-death-queue", "x-last-death-reason",
	"x-match", "x-delay", "x-stream-offset", "x-redrive-intent", "traceparent", "cc", "x-original-exchange",
}

// fields makes those of a table, of about room bytes.
func (g *generator) fields(room, depth int) (fields []byte) {
	var used []string
	for len(fields) < room && !g.one(6) {
		name := string(g.text(255))
		switch {
		case len(used) > 0 && g.one(8):
			name = used[g.r.IntN(len(used))]
			g.seen["name twice"]++
		case g.one(5):
			name = names[g.r.IntN(len(names))]
		case name == "CC" || name == "BCC":
			continue // the broker reads them
		}
		if name == "" {
			g.seen["no name"]++
		}
		used = append(used, name)
		fields = append(append(fields, short([]byte(name))...), g.value(room-len(fields), depth)...)
	}
	return fields
}

const kindLetters = "tbBsuIilLfdDSxTVFA"

// value makes a value with its letter. From a depth on it holds no others.
func (g *generator) value(room, depth int) []byte {
	letters := kindLetters
	if depth > 5 || room < 100 {
		letters = strings.Trim(kindLetters, "FA")
	}
	k := letters[g.r.IntN(len(letters))]
	n := g.number()
	v := []byte{k}
	g.seen["kind "+string(rune(k))]++
	switch k {
	case 't': // most producers write 0 or 1
		return append(v, []byte{0, 1, byte(n)}[g.r.IntN(3)])
	case 'b', 'B':
		return append(v, byte(n))
	case 's', 'u':
		return binary.BigEndian.AppendUint16(v, uint16(n))
	case 'I', 'i':
		return binary.BigEndian.AppendUint32(v, uint32(n))
	case 'f':
		return binary.BigEndian.AppendUint32(v, uint32(n)&^(1<<23)) // never the exponent of no number
	case 'd':
		return binary.BigEndian.AppendUint64(v, n&^(1<<52))
	case 'D':
		return binary.BigEndian.AppendUint32(append(v, byte(g.r.Uint32())), uint32(n))
	case 'S', 'x':
		return append(v, sized(g.text(max(1, min(room, 300))))...)
	case 'V':
		return v
	case 'F':
		return append(v, sized(g.fields(room/2, depth+1))...)
	case 'A':
		var items []byte
		for len(items) < room/2 && !g.one(4) {
			items = append(items, g.value(room/2-len(items), depth+1)...)
		}
		return append(v, sized(items)...)
	default: // l, L, T
		return binary.BigEndian.AppendUint64(v, n)
	}
}
