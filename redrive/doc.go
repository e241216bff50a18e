// Package redrive replays quarantined messages as generations: an immutable
// manifest and a frozen cohort, and events for everything that happens to
// them. It decides; it does not publish, wait or look at a clock.
//
// # Format
//
// A manifest is canonical JSON, stored as an object of the ledger; its SHA-256
// is what an approval names. It names further objects by their digests, each
// list cut after ChunkSize entries, all numbers big endian:
//
//   - chunks: the members in release order, eight bytes each;
//   - excluded: what was selected but does not move, with its reason;
//   - strata: the kind of each member, one byte, by which ratios are kept apart;
//   - repairs: a line, then for each member that goes out repaired its
//     position, the number of the candidate and its commitment, ascending;
//   - keys: the index of the key list, which has for each member the one before
//     and after it in its key, and how many between are missing (Link).
//
// # Life of a member
//
//  1. T1 (Intend) reads state, approval, stage, window, exposure, rate, holds
//     and custody again and records the intent. A crash after it leaves the
//     try ambiguous.
//  2. The runner hands the message to the broker, unless the gate has closed:
//     then the try is refused and the member waits again.
//  3. The broker answers; T2 (Resolve) records the resolution, and in the same
//     transaction the thresholds are evaluated and may throttle, pause or abort
//     the generation. A member in doubt, or nacked, is tried again only where
//     the manifest says so (retryable).
//  4. Outcomes, returns, deadlines and business data add facts. The disposition
//     of a member is a pure function of the set of its facts (DispositionOf).
//
// # Invariants
//
//   - An intent is durable before the first byte goes out; a try resolves once.
//   - Only members are published, only to the approved destination, and only
//     under the approved digest.
//   - No intent is recorded between a durable pause and its resume, and none
//     after an abort.
//   - At most Limits.Window intents are unresolved, at most Limits.Exposure
//     members have an unknown effect, together with all other generations that
//     go to the same destination, and no T seconds hold more than
//     rate·T + burst intents.
//   - Ordered by key, no member has an intent before the one before it in its
//     key has passed, unless the manifest says to go on after failures.
//   - A member goes out as the repair that was approved, or not at all.
//   - What says stop is recorded with the numbers that it was judged by, so that
//     each evaluation can be made again. No data is never ok.
//   - Both sums of Tally hold at every position of the ledger.
//   - No envelope is in two open generations.
//
// # Compatibility
//
// The manifest has a version, see ManifestVersion; older ones are read, a newer
// one is refused. Reason codes and facts are only ever added.
//
// # Example
//
//	in, events, err := redrive.Intend(view, gen, 16)
package redrive
