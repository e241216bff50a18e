// Package local is a durable message broker inside the process, behind the
// same two ports as every other driver: quarantine.Source and redrive.Releaser.
// It exists so that a whole redrive can be tried, tested and simulated without
// a server; it is no broker for production.
//
// It does what RabbitMQ does where that decides what happens to a message:
// exchanges (default, direct, fanout, topic), dead-lettering with x-death,
// message and queue time-to-live, delivery limits, length limits, redelivery,
// mandatory publishes and confirms.
//
//	b, err := local.Open(path, local.Options{})
//	err = b.Declare(ctx, local.QueueSpec{Name: "orders.dlq"})
//	err = b.Declare(ctx, local.QueueSpec{Name: "orders", DeliveryLimit: 5, DeadLetter: local.ToQueue("orders.dlq")})
//	out, err := b.Publish(ctx, local.Message{RoutingKey: "orders", Properties: props, Body: body})
//	c, err := b.Consume(ctx, "orders", 10)
//
// # Life of a message
//
//  1. Publish puts a request into the inbox. A crash here loses it, and nobody
//     was told otherwise.
//  2. The loop, which alone owns all state, takes everything that waits and
//     applies it to one transaction: routing, limits, storing.
//  3. In the same transaction it picks what consumers are handed next and
//     raises the delivery count of each. A crash after the commit makes such a
//     message redelivered although nobody saw it, never the other way round.
//  4. The commit is fsynced. Only then are confirms given and messages handed
//     over.
//  5. A settlement removes the message in a later transaction. A rejection, an
//     expiry or a limit moves it to its dead-letter target: removal and
//     arrival are one transaction.
//  6. What was not settled when its session ends, or the process, goes back to
//     its place in the queue with its count raised. Beyond the delivery limit
//     it is dead-lettered, or dropped when there is no target.
//
// # Invariants
//
// Nothing is confirmed, handed over or reported before it is durable. A message
// is in exactly one place: ready, handed out, or gone. After a failed commit
// nobody can know what the file holds, so the broker refuses everything from
// then on and says why; opening the file again tells.
//
// # Where it differs from RabbitMQ
//
// A publish that one of several queues rejects is stored in none of them, so a
// nack is always definite. A dead letter is taken by its target even when that
// is full. A publish to a missing exchange is returned like one without route
// and does not end the channel. CC and BCC headers do not route. Every return
// and every lost session counts against the delivery limit, as in versions 3.10
// to 4.2. As there, a message expires when it reaches the head of its queue.
//
// # Format
//
// One bbolt file, mode 0600, created under a temporary name and linked into
// place once it is complete. Numbers are big endian.
//
//	meta       format   version of this format, 8 bytes; this is 1
//	           cluster  random id of this broker, text
//	exchanges  name → JSON of ExchangeSpec
//	queues     name → JSON of QueueSpec and number
//	bindings   JSON of Binding → empty
//	messages   queue number (4 bytes) → bucket: seq (8 bytes) → record
//	handed     queue number (4 bytes) → bucket: seq → times handed out (4 bytes)
//
//	record     version 1 (1 byte), time of arrival and of expiry (8 bytes each,
//	           milliseconds since 1970, expiry 0 is never), exchange and routing
//	           key (length byte and text each), size of properties (4 bytes),
//	           properties, body
package local
