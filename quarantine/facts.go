package quarantine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/oklog/ulid/v2"

	"github.com/redrivehq/redrive/ledger/event"
)

// Facts is what is known about an envelope since its capture. It never
// changes; after a purge only the fields that name nobody are left.
type Facts struct {
	ID       ulid.ULID
	Captured uint64 // ms since 1970 UTC, our clock

	// Broker reference: where it was received and how it had been published.
	Cluster       string
	VHost         string
	Queue         string
	Exchange      string
	RoutingKey    string
	Redelivered   uint8
	DeliveryCount int64 // as the broker says, -1 when it does not

	// Where and why it died, from the dead-letter headers and the worker's.
	DiedQueue  string // queue of the last death, "" when unknown
	Reason     string // stable reason code
	LastReason string // the failure before the last decision, "" when the same
	ErrorCode  string
	Class      event.Class
	Owner      string
	Policy     string // version of the policy that classified it
	Attempts   int64  // processing attempts, -1 when unknown
	FirstSeen  uint64 // ms; all times by their writers' clocks, 0 when unknown
	FirstDied  uint64
	Died       uint64

	// Identity.
	Operation     string // business identity, "" when none was found
	OperationFrom string // which expression found it
	MessageID     string // the broker property, which identifies nothing
	Fingerprint   [16]byte
	Wire          [16]byte // digest of the exact bytes
	BodyDigest    [32]byte // SHA-256
	Type          string
	Schema        string
	OrderingKey   string
	Sequence      string
	Producer      string // producer generation
	Consumer      string // consumer version
	TraceID       string

	PropertiesSize uint64
	BodySize       uint64
	BodyOf         event.EnvelopeNo // whose body object holds the body

	// Lineage.
	Parent      event.EnvelopeNo // 0 for a root
	Root        event.EnvelopeNo
	Attempt     uint64 // 1 for a root
	Stamp       StampState
	DuplicateOf event.EnvelopeNo // possible_duplicate_of, 0 for none

	// How the message, or the root of its lineage, had been published before its
	// first death; both may be empty. They mean something when OriginKnown is 1.
	OriginExchange   string
	OriginRoutingKey string
	OriginKnown      uint8
	OriginQueue      string // queue of that first death, "" when unknown
}

// StampState says what was found about the stamp of a captured message.
type StampState uint8

// Stamp states. Only StampValid makes a child; the others are roots.
const (
	StampNone    StampState = iota
	StampValid              // MAC holds and the body is what was released
	StampInvalid            // malformed, or the MAC does not hold
	StampUnknown            // names a generation or member that this store does not have
	StampDerived            // MAC holds, but the body is another one
)

var stampNames = [...]string{"", "valid", "stamp_invalid", "stamp_unknown", "derived"}

// String is the flag as it is shown, "" for no stamp.
func (s StampState) String() string {
	if int(s) < len(stampNames) {
		return stampNames[s]
	}
	return "stamp_invalid"
}

// factsVersion is the first byte of encoded Facts. Version 1 had no origin.
const factsVersion = 2

// visit walks the fields in the order in which they are stored.
func (f *Facts) visit(w *wire, version uint8) {
	w.bytes(f.ID[:])
	w.num(&f.Captured)
	for _, s := range []*string{&f.Cluster, &f.VHost, &f.Queue, &f.Exchange, &f.RoutingKey} {
		w.text(s)
	}
	w.small(&f.Redelivered)
	w.signed(&f.DeliveryCount)
	for _, s := range []*string{&f.DiedQueue, &f.Reason, &f.LastReason, &f.ErrorCode, &f.Owner, &f.Policy} {
		w.text(s)
	}
	w.small((*uint8)(&f.Class))
	w.signed(&f.Attempts)
	w.num(&f.FirstSeen)
	w.num(&f.FirstDied)
	w.num(&f.Died)
	for _, s := range []*string{&f.Operation, &f.OperationFrom, &f.MessageID} {
		w.text(s)
	}
	w.bytes(f.Fingerprint[:])
	w.bytes(f.Wire[:])
	w.bytes(f.BodyDigest[:])
	for _, s := range []*string{&f.Type, &f.Schema, &f.OrderingKey, &f.Sequence, &f.Producer, &f.Consumer, &f.TraceID} {
		w.text(s)
	}
	w.num(&f.PropertiesSize)
	w.num(&f.BodySize)
	for _, n := range []*event.EnvelopeNo{&f.BodyOf, &f.Parent, &f.Root, &f.DuplicateOf} {
		w.num((*uint64)(n))
	}
	w.num(&f.Attempt)
	w.small((*uint8)(&f.Stamp))
	if version >= 2 {
		w.text(&f.OriginExchange)
		w.text(&f.OriginRoutingKey)
		w.small(&f.OriginKnown)
		w.text(&f.OriginQueue)
	}
}

func (f *Facts) encode() []byte {
	w := wire{buf: []byte{factsVersion}}
	f.visit(&w, factsVersion)
	return w.buf
}

func decodeFacts(b []byte) (*Facts, error) {
	if len(b) == 0 {
		return nil, errors.New("facts of the envelope are missing")
	}
	if b[0] == 0 || b[0] > factsVersion {
		return nil, fmt.Errorf("facts have format %d: %w", b[0], event.ErrFuture)
	}
	f := &Facts{}
	w := wire{buf: b[1:], reading: true}
	f.visit(&w, b[0])
	if w.bad || len(w.buf) > 0 {
		return nil, errors.New("facts of the envelope are damaged")
	}
	return f, nil
}

// erase keeps what describes and drops what could identify.
func (f *Facts) erase() {
	for _, s := range []*string{&f.RoutingKey, &f.OriginRoutingKey, &f.ErrorCode, &f.Operation, &f.OperationFrom, &f.MessageID, &f.OrderingKey, &f.Sequence, &f.TraceID} {
		*s = ""
	}
	f.OriginKnown = 0
	f.Fingerprint, f.Wire, f.BodyDigest = [16]byte{}, [16]byte{}, [32]byte{}
}

// wire writes or reads fields one after the other: numbers as varints, texts
// with their length, byte arrays as they are.
type wire struct {
	buf     []byte
	reading bool
	bad     bool
}

func (w *wire) num(p *uint64) {
	if !w.reading {
		w.buf = binary.AppendUvarint(w.buf, *p)
		return
	}
	v, n := binary.Uvarint(w.buf)
	if n <= 0 || n > 1 && w.buf[n-1] == 0 { // the shortest spelling is the only one
		w.bad, w.buf = true, nil
		return
	}
	*p, w.buf = v, w.buf[n:]
}

func (w *wire) small(p *uint8) {
	n := uint64(*p)
	w.num(&n)
	w.bad = w.bad || n > math.MaxUint8
	*p = uint8(n)
}

func (w *wire) signed(p *int64) {
	u := uint64(*p + 1) // -1, the only negative value in use, becomes 0
	w.num(&u)
	*p = int64(u) - 1
}

func (w *wire) text(p *string) {
	n := uint64(len(*p))
	w.num(&n)
	if !w.reading {
		w.buf = append(w.buf, *p...)
		return
	}
	if n > uint64(len(w.buf)) {
		w.bad, w.buf = true, nil
		return
	}
	*p, w.buf = string(w.buf[:n]), w.buf[n:]
}

func (w *wire) bytes(b []byte) {
	if !w.reading {
		w.buf = append(w.buf, b...)
		return
	}
	if len(b) > len(w.buf) {
		w.bad, w.buf = true, nil
		return
	}
	copy(b, w.buf)
	w.buf = w.buf[len(b):]
}
