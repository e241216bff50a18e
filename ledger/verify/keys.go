package verify

import (
	"errors"

	"github.com/redrivehq/redrive/ledger/event"
)

// keyring follows the keys of a ledger. The key in force signs checkpoints; at
// the very record that replaces it, the key before may sign instead, which
// vouches for its successor.
//
// Trust flows forward along signatures: a checkpoint signed by a trusted key
// makes every key trusted that its records name.
type keyring struct {
	origin  string
	now     *key
	before  *key     // replaced by the last record, nil otherwise
	named   []string // in order
	trusted map[string]bool
	vouched uint64 // records under a signature of a trusted key
}

// learn takes in the keys that r names.
func (k *keyring) learn(v *verifier, r *event.Record) {
	k.before = nil
	var text string
	switch b := r.Body.(type) {
	case *event.LedgerCreated:
		if k.now != nil {
			return
		}
		k.origin, text = b.Origin, b.Key
	case *event.LedgerRekeyed:
		k.before, text = k.now, b.Key
	default:
		return
	}
	next, err := parseKey(text)
	if err != nil {
		v.fail(LawKey, r.Seq, "%v", err)
		return
	}
	if k.before != nil && k.before.text == text {
		v.fail(LawKey, r.Seq, "the new key is the old one")
	}
	k.now, k.named = next, append(k.named, text)
}

// judge checks the signature of a checkpoint whose size is the number of
// records so far.
func (k *keyring) judge(c *checkpoint) error {
	signer := k.now
	if k.before != nil && c.name == k.before.name && c.id == k.before.id {
		signer = k.before
	}
	if signer == nil {
		return errors.New("no record names a key")
	}
	if err := signer.check(c.note); err != nil {
		return err
	}
	if k.trusted[signer.text] {
		k.vouched = c.size
		for _, text := range k.named {
			k.trusted[text] = true
		}
	}
	return nil
}

func (k *keyring) finish(v *verifier) {
	rep := v.rep
	if held := v.src.Key(); held != "" && k.now != nil && k.now.text != held {
		rep.fail(&Finding{Law: LawKey, Place: "key", Reason: "the key of this source is not the one that the records put in force"})
	}
	if v.opt.Pub == "" {
		return
	}
	rep.Authentic = k.vouched
	ours := false
	for _, text := range k.named {
		ours = ours || text == v.opt.Pub
	}
	switch {
	case !ours:
		rep.fail(&Finding{Law: LawKey, Place: "key", Reason: "the trusted key is not a key of this ledger"})
	case k.vouched < rep.Leaves:
		rep.incomplete("records %d to %d are not under a signature of the trusted key or one it vouches for", k.vouched+1, rep.Leaves)
	}
}
