// Package quarantine keeps messages that died: each immutable original apart
// from what people and rules say about it.
//
// # Format
//
// An envelope has a dense number inside the store and a ULID outside. It is
// kept in five places:
//
//   - Facts: what was known at the capture, written once;
//   - the sealed original: property bytes under the envelope's secret, body
//     under the secret of a body object, which a lineage shares;
//   - a Cell: the part that changes, a projection of the ledger;
//   - an entry in the capture list of its batch: the ULID and a commitment;
//   - its repairs, if it has any: numbered candidates to go out in the place of
//     the original, each sealed under the envelope's secret with its difference
//     from the original.
//
// A capture list is an object of the ledger: the line "redrive capture list
// v1", then 48 bytes for each envelope, the ULID and the HMAC-SHA-256 that
// commits to facts, properties and body (see commit in seal.go).
//
// # Invariants
//
//   - A message is settled at its broker only after its envelope is durable.
//   - Facts and originals never change; a repair stands beside them. A purge or
//     retention removes content as a whole, with an event, and leaves every
//     commitment valid.
//   - A repair keeps the operation, or is a new command that somebody other than
//     its author approves. At most one candidate is live.
//   - Every envelope has exactly one custody.
//   - A redelivered message is merged with an envelope only when it is certain
//     to be the same one; otherwise a second envelope is kept and linked. An
//     extra envelope is a question for a person, a merged one would be a loss.
//   - A message that comes back with a valid stamp and the body that was
//     released is a child of the envelope that was released. Everything else
//     is a root, flagged when its stamp was wrong.
//
// # Compatibility
//
// Facts and capture lists carry a version; a newer one is refused.
//
// # Example
//
//	prepared, err := preparer.Prepare(delivery, origin, now)
//	batch := quarantine.Batch{New: []*quarantine.Prepared{prepared}}
//	receipt, err := log.Update(ctx, req, func(v ledger.View) ([]event.Event, error) {
//		return quarantine.Capture(v, keys, batch, releases)
//	})
package quarantine
