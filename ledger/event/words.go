package event

// State is where a generation stands. The transition table is in package
// redrive.
type State string

// States of a generation, each with who moves it on.
const (
	Planned  State = "planned"  // an approver approves or rejects, or it expires
	Approved State = "approved" // an operator starts it, or the approval expires
	Running  State = "running"  // the runner, a threshold, an operator
	Paused   State = "paused"   // an operator resumes or aborts, or it expires after 72 h
	Settling State = "settling" // every member has been decided; outcomes arrive until it is closed
	Closed   State = "closed"   // final; late facts still change dispositions
	Rejected State = "rejected" // final: an approver said no
	Expired  State = "expired"  // final: nobody approved or started it in time
	Aborted  State = "aborted"  // an operator stopped it for good; becomes settling when nothing is in flight
)

// Open reports whether members of a generation in this state are reserved, so
// that no other generation may take them.
func (s State) Open() bool {
	switch s {
	case Planned, Approved, Running, Paused:
		return true
	}
	return false
}

// Disposition is what became of a selected envelope so far. It is a pure
// function of the set of facts about it; the order of arrival never matters.
type Disposition uint8

// Dispositions. Their sum over all of them is the number of selected
// envelopes; from Pending on they count as moved.
const (
	Waiting Disposition = iota
	InFlight
	Withheld
	DeduplicatedPlan
	Undelivered
	AmbiguousPublish
	Pending
	Admitted
	Succeeded
	RejectedByConsumer
	Requarantined
	Missing
	DeduplicatedConsumer
	AmbiguousEffect
	numDispositions
)

// NumDispositions is the number of dispositions; they are 0 to
// NumDispositions-1.
const NumDispositions = int(numDispositions)

var dispositionNames = [NumDispositions]string{
	"waiting", "in_flight", "withheld", "deduplicated_plan", "undelivered", "ambiguous_publish",
	"pending", "admitted", "succeeded", "rejected", "requarantined", "missing",
	"deduplicated_consumer", "ambiguous_effect",
}

// String is the name used in JSON, tables and metrics.
func (d Disposition) String() string {
	if int(d) < NumDispositions {
		return dispositionNames[d]
	}
	return "unknown"
}

// Moved reports whether the broker has taken the message over.
func (d Disposition) Moved() bool { return d >= Pending }

// Terminal reports whether nothing more is expected to happen.
func (d Disposition) Terminal() bool {
	switch d {
	case Waiting, InFlight, AmbiguousPublish, Pending, Admitted:
		return false
	}
	return true
}

// Resolution is how one publish ended, as far as the publisher can know.
type Resolution string

// Resolutions of a try. Exactly one is recorded for each intent.
const (
	Confirmed Resolution = "confirmed" // acked and not returned
	Returned  Resolution = "returned"  // the broker had no route for it; not stored
	Nacked    Resolution = "nacked"    // refused by the broker; definite only when one queue is bound
	Refused   Resolution = "refused"   // never sent
	Ambiguous Resolution = "ambiguous" // may or may not be stored
)

// Resolutions lists them all, for tables and tests.
var Resolutions = []Resolution{Confirmed, Returned, Nacked, Refused, Ambiguous}

// Custody is who answers for an envelope now.
type Custody uint8

// Custodies. Every envelope has exactly one.
const (
	Quarantined    Custody = iota + 1 // in the store, nothing under way
	Released                          // moved, in flight or in doubt
	ReturnedAsKid                     // came back; its child carries on
	ResolvedForNow                    // succeeded, rejected, deduplicated, or settled by a person
	Purged                            // erased on order; only a tombstone is left
)

var custodyNames = [...]string{"", "quarantined", "released", "returned", "resolved", "purged"}

// String is the name used in JSON and tables.
func (c Custody) String() string {
	if c >= Quarantined && c <= Purged {
		return custodyNames[c]
	}
	return "unknown"
}

// ParseCustody is the inverse of Custody.String; ok is false for other words.
func ParseCustody(s string) (c Custody, ok bool) {
	for i, n := range custodyNames {
		if i > 0 && n == s {
			return Custody(i), true
		}
	}
	return 0, false
}

// Class is why a message failed, in the words that decide what may be done
// about it.
type Class uint8

// Failure classes.
const (
	Unclassified      Class = iota // nobody has said yet
	Transient                      // can succeed unchanged
	Systemic                       // a dependency is down or overloaded
	Permanent                      // syntax, schema or validation
	BusinessRejection              // a terminal outcome of the domain
	AmbiguousOutcome               // an external effect may have happened
	ConsumerDefect                 // a bug or an unsupported version of the consumer
	numClasses
)

var classNames = [numClasses]string{
	"unclassified", "transient", "systemic", "permanent", "business_rejection", "ambiguous_effect", "consumer_defect",
}

// String is the name used in policies, JSON and tables.
func (c Class) String() string {
	if c < numClasses {
		return classNames[c]
	}
	return "unknown"
}

// ParseClass is the inverse of Class.String; ok is false for other words.
func ParseClass(s string) (c Class, ok bool) {
	for i, n := range classNames {
		if n == s {
			return Class(i), true
		}
	}
	return 0, false
}

// Outcome is what a consumer reports about a released message.
type Outcome string

// Outcomes of the contract. "admitted" says that work has begun; the others
// are final unless they contradict each other.
const (
	OutcomeAdmitted     Outcome = "admitted"
	OutcomeSucceeded    Outcome = "succeeded"
	OutcomeDeduplicated Outcome = "deduplicated"
	OutcomeRejected     Outcome = "rejected"
	OutcomeAmbiguous    Outcome = "ambiguous"
)

// Outcomes lists them all, for tables and tests.
var Outcomes = []Outcome{OutcomeAdmitted, OutcomeSucceeded, OutcomeDeduplicated, OutcomeRejected, OutcomeAmbiguous}

// Ruling is what a person decides about an ambiguous publish.
type Ruling string

// Rulings.
const (
	RuledDelivered    Ruling = "delivered"
	RuledNotDelivered Ruling = "not_delivered"
)
