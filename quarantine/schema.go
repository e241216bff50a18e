package quarantine

// Schema judges message bodies by the contract that is in force now for their
// type and version.
//
// Implementations are safe for concurrent use and never look at the network.
type Schema interface {
	// Check holds a body against the schema of its event type and schema
	// version. Known is false when there is no such schema. Violation is "" for
	// a body that fulfils it; else it names the rule that is broken, in the words
	// of the schema and never in those of the message.
	Check(typ, version string, body []byte) (violation string, known bool)

	// Digest identifies the set of schemas, 64 hexadecimal characters; "" when
	// there is none.
	Digest() string
}
