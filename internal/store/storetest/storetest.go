// Package storetest is the suite that every driver of ledger.KV passes.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/redrivehq/redrive/ledger"
)

var (
	plain   = ledger.Bucket{Name: "plain"}
	ordered = ledger.Bucket{Name: "ordered", Append: true}
)

// Run checks the contract of ledger.KV on stores that open makes. reopen
// closes and opens the same store again.
func Run(t *testing.T, open func(t *testing.T) (kv ledger.KV, reopen func() ledger.KV)) {
	t.Run("absent", func(t *testing.T) {
		kv, _ := open(t)
		view(t, kv, func(r ledger.Reader) {
			if r.Get(plain, []byte("a")) != nil {
				t.Error("an absent key has a value")
			}
			if k, v := r.Last(plain); k != nil || v != nil {
				t.Error("an empty bucket has a last key")
			}
			r.Scan(plain, nil, func(_, _ []byte) bool { t.Error("an empty bucket has keys"); return true })
		})
	})
	t.Run("own changes, order and durability", func(t *testing.T) {
		kv, reopen := open(t)
		update(t, kv, func(w ledger.Writer) error {
			value := []byte("v")
			for _, n := range []uint64{7, 1, 300, 2} {
				if err := w.Put(plain, ledger.Key(n), value); err != nil {
					return err
				}
			}
			value[0] = 'x' // the writer keeps no reference
			if string(w.Get(plain, ledger.Key(7))) != "v" {
				t.Error("a writer does not see its own change")
			}
			return w.Delete(plain, ledger.Key(2))
		})
		check := func(r ledger.Reader) {
			if got := keys(r, plain, ledger.Key(2)); got != "[7 300]" {
				t.Errorf("scan from 2: %s", got)
			}
			if k, v := r.Last(plain); ledger.Unkey(k) != 300 || string(v) != "v" {
				t.Errorf("last: %v %q", k, v)
			}
		}
		view(t, kv, check)
		view(t, reopen(), check)
	})
	t.Run("an error rolls back", func(t *testing.T) {
		kv, _ := open(t)
		no := errors.New("no")
		if err := kv.Update(func(w ledger.Writer) error {
			return errors.Join(w.Put(plain, []byte("a"), []byte("b")), no)
		}); !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
		view(t, kv, func(r ledger.Reader) {
			if r.Get(plain, []byte("a")) != nil {
				t.Error("a refused change is visible")
			}
		})
	})
	t.Run("empty values and deletes of nothing", func(t *testing.T) {
		kv, _ := open(t)
		update(t, kv, func(w ledger.Writer) error {
			return errors.Join(w.Delete(plain, []byte("none")), w.Put(plain, []byte("e"), nil), w.Delete(plain, []byte("none")))
		})
		view(t, kv, func(r ledger.Reader) {
			if v := r.Get(plain, []byte("e")); v == nil || len(v) != 0 {
				t.Errorf("empty value: %v", v)
			}
		})
	})
	t.Run("many ascending keys", func(t *testing.T) { manyKeys(t, open) })
	t.Run("a reader keeps its state", func(t *testing.T) {
		kv, _ := open(t)
		update(t, kv, func(w ledger.Writer) error { return w.Put(plain, []byte("a"), []byte("1")) })
		view(t, kv, func(r ledger.Reader) {
			done := make(chan error)
			go func() {
				done <- kv.Update(func(w ledger.Writer) error { return w.Put(plain, []byte("a"), []byte("2")) })
			}()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if string(r.Get(plain, []byte("a"))) != "1" {
				t.Error("a reader saw a later commit")
			}
		})
	})
	t.Run("room", func(t *testing.T) {
		kv, _ := open(t)
		if err := kv.Room(false); err != nil {
			t.Error(err)
		}
	})
}

func manyKeys(t *testing.T, open func(t *testing.T) (ledger.KV, func() ledger.KV)) {
	kv, _ := open(t)
	const n = 3000
	for from := uint64(0); from < n; from += 500 {
		update(t, kv, func(w ledger.Writer) error {
			for i := from; i < from+500; i++ {
				if err := w.Put(ordered, ledger.Key(i), bytes.Repeat([]byte{byte(i)}, int(i%700))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	view(t, kv, func(r ledger.Reader) {
		i := uint64(0)
		r.Scan(ordered, nil, func(k, v []byte) bool {
			if ledger.Unkey(k) != i || len(v) != int(i%700) {
				t.Fatalf("key %d: got %d with %d bytes", i, ledger.Unkey(k), len(v))
			}
			i++
			return true
		})
		if i != n {
			t.Errorf("%d keys of %d", i, n)
		}
	})
}

func view(t *testing.T, kv ledger.KV, fn func(ledger.Reader)) {
	t.Helper()
	if err := kv.View(func(r ledger.Reader) error { fn(r); return nil }); err != nil {
		t.Fatal(err)
	}
}

func update(t *testing.T, kv ledger.KV, fn func(ledger.Writer) error) {
	t.Helper()
	if err := kv.Update(fn); err != nil {
		t.Fatal(err)
	}
}

func keys(r ledger.Reader, b ledger.Bucket, from []byte) string {
	var out []uint64
	r.Scan(b, from, func(k, _ []byte) bool {
		out = append(out, ledger.Unkey(k))
		return true
	})
	return fmt.Sprint(out)
}
