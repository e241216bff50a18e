package redrive

import (
	"encoding/binary"
	"fmt"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/stamp"
)

// Evidence says how it becomes known what a released message did.
type Evidence string

// Evidence modes of a destination.
const (
	EvidenceOutcomes  Evidence = "outcomes"     // the consumer reports
	EvidenceReturns   Evidence = "returns_only" // only what comes back is known
	EvidenceReconcile Evidence = "reconcile"    // proven afterwards from business data
)

// ManifestVersion is the version of the manifest format. Version 2 added
// expiration, mode, original and set; version 3 the conditions of selections
// beyond the first eight, force and repairs, order by key, what becomes of
// members in doubt, risk, strata, thresholds, unstaged and watched.
const ManifestVersion = 3

// ChunkSize is how many members one chunk lists.
const ChunkSize = 4096

// Manifest is the immutable description of a generation. Its digest is what an
// approval names.
type Manifest struct {
	Ambiguity    string   // AmbiguityHold or AmbiguityRetry
	Approvers    uint64   // approvals needed
	At           uint64   // when the selection was evaluated, ms
	Bake         uint64   // ms
	Chunks       []string // digests of the member lists, ChunkSize each
	Code         string   // code or configuration generation expected at the destination
	Consumer     string   // consumer version expected
	Deadline     uint64   // ms
	Deduplicated uint64
	Evidence     Evidence
	Exchange     string   // destination; "" is the default exchange
	Excluded     []string // digests of the lists of what does not move, with reasons
	Expected     []string // terminal outcomes that are expected
	Expiration   string   // "keep", or "" when it is taken off
	Fix          string   // what was changed; "none stated" when nobody said
	Forced       []string // reasons to stay that were overruled, see Forcible
	ForceWhy     string
	Heads        uint64 // with order per-key: positions below have no predecessor
	ID           string // ULID
	Inbox        uint64 // ms for which the consumer remembers message ids, 0 when it declares nothing
	Keys         string // digest of the index of the key list, with order per-key
	Ledger       uint64 // position at which the selection was evaluated
	Limits       event.Limits
	Members      uint64
	Mode         uint64   // delivery mode that all get, 0 when each keeps its own
	OnFailure    string   // what a failure does to the rest of its key
	Order        string   // OrderNone or OrderPerKey
	Original     []string // exchanges in use, when each message goes to its original exchange and key
	Planner      string
	Repaired     uint64   // members that go out repaired
	Repairs      []string // digests of the lists of members that go out repaired
	RetryNacked  uint64   // how often a definite nack is tried again, at most 3
	Risk         uint64   // members that were released before and whose effect was not found: each may be a duplicate
	RoutingKey   string   // destination
	Selection    Selection
	SelfApprove  uint64   // up to this many members the planner may approve
	Set          []string // headers that are put on, of kind S: name, value, name, …
	Stages       []uint64
	Strata       []string // digests of the lists of the members' kinds, one byte for each; none when all are of one kind
	Strip        []string // headers that are taken off
	Thresholds   []string // limits of signals, SIGNAL=VALUE, sorted
	Unstaged     uint64   // 1: it goes out in one stage, which its approval has to say
	Version      uint64
	Watched      []string // signals from outside that are watched, sorted; what is not among them pauses nothing
	Withheld     uint64
}

func (m *Manifest) visit(c *event.Coder) {
	event.Text(c, "ambiguity", &m.Ambiguity)
	event.Num(c, "approvers", &m.Approvers)
	event.Num(c, "at", &m.At)
	event.Num(c, "bake", &m.Bake)
	event.Texts(c, "chunks", &m.Chunks)
	event.Text(c, "code", &m.Code)
	event.Text(c, "consumer", &m.Consumer)
	event.Num(c, "deadline", &m.Deadline)
	event.Num(c, "deduplicated", &m.Deduplicated)
	event.Text(c, "evidence", &m.Evidence)
	event.Text(c, "exchange", &m.Exchange)
	event.Texts(c, "excluded", &m.Excluded)
	event.Texts(c, "expected", &m.Expected)
	event.Text(c, "expiration", &m.Expiration)
	event.Text(c, "fix", &m.Fix)
	event.Text(c, "force_why", &m.ForceWhy)
	event.Texts(c, "forced", &m.Forced)
	event.Num(c, "heads", &m.Heads)
	event.Text(c, "id", &m.ID)
	event.Num(c, "inbox", &m.Inbox)
	event.Text(c, "keys", &m.Keys)
	event.Num(c, "ledger", &m.Ledger)
	event.Nested(c, "limits", m.Limits == event.Limits{}, m.Limits.Visit)
	event.Num(c, "members", &m.Members)
	event.Num(c, "mode", &m.Mode)
	event.Text(c, "on_failure", &m.OnFailure)
	event.Text(c, "order", &m.Order)
	event.Texts(c, "original", &m.Original)
	event.Text(c, "planner", &m.Planner)
	event.Num(c, "repaired", &m.Repaired)
	event.Texts(c, "repairs", &m.Repairs)
	event.Num(c, "retry_nacked", &m.RetryNacked)
	event.Num(c, "risk", &m.Risk)
	event.Text(c, "routing_key", &m.RoutingKey)
	event.Nested(c, "selection", m.Selection.empty(), m.Selection.visit)
	event.Num(c, "self_approve", &m.SelfApprove)
	event.Texts(c, "set", &m.Set)
	event.Nums(c, "stages", &m.Stages)
	event.Texts(c, "strata", &m.Strata)
	event.Texts(c, "strip", &m.Strip)
	event.Texts(c, "thresholds", &m.Thresholds)
	event.Num(c, "unstaged", &m.Unstaged)
	event.Num(c, "version", &m.Version)
	event.Texts(c, "watched", &m.Watched)
	event.Num(c, "withheld", &m.Withheld)
}

// Encode is the canonical form; its SHA-256 is the digest.
func (m *Manifest) Encode() ([]byte, error) { return event.AppendObject(nil, m.visit) }

// GetManifest reads a manifest by its digest.
func GetManifest(r ledger.Reader, digest string) (*Manifest, error) {
	b, err := ledger.GetObject(r, digest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m, err := ParseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", digest, err)
	}
	return m, nil
}

// ParseManifest is the inverse of Encode and refuses every other spelling.
func ParseManifest(b []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := event.ReadObject(b, m.visit); err != nil {
		return nil, err
	}
	if m.Version > ManifestVersion {
		return nil, fmt.Errorf("version %d: %w", m.Version, event.ErrFuture)
	}
	return m, nil
}

// Destination is where the generation goes.
func (m *Manifest) Destination() Destination {
	if len(m.Original) > 0 {
		return Destination{Original: true}
	}
	return Destination{Exchange: m.Exchange, RoutingKey: m.RoutingKey}
}

// Places are what can be looked at before a start: the destination, or the
// exchanges of the original one, for which the routing keys are many.
func (m *Manifest) Places() []Destination {
	if len(m.Original) == 0 {
		return []Destination{m.Destination()}
	}
	var out []Destination
	for _, x := range m.Original {
		if x != "" { // the default exchange is always there
			out = append(out, Destination{Exchange: x})
		}
	}
	return out
}

// DefaultStrip lists the headers that a release takes off: what brokers and
// workers wrote about the failed attempts, older stamps, and what would route
// or delay the message elsewhere. Exact names, no prefixes.
func DefaultStrip() []string {
	list := append(quarantine.BrokerHeaders(),
		"x-retry-count", "x-death-reason", "x-last-reason", "x-last-error",
		quarantine.HeaderDiedQueue, quarantine.HeaderDiedAt, quarantine.HeaderLastOfKey)
	return append(list, stamp.Names()...)
}

// encodeChunk lists members as big-endian numbers.
func encodeChunk(envs []event.EnvelopeNo) []byte {
	b := make([]byte, 0, 8*len(envs))
	for _, e := range envs {
		b = binary.BigEndian.AppendUint64(b, uint64(e))
	}
	return b
}

// chunks reads member lists, keeping the last one.
type chunks struct {
	digests []string
	held    int // index of the chunk in data, plus one
	data    []byte
}

func (c *chunks) at(r ledger.Reader, pos event.Position) (event.EnvelopeNo, error) {
	i := int(pos) / ChunkSize
	if i >= len(c.digests) {
		return 0, fmt.Errorf("position %d is beyond the cohort: %w", pos, ledger.ErrIntegrity)
	}
	if c.held != i+1 {
		b, err := ledger.GetObject(r, c.digests[i])
		if err != nil {
			return 0, fmt.Errorf("member list: %w", err)
		}
		c.held, c.data = i+1, b
	}
	off := int(pos) % ChunkSize * 8
	if off+8 > len(c.data) {
		return 0, fmt.Errorf("position %d is beyond the cohort: %w", pos, ledger.ErrIntegrity)
	}
	return event.EnvelopeNo(binary.BigEndian.Uint64(c.data[off:])), nil
}

// Exclusion is a selected envelope that does not move, and why.
type Exclusion struct {
	Env     event.EnvelopeNo
	Reason  string
	Sibling event.Position // for a duplicate: the member that goes in its place
}

// Reasons for which a selected envelope is withheld at plan time.
const (
	ReasonDuplicate         = "duplicate" // of a member of the same generation
	ReasonPossibleDuplicate = "possible_duplicate"
	ReasonHeld              = "held"
	ReasonConflict          = "identity_conflict"
	ReasonAmbiguousEffect   = "ambiguous_effect"
	ReasonOperationResolved = "operation_resolved"
	ReasonOperationInDoubt  = "operation_in_doubt"
	ReasonOperationReserved = "operation_reserved"
	ReasonReserved          = "reserved"
	ReasonNotQuarantined    = "not_quarantined"
	ReasonPayloadGone       = "payload_gone"
	ReasonNoOrigin          = "no_origin"      // its original exchange and key are not known
	ReasonRepairChanged     = "repair_changed" // since the plan, found when its turn comes
	ReasonAttemptLimit      = "attempt_limit_reached"
	ReasonSchema            = "schema_invalid" // its body breaks the schema that is in force now
	ReasonNotAuthorized     = "not_authorized"
	ReasonBeyondHorizon     = "beyond_horizon" // the consumer may have handled and forgotten it
	ReasonInboxHasIt        = "inbox_has_seen" // the consumer says that it has seen the operation
)

// encodeExclusions lists exclusions as lines "ENVELOPE REASON SIBLING".
func encodeExclusions(list []Exclusion) []byte {
	var b []byte
	for _, x := range list {
		b = fmt.Appendf(b, "%d %s %d\n", x.Env, x.Reason, x.Sibling)
	}
	return b
}

// Exclusions reads what a manifest lists as not moving.
func Exclusions(r ledger.Reader, m *Manifest, fn func(Exclusion) error) error {
	for _, d := range m.Excluded {
		b, err := ledger.GetObject(r, d)
		if err != nil {
			return fmt.Errorf("list of exclusions: %w", err)
		}
		for len(b) > 0 {
			var x Exclusion
			line := b
			for i, ch := range b {
				if ch == '\n' {
					line, b = b[:i], b[i+1:]
					break
				}
			}
			if _, err := fmt.Sscanf(string(line), "%d %s %d", &x.Env, &x.Reason, &x.Sibling); err != nil {
				return fmt.Errorf("list of exclusions %s: %w: %w", d, err, ledger.ErrIntegrity)
			}
			if err := fn(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// MemberObjects makes the member lists of a cohort, with their digests in
// order.
func MemberObjects(members []event.EnvelopeNo) (objects []event.Object, digests []string) {
	for len(members) > 0 {
		n := min(len(members), ChunkSize)
		o, d := ledger.ObjectOf(encodeChunk(members[:n]))
		objects, digests = append(objects, o), append(digests, d.String())
		members = members[n:]
	}
	return objects, digests
}

// ExclusionObjects makes the lists of what does not move, with their digests.
func ExclusionObjects(list []Exclusion) (objects []event.Object, digests []string) {
	for len(list) > 0 {
		n := min(len(list), ChunkSize)
		o, d := ledger.ObjectOf(encodeExclusions(list[:n]))
		objects, digests = append(objects, o), append(digests, d.String())
		list = list[n:]
	}
	return objects, digests
}
