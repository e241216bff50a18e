// Package management reads RabbitMQ's management API: what queues, exchanges,
// bindings and policies there are, which AMQP does not tell. It sends GET
// requests; SetPolicy alone writes, and writes one policy by its name.
//
// # What an answer is
//
// Every question has an answer, ErrNotFound, or an error that says why it is
// not known: ErrDenied (the log-in, its tag, or its vhost), ErrUnreachable (the
// network, TLS, time), ErrAnswer (something else than this API answered, or too
// much). The caller never has to guess from an empty result.
//
// # Invariants
//
//   - Names are percent-encoded path segments. "." and "..", which a path cannot
//     carry, are refused, and an answer about another name than the one that was
//     asked for is ErrAnswer.
//   - No redirect is followed and no proxy of the environment is used: the
//     credentials go to the configured address only.
//   - Every request has a time limit, and every answer a limit of size.
//   - No error holds a secret. Nothing that the other side says is quoted in
//     one: a server that echoes the request would put the password there.
//
// # What it knows late
//
// Arguments, type and bindings are read from the broker's own tables. Policies
// in force, states and counts come from statistics that arrive every five
// seconds: a queue that is younger has none, which Queue.Statistics tells.
package management
