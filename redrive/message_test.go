package redrive_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// properties makes an original with one of everything that rules speak of.
func properties(t *testing.T) []byte {
	t.Helper()
	props, err := amqpwire.Build(amqpwire.View{
		Present: amqpwire.Headers | amqpwire.DeliveryMode | amqpwire.Expiration | amqpwire.UserID | amqpwire.MessageID,
		Headers: []amqpwire.Field{
			{Name: "x-death", Value: amqpwire.Value{Kind: amqpwire.Array, Data: []amqpwire.Value{}}},
			amqpwire.StringField("MT-Redelivery-Count", "5"), amqpwire.StringField("business-key", "keep-me"),
			amqpwire.StringField("twice", "1"), amqpwire.StringField("twice", "2"),
		},
		DeliveryMode: 1, Expiration: "60000", UserID: "them", MessageID: "m-1"})
	if err != nil {
		t.Fatal(err)
	}
	return props
}

// TestHeaderRules builds one message under several manifests, and compares what
// Changes says with what is there.
func TestHeaderRules(t *testing.T) {
	props := properties(t)
	s := redrive.Stamped{Stamp: stamp.Stamp{Generation: strings.Repeat("1", 26), Envelope: strings.Repeat("2", 26), Position: 7, Try: 1}}
	for name, c := range map[string]struct {
		rules   redrive.Manifest
		headers string // names in order, without the stamp's
		mode    uint8
		ttl     bool
		changes string
	}{
		"default": {redrive.Manifest{Strip: redrive.DefaultStrip()}, "MT-Redelivery-Count business-key twice twice", 1, false,
			"property expiration removed, property user_id removed, header x-death removed"},
		"drop and set": {redrive.Manifest{Strip: append(redrive.DefaultStrip(), "MT-Redelivery-Count", "twice"), Set: []string{"note", "a=b", "business-key", "new"}},
			"note business-key", 1, false,
			"property expiration removed, property user_id removed, header x-death removed, header MT-Redelivery-Count removed, header business-key changed, header twice removed, header note added"},
		"nothing off": {redrive.Manifest{Strip: stamp.Names(), Expiration: redrive.KeepExpiration, Mode: 2},
			"x-death MT-Redelivery-Count business-key twice twice", 2, true,
			"property delivery_mode changed, property user_id removed"},
	} {
		m, err := redrive.BuildMessage(&quarantine.Original{Properties: props}, redrive.Destination{RoutingKey: "q"}, &c.rules, s, redrive.ReleaserCaps{UserID: "us"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v := amqpwire.Parse(m.Properties)
		var names, changes []string
		for _, f := range v.Headers {
			if !slices.Contains(stamp.Names(), f.Name) {
				names = append(names, f.Name)
			}
		}
		for _, x := range redrive.Changes(props, m.Properties) {
			what := "property"
			if x.Header {
				what = "header"
			}
			changes = append(changes, what+" "+x.Name+" "+x.How)
		}
		if got := strings.Join(names, " "); got != c.headers || v.DeliveryMode != c.mode || v.Has(amqpwire.Expiration) != c.ttl {
			t.Errorf("%s: headers %q, mode %d, expiration %v", name, got, v.DeliveryMode, v.Has(amqpwire.Expiration))
		}
		if got := strings.Join(changes, ", "); got != c.changes {
			t.Errorf("%s: changes\n%s, want\n%s", name, got, c.changes)
		}
		if st, _, present, err := stamp.Read(v); err != nil || !present || st != s.Stamp {
			t.Errorf("%s: stamp %v %v %v", name, st, present, err)
		}
	}
}

func TestCheckSet(t *testing.T) {
	if err := redrive.CheckSet([]string{"x-mine", "v", strings.Repeat("k", 255), ""}); err != nil {
		t.Error(err)
	}
	many := slices.Repeat([]string{"n", "v"}, 33)
	for name, set := range map[string][]string{
		"no name": {"", "v"}, "long name": {strings.Repeat("k", 256), "v"}, "long value": {"n", strings.Repeat("v", 1025)}, "many": many,
		"stamp": {stamp.HeaderMAC, "v"}, "CC": {"CC", "q"}, "broker": {"x-first-death-queue", "q"}, "bytes": {"n", "\xff"},
	} {
		if err := redrive.CheckSet(set); !errors.Is(err, redrive.ErrArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOriginalDestination: each message goes to a place of its own.
func TestOriginalDestination(t *testing.T) {
	m := redrive.Manifest{Original: []string{"", "orders"}}
	d := m.Destination()
	if d.SingleQueue() || !d.Original {
		t.Fatalf("%+v", d)
	}
	f := &quarantine.Facts{OriginExchange: "orders", OriginRoutingKey: "order.created", OriginKnown: 1}
	if got := d.For(f); got != (redrive.Destination{Exchange: "orders", RoutingKey: "order.created"}) {
		t.Errorf("%+v", got)
	}
	fixed := redrive.Destination{RoutingKey: "q"}
	if got := fixed.For(f); got != fixed {
		t.Errorf("%+v", got)
	}
	if got := m.Places(); len(got) != 1 || got[0] != (redrive.Destination{Exchange: "orders"}) {
		t.Errorf("%+v", got)
	}
}
