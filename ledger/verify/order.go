package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger/event"
)

// keyOrder holds, for each position of a cohort, the one before it in its key.
type keyOrder struct {
	before    []uint32
	onFailure string
}

// A key list has, for each position, the positions before and after it in its
// key and the number of missing messages, 32 bits each, big endian, in objects
// of listChunk positions. The index is their digests, one behind the other.
const (
	listChunk = 4096
	listItem  = 12
	noneFirst = 0xffffffff
)

// keyOrder reads the key list that a plan names. What is missing makes the report
// incomplete; what is wrong is a breach.
func (v *verifier) keyOrder(ctx context.Context, r *event.Record, b *event.GenerationPlanned) (*keyOrder, error) {
	if b.Keys == "" || b.Members > maxReplayed {
		return nil, nil
	}
	index, err := v.listed(ctx, r, b.Keys)
	if index == nil {
		return nil, err
	}
	o := &keyOrder{onFailure: b.OnFailure}
	for len(index) >= sha256.Size {
		list, err := v.listed(ctx, r, event.Digest(index[:sha256.Size]).String())
		if list == nil {
			return nil, err
		}
		for ; len(list) >= listItem; list = list[listItem:] {
			o.before = append(o.before, binary.BigEndian.Uint32(list))
		}
		index = index[sha256.Size:]
	}
	if uint64(len(o.before)) != b.Members {
		v.fail(LawOrder, r.Seq, "its key list has %d positions for %d members", len(o.before), b.Members)
		return nil, nil
	}
	for pos, before := range o.before {
		if before != noneFirst && before >= uint32(pos) {
			v.fail(LawOrder, r.Seq, "position %d of its key list follows position %d", pos, before)
			return nil, nil
		}
	}
	return o, nil
}

func (v *verifier) listed(ctx context.Context, r *event.Record, text string) ([]byte, error) {
	d, err := event.ParseDigest(text)
	if err != nil {
		v.fail(LawOrder, r.Seq, "its key list: %v", err)
		return nil, nil
	}
	data, err := v.src.Object(ctx, d)
	switch {
	case errors.Is(err, ErrNoObject):
		v.rep.incomplete("record %d: object %s is missing, the order within keys was not checked", r.Seq, d)
		return nil, nil
	case err != nil:
		return nil, err
	case sha256.Sum256(data) != d:
		v.fail(LawOrder, r.Seq, "object %s has other content", d)
		return nil, nil
	}
	return data, nil
}

// fits checks that a member may go after the one before it in its key: that one
// has an end, and unless the generation goes on after failures a good one.
func (o *keyOrder) fits(g *generation, pos uint64) error {
	if o == nil || o.before[pos] == noneFirst {
		return nil
	}
	before := o.before[pos]
	d := event.Waiting
	if int(before) < len(g.members) {
		d = g.members[before].disposition()
	}
	switch d {
	case event.Waiting, event.InFlight, event.Pending, event.Admitted:
		return broken(LawOrder, "an intent of position %d, but position %d before it in its key is %s", pos, before, d)
	case event.Succeeded, event.RejectedByConsumer, event.DeduplicatedConsumer:
		return nil
	}
	if o.onFailure != "continue" {
		return broken(LawOrder, "an intent of position %d, but position %d before it in its key is %s, and after a failure it is to %s", pos, before, d, o.onFailure)
	}
	return nil
}

// reviseOrder changes what a failure does from now on. Whether the generation
// goes on after failures was settled by the plan.
func (g *generation) reviseOrder(b *event.GenerationRevised) error {
	switch {
	case b.Old != g.plan.OnFailure, b.New != "block" && b.New != "park" && b.New != "rebuild", b.Old == "continue":
		return broken(LawOrder, "on failure is revised from %q to %q, it is %q", b.Old, b.New, g.plan.OnFailure)
	}
	g.plan.OnFailure = b.New
	if g.order != nil {
		g.order.onFailure = b.New
	}
	return nil
}

// checkOrder checks what a plan says about order by itself.
func checkOrder(b *event.GenerationPlanned) error {
	switch b.OnFailure {
	case "block", "park", "continue", "rebuild":
		if b.Keys != "" {
			return nil
		}
	case "":
		if b.Keys == "" {
			return nil
		}
	}
	return broken(LawPlan, "order: key list %q, on failure %q", fmt.Sprintf("%.12s", b.Keys), b.OnFailure)
}
