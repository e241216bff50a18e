// Package predicate compiles conditions over envelopes that are written in the
// Common Expression Language. It implements quarantine.Predicates.
//
// A condition is checked before anything runs: its size, its types, that each
// regular expression is a short constant, and what it can cost at most. Where
// the cost depends on the content of messages, each evaluation has a limit. An
// evaluation ends with true, false, or an error that says why in fixed words:
// no text of a message gets into it.
package predicate
