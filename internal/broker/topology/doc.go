// Package topology judges queues, exchanges and bindings by their facts: what
// loses messages, what moves them elsewhere, and which queues a publish reaches.
// It asks no broker. Drivers collect the facts, each in its own way, and get the
// same findings in the same words.
//
//	facts.go     what is known about a queue, an exchange, a binding
//	reach.go     exchange and routing key → queues
//	source.go    a queue that is captured, and the queues that feed it
//	target.go    a queue or an exchange that messages are released to
//
// The model is that of AMQP 0-9-1 with RabbitMQ's extensions. Facts are those in
// force: where arguments and policies name the same property, the driver has
// decided already which one holds.
package topology
