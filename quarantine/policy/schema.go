package policy

import _ "embed"

//go:embed schema.json
var schema string

// Schema is the JSON Schema (draft 2020-12) of the file format. A file can
// fulfil it and be refused all the same: Parse also checks what a schema cannot
// say, such as names that are used twice.
func Schema() string { return schema }
