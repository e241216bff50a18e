package quarantine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

var add = flag.Bool("add", false, "write vectors that are missing; those that exist never change")

// golden compares bytes with a vector in testdata, which is append-only: what
// an earlier version wrote must be read for ever.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *add {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(got)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(got)+"\n" != string(want) {
		t.Errorf("%s\n got %x\nwant %s", name, got, want)
	}
}

// filled sets every field to a value of its own.
func filled(t *testing.T) *Facts {
	t.Helper()
	f := &Facts{}
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		n, field := i+1, v.Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString(strings.ToLower(v.Type().Field(i).Name))
		case reflect.Uint64:
			field.SetUint(uint64(n) << n)
		case reflect.Uint8:
			field.SetUint(uint64(n))
		case reflect.Int64:
			field.SetInt(int64(n) * 1000)
		case reflect.Array:
			for j := range field.Len() {
				field.Index(j).SetUint(uint64(n + j))
			}
		default:
			t.Fatalf("%s is of a kind that this test does not fill", v.Type().Field(i).Name)
		}
	}
	return f
}

func TestFactsVector(t *testing.T) {
	f := filled(t)
	golden(t, "facts_v2.hex", f.encode())
	golden(t, "facts_v2_empty.hex", (&Facts{DeliveryCount: -1, Attempts: -1}).encode())
	got, err := decodeFacts(f.encode())
	if d := cmp.Diff(f, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}

// Stores keep what earlier versions wrote.
func TestFactsOfVersion1(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "facts_v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	want := filled(t)
	want.OriginExchange, want.OriginRoutingKey, want.OriginKnown, want.OriginQueue = "", "", 0, ""
	got, err := decodeFacts(b)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}

// plainKeys wraps nothing.
type plainKeys struct{}

func (plainKeys) Wrap(s Secret) ([]byte, error)   { return s[:], nil }
func (plainKeys) Unwrap(b []byte) (Secret, error) { return Secret(b), nil }
func (plainKeys) Index(string) uint64             { return 1 }

// oneEnvelope is a store of one envelope.
type oneEnvelope map[ledger.Bucket][]byte

func (o oneEnvelope) Get(b ledger.Bucket, _ []byte) []byte             { return o[b] }
func (oneEnvelope) Scan(ledger.Bucket, []byte, func(_, _ []byte) bool) {}
func (oneEnvelope) Last(ledger.Bucket) (key, value []byte)             { return nil, nil }

// A commitment is to the bytes that were stored at the capture, whatever
// version writes now.
func TestCommitmentsToFactsOfVersion1Hold(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "facts_v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	facts, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	secret, props, body := Secret{1}, []byte("properties"), []byte("body")
	sealedProps, err := seal(secret, labelSealProperties, props)
	if err != nil {
		t.Fatal(err)
	}
	sealedBody, err := seal(secret, labelSealBody, body)
	if err != nil {
		t.Fatal(err)
	}
	r := oneEnvelope{bucketFacts: facts, bucketSecret: secret[:], bucketBodySecret: secret[:], bucketProperties: sealedProps, bucketBody: sealedBody}
	got, err := Commitment(r, plainKeys{}, nil, 1)
	if want := commit(secret, facts, sha256.Sum256(props), sha256.Sum256(body)); err != nil || got != want {
		t.Errorf("%v, %v: what was captured under version 1 is taken for changed", got, err)
	}
}

func TestFactsOfTheFutureAreRefused(t *testing.T) {
	b := (&Facts{}).encode()
	b[0] = factsVersion + 1
	if f, err := decodeFacts(b); !errors.Is(err, event.ErrFuture) || f != nil {
		t.Errorf("%v %v", f, err)
	}
	for _, b := range [][]byte{nil, {}, {factsVersion}, append((&Facts{}).encode(), 0)} {
		if f, err := decodeFacts(b); err == nil || f != nil {
			t.Errorf("%x is taken as %v", b, f)
		}
	}
}

// Erasing leaves what describes; the list of fields is spelled out so that a
// new field is a decision.
func TestErasedFacts(t *testing.T) {
	f, was := filled(t), filled(t)
	f.erase()
	var gone []string
	v, w := reflect.ValueOf(*f), reflect.ValueOf(*was)
	for i := range v.NumField() {
		if !reflect.DeepEqual(v.Field(i).Interface(), w.Field(i).Interface()) {
			if !v.Field(i).IsZero() {
				t.Errorf("%s is changed and not empty", v.Type().Field(i).Name)
			}
			gone = append(gone, v.Type().Field(i).Name)
		}
	}
	want := []string{"RoutingKey", "ErrorCode", "Operation", "OperationFrom", "MessageID", "Fingerprint", "Wire", "BodyDigest", "OrderingKey", "Sequence", "TraceID",
		"OriginRoutingKey", "OriginKnown"}
	if d := cmp.Diff(want, gone); d != "" {
		t.Error(d)
	}
}

func FuzzFacts(f *testing.F) {
	f.Add((&Facts{}).encode())
	f.Add((&Facts{Operation: "op", DeliveryCount: -1, Attempts: 7, Captured: 1 << 40}).encode())
	f.Add([]byte{factsVersion, 0x80, 0x00})
	f.Add(append([]byte{1}, (&Facts{}).encode()[1:len((&Facts{}).encode())-4]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		facts, err := decodeFacts(b)
		if err != nil {
			if facts != nil {
				t.Error("an error and facts")
			}
			return
		}
		var again wire
		if facts.visit(&again, b[0]); !bytes.Equal(again.buf, b[1:]) {
			t.Errorf("%x is read and written as %x", b[1:], again.buf)
		}
	})
}

func TestCellVector(t *testing.T) {
	c := Cell{Custody: event.Released, Class: event.ConsumerDefect, Flags: Held | FlagDerived, Reason: 0x0102, LastReason: 0x0304, Owner: 0x0506,
		Queue: 0x0708, Died: 0x090a, Type: 0x0b0c, Schema: 0x0d0e, Attempt: 0x0f10, Gen: 0x11121314, Parent: 0x15161718191a1b1c,
		Root: 0x1d1e1f2021222324, Operation: 0x25262728292a2b2c, Meaning: 0x2d2e2f3031323334, FirstDied: 0x35363738, Captured: 0x393a3b3c}
	b := make([]byte, cellSize)
	c.put(b)
	golden(t, "cell_v1.hex", b)
	var got Cell
	got.get(b)
	if got != c {
		t.Errorf("%+v", got)
	}
}

func TestCellsSurviveTheirBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), cellSize, cellSize).Draw(rt, "bytes")
		var c Cell
		c.get(b)
		out := make([]byte, cellSize)
		if c.put(out); !bytes.Equal(b, out) {
			rt.Errorf("%x became %x", b, out)
		}
	})
}

func TestCaptureListVector(t *testing.T) {
	list := []byte(captureListHead)
	for i := range byte(2) {
		id := ulid.ULID{i, 1, 2, 3}
		sum := commit(Secret{i, 9}, []byte{1, i}, sha256.Sum256([]byte{i}), sha256.Sum256([]byte("body")))
		list = append(append(list, id[:]...), sum[:]...)
	}
	golden(t, "capture_list_v1.hex", list)
	got, err := ParseCaptureList(list)
	if err != nil || len(got) != 2 || got[1].ID != (ulid.ULID{1, 1, 2, 3}) || !bytes.Equal(got[1].Commitment[:], list[len(list)-32:]) {
		t.Errorf("%v %v", got, err)
	}
	for _, b := range [][]byte{nil, list[:len(list)-1], append([]byte("x"), list...), []byte("redrive capture list v2\n")} {
		if got, err := ParseCaptureList(b); err == nil || got != nil {
			t.Errorf("%q is taken for a list", b)
		}
	}
}

// A commitment changes with each part, and with the secret.
func TestCommitmentCoversEveryPart(t *testing.T) {
	base := commit(Secret{1}, []byte("f"), [32]byte{2}, [32]byte{3})
	for i, other := range []event.Digest{commit(Secret{9}, []byte("f"), [32]byte{2}, [32]byte{3}), commit(Secret{1}, []byte("g"), [32]byte{2}, [32]byte{3}),
		commit(Secret{1}, []byte("f"), [32]byte{9}, [32]byte{3}), commit(Secret{1}, []byte("f"), [32]byte{2}, [32]byte{9})} {
		if other == base {
			t.Errorf("part %d is not covered", i)
		}
	}
}
