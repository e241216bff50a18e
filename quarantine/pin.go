package quarantine

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// bucketPin holds the Pin in force under one key.
var (
	bucketPin = ledger.Bucket{Name: "source.pin"}
	pinKey    = []byte("pin")
)

// Pin names the broker that a store belongs to.
type Pin struct {
	Broker  string `json:"broker"` // product, for people: an upgrade may rename it
	Cluster string `json:"cluster"`
	VHost   string `json:"vhost"`
}

// String names the broker for people.
func (p Pin) String() string {
	text := fmt.Sprintf("cluster %q, vhost %q", p.Cluster, p.VHost)
	if p.Broker != "" {
		text = p.Broker + " " + text
	}
	return text
}

// Same reports whether both are one place for messages.
func (p Pin) Same(o Pin) bool { return p.Cluster == o.Cluster && p.VHost == o.VHost }

// ErrOtherBroker is returned when the broker at hand is not the one that the
// store belongs to. Correct the address, or have a person pin the other one.
var ErrOtherBroker = errors.New("another broker")

// Pinned is the broker that a store belongs to; ok is false while that is open.
// A store of before there were pins belongs to the broker of its last message.
func Pinned(r ledger.Reader) (p Pin, ok bool, err error) {
	if b := r.Get(bucketPin, pinKey); b != nil {
		if err := json.Unmarshal(b, &p); err != nil {
			return Pin{}, false, fmt.Errorf("%w: the pinned broker cannot be read: %w", ledger.ErrIntegrity, err)
		}
		return p, true, nil
	}
	last := Count(r)
	if last == 0 {
		return Pin{}, false, nil
	}
	f, err := GetFacts(r, last)
	if err != nil {
		return Pin{}, false, err
	}
	return Pin{Cluster: f.Cluster, VHost: f.VHost}, true, nil
}

// CheckPin returns ErrOtherBroker, with both names, when now is not the broker
// that the store belongs to.
func CheckPin(r ledger.Reader, now Pin) error {
	p, ok, err := Pinned(r)
	if err != nil || !ok || p.Same(now) {
		return err
	}
	return fmt.Errorf("%w: this data directory belongs to %s, and the broker is %s; nothing was taken or sent. "+
		"Correct broker.url; or, when this move is meant or the broker was renamed: redrive source pin --why TEXT", ErrOtherBroker, p, now)
}

// FirstContact pins the broker when none is pinned yet, and returns what
// CheckPin does.
func FirstContact(v ledger.View, now Pin) ([]event.Event, error) {
	if err := CheckPin(v, now); err != nil {
		return nil, err
	}
	if v.Get(bucketPin, pinKey) != nil {
		return nil, nil
	}
	return []event.Event{{Body: &event.SourcePinned{Broker: now.Broker, Cluster: now.Cluster, VHost: now.VHost}}}, nil
}

// Repin pins another broker by a person's decision. It does nothing when it is
// pinned already.
func Repin(v ledger.View, now Pin, why string) ([]event.Event, error) {
	if why == "" {
		return nil, fmt.Errorf("%w: a reason is required", ErrArgument)
	}
	p, ok, err := Pinned(v)
	if err != nil || ok && p.Same(now) && v.Get(bucketPin, pinKey) != nil {
		return nil, err
	}
	return []event.Event{{Body: &event.SourcePinned{Broker: now.Broker, Cluster: now.Cluster, VHost: now.VHost, Why: why}}}, nil
}

func applyPin(w ledger.Writer, b *event.SourcePinned) error {
	text, err := json.Marshal(Pin{Broker: b.Broker, Cluster: b.Cluster, VHost: b.VHost})
	if err != nil {
		return err
	}
	return w.Put(bucketPin, pinKey, text)
}
