// Package rabbitmq implements quarantine.Source and redrive.Releaser for
// RabbitMQ 3.10 to 4.x, on AMQP 0-9-1.
//
// # Exact bytes
//
// The client library decodes properties into a struct and a map. That loses
// order, duplicates, presence and some types, and ends the connection at
// headers that the broker takes: an L, 33 levels, 8,193 elements, or a header
// frame that grew past the negotiated size when the broker added x-death. So
// messages never reach the library. Its network connection is a tap, which
//
//	takes out   basic.deliver, basic.return with content; basic.ack, basic.nack
//	puts in     basic.publish with content; basic.ack, and basic.nack with requeue
//
// as whole frames, properties as the bytes that package amqpwire describes. The
// library does log-in, heartbeats, channels and requests. Its automatic
// recovery is never used: an acknowledgement that it carries over to a new
// connection settles another message.
//
// # Connections
//
//	"redrive capture"        questions about queues (one per Source)
//	"redrive capture QUEUE"  one per session, one channel, one consumer at a time
//	"redrive release"        questions, one more per release channel, and for a
//	                         moment one that asks whether an exchange takes messages
//
// A message that costs a connection costs no one else theirs, and a broker that
// stops reading from publishers still reads settlements.
//
// # Life of a delivery
//
//  1. The tap assembles it and hands it to the session in wire order. A
//     session holds at most what its prefetch allows.
//  2. Settle puts the acknowledgements out, several in one frame only where
//     nothing unsettled lies before them, and a request behind them. Its answer
//     says that the broker has processed them. A crash before that leaves open
//     whether it has.
//  3. Return and Close give back by nack with requeue, never by reject, which
//     newer brokers count as a failed delivery. No code path discards.
//
// # Life of a publish
//
//  1. What the broker would punish with the channel is refused before a byte
//     is written: long names, headers above the frame size, bodies above the
//     message size, a foreign user id, a bad expiration, CC that is no array,
//     values it cannot read or a stream cannot hold. Whether the exchange is
//     there and takes messages from us is tried once, in a transaction that is
//     rolled back.
//  2. The frames enter the outbox in one step with the publish's number, and
//     go out together with others.
//  3. Returns and confirms are booked in wire order by the goroutine that reads.
//     A return carries no number: it belongs to the oldest publish with the
//     same bytes, or the same stamp. One that fits none puts all in doubt.
//  4. No answer within the confirm deadline is ambiguous; the channel takes
//     nothing more and waits LateGrace for late confirms. A lost channel or
//     connection makes all in flight ambiguous.
//
// # Invariants
//
// Every request to the broker has a time limit; when it passes, the connection
// is given up. No error, and no printed Config, holds a password.
//
// Reasons of results: no_route, nacked, confirm_deadline, blocked,
// connection_lost, channel_closed_by_broker, channel_closed, unmatched_return,
// body_too_large (the broker said so).
// Reasons of refusals: invalid_property, header_too_large, body_too_large,
// no_exchange, no_permission, blocked, not_connected, channel_closed, cancelled.
//
// # Known limits
//
// A stream cannot be captured from, since settling removes nothing there: it is
// recognized and refused. The kind of a queue with a very long name stays
// unknown. What an exchange leads to is not known either, so a decimal that
// reaches a stream by one ends the connection. The largest message a broker
// takes is not told to clients: it is assumed by version, max_message_bytes in
// the address says otherwise, and the first one that is too large costs its
// channel and teaches the limit. Equal messages without a stamp in one window
// are told apart by order when one is returned. Questions about kinds and
// permissions leave lines about closed channels in the broker's log.
package rabbitmq
