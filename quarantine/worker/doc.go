// Package worker is the consumer's half of the cure: it runs a handler for each
// message of a queue, tries again what can succeed later, and moves aside what
// cannot, with its context, so that the queue never blocks.
//
// # Life of a delivery
//
//  1. The body is held against the schema of its type, the ordering key against
//     the parked keys, and the operation against the inbox, where there are any.
//  2. The handler runs. Its error says what went wrong; the policy says what
//     that means (see Decide).
//  3. A copy goes to a retry queue or to the quarantine queue, or none is needed.
//     The broker confirms it.
//  4. For a message that carries the stamp of a release, the outcome is reported.
//  5. The delivery is acknowledged. A crash before that leaves it with the broker,
//     which delivers it again: then a copy may exist twice, and nothing is lost.
//
// A delivery is never given back to make it come again at once: that would block
// the head of the queue, and a quorum queue counts it.
//
// # Table of runs
//
//	run       retry count on arrival   after a transient failure
//	1 … n     0 … n-1                  retry after the run's delay
//	n + 1     n                        quarantine, reason "retries_exhausted"
//
// with n the policy's retries. A permanent failure is quarantined in whichever
// run it happens.
//
// # Copies
//
// A copy has the properties of the delivery, byte for byte, but for what
// quarantine.BrokerHeaders names, a foreign user id, the headers that the worker
// itself writes, and the expiration: a retry copy carries the delay there, and
// what it replaces is kept in the header x-origin-expiration. Copies are
// persistent. The stamp of a release stays on, so that its return is recognized.
// When the headers would outgrow what the broker takes, the error text gives way
// first, then what only informs.
//
// # Systemic failures
//
// A dependency that is down is no fault of the message. Such a failure spends no
// retry: the message stays where it is, unacknowledged, no other one is begun,
// and after a back-off one message probes whether the dependency is back. What
// was held for HoldLimit goes to a retry queue with its count unchanged, since
// brokers take back what is unacknowledged for too long. A message that goes on
// failing like this while others get through is itself the trouble: it is
// retried, with its retries counted, and stops the others no more.
//
// # After a crash
//
// A session begins with one message at a time, and with the policy's prefetch
// after a message that nobody had before was settled: a message that kills the
// process takes no neighbour with it.
package worker
