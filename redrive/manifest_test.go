package redrive_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

var add = flag.Bool("add", false, "write vectors that are missing; those that exist never change")

// golden compares bytes with a vector in testdata, which is append-only: what
// an earlier version wrote must be read for ever.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *add {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s\n got %s\nwant %s", name, got, want)
	}
}

// fill sets every field of a struct to a value of its own.
func fill(t *testing.T, v reflect.Value, seed int) {
	t.Helper()
	for i := range v.NumField() {
		n, field, name := seed+i+1, v.Field(i), v.Type().Field(i).Name
		switch field.Kind() {
		case reflect.String:
			field.SetString("the " + name + " \"\u00e9\"")
		case reflect.Uint64, reflect.Uint32:
			field.SetUint(uint64(n) * 1001)
		case reflect.Struct:
			fill(t, field, n)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 2, 2))
			for j := range 2 {
				if e := field.Index(j); e.Kind() == reflect.String {
					e.SetString(name)
				} else {
					e.SetUint(uint64(n + j))
				}
			}
		default:
			t.Fatalf("%s is of a kind that this test does not fill", name)
		}
	}
}

func TestManifestVector(t *testing.T) {
	m := &redrive.Manifest{}
	fill(t, reflect.ValueOf(m).Elem(), 0)
	m.Version = redrive.ManifestVersion
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "manifest_v3.json", b)
	got, err := redrive.ParseManifest(b)
	if d := cmp.Diff(m, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	m.Version++
	if b, err = m.Encode(); err != nil {
		t.Fatal(err)
	}
	if got, err := redrive.ParseManifest(b); !errors.Is(err, event.ErrFuture) || got != nil {
		t.Errorf("a manifest of the future: %v %v", got, err)
	}
}

// Ledgers keep the manifests of earlier versions.
func TestManifestsOfEarlierVersions(t *testing.T) {
	for version, withheld := range map[uint64]uint64{1: 27027, 2: 31031} {
		b, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("manifest_v%d.json", version)))
		if err != nil {
			t.Fatal(err)
		}
		m, err := redrive.ParseManifest(b)
		if err != nil || m.Version != version || m.Exchange != "the Exchange \"\u00e9\"" || m.Withheld != withheld {
			t.Fatalf("%+v %v", m, err)
		}
		again, err := m.Encode()
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("written again as %s, %v", again, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	b, err := os.ReadFile(filepath.Join("testdata", "manifest_v3.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := redrive.ParseManifest(b)
		if err != nil {
			if m != nil {
				t.Error("an error and a manifest")
			}
			return
		}
		if again, err := m.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s is read and written as %s (%v)", b, again, err)
		}
	})
}

func TestMemberListVector(t *testing.T) {
	objects, digests := redrive.MemberObjects([]event.EnvelopeNo{1, 258, 1 << 40})
	golden(t, "members_v1.hex", []byte(hex.EncodeToString(objects[0].Value)+"\n"))
	golden(t, "members_v1.digest", []byte(digests[0]+"\n"))
	objects, _ = redrive.ExclusionObjects([]redrive.Exclusion{{Env: 7, Reason: redrive.ReasonHeld}, {Env: 9, Reason: redrive.ReasonDuplicate, Sibling: 3}})
	golden(t, "exclusions_v1.txt", objects[0].Value)
}

// The strip list is data that plans show; a name is only ever added.
func TestStripList(t *testing.T) {
	want := []string{"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange", "x-last-death-queue",
		"x-last-death-reason", "x-delivery-count", "x-acquired-count", "CC", "BCC", "x-delay", "x-retry-count", "x-death-reason", "x-last-reason", "x-last-error", "x-died-queue", "x-died-at", "x-redrive-last-of-key",
		"x-redrive-generation", "x-redrive-envelope", "x-redrive-intent", "x-redrive-mac", "x-redrive-gap"}
	got := redrive.DefaultStrip()
	if slices.Sort(want); !slices.Equal(want, slices.Sorted(slices.Values(got))) {
		t.Errorf("%q", got)
	}
}

func TestReleasedMessage(t *testing.T) {
	old := stamp.Stamp{Generation: "01J9ZK6V7Q8R9S0T1V2W3X4Y5Z", Envelope: "01J9ZK6V7QABCDEFGHJKMNPQRS", Try: 1}
	fields := append(old.Headers(stamp.MAC{1}), amqpwire.StringField("x-first-failed-at", "1"), amqpwire.StringField("x-retry-count", "5"),
		amqpwire.DeathField(amqpwire.Death{Queue: "q", Reason: "rejected"}), amqpwire.ArrayField("CC", amqpwire.Value{Kind: amqpwire.Str, Data: "elsewhere"}),
		amqpwire.StringField("x-delayed", "kept: names are exact"))
	view := amqpwire.View{Present: amqpwire.Headers | amqpwire.DeliveryMode | amqpwire.MessageID | amqpwire.Expiration | amqpwire.UserID,
		Headers: fields, DeliveryMode: 2, MessageID: "m1", Expiration: "1000", UserID: "publisher"}
	props, err := amqpwire.Build(view)
	if err != nil {
		t.Fatal(err)
	}
	fresh := stamp.Stamp{Generation: old.Generation, Envelope: old.Envelope, Position: 3, Try: 2}
	d, rules := redrive.Destination{RoutingKey: "orders"}, &redrive.Manifest{Strip: redrive.DefaultStrip()}
	o := &quarantine.Original{Exchange: "ex", RoutingKey: "rk", Properties: props, Body: []byte("body")}
	m, err := redrive.BuildMessage(o, d, rules, redrive.Stamped{Stamp: fresh, MAC: stamp.MAC{2}}, redrive.ReleaserCaps{UserID: "us"})
	if err != nil {
		t.Fatal(err)
	}
	v := amqpwire.Parse(m.Properties)
	var names []string
	for _, f := range v.Headers {
		names = append(names, f.Name)
	}
	want := append([]string{"x-first-failed-at", "x-delayed"}, stamp.Names()[:4]...)
	if slices.Sort(want); !slices.Equal(want, slices.Sorted(slices.Values(names))) {
		t.Errorf("headers %q", names)
	}
	if v.MessageID != "m1" || v.DeliveryMode != 2 || v.Has(amqpwire.Expiration) || v.Has(amqpwire.UserID) || string(m.Body) != "body" || m.Dest != d {
		t.Errorf("%+v", v)
	}
	if s, mac, _, err := stamp.Read(v); err != nil || s != fresh || mac != (stamp.MAC{2}) {
		t.Errorf("%v %v %v", s, mac, err)
	}
}

// What the broker would refuse never reaches the wire.
func TestMessagesThatAreRefused(t *testing.T) {
	reply, err := amqpwire.Build(amqpwire.View{Present: amqpwire.ReplyTo, ReplyTo: "amq.rabbitmq.reply-to"})
	if err != nil {
		t.Fatal(err)
	}
	unwalkable := []byte{0x20, 0, 0, 0, 0, 4, 1, 'a', '?', 0xff}
	for reason, c := range map[string]struct {
		props []byte
		caps  redrive.ReleaserCaps
	}{
		"body_too_large": {[]byte{0, 0}, redrive.ReleaserCaps{MaxBody: 3}}, "header_too_large": {[]byte{0, 0}, redrive.ReleaserCaps{MaxHeader: 100}},
		"invalid_property": {reply, redrive.ReleaserCaps{}}, "unwalkable_headers": {unwalkable, redrive.ReleaserCaps{}},
	} {
		o := &quarantine.Original{Properties: c.props, Body: []byte("body")}
		m, err := redrive.BuildMessage(o, redrive.Destination{}, &redrive.Manifest{Strip: redrive.DefaultStrip()}, redrive.Stamped{}, c.caps)
		var refused *redrive.RefusedError
		if !errors.As(err, &refused) || refused.Reason != reason || !errors.Is(err, redrive.ErrNotSent) || m.Properties != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
