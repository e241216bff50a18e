// Package ledger is the book: an append-only sequence of records, and the one
// place where state changes.
//
// # Life of an update
//
//  1. Update queues a decision. Nothing is written.
//  2. The committer, one goroutine, takes what waits as one group, opens one
//     transaction of the KV and runs the decisions in turn, each on the view
//     that includes its predecessors. A crash here loses nothing that anyone
//     was told of.
//  3. The events of a decision become records: Objects are stored, then the
//     line, then the leaf in the Merkle tree (RFC 6962); each Projector
//     applies the record, and each Reactor may add events, which go the same
//     way within the same decision.
//  4. When a record calls for it, or the last one is older than
//     Options.CheckpointEvery, a checkpoint over the new size is signed in the
//     same transaction.
//  5. Options.Before sees the group's records; then the transaction commits
//     with one fsync. When the commit fails nobody can know whether it is
//     visible: the Log is dead, and the process must end and read the truth
//     after a restart.
//  6. Callers are answered and Options.After sees the records.
//
// # Laws
//
//   - A decision is pure: it may run more than once, and only its last run
//     counts. A refused decision writes nothing and does not disturb its
//     neighbours.
//   - Callers and readers see only what has been fsynced.
//   - seq has no gaps, and every record holds the hash of the one before.
//   - The state that a Projector owns is a function of the records and of the
//     objects stored with them: Rebuild proves it.
package ledger
