package verify

import (
	"fmt"
	"slices"

	"github.com/redrivehq/redrive/ledger/event"
)

// Law names what was checked. The names are stable.
type Law string

// Laws of every ledger.
const (
	LawBundle     Law = "bundle"     // every file is listed, signed for, and as it was
	LawParse      Law = "parse"      // a line is the one spelling of its record
	LawSeq        Law = "seq"        // records are numbered from 1 without gaps
	LawChain      Law = "chain"      // each record names the hash of the one before
	LawEpoch      Law = "epoch"      // epochs and their monotonic time never go back
	LawCreated    Law = "created"    // ledger.created is the first record and no other
	LawKey        Law = "key"        // keys are well formed and follow from each other
	LawCheckpoint Law = "checkpoint" // checkpoints are well formed, ascending, of this ledger
	LawRoot       Law = "root"       // the root at each checkpoint's size is the one it names
	LawSignature  Law = "signature"  // the key in force signed each checkpoint
	LawScope      Law = "scope"      // the source holds what it claims to hold
	LawObject     Law = "object"     // objects hash to the digest that records name
	LawPayload    Law = "payload"    // originals are what was committed to
)

// Laws that need Options.Replay.
const (
	LawSession  Law = "session"  // ledger.opened begins each epoch, ledger.closed ends it
	LawState    Law = "state"    // generations move along the transition table
	LawPlan     Law = "plan"     // plans are numbered, staged and limited
	LawApproval Law = "approval" // approved before start, same manifest, in time
	LawGate     Law = "gate"     // intents only while running
	LawTry      Law = "try"      // tries are numbered, resolved once, repeated only when allowed
	LawOrphan   Law = "orphan"   // intents of an earlier epoch end ambiguous before new ones
	LawWindow   Law = "window"   // unresolved intents
	LawExposure Law = "exposure" // members at risk
	LawRate     Law = "rate"     // intents in any window of time
	LawOrder    Law = "order"    // within a key, the next member after the end of the one before it
	LawStage    Law = "stage"    // only members of the opened stages
	LawRuling   Law = "ruling"   // only ambiguous tries, once
	LawFacts    Law = "facts"    // facts about members that can have them
	LawTally    Law = "tally"    // both sums of the tally
	LawClosed   Law = "closed"   // a closing statement names the right numbers
	LawCheck    Law = "check"    // no start and no resume against the word of its preflight
	LawEnvelope Law = "envelope" // envelopes are numbered, and acts on them possible
	LawEffects  Law = "effects"  // business data speaks of released members, and its sums hold
	LawSource   Law = "source"   // captures come from the broker that is pinned; another one is pinned with a reason
)

var structural = []Law{LawParse, LawSeq, LawChain, LawEpoch, LawCreated, LawKey, LawCheckpoint, LawRoot,
	LawSignature, LawScope, LawObject}

var generationLaws = []Law{LawSession, LawState, LawPlan, LawApproval, LawGate, LawTry, LawOrphan, LawWindow,
	LawExposure, LawRate, LawStage, LawOrder, LawRuling, LawFacts, LawTally, LawClosed, LawEffects}

// Finding is one breach of a law, and where it was found.
type Finding struct {
	Law    Law    `json:"law"`
	Place  string `json:"place"`         // "record 17", "checkpoint 3", or a file with offset
	Seq    uint64 `json:"seq,omitempty"` // the record, when it is one
	Reason string `json:"reason"`
}

// Error makes a finding about a bundle an error of OpenBundle.
func (f *Finding) Error() string { return fmt.Sprintf("%s: %s (%s)", f.Place, f.Reason, f.Law) }

func broken(law Law, format string, args ...any) error {
	return &Finding{Law: law, Reason: fmt.Sprintf(format, args...)}
}

// Tally is what replay found about one generation.
type Tally struct {
	Gen            event.GenerationNo            `json:"generation"`
	State          event.State                   `json:"state"`
	Selected       uint64                        `json:"selected"`
	Moved          uint64                        `json:"moved"`
	Counts         [event.NumDispositions]uint64 `json:"counts"`         // by event.Disposition
	Conflicts      uint64                        `json:"conflicts"`      // members both succeeded and rejected
	Contradictions uint64                        `json:"contradictions"` // tries with evidence against their non-delivery
}

// Report is the result of Verify.
type Report struct {
	Extent      Extent     `json:"extent"`
	Leaves      uint64     `json:"leaves"`  // hashes in the tree
	Records     uint64     `json:"records"` // lines checked
	Root        string     `json:"root"`    // hexadecimal
	Checkpoints uint64     `json:"checkpoints"`
	Matched     uint64     `json:"matched"`   // checkpoints whose root and signature hold
	Unsigned    uint64     `json:"unsigned"`  // records after the last matched checkpoint
	Authentic   uint64     `json:"authentic"` // leading records that the trusted key vouches for
	Objects     uint64     `json:"objects"`
	Payloads    uint64     `json:"payloads"` // commitments that hold
	Erased      uint64     `json:"erased"`   // commitments whose secret is gone
	Generations []Tally    `json:"generations,omitempty"`
	Laws        []Law      `json:"laws"`
	Findings    []*Finding `json:"findings,omitempty"` // in the order found, at most MaxFindings
	Broken      uint64     `json:"broken"`             // findings, those beyond MaxFindings included
	Warnings    []string   `json:"warnings,omitempty"`
	Incomplete  []string   `json:"incomplete,omitempty"` // why not everything could be checked
}

// MaxFindings bounds the findings, warnings and reasons that are kept; one
// changed byte can break thousands of records after it.
const MaxFindings = 100

// Verdict is "mismatch", "incomplete" or "verified".
func (r *Report) Verdict() string {
	switch r.ExitCode() {
	case 0:
		return "verified"
	case 1:
		return "mismatch"
	}
	return "incomplete"
}

// ExitCode is 0 only when all that was asked for was checked and holds, 1 after
// any finding, and 3 when something could not be checked.
func (r *Report) ExitCode() int {
	switch {
	case r.Broken > 0:
		return 1
	case len(r.Incomplete) > 0 || r.Records == 0:
		return 3
	}
	return 0
}

// First is the finding that was met first, nil when there is none.
func (r *Report) First() *Finding {
	if len(r.Findings) == 0 {
		return nil
	}
	return r.Findings[0]
}

func (r *Report) fail(f *Finding) {
	r.Broken++
	if len(r.Findings) < MaxFindings {
		r.Findings = append(r.Findings, f)
	}
}

func (r *Report) warn(format string, args ...any) { r.Warnings = note1(r.Warnings, format, args) }

func (r *Report) incomplete(format string, args ...any) {
	r.Incomplete = note1(r.Incomplete, format, args)
}

// note1 adds a sentence once.
func note1(list []string, format string, args []any) []string {
	s := fmt.Sprintf(format, args...)
	if len(list) >= MaxFindings || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
