package quarantine

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Limits of repairs.
const (
	MaxRepairBody = 1 << 20 // bytes of the body of a candidate
	MaxCandidates = 32      // of one envelope
)

// ErrOtherOperation is returned for a repair that changes the operation
// identity without saying that it is a new command, or the other way round.
var ErrOtherOperation = errors.New("not the operation identity that a repair may have")

// Candidate is what somebody made to go out in the place of an original.
type Candidate struct {
	No         uint64 // from 1
	At         uint64 // ms
	Author     event.Actor
	Commitment string
	Diff       string // commitment to the difference from the original
	NewCommand bool
	Why        string
	Approved   *event.Actor // who approved a new command
	Withdrawn  bool
}

// Repairs are the candidates of one envelope.
type Repairs struct {
	Live       uint64 // number of the one that goes out, 0 for the original
	Candidates []Candidate
}

// Usable reports whether a candidate can be the live one.
func (c *Candidate) Usable() bool { return !c.Withdrawn && (!c.NewCommand || c.Approved != nil) }

func (rs *Repairs) of(no uint64) *Candidate {
	if no == 0 || no > uint64(len(rs.Candidates)) {
		return nil
	}
	return &rs.Candidates[no-1]
}

// RepairFacts are what is known about a candidate in the clear, as Facts are
// about an original. A purge removes them.
type RepairFacts struct {
	Operation      string
	Type           string
	Schema         string
	OrderingKey    string
	Sequence       string
	BodyDigest     [32]byte
	BodySize       uint64
	PropertiesSize uint64
	Key            uint64 // as Cell.Operation
	Meaning        uint64 // as Cell.Meaning
}

const repairVersion = 1

func (f *RepairFacts) visit(w *wire) {
	for _, s := range []*string{&f.Operation, &f.Type, &f.Schema, &f.OrderingKey, &f.Sequence} {
		w.text(s)
	}
	w.bytes(f.BodyDigest[:])
	for _, n := range []*uint64{&f.BodySize, &f.PropertiesSize, &f.Key, &f.Meaning} {
		w.num(n)
	}
}

var (
	bucketRepair      = ledger.Bucket{Name: "repair.sealed"}    // (envelope, candidate)
	bucketRepairFacts = ledger.Bucket{Name: "repair.facts"}     // (envelope, candidate)
	bucketRepairs     = ledger.Bucket{Name: "envelope.repairs"} // by envelope: a projection
)

// GetRepairs reads the candidates of an envelope; there may be none.
func GetRepairs(r ledger.Reader, no event.EnvelopeNo) (Repairs, error) {
	var rs Repairs
	b := r.Get(bucketRepairs, ledger.Key(uint64(no)))
	if b == nil {
		return rs, nil
	}
	if err := json.Unmarshal(b, &rs); err != nil {
		return rs, fmt.Errorf("repairs of envelope %d are damaged: %w: %w", no, err, ledger.ErrIntegrity)
	}
	return rs, nil
}

// GetRepairFacts reads what is known about a candidate. It returns ErrErased
// after a purge.
func GetRepairFacts(r ledger.Reader, no event.EnvelopeNo, candidate uint64) (RepairFacts, error) {
	var f RepairFacts
	b := r.Get(bucketRepairFacts, ledger.Key2(uint64(no), candidate))
	if b == nil {
		return f, fmt.Errorf("repair %d of envelope %d: %w", candidate, no, ErrErased)
	}
	w := wire{buf: b[1:], reading: true}
	if b[0] != repairVersion {
		return f, fmt.Errorf("a repair has format %d: %w", b[0], event.ErrFuture)
	}
	if f.visit(&w); w.bad || len(w.buf) > 0 {
		return f, fmt.Errorf("repair %d of envelope %d is damaged: %w", candidate, no, ledger.ErrIntegrity)
	}
	return f, nil
}

// Effective is the cell of an envelope as others have to see its operation:
// with a live repair that goes out in its place, it is the one of the repair.
func Effective(r ledger.Reader, no event.EnvelopeNo, c Cell) (Cell, error) {
	if !c.Flags.Has(FlagRepaired) {
		return c, nil
	}
	rs, err := GetRepairs(r, no)
	if err != nil {
		return c, err
	}
	f, err := GetRepairFacts(r, no, rs.Live)
	c.Operation, c.Meaning = f.Key, f.Meaning
	return c, err
}

// Outgoing are the Facts of an envelope with the operation, the type, the schema
// version, and the place in an order of what goes out for it: of a candidate, or
// of the original when that is 0. What a purge has removed is "".
func Outgoing(r ledger.Reader, no event.EnvelopeNo, candidate uint64) (*Facts, error) {
	f, err := GetFacts(r, no)
	if err != nil || candidate == 0 {
		return f, err
	}
	rf, err := GetRepairFacts(r, no, candidate)
	if err != nil && !errors.Is(err, ErrErased) {
		return nil, err
	}
	out := *f
	out.Operation, out.Type, out.Schema = rf.Operation, rf.Type, rf.Schema
	out.OrderingKey, out.Sequence = rf.OrderingKey, rf.Sequence
	return &out, nil
}

// OperationsOf lists the operations, as Cell.Operation, that an envelope has as
// its original and as each of its candidates.
func OperationsOf(r ledger.Reader, no event.EnvelopeNo, original uint64) ([]uint64, error) {
	rs, err := GetRepairs(r, no)
	if err != nil {
		return nil, err
	}
	out := []uint64{original}
	for _, c := range rs.Candidates {
		f, err := GetRepairFacts(r, no, c.No)
		if err != nil {
			return nil, err
		}
		out = append(out, f.Key)
	}
	return out, nil
}

const labelRepair = "redrive repair v1"

// repairLabel keeps the candidates of one secret apart.
func repairLabel(candidate uint64) string { return fmt.Sprintf("%s %d", labelRepair, candidate) }

// commitRepair binds a candidate without telling anything about it.
func commitRepair(s Secret, label string, parts ...[]byte) event.Digest {
	m := hmac.New(sha256.New, derive(s, label))
	for _, p := range parts {
		m.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		m.Write(p)
	}
	return event.Digest(m.Sum(nil))
}

// GetRepair opens a candidate as the message that goes out. It returns
// ErrErased when the payload of the envelope was removed.
func GetRepair(r ledger.Reader, keys Keys, no event.EnvelopeNo, candidate uint64) (*Original, error) {
	f, err := GetFacts(r, no)
	if err != nil {
		return nil, err
	}
	rs, err := GetRepairs(r, no)
	if err != nil {
		return nil, err
	}
	c := rs.of(candidate)
	if c == nil {
		return nil, fmt.Errorf("envelope %s has no repair %d: %w", f.ID, candidate, ErrNotNow)
	}
	s, err := getSecret(r, keys, bucketSecret, no)
	if err != nil {
		return nil, err
	}
	sealed := r.Get(bucketRepair, ledger.Key2(uint64(no), candidate))
	if sealed == nil {
		return nil, fmt.Errorf("repair %d of envelope %s: %w", candidate, f.ID, ErrErased)
	}
	o := &Original{Exchange: f.Exchange, RoutingKey: f.RoutingKey}
	if o.Properties, o.Body, err = openRepair(s, candidate, sealed, c.Commitment); err != nil {
		return nil, fmt.Errorf("repair %d of envelope %s: %w", candidate, f.ID, err)
	}
	return o, nil
}

func openRepair(s Secret, candidate uint64, sealed []byte, commitment string) (properties, body []byte, err error) {
	a, err := aead(s, repairLabel(candidate))
	if err != nil {
		return nil, nil, err
	}
	n := a.NonceSize()
	if len(sealed) < n {
		return nil, nil, fmt.Errorf("sealed content is cut: %w", ledger.ErrIntegrity)
	}
	plain, err := a.Open(nil, sealed[:n], sealed[n:], []byte(repairLabel(candidate)))
	if err != nil || len(plain) < 4 || uint64(binary.BigEndian.Uint32(plain)) > uint64(len(plain)-4) {
		return nil, nil, fmt.Errorf("sealed content does not open: %w", ledger.ErrIntegrity)
	}
	size := binary.BigEndian.Uint32(plain)
	properties, body = plain[4:4+size], plain[4+size:]
	if commitRepair(s, repairLabel(candidate)+" commitment", properties, body).String() != commitment {
		return nil, nil, fmt.Errorf("it is not the one that was recorded: %w", ledger.ErrIntegrity)
	}
	return properties, body, nil
}

// Draft is a repair before it has a number.
type Draft struct {
	Properties []byte
	Body       []byte
	Diff       []byte // difference from the original, any stable form
	// NewCommand says that it is another business command, whose operation
	// identity must then be Operation. Otherwise it must be the original's.
	NewCommand bool
	Operation  string
}

// CheckDraft looks at a draft and finds its identity by the rules. It returns
// ErrArgument, ErrOtherOperation or ErrNotNow.
func CheckDraft(r ledger.Reader, keys Keys, rules *Rules, no event.EnvelopeNo, d Draft) (RepairFacts, error) {
	var out RepairFacts
	f, err := GetFacts(r, no)
	if err != nil {
		return out, err
	}
	c, _ := GetCell(r, no)
	switch {
	case c.Custody != event.Quarantined:
		return out, fmt.Errorf("envelope %s is %s, only a quarantined one can be repaired: %w", f.ID, c.Custody, ErrNotNow)
	case c.Flags.Has(PayloadGone):
		return out, fmt.Errorf("envelope %s: %w", f.ID, ErrErased)
	case len(d.Body) > MaxRepairBody:
		return out, fmt.Errorf("a repaired body has %d bytes, at most %d are taken: %w", len(d.Body), MaxRepairBody, ErrArgument)
	}
	v := amqpwire.Parse(d.Properties)
	is := Facts{}
	rules.identify(&is, &v, d.Body)
	is.Fingerprint = fingerprint(is.Type, d.Body)
	switch {
	case d.NewCommand && (d.Operation == "" || is.Operation != d.Operation):
		return out, fmt.Errorf("a new command needs the operation that it names, but the repaired message has another one or none; put it where identity.operation finds it, for example with --set-header x-operation-id=…: %w", ErrOtherOperation)
	case d.NewCommand && is.Operation == f.Operation:
		return out, fmt.Errorf("the operation is the one of the original, so it is no new command: %w", ErrOtherOperation)
	case !d.NewCommand && is.Operation != f.Operation:
		return out, fmt.Errorf("the repaired message has another operation identity than the original, or lost it; keep it, or say that it is a new command with --new-command --operation ID: %w", ErrOtherOperation)
	}
	out = RepairFacts{Operation: is.Operation, Type: is.Type, Schema: is.Schema, OrderingKey: is.OrderingKey, Sequence: is.Sequence,
		BodyDigest: sha256.Sum256(d.Body), BodySize: uint64(len(d.Body)), PropertiesSize: uint64(len(d.Properties)),
		Meaning: binary.BigEndian.Uint64(is.Fingerprint[:])}
	if is.Operation != "" {
		out.Key = keys.Index(is.operationKey())
	}
	return out, nil
}

// Repair adds a candidate. The original stays as it is.
func Repair(v ledger.View, keys Keys, rules *Rules, no event.EnvelopeNo, d Draft, why string) ([]event.Event, error) {
	if err := needText("a reason", why); err != nil {
		return nil, err
	}
	facts, err := CheckDraft(v, keys, rules, no, d)
	if err != nil {
		return nil, err
	}
	rs, err := GetRepairs(v, no)
	if err != nil {
		return nil, err
	}
	if len(rs.Candidates) >= MaxCandidates {
		return nil, fmt.Errorf("envelope #%d has %d repairs, more are not kept: %w", no, MaxCandidates, ErrNotNow)
	}
	s, err := getSecret(v, keys, bucketSecret, no)
	if err != nil {
		return nil, err
	}
	candidate := uint64(len(rs.Candidates)) + 1
	label := repairLabel(candidate)
	commitment := commitRepair(s, label+" commitment", d.Properties, d.Body)
	diff := commitRepair(s, label+" diff", d.Diff)
	a, err := aead(s, label)
	if err != nil {
		return nil, err
	}
	plain := binary.BigEndian.AppendUint32(nil, uint32(len(d.Properties)))
	plain = append(append(plain, d.Properties...), d.Body...)
	// The nonce comes from the content: different ones never share it.
	sealed := a.Seal(bytes.Clone(commitment[:a.NonceSize()]), commitment[:a.NonceSize()], plain, []byte(label))
	w := wire{buf: []byte{repairVersion}}
	facts.visit(&w)
	b := &event.EnvelopeRepaired{Candidate: candidate, Commitment: commitment.String(), Diff: diff.String(), Why: why}
	if d.NewCommand {
		b.NewCommand = 1
	}
	key := ledger.Key2(uint64(no), candidate)
	return []event.Event{{Subj: event.Subject{Env: no}, Body: b, Objects: []event.Object{
		{Bucket: bucketRepair, Key: key, Value: sealed}, {Bucket: bucketRepairFacts, Key: key, Value: w.buf}}}}, nil
}

// choice begins a decision about one candidate.
func choice(r ledger.Reader, no event.EnvelopeNo, candidate uint64, why string) (Repairs, *Candidate, error) {
	if err := needText("a reason", why); err != nil {
		return Repairs{}, nil, err
	}
	rs, err := GetRepairs(r, no)
	if err != nil {
		return rs, nil, err
	}
	c := rs.of(candidate)
	switch cell, ok := GetCell(r, no); {
	case !ok:
		return rs, nil, fmt.Errorf("envelope #%d: %w", no, ErrNoEnvelope)
	case cell.Flags.Has(PayloadGone):
		return rs, nil, fmt.Errorf("envelope #%d: %w", no, ErrErased)
	case cell.Custody != event.Quarantined:
		// What went out keeps its operation, so that nobody sends it again.
		return rs, nil, fmt.Errorf("envelope #%d is %s, repairs are chosen while it is quarantined: %w", no, cell.Custody, ErrNotNow)
	case c == nil && candidate != 0:
		return rs, nil, fmt.Errorf("envelope #%d has no repair %d, it has %d: %w", no, candidate, len(rs.Candidates), ErrNotNow)
	case c != nil && c.Withdrawn:
		return rs, nil, fmt.Errorf("repair %d of envelope #%d was withdrawn: %w", candidate, no, ErrNotNow)
	}
	return rs, c, nil
}

// UseRepair makes a candidate the live one; 0 stands for the original.
func UseRepair(v ledger.View, no event.EnvelopeNo, candidate uint64, why string) ([]event.Event, error) {
	rs, c, err := choice(v, no, candidate, why)
	switch {
	case err != nil:
		return nil, err
	case rs.Live == candidate:
		return nil, fmt.Errorf("repair %d of envelope #%d is the live one already: %w", candidate, no, ErrNotNow)
	case c != nil && !c.Usable():
		return nil, fmt.Errorf("repair %d of envelope #%d is a new command and waits for an approver: redrive envelope repair #%d --approve %d: %w", candidate, no, no, candidate, ErrNotNow)
	}
	return []event.Event{{Subj: event.Subject{Env: no}, Body: &event.EnvelopeRepairChosen{Candidate: candidate, Why: why}}}, nil
}

// WithdrawRepair takes a candidate back for good.
func WithdrawRepair(v ledger.View, no event.EnvelopeNo, candidate uint64, why string) ([]event.Event, error) {
	_, c, err := choice(v, no, candidate, why)
	if err == nil && c == nil {
		err = fmt.Errorf("the original cannot be withdrawn: %w", ErrArgument)
	}
	if err != nil {
		return nil, err
	}
	return []event.Event{{Subj: event.Subject{Env: no}, Body: &event.EnvelopeRepairWithdrawn{Candidate: candidate, Why: why}}}, nil
}

// ApproveRepair makes a new command live, by the word of somebody who did not
// make it and names the commitment of what was looked at.
func ApproveRepair(v ledger.View, no event.EnvelopeNo, candidate uint64, by event.Actor, commitment, why string) ([]event.Event, error) {
	_, c, err := choice(v, no, candidate, why)
	switch {
	case err != nil:
		return nil, err
	case c == nil || !c.NewCommand:
		return nil, fmt.Errorf("repair %d of envelope #%d is no new command and needs no approver: %w", candidate, no, ErrNotNow)
	case c.Approved != nil:
		return nil, fmt.Errorf("repair %d of envelope #%d is approved already: %w", candidate, no, ErrNotNow)
	case c.Author.Subject == by.Subject:
		return nil, fmt.Errorf("%s made repair %d of envelope #%d; another operating-system user has to approve it (--as does not count): %w", by.Subject, candidate, no, ErrNotNow)
	case c.Commitment != commitment:
		return nil, fmt.Errorf("repair %d of envelope #%d is %s, not what was looked at: %w", candidate, no, c.Commitment, ErrNotNow)
	}
	return []event.Event{{Subj: event.Subject{Env: no}, Body: &event.EnvelopeRepairApproved{Candidate: candidate, Commitment: commitment, Why: why}}}, nil
}

// repaired applies a record about the repairs of one envelope.
func repaired(w ledger.Writer, r *event.Record) error {
	no := r.Subj.Env
	rs, err := GetRepairs(w, no)
	if err != nil {
		return err
	}
	at := func(n uint64) (*Candidate, error) {
		if c := rs.of(n); c != nil {
			return c, nil
		}
		return nil, fmt.Errorf("envelope %d has no repair %d: %w", no, n, ledger.ErrIntegrity)
	}
	var c *Candidate
	switch b := r.Body.(type) {
	case *event.EnvelopeRepaired:
		rs.Candidates = append(rs.Candidates, Candidate{No: b.Candidate, At: r.TS, Author: r.Actor, Commitment: b.Commitment, Diff: b.Diff,
			NewCommand: b.NewCommand != 0, Why: b.Why})
		if b.NewCommand == 0 {
			rs.Live = b.Candidate
		}
	case *event.EnvelopeRepairChosen:
		rs.Live = b.Candidate
	case *event.EnvelopeRepairWithdrawn:
		if c, err = at(b.Candidate); err != nil {
			return err
		}
		if c.Withdrawn = true; rs.Live == b.Candidate {
			rs.Live = 0
		}
	case *event.EnvelopeRepairApproved:
		if c, err = at(b.Candidate); err != nil {
			return err
		}
		by := r.Actor
		c.Approved, rs.Live = &by, b.Candidate
	}
	return putRepairs(w, no, rs)
}

func putRepairs(w ledger.Writer, no event.EnvelopeNo, rs Repairs) error {
	b, err := json.Marshal(rs)
	if err != nil {
		return err
	}
	if err := w.Put(bucketRepairs, ledger.Key(uint64(no)), b); err != nil {
		return err
	}
	return setFlag(w, event.RangesOf(no), FlagRepaired, rs.Live != 0)
}

// unrepair takes the live repair of an envelope whose payload goes.
func unrepair(w ledger.Writer, no event.EnvelopeNo) error {
	rs, err := GetRepairs(w, no)
	if err != nil || rs.Live == 0 {
		return err
	}
	rs.Live = 0
	b, err := json.Marshal(rs)
	if err != nil {
		return err
	}
	return w.Put(bucketRepairs, ledger.Key(uint64(no)), b)
}
