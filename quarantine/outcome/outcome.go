// Package outcome is the contract by which a consumer, in any language, tells
// what became of a released message.
//
// # Format
//
// A report is one JSON object, published to the exchange Exchange or handed to
// "redrive outcome report". Its fields:
//
//	generation, envelope, intent, mac   the four stamp headers, echoed
//	outcome           admitted, succeeded, deduplicated, rejected or ambiguous
//	operation         business identity, optional
//	effect            reference to the business effect, optional
//	consumer_version  optional
//	detail            for people, optional
//	at                RFC 3339, optional
//
// Only the stamp makes a report count: without a valid MAC it is counted apart
// and changes nothing. Texts are bounded: operation, effect, detail and
// consumer_version at most 1024 bytes each.
package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// Exchange is where consumers publish reports, and Queue is where the
// controller reads them.
const (
	Exchange = "redrive.outcomes"
	Queue    = "redrive.outcomes"
)

// MaxReport is the most bytes of a report.
const MaxReport = 16 << 10

// ErrMalformed is returned for a report that does not follow the contract.
var ErrMalformed = errors.New("malformed outcome report")

// Report is one parsed report. Whether its MAC holds is for the controller to
// say.
type Report struct {
	Stamp           stamp.Stamp
	MAC             stamp.MAC
	Outcome         event.Outcome
	Operation       string
	Effect          string
	ConsumerVersion string
	Detail          string
	At              string
}

// wireReport is the JSON form.
type wireReport struct {
	Generation      string `json:"generation"`
	Envelope        string `json:"envelope"`
	Intent          string `json:"intent"`
	MAC             string `json:"mac"`
	Outcome         string `json:"outcome"`
	Operation       string `json:"operation,omitempty"`
	Effect          string `json:"effect,omitempty"`
	ConsumerVersion string `json:"consumer_version,omitempty"`
	Detail          string `json:"detail,omitempty"`
	At              string `json:"at,omitempty"`
}

// Parse reads a report. Unknown fields are ignored, so that the contract can
// grow.
func Parse(b []byte) (Report, error) {
	var w wireReport
	if len(b) > MaxReport {
		return Report{}, fmt.Errorf("%d bytes, at most %d: %w", len(b), MaxReport, ErrMalformed)
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return Report{}, fmt.Errorf("no JSON object of the expected form: %w", ErrMalformed)
	}
	r := Report{Outcome: event.Outcome(w.Outcome), Operation: w.Operation, Effect: w.Effect,
		ConsumerVersion: strings.ToValidUTF8(w.ConsumerVersion, "\ufffd"), Detail: w.Detail, At: w.At}
	for _, s := range []string{w.Operation, w.Effect, w.ConsumerVersion, w.Detail, w.At} {
		if len(s) > 1024 {
			return Report{}, fmt.Errorf("a text has %d bytes, at most 1024: %w", len(s), ErrMalformed)
		}
	}
	known := false
	for _, o := range event.Outcomes {
		known = known || o == r.Outcome
	}
	if !known {
		return Report{}, fmt.Errorf("unknown outcome: %w", ErrMalformed)
	}
	// The stamp is read by the one reader that there is for stamps.
	view := amqpwire.View{Present: amqpwire.Headers, Headers: []amqpwire.Field{
		amqpwire.StringField(stamp.HeaderGeneration, w.Generation), amqpwire.StringField(stamp.HeaderEnvelope, w.Envelope),
		amqpwire.StringField(stamp.HeaderIntent, w.Intent), amqpwire.StringField(stamp.HeaderMAC, w.MAC)}}
	var err error
	if r.Stamp, r.MAC, _, err = stamp.Read(view); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// Encode writes the JSON form of a report, for consumers written in Go.
func (r *Report) Encode() ([]byte, error) {
	w := wireReport{Generation: r.Stamp.Generation, Envelope: r.Stamp.Envelope, Intent: r.Stamp.Intent(), MAC: r.MAC.String(),
		Outcome: string(r.Outcome), Operation: r.Operation, Effect: r.Effect, ConsumerVersion: r.ConsumerVersion, Detail: r.Detail, At: r.At}
	return json.Marshal(w)
}

// Private is what the report says in the consumer's own words, as canonical
// bytes to be sealed; nil when it says nothing.
func (r *Report) Private() []byte {
	if r.Operation == "" && r.Effect == "" && r.ConsumerVersion == "" && r.Detail == "" && r.At == "" {
		return nil
	}
	b, err := json.Marshal(wireReport{Outcome: string(r.Outcome), Operation: r.Operation, Effect: r.Effect, ConsumerVersion: r.ConsumerVersion, Detail: r.Detail, At: r.At})
	if err != nil {
		return nil // strings always marshal
	}
	return b
}
