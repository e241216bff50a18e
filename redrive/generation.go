package redrive

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
)

// Errors of looking generations up.
var (
	// ErrNoGeneration is returned when there is no such generation. List them
	// with: redrive generation list.
	ErrNoGeneration = errors.New("no such generation")
)

// Generation is the state of one replay: a projection of its records. It is
// written anew at each of them, so what is zero is left out.
type Generation struct {
	No       event.GenerationNo
	ID       string // ULID
	State    event.State
	Manifest string // digest

	Members      uint64
	Withheld     uint64   `json:",omitzero"` // at plan time
	Deduplicated uint64   `json:",omitzero"`
	Stages       []uint64 // members up to and including each stage
	Stage        uint32   `json:",omitzero"`
	Limits       event.Limits
	Destination  Destination
	Repairs      []string `json:",omitzero"` // digests of the lists of members that go out repaired
	Evidence     Evidence
	Bake         uint64 `json:",omitzero"` // ms
	Deadline     uint64 `json:",omitzero"` // ms from delivery to the outcome
	Ambiguity    string `json:",omitzero"`
	Inbox        uint64 `json:",omitzero"` // ms, see Manifest
	RetryNacked  uint64 `json:",omitzero"`
	// Keys is the digest of the index of the key list; "" when nothing is
	// ordered.
	Keys      string `json:",omitzero"`
	Heads     uint64 `json:",omitzero"`
	OnFailure string `json:",omitzero"`

	Planner   event.Actor
	PlannedAt uint64 // ms, as all times here
	// PlannedSeq is the position of the record that planned it.
	PlannedSeq uint64    `json:",omitzero"`
	Approval   *Approval `json:",omitzero"`
	Started    *Step     `json:",omitzero"`
	Ended      *Step     `json:",omitzero"` // closed, rejected, expired or aborted
	Pauses     []Pause   `json:",omitzero"`
	Checked    *Preflown `json:",omitzero"` // the last preflight

	// Counts holds the members by disposition, without what was never to move.
	Counts [event.NumDispositions]uint64
	// Unresolved is the number of intents without a resolution. It is not
	// Counts[InFlight]: evidence can come before the confirm.
	Unresolved uint64         `json:",omitzero"`
	Next       event.Position `json:",omitzero"` // first position without an intent
	Again      event.Ranges   `json:",omitzero"` // positions before Next that wait again
	// Reach is the first position above all that were decided, when that is not
	// Next.
	Reach event.Position `json:",omitzero"`
	// Retries is the number of members that are to be published again although
	// an earlier try may have arrived, or was not taken.
	Retries uint64 `json:",omitzero"`
	// Changed is when a member's disposition changed last: the bake time runs
	// from there.
	Changed uint64 `json:",omitzero"`

	Thresholds Thresholds        `json:",omitzero"` // limits that differ from the defaults, see Thresholds.Of
	Shared     string            `json:",omitzero"` // name of the destination whose exposure it shares, "" for none
	Consumer   string            `json:",omitzero"` // version of the consumer that the manifest expects
	Strata     []Stratum         `json:",omitzero"` // matured members by kind, empty when there is only one
	Throttles  []Throttle        `json:",omitzero"`
	Pace       Pace              `json:",omitzero"`
	External   map[string]string `json:",omitzero"` // last result and action of each probe
	Auto       []uint64          `json:",omitzero"` // when the system resumed it, ms, the last hour's
	Latency    []uint32          `json:",omitzero"` // outcomes by how long they took, see latencyBounds
	Resolved   uint64            `json:",omitzero"` // resolutions of tries so far
	Nacks      []Nack            `json:",omitzero"` // those that still count, at most maxNacks
	Foreign    uint64            `json:",omitzero"` // reports of another consumer version

	Unroutable     uint64            `json:",omitzero"` // votes, see evaluate
	Nacked         uint64            `json:",omitzero"`
	Doubtful       uint64            `json:",omitzero"`
	Contradictions uint64            `json:",omitzero"`
	Regressions    uint64            `json:",omitzero"` // requarantined, rejected or in doubt only after the close
	Disputes       uint64            `json:",omitzero"` // members about which business data says otherwise than was reported
	Doubles        uint64            `json:",omitzero"` // members with more than one effect
	Reconciled     *Reconciled       `json:",omitzero"` // the last reconciliation
	Seen           Votes             `json:",omitzero"` // what the last resume has looked at
	Results        map[string]string `json:",omitzero"` // last result of each signal

	// RateAt is the state of the token bucket, in nanoseconds of RateEpoch.
	RateAt    uint64 `json:",omitzero"`
	RateEpoch uint64 `json:",omitzero"`
}

// Approval lets a generation start.
type Approval struct {
	By      event.Actor
	At      uint64
	Expires uint64
	Why     string
}

// Step is something that a person or the system did once.
type Step struct {
	By  event.Actor
	At  uint64
	Why string
}

// Pause is one reason why a generation stands still.
type Pause struct {
	Reason string
	By     event.Actor
	At     uint64
	Why    string
}

var (
	bucketGeneration = ledger.Bucket{Name: "generation.state", Append: true}
	bucketGenID      = ledger.Bucket{Name: "generation.id"}
	bucketOpen       = ledger.Bucket{Name: "generation.open", Append: true}
	bucketConfirmed  = ledger.Bucket{Name: "generation.confirmed", Append: true} // (generation, seq) of records that began to wait for outcomes
)

// Get reads a generation.
func Get(r ledger.Reader, no event.GenerationNo) (*Generation, error) {
	b := r.Get(bucketGeneration, ledger.Key(uint64(no)))
	if b == nil {
		return nil, fmt.Errorf("generation %d: %w", no, ErrNoGeneration)
	}
	g := &Generation{}
	if err := json.Unmarshal(b, g); err != nil {
		return nil, fmt.Errorf("generation %d is damaged: %w: %w", no, err, ledger.ErrIntegrity)
	}
	return g, nil
}

func (g *Generation) store(w ledger.Writer) error {
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if err := w.Put(bucketGeneration, ledger.Key(uint64(g.No)), b); err != nil {
		return err
	}
	// Everything whose facts can still bring duties is listed as open.
	switch g.State {
	case event.Closed, event.Rejected, event.Expired:
		return w.Delete(bucketOpen, ledger.Key(uint64(g.No)))
	}
	return w.Put(bucketOpen, ledger.Key(uint64(g.No)), nil)
}

// Find returns the number of the generation that an id names: its number, its
// ULID, or a unique prefix of at least 4 characters of it.
func Find(r ledger.Reader, id string) (event.GenerationNo, error) {
	if n, err := strconv.ParseUint(id, 10, 32); err == nil {
		if _, err := Get(r, event.GenerationNo(n)); err != nil {
			return 0, err
		}
		return event.GenerationNo(n), nil
	}
	var found []event.GenerationNo
	if prefix := strings.ToUpper(id); len(prefix) >= 4 {
		r.Scan(bucketGenID, []byte(prefix), func(k, v []byte) bool {
			if !strings.HasPrefix(string(k), prefix) {
				return false
			}
			found = append(found, event.GenerationNo(ledger.Unkey(v)))
			return true
		})
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("generation %q: %w; list them with: redrive generation list", clip(id), ErrNoGeneration)
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("generation %q: %d generations match; use a longer id: %w", clip(id), len(found), ErrNoGeneration)
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 60)], "\ufffd") }

// byID finds a generation by its whole ULID.
func byID(r ledger.Reader, id string) (*Generation, bool, error) {
	v := r.Get(bucketGenID, []byte(id))
	if v == nil {
		return nil, false, nil
	}
	g, err := Get(r, event.GenerationNo(ledger.Unkey(v)))
	return g, err == nil, err
}

// All returns all generations, latest first.
func All(r ledger.Reader) ([]*Generation, error) {
	var out []*Generation
	var err error
	r.Scan(bucketGeneration, nil, func(k, _ []byte) bool {
		var g *Generation
		g, err = Get(r, event.GenerationNo(ledger.Unkey(k)))
		out = append(out, g)
		return err == nil
	})
	sort.Slice(out, func(i, j int) bool { return out[i].No > out[j].No })
	return out, err
}

// Unfinished returns the generations that are not closed, rejected or expired.
func Unfinished(r ledger.Reader) ([]*Generation, error) {
	var out []*Generation
	var err error
	r.Scan(bucketOpen, nil, func(k, _ []byte) bool {
		var g *Generation
		g, err = Get(r, event.GenerationNo(ledger.Unkey(k)))
		out = append(out, g)
		return err == nil
	})
	return out, err
}

// envelope is the member at a position. C keeps the chunk that was read last.
func (g *Generation) envelope(r ledger.Reader, c *chunks, pos event.Position) (event.EnvelopeNo, error) {
	if uint64(pos) >= g.Members {
		return 0, fmt.Errorf("generation %d has no position %d: %w", g.No, pos, ErrNoGeneration)
	}
	if c.digests == nil {
		m, err := GetManifest(r, g.Manifest)
		if err != nil {
			return 0, err
		}
		c.digests = m.Chunks
	}
	return c.at(r, pos)
}

// stageEnd is the number of members that the current stage allows.
func (g *Generation) stageEnd() uint64 {
	if int(g.Stage) < len(g.Stages) {
		return g.Stages[g.Stage]
	}
	return g.Members
}

// Exposed is the number of members whose effect is not known.
func (g *Generation) Exposed() uint64 {
	c := &g.Counts
	return c[event.InFlight] + c[event.Pending] + c[event.Admitted] + c[event.AmbiguousPublish]
}

// Status is the state in words that add what the state alone does not say.
func (g *Generation) Status() string {
	if g.State == event.Closed && g.Regressions > 0 {
		return "completed with regressions"
	}
	return string(g.State)
}

// EachMember visits the members in release order until fn returns an error.
func EachMember(r ledger.Reader, g *Generation, fn func(event.Position, event.EnvelopeNo) error) error {
	var c chunks
	for pos := range event.Position(g.Members) {
		env, err := g.envelope(r, &c, pos)
		if err != nil {
			return err
		}
		if err := fn(pos, env); err != nil {
			return err
		}
	}
	return nil
}

// EachWaiting visits the members from position from up to, not including, to
// that have not been sent and still may be.
func EachWaiting(r ledger.Reader, g *Generation, from, to event.Position, fn func(event.Position, event.EnvelopeNo) error) error {
	var c chunks
	for pos := from; pos < to; pos++ {
		if m := GetMember(r, g.No, pos); m.Disposition() != event.Waiting {
			continue
		}
		env, err := g.envelope(r, &c, pos)
		if err == nil {
			err = fn(pos, env)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
