package redrive

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// Stamped is what a release puts on a message.
type Stamped struct {
	Stamp stamp.Stamp
	MAC   stamp.MAC
	// Gap goes into the header stamp.HeaderGap, unless it is "": see
	// Gaps.
	Gap string
}

// KeepExpiration is the value of Manifest.Expiration that leaves it on.
const KeepExpiration = "keep"

// BuildMessage makes the message that goes out for a member: the stored bytes
// changed as the manifest says, without a foreign user id, with the stamp. What
// the broker would refuse is a *RefusedError: it never reaches the wire, where
// it could take the whole window with it.
func BuildMessage(o *quarantine.Original, d Destination, m *Manifest, s Stamped, caps ReleaserCaps) (Message, error) {
	v := amqpwire.Parse(o.Properties)
	e := amqpwire.Edit(o.Properties)
	e.Strip(m.Strip...)
	e.Strip(stamp.HeaderGap)
	if m.Expiration != KeepExpiration {
		e.Drop(amqpwire.Expiration)
	}
	if m.Mode != 0 {
		e.SetDeliveryMode(uint8(m.Mode))
	}
	for i := 0; i+1 < len(m.Set); i += 2 {
		e.Set(amqpwire.StringField(m.Set[i], m.Set[i+1]))
	}
	e.Set(s.Stamp.Headers(s.MAC)...)
	if s.Gap != "" {
		e.Set(amqpwire.StringField(stamp.HeaderGap, s.Gap))
	}
	limits := quarantine.Limits{MaxBody: caps.MaxBody, MaxHeader: caps.MaxHeader, UserID: caps.UserID}
	props, err := limits.Republish(e, &v, len(o.Body))
	if bad := (*quarantine.UnsendableError)(nil); errors.As(err, &bad) {
		return Message{}, &RefusedError{Reason: bad.Reason, Detail: bad.Detail}
	}
	return Message{Dest: d, Properties: props, Body: o.Body}, nil
}

// maxSet bounds the headers that a manifest puts on, and maxSetValue each of
// their values in bytes.
const (
	maxSet      = 32
	maxSetValue = 1024
)

// CheckSet refuses headers that a manifest must not put on. The list is name,
// value, name, value, …; its errors wrap ErrArgument.
func CheckSet(set []string) error {
	if len(set) > 2*maxSet {
		return fmt.Errorf("%d headers to set: at most %d: %w", len(set)/2, maxSet, ErrArgument)
	}
	for i := 0; i+1 < len(set); i += 2 {
		name, value := set[i], set[i+1]
		switch {
		case name == "" || len(name) > 255:
			return fmt.Errorf("a header name has 1 to 255 bytes, %q has %d: %w", clip(name), len(name), ErrArgument)
		case len(value) > maxSetValue:
			return fmt.Errorf("header %q: a value of %d bytes, at most %d can be set: %w", clip(name), len(value), maxSetValue, ErrArgument)
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return fmt.Errorf("header %q: name and value are UTF-8: %w", clip(name), ErrArgument)
		case slices.Contains(stamp.Names(), name), brokerOwned(name):
			return fmt.Errorf("header %q belongs to the broker or to the stamp and cannot be set: %w", clip(name), ErrArgument)
		}
	}
	return nil
}

// brokerOwned tells headers that brokers read or write themselves. One of a
// wrong type makes RabbitMQ close the channel, or crash the queue.
func brokerOwned(name string) bool {
	switch name {
	case "CC", "BCC", "x-delay", amqpwire.HeaderDeath, amqpwire.HeaderDeliveryCount, amqpwire.HeaderAcquiredCount:
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// Change is what a release does to one property or header of a message.
type Change struct {
	Header bool   // else a property
	Name   string // as it stands in the message
	How    string // "removed", "added" or "changed"
}

// Changes compares the properties of an original with those that go out. The
// stamp is not among them: every message gets it.
func Changes(before, after []byte) []Change {
	a, b := amqpwire.Parse(before), amqpwire.Parse(after)
	var out []Change
	for p := amqpwire.ContentType; p >= amqpwire.ClusterID; p >>= 1 {
		if p == amqpwire.Headers {
			continue
		}
		switch had, has := a.Present&p != 0, b.Present&p != 0; {
		case had && !has:
			out = append(out, Change{Name: p.String(), How: "removed"})
		case has && !had:
			out = append(out, Change{Name: p.String(), How: "added"})
		case p == amqpwire.DeliveryMode && a.DeliveryMode != b.DeliveryMode:
			out = append(out, Change{Name: p.String(), How: "changed"})
		}
	}
	had, has := byName(a.Headers), byName(b.Headers)
	seen := map[string]bool{}
	for _, f := range slices.Concat(a.Headers, b.Headers) {
		if seen[f.Name] || slices.Contains(stamp.Names(), f.Name) {
			continue
		}
		seen[f.Name] = true
		switch {
		case has[f.Name] == "":
			out = append(out, Change{Header: true, Name: f.Name, How: "removed"})
		case had[f.Name] == "":
			out = append(out, Change{Header: true, Name: f.Name, How: "added"})
		case had[f.Name] != has[f.Name]:
			out = append(out, Change{Header: true, Name: f.Name, How: "changed"})
		}
	}
	return out
}

// byName spells the values of each header out, duplicates one after the other.
func byName(fields []amqpwire.Field) map[string]string {
	out := map[string]string{}
	for _, f := range fields {
		out[f.Name] += fmt.Sprintf("%c %#v;", f.Kind, f.Data)
	}
	return out
}
