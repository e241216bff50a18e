// Package amqpwire reads and edits the properties of an AMQP 0-9-1 message
// without ever re-encoding what it was not asked to change.
//
// A client library turns properties into a struct and a map, and loses order,
// duplicates, presence and some field types on the way. A quarantine may lose
// nothing, so the bytes as they were on the wire are the value that is stored
// and published, and everything here is a view of them or an edit of them.
//
// # Format
//
// The bytes are what follows the body size in a content header frame of class
// basic (60): property flags, then the property list. Numbers are big endian.
//
//	flags   one or more 16-bit words; bit 0 of a word says that another follows
//	list    the values of the properties whose bit is set, in this order
//
//	bit 15  content_type      short string
//	bit 14  content_encoding  short string
//	bit 13  headers           table
//	bit 12  delivery_mode     8 bits
//	bit 11  priority          8 bits
//	bit 10  correlation_id    short string
//	bit  9  reply_to          short string
//	bit  8  expiration        short string
//	bit  7  message_id        short string
//	bit  6  timestamp         64 bits, seconds since 1970, unsigned
//	bit  5  type              short string
//	bit  4  user_id           short string
//	bit  3  app_id            short string
//	bit  2  cluster_id        short string, reserved by the specification
//	bit  1  unused
//	bit  0  another word follows; class basic defines nothing in it
//
// A short string is a length byte and that many bytes. A table is a 32-bit
// length in bytes and that many bytes of fields; a field is a name (short
// string), a type byte and a value. An array is a 32-bit length in bytes and
// that many bytes of items; an item is a type byte and a value. No string has
// to be UTF-8, a table may name a field twice, and the empty name is valid.
//
//	t  bool, 1 byte; RabbitMQ hands on other values than 0 and 1
//	b  int8      B  uint8     s  int16     u  uint16
//	I  int32     i  uint32    l  int64     L  int64
//	f  float32   d  float64   D  decimal: scale uint8, unscaled uint32
//	S  long string: 32-bit length, bytes
//	x  byte array: 32-bit length, bytes
//	T  timestamp: uint64     V  void: nothing
//	F  table                 A  array
//
// The letters are those that RabbitMQ gives them, which differ from the tables
// of the specification's text (there, s is a short string and l is unsigned).
//
// # Invariants
//
// Parse takes every input. What it cannot understand it keeps raw and names in
// View.Problem; a problem inside one container does not hide its neighbours.
// Problems name offsets and type bytes, never content.
//
// An Editor without changes yields its input, whatever that is. With changes,
// every byte that was not asked to change is in the output, in the same order.
// An Editor that cannot tell where a header ends refuses instead of guessing.
//
// Build and Parse are inverse: for a View v that Build accepts and that has at
// most MaxValues header values, Parse(Build(v)) has the properties and headers
// of v and no problem.
//
// # Compatibility
//
// WireDigest is stored with envelopes: its input format never changes under
// its domain string. The golden vectors in testdata are append-only.
//
// # Example
//
//	e := amqpwire.Edit(delivery.Properties)
//	e.Strip("x-death", "x-delivery-count")
//	e.Drop(amqpwire.Expiration)
//	e.Set(amqpwire.StringField("x-redrive-envelope", "01J9ZK6V7Q0000000000000000"))
//	props, err := e.Bytes()
package amqpwire
