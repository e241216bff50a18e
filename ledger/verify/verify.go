package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/redrivehq/redrive/ledger/event"
)

// Options says what to check beyond what is always checked.
type Options struct {
	// Pub is a verifier key that the caller trusts from elsewhere. Without it a
	// report says nothing about who wrote the ledger.
	Pub string
	// Replay recomputes every generation and checks the laws of release.
	Replay bool
	// Payloads opens sealed content; the Source must implement Payloads.
	Payloads bool
	// Since spares objects and payloads named by records before this seq, for
	// repeated audits. Hashes, signatures and laws always cover everything.
	Since uint64
	// References returns the digests that an object of a record lists in turn,
	// such as the member chunks of a manifest. Without it a warning says that
	// they were not followed.
	References func(r *event.Record, object []byte) ([]event.Digest, error)
}

// drift is how far the wall clock may step back before a warning, in ms.
const drift = 5 * 60 * 1000

// Verify checks a source. What is wrong with the ledger is in the report; an
// error says that the source could not be read, or that Pub is no key.
func Verify(ctx context.Context, src Source, opt Options) (*Report, error) {
	v := &verifier{src: src, opt: opt, ext: src.Extent(), rep: &Report{Laws: structural}, objects: map[event.Digest]bool{}}
	v.rep.Extent = v.ext
	if err := v.begin(); err != nil {
		return nil, err
	}
	err := v.run(ctx)
	var f *Finding
	if errors.As(err, &f) {
		v.rep.fail(f)
	} else if err != nil {
		return nil, err
	}
	return v.rep, nil
}

func (v *verifier) run(ctx context.Context) error {
	stop := v.pull(ctx)
	defer stop()
	for line, err := range v.src.Records(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = v.record(ctx, line)
		}
		if err != nil {
			return fmt.Errorf("verify record %d: %w", v.next, err)
		}
	}
	return v.finish()
}

type verifier struct {
	src     Source
	opt     Options
	ext     Extent
	rep     *Report
	tree    tree
	next    uint64       // seq that the next line should have
	prev    event.Digest // leaf hash of the record before
	last    *event.Record
	keys    keyring
	replay  *replay // nil when not asked for or no longer possible
	opener  Payloads
	objects map[event.Digest]bool         // checked
	erased  map[event.EnvelopeNo]struct{} // without a record that says why, so far

	leafHash func() (event.Digest, error, bool) // nil: the lines are all there is
	nextNote func() ([]byte, error, bool)
	pending  *checkpoint // not reached yet
	noted    uint64      // size of the checkpoint before
	signed   uint64      // size of the last checkpoint that holds
}

func (v *verifier) begin() error {
	v.next = 1
	if v.opt.Pub != "" {
		if _, err := parseKey(v.opt.Pub); err != nil {
			return fmt.Errorf("trusted key: %w", err)
		}
		v.keys.trusted = map[string]bool{v.opt.Pub: true}
	} else {
		v.rep.warn("authenticity is not proven: no trusted key was given")
	}
	if v.opt.References == nil {
		v.rep.warn("objects that are only named inside other objects were not followed")
	}
	if v.opt.Payloads {
		v.rep.Laws = append(v.rep.Laws[:len(v.rep.Laws):len(v.rep.Laws)], LawPayload)
		v.erased = map[event.EnvelopeNo]struct{}{}
		if v.opener, _ = v.src.(Payloads); v.opener == nil {
			v.rep.incomplete("payloads: this source cannot open sealed content")
		}
	}
	switch {
	case !v.opt.Replay:
	case v.ext.Gen == 0 && v.ext.First > 1:
		v.rep.incomplete("replay: the scope begins at record %d; take a bundle of everything or of one generation", v.ext.First)
	default:
		v.rep.Laws = append(v.rep.Laws[:len(v.rep.Laws):len(v.rep.Laws)], generationLaws...)
		v.replay = newReplay(v.rep, v.ext.Gen != 0)
		if v.ext.Gen == 0 {
			v.rep.Laws = append(v.rep.Laws, LawEnvelope, LawSource)
		}
	}
	return nil
}

// pull opens the two streams that run beside the records.
func (v *verifier) pull(ctx context.Context) (stop func()) {
	stopHashes := func() {}
	if seq := v.src.Hashes(ctx); seq != nil {
		v.leafHash, stopHashes = iter.Pull2(seq)
	}
	next, stopNotes := iter.Pull2(v.src.Checkpoints(ctx))
	v.nextNote = next
	return func() { stopHashes(); stopNotes() }
}

func (v *verifier) fail(law Law, seq uint64, format string, args ...any) {
	v.rep.fail(&Finding{Law: law, Seq: seq, Place: fmt.Sprintf("record %d", seq), Reason: fmt.Sprintf(format, args...)})
}

// record checks one line. Its errors are those of reading.
func (v *verifier) record(ctx context.Context, line []byte) error {
	v.rep.Records++
	hash := event.HashLine(line)
	r := v.parse(line)
	if v.leafHash != nil {
		if err := v.seek(r, hash); err != nil {
			return err
		}
	}
	seq := v.next
	if r != nil {
		v.order(r, seq)
		seq = r.Seq
		v.keys.learn(v, r)
	}
	if err := v.leaf(hash); err != nil {
		return err
	}
	v.next = seq + 1
	if r == nil {
		return nil
	}
	v.last = r
	if v.replay != nil && v.ext.inRange(seq) {
		if plan, ok := r.Body.(*event.GenerationPlanned); ok {
			keys, err := v.keyOrder(ctx, r, plan)
			if err != nil {
				return err
			}
			v.replay.keys = keys
		}
		v.replay.apply(r)
	}
	return v.content(ctx, r)
}

// parse returns nil for a line that is not understood. Replay ends there: what
// an unknown record changed is unknown.
func (v *verifier) parse(line []byte) *event.Record {
	r, err := event.ParseRecord(line)
	var again []byte
	if err == nil {
		again, err = r.AppendLine(nil)
	}
	switch {
	case errors.Is(err, event.ErrFuture) && newer(line):
		v.rep.incomplete("record %d: %v", v.next, err)
		if v.replay != nil {
			v.rep.incomplete("replay ended before record %d, which this version does not know", v.next)
		}
	case err != nil:
		v.fail(LawParse, v.next, "%v", err)
	case !bytes.Equal(again, line):
		v.fail(LawParse, v.next, "the line is not the canonical one of its record")
	default:
		return r
	}
	v.replay = nil
	return nil
}

// newer reports whether a line says by itself that it takes a newer version to
// read it. A line that is merely damaged does not.
func newer(line []byte) bool {
	var r struct {
		V    uint64     `json:"v"`
		Kind event.Kind `json:"kind"`
	}
	known := func(k event.KindInfo) bool { return k.Kind == r.Kind }
	return json.Unmarshal(line, &r) == nil && (r.V > event.Version || !slices.ContainsFunc(event.Kinds(), known))
}

// seek adds the leaves up to the line, which the caller adds itself, and checks
// that the line is the next one of them. A line that is not understood is found
// by its hash.
func (v *verifier) seek(r *event.Record, hash event.Digest) error {
	if v.ext.all() {
		h, err, ok := v.leafHash()
		if err == nil && (!ok || h != hash) {
			v.fail(LawRoot, v.next, "the line does not have the leaf hash stored for it")
		}
		return err
	}
	if r != nil && r.Seq <= v.tree.size {
		return nil // order reports it
	}
	for {
		h, err, ok := v.leafHash()
		if err != nil {
			return err
		}
		at := v.tree.size + 1
		switch {
		case !ok:
			v.fail(LawScope, v.next, "no leaf hash belongs to this line")
			return nil
		case r != nil && r.Seq == at && h != hash:
			v.fail(LawRoot, at, "the line does not have the leaf hash of its record")
			return nil
		case h == hash && (r == nil || r.Seq == at):
			v.next = at
			return nil
		}
		if err := v.leaf(h); err != nil {
			return err
		}
		// Between First and Last everything is in scope unless it is about
		// another generation, so there a leaf without a line is a missing line.
		if v.ext.Gen == 0 && v.ext.inRange(at) {
			v.fail(LawSeq, at, "the record is in scope and missing")
		}
		v.next = at + 1
	}
}

// order checks what a record says about its place.
func (v *verifier) order(r *event.Record, want uint64) {
	_, created := r.Body.(*event.LedgerCreated)
	switch {
	case r.Seq != want:
		v.fail(LawSeq, want, "the record found here has seq %d", r.Seq)
	case r.Prev != v.prev:
		v.fail(LawChain, r.Seq, "prev is not the hash of record %d", r.Seq-1)
	case created != (v.last == nil) || created && r.Seq != 1:
		v.fail(LawCreated, r.Seq, "ledger.created must be the first record and only that")
	case !v.ext.holds(r):
		v.fail(LawScope, r.Seq, "the record is not in the scope")
	case v.last == nil:
	case r.Epoch < v.last.Epoch:
		v.fail(LawEpoch, r.Seq, "epoch %d after epoch %d", r.Epoch, v.last.Epoch)
	case r.Epoch == v.last.Epoch && r.Mono < v.last.Mono:
		v.fail(LawEpoch, r.Seq, "monotonic time goes back from %d to %d ms", v.last.Mono, r.Mono)
	case r.TS+drift < v.last.TS:
		v.rep.warn("record %d: the wall clock went back by %d s", r.Seq, (v.last.TS-r.TS)/1000)
	}
}

// leaf adds a hash to the tree and compares the checkpoints of that size.
func (v *verifier) leaf(hash event.Digest) error {
	v.tree.add(hash)
	v.prev = hash
	for {
		if err := v.fetch(); err != nil {
			return err
		}
		if v.pending == nil || v.pending.size > v.tree.size {
			return nil
		}
		v.compare(v.pending)
		v.pending = nil
	}
}

// fetch makes the next well-formed checkpoint pending, if none is.
func (v *verifier) fetch() error {
	for v.pending == nil {
		msg, err, ok := v.nextNote()
		if err != nil || !ok {
			return err
		}
		v.rep.Checkpoints++
		if v.pending, err = parseCheckpoint(bytes.Clone(msg)); err != nil {
			v.note(LawCheckpoint, "%v", err)
		}
	}
	return nil
}

func (v *verifier) note(law Law, format string, args ...any) {
	v.rep.fail(&Finding{Law: law, Place: fmt.Sprintf("checkpoint %d", v.rep.Checkpoints), Reason: fmt.Sprintf(format, args...)})
}

// suspects names what a wrong root at a size accuses. The hashes of a chain
// that holds allow a change of the last record alone, or of several up to it.
func (v *verifier) suspects(size uint64) string {
	if v.signed+1 >= size {
		return fmt.Sprintf("record %d", size)
	}
	return fmt.Sprintf("record %d, or some from record %d to it,", size, v.signed+1)
}

func (v *verifier) compare(c *checkpoint) {
	before := v.noted
	v.noted = max(before, c.size)
	switch {
	case c.size <= before || c.size < v.tree.size:
		v.note(LawCheckpoint, "size %d comes after size %d", c.size, before)
	case c.origin != v.keys.origin:
		v.note(LawCheckpoint, "origin %q instead of %q", c.origin, v.keys.origin)
	case c.root != v.tree.root():
		v.note(LawRoot, "at size %d the records have root %s, the checkpoint says %s: %s was changed", c.size, v.tree.root(), c.root, v.suspects(c.size))
	default:
		if err := v.keys.judge(c); err != nil {
			v.note(LawSignature, "size %d: %v", c.size, err)
			return
		}
		v.rep.Matched++
		v.signed = c.size
	}
}

// finish compares the ends of all streams and the claims of the source.
func (v *verifier) finish() error {
	if v.leafHash != nil {
		if err := v.rest(); err != nil {
			return err
		}
	}
	rep := v.rep
	rep.Leaves, rep.Root = v.tree.size, v.tree.root().String()
	for err := v.fetch(); v.pending != nil || err != nil; err = v.fetch() {
		if err != nil {
			return err
		}
		v.note(LawCheckpoint, "size %d, but the ledger ends at record %d", v.pending.size, v.tree.size)
		v.pending = nil
	}
	v.claims()
	if rep.Unsigned = rep.Leaves - v.signed; rep.Unsigned > 0 {
		rep.warn("not covered by a signature: %d records after the last checkpoint that holds", rep.Unsigned)
	}
	if rep.Records == 0 {
		rep.incomplete("there are no records")
	}
	v.keys.finish(v)
	for env := range v.erased {
		rep.incomplete("payload of envelope %d cannot be opened, and no record says that it was erased", env)
	}
	if v.replay != nil {
		v.replay.finish()
	}
	return nil
}

// rest adds the leaves after the last line.
func (v *verifier) rest() error {
	for {
		h, err, ok := v.leafHash()
		if err != nil || !ok {
			return err
		}
		if err := v.leaf(h); err != nil {
			return err
		}
		if at := v.tree.size; v.ext.Gen == 0 && v.ext.inRange(at) {
			v.fail(LawSeq, at, "the record is in scope and missing")
		}
	}
}

func (v *verifier) claims() {
	e, rep := &v.ext, v.rep
	var epoch uint64
	if v.last != nil {
		epoch = v.last.Epoch
	}
	known := e.Gen != 0 || e.all() // the last epoch has a record in scope
	for _, c := range []struct {
		what        string
		claim, have uint64
	}{{"records in scope", e.Records, rep.Records}, {"records in the ledger", e.Size, rep.Leaves}, {"as the epoch", e.Epoch, epoch}} {
		if c.claim != 0 && c.claim != c.have && (c.what != "as the epoch" || known || c.claim < c.have) {
			rep.fail(&Finding{Law: LawScope, Place: "extent", Reason: fmt.Sprintf("it says %d %s, there is %d", c.claim, c.what, c.have)})
		}
	}
	if e.Origin != "" && e.Origin != v.keys.origin {
		rep.fail(&Finding{Law: LawScope, Place: "extent", Reason: fmt.Sprintf("origin %q instead of %q", e.Origin, v.keys.origin)})
	}
}
