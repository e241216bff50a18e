package config

import _ "embed" // the example is part of the program: init writes it

// Example is the commented configuration that init writes.
//
//go:embed example.yaml
var Example []byte
