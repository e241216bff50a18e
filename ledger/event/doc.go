// Package event is the vocabulary of redrive: identifiers, states,
// dispositions, failure classes, and the records of the ledger with their
// exact bytes. It decides nothing and stores nothing.
//
// # Format
//
// A record is one line of canonical JSON (RFC 8785 restricted to objects,
// arrays, strings and integers), at most MaxRecord bytes, without the line
// feed. Keys are sorted; a field with a zero value is left out; there is no
// other spelling of the same record. Its fields:
//
//	actor  {as, auth, role, sub}  who caused it; "as" is asserted only
//	body   object                 depends on kind, see Kinds
//	epoch  integer                counts the processes that wrote to this ledger
//	kind   string                 see Kinds
//	mono   integer                milliseconds since the epoch began, never back
//	prev   64 hex digits          Hash of the previous record, absent in the first
//	req    string                 request id, joins records of one request
//	seq    integer                position in the ledger, from 1, without gaps
//	subj   {env, gen}             envelope and generation that it is about
//	ts     integer                wall clock, milliseconds since 1970 UTC
//	v      integer                format version, now 1
//
// Hash is SHA-256 over a zero byte followed by the line: the leaf hash of RFC
// 6962. Sets of numbers are strings of ascending ranges, "3-7,9".
//
// # Invariants
//
//   - ParseRecord and Record.AppendLine are inverses: a line that is accepted
//     is reproduced byte for byte, and anything else is refused.
//   - Text that came from a message never stands in a record, only keyed
//     commitments to it. Text that people wrote (fix, reason, ticket) does.
//
// # Compatibility
//
// Kinds and body fields are only ever added, each with the version that knows
// it first. A reader refuses a record whose version or kind it does not know
// and says which version it needs.
package event
