package quarantine

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// BlobOver is the size in bytes above which a body becomes a blob.
const BlobOver = 256 << 10

// MaxBody is the size in bytes of the largest body that is taken by default:
// the largest that RabbitMQ ever has by default.
const MaxBody = 128 << 20

// ErrUnstorable is returned for a message that this store will never take. It
// stays in its queue, and the message says why.
var ErrUnstorable = errors.New("message cannot be stored")

// Origin says from where a batch is captured.
type Origin struct {
	Cluster string
	VHost   string
}

// Preparer does the part of a capture that needs no transaction: reading the
// message, and sealing it.
type Preparer struct {
	Rules Rules
	Judge *Judge
	Keys  Keys
	Blobs Blobs
	// Random yields the secrets. Always crypto/rand outside tests.
	Random io.Reader
	// MaxBody is the size in bytes of the largest body that is taken. Defaults
	// to MaxBody.
	MaxBody int
}

// Prepared is a delivery ready to be captured.
type Prepared struct {
	Receipt Receipt
	facts   Facts
	stamp   stamp.Stamp
	mac     stamp.MAC
	stamped bool // carries a well-formed stamp

	propertiesDigest [32]byte

	secret           Secret
	wrapped          []byte
	sealedProperties []byte
	wrappedBody      []byte
	sealedBody       []byte // or the mark of a blob
}

// Wire is the digest by which a redelivery of the message is recognised.
func (p *Prepared) Wire() [16]byte { return p.facts.Wire }

// HasMessageID tells whether the publisher named the message.
func (p *Prepared) HasMessageID() bool { return p.facts.MessageID != "" }

// Prepare reads and seals one delivery. A body above BlobOver is made durable
// as a blob at once.
func (pr *Preparer) Prepare(d Delivery, from Origin, now time.Time) (*Prepared, error) {
	if largest := cmp.Or(pr.MaxBody, MaxBody); len(d.Body) > largest {
		return nil, fmt.Errorf("a body of %d bytes, at most %d are taken: %w", len(d.Body), largest, ErrUnstorable)
	}
	v := amqpwire.Parse(d.Properties)
	wireDigest := amqpwire.WireDigest(d.Exchange, d.RoutingKey, d.Properties, d.Body)
	p := &Prepared{Receipt: d.Receipt, propertiesDigest: sha256.Sum256(d.Properties), facts: Facts{
		Captured: uint64(now.UnixMilli()), Cluster: from.Cluster, VHost: from.VHost, Queue: d.Queue,
		Exchange: d.Exchange, RoutingKey: d.RoutingKey, DeliveryCount: int64(d.DeliveryCount),
		Wire: [16]byte(wireDigest[:]), BodyDigest: sha256.Sum256(d.Body),
		PropertiesSize: uint64(len(d.Properties)), BodySize: uint64(len(d.Body)),
	}}
	f := &p.facts
	if d.Redelivered {
		f.Redelivered = 1
	}
	broker := pr.Rules.identify(f, &v, d.Body)
	f.Fingerprint = fingerprint(f.Type, d.Body)
	if f.FirstDied == 0 || f.FirstDied > f.Captured {
		// Unknown, or of a clock that is wrong: the retention clock must not wait
		// for a time to come.
		f.FirstDied = f.Captured
	}
	o := &Original{Exchange: d.Exchange, RoutingKey: d.RoutingKey, Properties: d.Properties, Body: d.Body}
	pr.Judge.judge(f, &v, o, broker, pr.Rules.errorText(&v, d.Body))
	var present bool
	var err error
	if p.stamp, p.mac, present, err = stamp.Read(v); err != nil {
		f.Stamp = StampInvalid
	}
	p.stamped = present && err == nil
	return p, pr.seal(p, d)
}

func (pr *Preparer) seal(p *Prepared, d Delivery) error {
	var body Secret
	if _, err := io.ReadFull(pr.Random, p.secret[:]); err != nil {
		return fmt.Errorf("make a secret: %w", err)
	}
	if _, err := io.ReadFull(pr.Random, body[:]); err != nil {
		return fmt.Errorf("make a secret: %w", err)
	}
	var err error
	if p.wrapped, err = pr.Keys.Wrap(p.secret); err != nil {
		return err
	}
	if p.wrappedBody, err = pr.Keys.Wrap(body); err != nil {
		return err
	}
	if p.sealedProperties, err = seal(p.secret, labelSealProperties, d.Properties); err != nil {
		return err
	}
	if p.sealedBody, err = seal(body, labelSealBody, d.Body); err != nil {
		return err
	}
	if len(d.Body) <= BlobOver {
		return nil
	}
	digest := sha256.Sum256(p.sealedBody)
	name := fmt.Sprintf("%x", digest)
	if err := pr.Blobs.PutBlob(name, p.sealedBody); err != nil {
		return err
	}
	p.sealedBody = []byte(blobMark + name)
	return nil
}

// Release is what is known about a message that carries one of our stamps.
type Release struct {
	Gen        event.GenerationNo
	Env        event.EnvelopeNo
	Exchange   string // destination that the stamp was made for
	RoutingKey string
	BodyDigest [32]byte // of the body that was released
	Intended   bool     // this try was really made
	Returned   bool     // the member came back before
}

// Releases answers for stamped messages. Package redrive implements it.
type Releases interface {
	// Find looks the stamp's member up. ok is false when this store knows no
	// such generation, member or try.
	Find(r ledger.Reader, s stamp.Stamp) (rel Release, ok bool, err error)
	// Verify reports whether the MAC was made by this store for the stamp and
	// the destination of the release.
	Verify(s stamp.Stamp, rel Release, mac stamp.MAC) bool
}

// Batch is what one capture transaction takes in. All of it comes from one
// queue.
type Batch struct {
	New     []*Prepared
	Doubles []event.EnvelopeNo // possible_duplicate_of for each of New, 0 for none
	Merged  map[string]event.Ranges
	Settled event.Ranges // settlements that the broker processed since the last batch
}

// Capture decides about a batch: numbers and names for the new envelopes,
// lineage for those that came back, and the settlements of the batch before.
func Capture(v ledger.View, keys Keys, b Batch, releases Releases) ([]event.Event, error) {
	var events []event.Event
	if len(b.Settled) > 0 {
		events = append(events, SettledEvents(b.Settled)...)
	}
	for _, why := range []string{MergedNotSettled, MergedMessageID} {
		for _, part := range b.Merged[why].Split(setLimit) {
			events = append(events, event.Event{Body: &event.EnvelopeMerged{Envs: part, Why: why}})
		}
	}
	if len(b.New) == 0 {
		return events, nil
	}
	first := Count(v) + 1
	id, err := lastID(v)
	if err != nil {
		return nil, err
	}
	c := capturing{v: v, keys: keys, releases: releases, list: []byte(captureListHead), seen: map[[2]uint64]bool{}}
	for i, p := range b.New {
		f := p.facts
		if len(b.Doubles) > i {
			f.DuplicateOf = b.Doubles[i]
		}
		id = nextID(id, v.Now, p.wrapped)
		f.ID = id
		if err := c.add(first+event.EnvelopeNo(i), p, &f); err != nil {
			return nil, err
		}
	}
	list, digest := ledger.ObjectOf(c.list)
	f := &b.New[0].facts
	events = append(events, event.Event{Subj: event.Subject{Env: first}, Objects: append(c.objects, list),
		Body: &event.EnvelopeCaptured{Bytes: c.bytes, Count: uint64(len(b.New)), List: digest.String(),
			Queue: clean(f.Queue, maxValue), VHost: clean(f.VHost, maxValue), Policy: f.Policy}})
	return append(events, c.returned...), nil
}

// setLimit is the room that a set of numbers may take in a record.
const setLimit = 2048

// SettledEvents records settlements, in as many records as they need.
func SettledEvents(envs event.Ranges) []event.Event {
	var out []event.Event
	for _, part := range envs.Split(setLimit) {
		out = append(out, event.Event{Body: &event.EnvelopeSettled{Envs: part}})
	}
	return out
}

const captureListHead = "redrive capture list v1\n"

// Blob is the name of the blob that Prepare wrote for the body, "" for none.
func (p *Prepared) Blob() string {
	if len(p.sealedBody) > len(blobMark) && string(p.sealedBody[:len(blobMark)]) == blobMark {
		return string(p.sealedBody[len(blobMark):])
	}
	return ""
}

// capturing collects what the events of one batch need.
type capturing struct {
	v        ledger.View
	keys     Keys
	releases Releases
	list     []byte
	objects  []event.Object
	returned []event.Event
	bytes    uint64
	seen     map[[2]uint64]bool // members that return in this very batch
}

func (c *capturing) add(no event.EnvelopeNo, p *Prepared, f *Facts) error {
	f.Root, f.Attempt, f.BodyOf = no, 1, no
	if p.stamped {
		if err := c.lineage(no, p, f); err != nil {
			return err
		}
	}
	facts := f.encode()
	commitment := commit(p.secret, facts, p.propertiesDigest, f.BodyDigest)
	c.list = append(append(c.list, f.ID[:]...), commitment[:]...)
	key := ledger.Key(uint64(no))
	c.objects = append(c.objects,
		event.Object{Bucket: bucketFacts, Key: key, Value: facts},
		event.Object{Bucket: bucketSecret, Key: key, Value: p.wrapped},
		event.Object{Bucket: bucketProperties, Key: key, Value: p.sealedProperties})
	if f.BodyOf == no {
		c.objects = append(c.objects,
			event.Object{Bucket: bucketBodySecret, Key: key, Value: p.wrappedBody},
			event.Object{Bucket: bucketBody, Key: key, Value: p.sealedBody})
	}
	c.bytes += f.PropertiesSize + f.BodySize
	return nil
}

// lineage decides whether a stamped message is the child of an envelope.
func (c *capturing) lineage(no event.EnvelopeNo, p *Prepared, f *Facts) error {
	rel, ok, err := c.releases.Find(c.v, p.stamp)
	if err != nil {
		return err
	}
	switch {
	case !ok:
		f.Stamp = StampUnknown
		return nil
	case !rel.Intended || !c.releases.Verify(p.stamp, rel, p.mac):
		f.Stamp = StampInvalid
		return nil
	case rel.BodyDigest != f.BodyDigest:
		f.Stamp = StampDerived
		return nil
	}
	parent, err := GetFacts(c.v, rel.Env)
	if err != nil {
		return err
	}
	f.Stamp, f.Parent, f.Root, f.Attempt = StampValid, rel.Env, parent.Root, parent.Attempt+1
	f.FirstDied = min(f.FirstDied, parent.FirstDied) // the retention clock runs on
	// What it tells about itself begins with our release.
	f.OriginExchange, f.OriginRoutingKey, f.OriginKnown = parent.OriginExchange, parent.OriginRoutingKey, parent.OriginKnown
	f.OriginQueue = parent.OriginQueue
	if parent.BodyDigest == f.BodyDigest && c.v.Get(bucketBodySecret, ledger.Key(uint64(parent.BodyOf))) != nil {
		f.BodyOf = parent.BodyOf
	}
	b := &event.EnvelopeReturned{Parent: rel.Env, Pos: event.Position(p.stamp.Position), Try: event.Try(p.stamp.Try)}
	member := [2]uint64{uint64(rel.Gen), uint64(p.stamp.Position)}
	if rel.Returned || c.seen[member] {
		b.Again = 1
	}
	c.seen[member] = true
	c.returned = append(c.returned, event.Event{Subj: event.Subject{Env: no, Gen: rel.Gen}, Body: b})
	return nil
}

// lastID is the ULID of the latest envelope, zero when there is none.
func lastID(r ledger.Reader) (ulid.ULID, error) {
	n := Count(r)
	if n == 0 {
		return ulid.ULID{}, nil
	}
	f, err := GetFacts(r, n)
	if err != nil {
		return ulid.ULID{}, err
	}
	return f.ID, nil
}

// nextID makes a ULID that is larger than the last one, even when the clock
// went back, so that envelopes can be found by their ULID without an index.
// Randomness comes from the wrapped secret, which is as good as random.
func nextID(last ulid.ULID, now time.Time, random []byte) ulid.ULID {
	sum := sha256.Sum256(random)
	var id ulid.ULID
	ms := uint64(max(now.UnixMilli(), 0))
	if ms > last.Time() {
		_ = id.SetTime(ms)          // valid until the year 10889
		_ = id.SetEntropy(sum[:10]) // always ten bytes
		return id
	}
	id = last
	step := 1 + uint64(sum[0])
	for i := len(id) - 1; i >= 0 && step > 0; i-- {
		step += uint64(id[i])
		id[i] = byte(step)
		step >>= 8
	}
	return id
}
