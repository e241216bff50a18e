package verify

import (
	"crypto/sha256"
	"testing"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/redrivehq/redrive/ledger/event"
)

// TestRootsAgree compares every root with two other implementations.
func TestRootsAgree(t *testing.T) {
	var ours tree
	factory := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	theirs := factory.NewEmptyRange(0)
	b := &book{tb: t}
	if got := ours.root(); got != sha256.Sum256(nil) {
		t.Errorf("the empty tree has root %s", got)
	}
	for n := 1; n <= 300; n++ {
		line := []byte{byte(n), byte(n >> 8)}
		b.raw(line)
		ours.add(event.HashLine(line))
		if err := theirs.Append(rfc6962.DefaultHasher.HashLeaf(line), nil); err != nil {
			t.Fatal(err)
		}
		want, err := theirs.GetRootHash(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := ours.root(); got != event.Digest(want) || got != event.Digest(b.root()) {
			t.Fatalf("at size %d: root %s, others have %x and %s", n, got, want, b.root())
		}
	}
}
