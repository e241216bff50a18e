// Package verify checks a ledger without trusting the program that wrote it.
// It uses the standard library and the vocabulary of package event, and shares
// nothing else with the writer.
//
// # Format
//
// A bundle is a directory with exactly these files:
//
//	MANIFEST      signed note: what the bundle is, and a SHA-256 of every file
//	key           the verifier key in force, one line
//	records       the lines of the records in scope, each ended by a line feed
//	hashes        the leaf hashes of all records from 1, 32 bytes each;
//	              absent when every record is in scope
//	checkpoints   the signed notes of all checkpoints, an empty line after each
//	objects/HEX   what records name by digest; HEX is the SHA-256 of the file;
//	              no directory when there is none
//
// A key is NAME+ID+BASE64: BASE64 encodes a byte 1 and the 32 bytes of an
// Ed25519 public key; ID is, in 8 hexadecimal digits, the first 4 bytes of the
// SHA-256 of the name, a line feed, and those 33 bytes. A signed note is text,
// an empty line, and one signature line:
//
//	— NAME BASE64
//
// where BASE64 encodes the 4 bytes of ID and the Ed25519 signature of the text
// with its last line feed. A checkpoint is a note of three lines: origin, number
// of records in decimal, and the root in base64. Notes, keys and checkpoints
// are those of C2SP (signed-note, tlog-checkpoint), narrowed to one signature
// and no extension lines.
//
// The text of MANIFEST, with one line for each file, sorted by name:
//
//	redrive-bundle/1
//	origin ORIGIN
//	scope all | generation N | time FROM-TO
//	range FIRST-LAST
//	records COUNT
//	size SIZE
//	epoch EPOCH
//	file SHA256 LENGTH NAME
//
// SIZE and EPOCH are those of the whole ledger; its last checkpoint covers SIZE.
// Which records are in scope: those of kind ledger.created and ledger.rekeyed,
// always; otherwise, of the records from FIRST to LAST,
//
//   - all: every one. FIRST is 1 and LAST is SIZE.
//   - generation N: those with subj.gen N, and those of kind ledger.*. FIRST is
//     1 and LAST is SIZE.
//   - time: every one. FIRST is the first record with ts ≥ FROM, LAST the last
//     one with ts ≤ TO, in milliseconds since 1970 UTC.
//
// The tree is that of RFC 6962 over the lines. The hashes of records out of
// scope stand in for them, so every checkpoint can still be recomputed.
//
// # Invariants
//
//   - Each thing has one spelling and nothing is skipped over: numbers and
//     base64 are canonical, a note ends with its signature line, a directory
//     holds what is listed. Any bit that changes is found.
//   - ExitCode 0 means that all that was asked for was checked.
//   - Hashes cannot prove that an exporter left nothing of a generation out, or
//     chose the ends of a time well. That is vouched for by the signature of
//     MANIFEST; a range without gaps is checked.
//   - A checkpoint is signed by the key that the last ledger.created or
//     ledger.rekeyed before it names. At exactly the size of a ledger.rekeyed
//     the key before may sign instead, which hands trust on to the new one.
//
// # What replay cannot decide
//
// Options.Replay follows every generation through its records and checks the
// laws listed at the constants of type Law, at each record. Records do not hold
// the manifest or the cohort, so it leaves open:
//
//   - which envelope stands at which position: exclusive membership, holds and
//     custody at release, purge outside open generations. Only returns name
//     both, and those must agree with each other;
//   - in which cluster a message was captured or released: captures name the
//     vhost only;
//   - how many approvals, and by whom, the rules asked for; whether a loosened
//     limit had its own approval;
//   - whether a repeated try was allowed by the ambiguity policy, and a nacked
//     one by the manifest; bake times and deadlines;
//   - which thresholds applied: an evaluation is judged by its own numbers;
//   - the rate across epochs, whose monotonic times have nothing in common, and
//     across a change of limits;
//   - whether members planned not to move were rightly left out; they are
//     counted, without positions;
//   - where one transaction ends: what must happen in the same one is checked
//     as "before the next intent".
//
// Follow-up facts about a generation that breached a law are not judged: the
// first breach is reported, the rest would be its echo.
//
// # Compatibility
//
// A bundle of a newer format, a record of a newer version and an unknown kind
// make a report incomplete (exit 3), never wrong (exit 1). Names of laws and
// files are only ever added.
//
// # Example
//
//	rep, err := verify.CheckBundle(ctx, "bundle", verify.Options{Pub: pub, Replay: true})
//	if err != nil {
//		return err // could not be read
//	}
//	fmt.Println(rep.Verdict(), rep.First())
package verify
